"""Starting agents: limits first, then a fork of the conversation or a sub-agent with one of its own, and its end.

Every agent runs as a task in this process, under the one that started it: what ends the parent ends it, and what it
runs outside dies with it. Nobody waits for one that does not react.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import anyio

from ....conversation.decisions import AgentFinished, AgentSpawned, Cause, MessageQueued
from ....errors import InputError, ReverieError, SessionError
from ....events import AgentEnded, AgentProgressed, AgentStarted, Event, FellBack
from ....layers.l7_relay import (
    AgentKind,
    Outcome,
    answer_text,
    kinds_listing,
    notification_text,
    over_limit,
    start_problem,
    summary_of,
)
from ....ports import Started
from ...session.forks import Batch, forking
from ...session.session import Session
from .roster import AgentState, AgentStatus, Roster, TeamMember, stop_all

__all__ = ["Ended", "Running", "Spawner", "Starter"]

FORK: Final = "fork"
_LAYER: Final = "relay"
_STATES: Final[Mapping[str, AgentState]] = {"completed": "completed", "killed": "killed"}
Ended = tuple[str, str, str]
"""A status, what the agent said, and why it ended where it did not complete."""
Running = Callable[[TeamMember], Awaitable[Ended]]


class Starter(Protocol):
    """Who makes agents run: one way for forks, one for sub-agents of a type."""

    async def kinds(self) -> Mapping[str, AgentKind]:
        """Return the types there are."""
        ...

    def fork(self, prompt: str, batch: Batch) -> Running:
        """Return what runs a fork of the conversation."""
        ...

    def sub_agent(self, prompt: str, kind: AgentKind, *, model: str, worktree: bool) -> Running:
        """Return what runs a sub-agent."""
        ...

    def batch(self) -> Batch:
        """Take the moment that forks branch off from."""
        ...


class Spawner:
    """Starts and stops the agents of one agent."""

    def __init__(
        self,
        session: Session,
        starter: Starter,
        roster: Roster,
        *,
        depth: int = 0,
        id: str = "",
        emit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start agents for a session; ``id`` and ``depth`` are those of the agent it belongs to, none for the main."""
        self.roster = roster
        self.depth = depth
        self._session = session
        self._starter = starter
        self._id = id
        self._emit = emit
        self._clock = clock
        self._kinds: Mapping[str, AgentKind] = {}
        self._own: dict[str, TeamMember] = {}
        self._ended: list[Outcome] = []
        self._batch: tuple[tuple[str, str], Batch] | None = None
        self._closed = False

    async def open(self) -> str:
        """Find the types of agents, and say of agents whose process died that they did; return the list of types."""
        self._kinds = await self._starter.kinds()
        for agent, status in self._session.view.facts.agents.items():
            if status == "running":
                said = "the process that ran it ended before it did; what it changed on disk is there"
                await self._session.decide(AgentFinished(Cause(_LAYER, "its process ended"), agent, "killed", said))
                self._ended.append(Outcome(agent, agent.rpartition("-")[0], "killed", said, ""))
        return kinds_listing(self.kinds())

    def kinds(self) -> Mapping[str, str]:
        """Return the types there are, each with what it is for."""
        return {name: kind.description for name, kind in self._kinds.items()}

    def statuses(self) -> list[AgentStatus]:
        """Return how all agents of this family stand, in the order they were started."""
        return [one.status(self._clock()) for one in self.roster.agents.values()]

    def at_work(self) -> list[str]:
        """Return a line for each agent of this one that is at work."""
        own = [one for one in self._own.values() if one.state == "running"]
        return [f"{one.id}, {one.description}: {one.line}" for one in own]

    # -- starting

    async def start(
        self,
        prompt: str,
        *,
        kind: str = "",
        description: str = "",
        background: bool = False,
        worktree: bool = False,
        model: str = "",
    ) -> Started:
        """Start a sub-agent of a type, or a fork where no type is named; limits are an ``InputError``."""
        found, worktree, background = self._checked(prompt, kind, worktree, background)
        running = (
            self._starter.fork(prompt, self._moment())
            if found is None
            else self._starter.sub_agent(prompt, found, model=model, worktree=worktree)
        )
        name = FORK if found is None else found.name
        spawned = TeamMember(
            id=f"{name}-{os.urandom(4).hex()}",
            kind=name,
            description=" ".join((description or summary_of(prompt)).split())[:120],
            depth=self.depth + 1,
            parent=self._id,
            background=background,
            began=self._clock(),
            line="Starting",
        )
        self.roster.admit(spawned)  # at once, before anything is waited for: the next one to ask must see it
        self._own[spawned.id] = spawned
        try:
            options = {"kind": name, "description": spawned.description, "background": background}
            options |= {"depth": spawned.depth, "parent": self._id, "worktree": worktree, "pid": os.getpid()}
            reason = f"{name} was asked for"
            await self._session.decide(AgentSpawned(Cause(_LAYER, reason), spawned.id, prompt[:4_000], options))
        except BaseException:
            spawned.state, spawned.ended = "failed", self._clock()
            spawned.done.set()
            raise
        self._emit(AgentStarted(self._session.name, spawned.id, name, spawned.description, background))
        spawned.task = asyncio.get_running_loop().create_task(self._live(spawned, running), name=spawned.id)
        if background:
            return Started(spawned.id, "running", f"Agent {spawned.id} works in the background; its result will come.")
        return await self._awaited(spawned)

    def _checked(self, prompt: str, kind: str, worktree: bool, background: bool) -> tuple[AgentKind | None, bool, bool]:
        """Refuse what may not be started; return the type, and what it asks for of itself."""
        if self._closed:
            raise SessionError("this agent is closing: no more agents can be started")
        if not self._session.settings.switches.relay:
            raise InputError("agents are switched off (switches.relay): do the work here")
        if forking():
            raise InputError(f"a fork ({forking()}) cannot start agents: do the work here, and answer")
        if not prompt.strip():
            raise InputError("the prompt is empty: say what the agent is to do, with all it needs to know")
        problem = start_problem(self.roster.policy, self.roster.census(self.depth), prompt_chars=len(prompt))
        if problem:
            raise InputError(problem)
        if not kind:
            if worktree:
                raise InputError("a fork works where its parent does: name a type to work in a worktree of its own")
            return None, False, background
        found = self._kinds.get(kind)
        if found is None:
            raise InputError(f"there is no type {kind[:80]!r}; there are: {', '.join(self._kinds) or 'none'}")
        return found, worktree or found.worktree, background or found.background

    def _moment(self) -> Batch:
        """Return the moment that forks of one reply share, whichever of them is started last."""
        view = self._session.view
        if not view.length:
            raise InputError("nothing has been said yet that a fork could know of: name a type, or say something first")
        reply = (view.last_reply_time, view.facts.last_call.message_id if view.facts.last_call is not None else "")
        if self._batch is None or self._batch[0] != reply or not view.unanswered():
            self._batch = (reply, self._starter.batch())
        return self._batch[1]

    async def _awaited(self, spawned: TeamMember) -> Started:
        """Wait for an agent in front; whoever gives up waiting ends it."""
        try:
            await spawned.done.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stop(spawned, "nobody waits for it any more")
            raise
        outcome = spawned.outcome or Outcome(spawned.id, spawned.kind, spawned.state, spawned.why, "")
        return Started(spawned.id, spawned.state, answer_text(outcome))

    # -- living

    async def _live(self, spawned: TeamMember, running: Running) -> None:
        """Run an agent from its start to its end; whatever happens, its end is known."""
        policy = self.roster.policy
        ended: Ended = ("killed", "", "")
        try:
            with spawned.scope, anyio.move_on_after(policy.timeout_seconds) as clock:
                ended = await running(spawned)
            if clock.cancelled_caught and not spawned.why:
                ended = ("failed", ended[1], f"it ran longer than {policy.timeout_seconds:g} s")
        except ReverieError as error:
            ended = ("failed", "", str(error))
        except Exception as error:
            ended = ("failed", "", f"{type(error).__name__}: {error}")
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(spawned, ended)

    async def _end(self, spawned: TeamMember, ended: Ended) -> None:
        """Note how an agent ended, in the log and to whoever listens."""
        status, text, why = ended
        if spawned.outcome is not None:
            return
        spawned.state = "killed" if spawned.why else _STATES.get(status, "failed")
        spawned.ended = self._clock()
        limit = self.roster.policy.max_result_chars
        result = text if len(text) <= limit else f"{text[:limit]}\n[cut here: {len(text) - limit:,} characters more]"
        if spawned.state == "completed":
            summary = summary_of(result) or spawned.description
        else:
            summary = spawned.why or why or "it was stopped"
        outcome = Outcome(
            spawned.id,
            spawned.kind,
            spawned.state,
            summary,
            result,
            spawned.turns,
            spawned.tokens,
            spawned.cost_usd,
            spawned.ended - spawned.began,
            spawned.kept[0],
            spawned.kept[1],
        )
        spawned.outcome = outcome
        if spawned.background and not self._closed:
            self._ended.append(outcome)
        usage = {"turns": spawned.turns, "tokens": spawned.tokens, "cost_usd": spawned.cost_usd}
        usage |= {"seconds": round(outcome.seconds, 3), "own_log": spawned.kind != FORK}
        finished = AgentFinished(Cause(_LAYER, summary[:200]), spawned.id, spawned.state, result, usage)
        with suppress(ReverieError):  # the log may be closed already: an agent without an end is one that was killed
            await self._session.decide(finished)
        self._emit(
            AgentEnded(
                self._session.name,
                spawned.id,
                spawned.state,
                summary,
                spawned.turns,
                spawned.tokens,
                spawned.cost_usd,
            )
        )
        spawned.done.set()

    def progressed(self, spawned: TeamMember, line: str) -> None:
        """Say what an agent is doing, where that is something new."""
        if line and line != spawned.line and spawned.state == "running":
            spawned.line = line
            self._emit(AgentProgressed(self._session.name, spawned.id, line))

    def over_limit(self, spawned: TeamMember) -> str:
        """Say which limit an agent has reached; nothing while none is."""
        return over_limit(self.roster.policy, spawned.spent(self._clock()), family_usd=self.roster.usd)

    # -- what has ended

    async def deliver(self) -> None:
        """Show the results of background agents to the conversation, each once."""
        while self._ended:
            outcome = self._ended[0]
            text = notification_text(outcome, tag=os.urandom(4).hex())
            cause = Cause(_LAYER, f"{outcome.agent} {outcome.status}")
            await self._session.decide(MessageQueued(cause, f"{outcome.agent}.ended", text, outcome.agent))
            self._ended.pop(0)

    async def wait(self, agent: str) -> AgentStatus:
        """Wait for an agent's end and say how it came out."""
        spawned = self._found(agent)
        await spawned.done.wait()
        return spawned.status(self._clock())

    # -- stopping

    async def stop(self, agent: str) -> str:
        """Stop an agent and all it started, and say how it ended."""
        spawned = self._found(agent)
        if spawned.done.is_set():
            return f"{agent} has ended already: {spawned.state}."
        with anyio.CancelScope(shield=True):
            await self._stop(spawned, "it was stopped")
        return f"{agent} was stopped; it had taken {spawned.turns} turn{'' if spawned.turns == 1 else 's'}."

    async def close(self) -> None:
        """Stop all of this agent's own agents; no more can be started."""
        self._closed = True
        own = [one for one in self._own.values() if not one.done.is_set()]
        if own:
            with anyio.CancelScope(shield=True):
                await self._stop_many(own, "the agent that started it ended")

    def narrow(self, mode: str) -> None:
        """Let no agent do more without asking than a mode allows."""
        for one in self._own.values():
            if one.narrow is not None and not one.done.is_set():
                one.narrow(mode)

    async def _stop(self, spawned: TeamMember, why: str) -> None:
        await self._stop_many([spawned], why)

    async def _stop_many(self, agents: list[TeamMember], why: str) -> None:
        families = [each for one in agents for each in self.roster.family(one.id)]
        for one in families:
            one.why = one.why or why
        await stop_all(families, self.roster.policy.stop_seconds)
        for one in families:
            if not one.done.is_set() and one.sever is not None:
                one.sever()
        for one in agents:
            if not one.done.is_set():
                self._emit(FellBack(self._session.name, "agents", f"{one.id} did not react and was let go"))
                await self._end(one, ("killed", "", why))
        for one in families:
            if not one.done.is_set():
                one.state, one.ended = "killed", self._clock()
                one.done.set()

    def _found(self, agent: str) -> TeamMember:
        spawned = self.roster.agents.get(agent)
        if spawned is None or (self._id and all(one.id != self._id for one in self._above(spawned))):
            known = ", ".join(one.id for one in self._own.values() if one.state == "running") or "none"
            raise InputError(f"there is no agent {agent[:80]!r} of yours; at work: {known}")
        return spawned

    def _above(self, spawned: TeamMember) -> list[TeamMember]:
        """Return the agents that an agent was started under."""
        found: list[TeamMember] = []
        parent = self.roster.agents.get(spawned.parent)
        while parent is not None:
            found.append(parent)
            parent = self.roster.agents.get(parent.parent)
        return found
