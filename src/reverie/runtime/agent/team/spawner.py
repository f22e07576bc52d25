"""Start agents, deliver their results, and stop them.

Every agent runs as a task in this process under its parent: it ends with the parent, and its commands end with it. An
agent that does not react to being stopped is abandoned.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import anyio

from ....arguments import check_text
from ....conversation.decisions import AgentFinished, AgentSpawned, Cause, MessageQueued
from ....errors import InputError, ReverieError, SessionError
from ....events import AgentEnded, AgentStarted, Event, FellBack
from ....layers.l7_relay import (
    AgentKind,
    AgentResult,
    answer_text,
    kinds_listing,
    notification_text,
    summary_of,
)
from ....ports import AgentRequest, StartedAgent
from ....text.counts import counted
from ...session.forks import ForkBatch, forking
from ...session.session import Session
from .history import FORK
from .roster import AgentState, AgentStatus, MemberRun, Roster, RunEnd, TeamMember, stop_all
from .runner import AgentRunner

_LAYER: Final = "relay"
_STATES: Final[Mapping[str, AgentState]] = {"completed": "completed", "killed": "killed"}


class Spawner:
    """Starts and stops the agents of one parent agent, and logs their starts and results in its session."""

    def __init__(
        self,
        session: Session,
        starter: AgentRunner,
        roster: Roster,
        *,
        depth: int = 0,
        id: str = "",
        emit: Callable[[Event], None],
    ) -> None:
        """Use a parent's session and roster; ``id`` and ``depth`` are the parent's, '' and 0 for a main agent."""
        self.roster = roster
        self.depth = depth
        self._session = session
        self._starter = starter
        self._id = id
        self._emit = emit
        self._kinds: Mapping[str, AgentKind] = {}
        self._own: dict[str, TeamMember] = {}
        self._undelivered: list[AgentResult] = []
        self._batch: tuple[tuple[str, str], ForkBatch] | None = None
        self._closed = False

    async def open(self) -> str:
        """Find the agent types and the ends that the model has not seen, and return a list of types as text.

        An agent whose process died gets an end in the log.
        """
        self._kinds = await self._starter.kinds()
        facts = self._session.view.facts
        for agent, logged in facts.agents.items():
            if logged.finished is None:
                said = "its process ended before it did; its changes on disk are kept"
                await self._session.log.decide(AgentFinished(Cause(_LAYER, "its process ended"), agent, "killed", said))
                self._undelivered.append(AgentResult(agent, logged.kind, "killed", said, ""))
            elif logged.is_background and letter_id(agent) not in facts.queued:
                self._undelivered.append(_logged_result(agent, logged.kind, logged.finished))
        return kinds_listing(self.kinds())

    def kinds(self) -> Mapping[str, str]:
        """Return a dict from the name of each agent type to its description."""
        return {name: kind.description for name, kind in self._kinds.items()}

    def works_apart(self, kind: str) -> bool:
        """Return whether agents of a type work in a worktree of their own; False for an unknown type."""
        found = self._kinds.get(kind)
        return found is not None and found.worktree

    def statuses(self) -> list[AgentStatus]:
        """Return the state of every agent of the whole team, in the order of their start."""
        return [one.status(time.monotonic()) for one in self.roster.agents.values()]

    # -- starting

    async def start(self, request: AgentRequest) -> StartedAgent:
        """Start a sub-agent of a type, or a fork if no type is given; raise ``InputError`` if it may not start.

        Return at once for a background agent; otherwise wait for its end and return its result.
        """
        check_text("prompt", request.prompt)
        found = self._check_start(request)
        prompt, background = request.prompt, request.background or (found is not None and found.background)
        worktree = request.worktree or (found is not None and found.worktree)
        run = (
            self._starter.fork(prompt, self._fork_batch())
            if found is None
            else self._starter.sub_agent(prompt, found, model=request.model, worktree=worktree)
        )
        name = FORK if found is None else found.name
        member = TeamMember(
            id=f"{name}-{os.urandom(4).hex()}",
            kind=name,
            description=" ".join((request.description or summary_of(prompt)).split())[:120],
            depth=self.depth + 1,
            parent=self._id,
            background=background,
            began=time.monotonic(),
            line="Starting",
        )
        self.roster.agents[member.id] = member  # before the first await: a parallel start must count this one
        self._own[member.id] = member
        try:
            options = {"kind": name, "description": member.description, "background": background}
            options |= {"depth": member.depth, "parent": self._id, "worktree": worktree, "pid": os.getpid()}
            reason = f"{name} was requested"
            await self._session.log.decide(AgentSpawned(Cause(_LAYER, reason), member.id, prompt[:4_000], options))
        except BaseException:
            member.state, member.ended = "failed", time.monotonic()
            member.done.set()
            raise
        self._emit(AgentStarted(self._session.name, member.id, name, member.description, background))
        member.task = asyncio.get_running_loop().create_task(self._run(member, run), name=member.id)
        if background:
            return StartedAgent(
                member.id, "running", f"Agent {member.id} works in the background; its result will come."
            )
        return await self._wait_for(member)

    def _check_start(self, request: AgentRequest) -> AgentKind | None:
        """Raise if the agent may not start; otherwise return its type, or None for a fork."""
        if self._closed:
            raise SessionError("this agent is closing: no more agents can be started")
        if not self._session.settings.switches.relay:
            raise InputError("agents are switched off (switches.relay): do the work here")
        if forking():
            raise InputError(f"a fork ({forking()}) cannot start agents: do the work here, and answer")
        if not request.prompt.strip():
            raise InputError("the prompt is empty: describe the whole task for the agent")
        problem = self.roster.start_problem(self.depth, len(request.prompt))
        if problem:
            raise InputError(problem)
        if not request.kind:
            if request.worktree:
                raise InputError("a fork works where its parent does: name a type to work in a worktree of its own")
            return None
        found = self._kinds.get(request.kind)
        if found is None:
            raise InputError(f"there is no type {request.kind[:80]!r}; there are: {', '.join(self._kinds) or 'none'}")
        return found

    def _fork_batch(self) -> ForkBatch:
        """Return the batch that all forks of the last reply share; raise if the conversation is empty."""
        view = self._session.view
        if not view.length:
            raise InputError(
                "the conversation is empty, so there is nothing to fork: name a type, or say something first"
            )
        reply = (view.last_reply_time, view.facts.last_call.message_id if view.facts.last_call is not None else "")
        if self._batch is None or self._batch[0] != reply or not view.unanswered():
            self._batch = (reply, self._starter.batch())
        return self._batch[1]

    async def _wait_for(self, member: TeamMember) -> StartedAgent:
        """Wait for a foreground agent and return its result; stop the agent if the wait is cancelled."""
        try:
            await member.done.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stop_many([member], "the wait for it was cancelled")
            raise
        outcome = member.outcome or AgentResult(member.id, member.kind, member.state, member.why, "")
        return StartedAgent(member.id, member.state, answer_text(outcome))

    # -- running

    async def _run(self, member: TeamMember, run: MemberRun) -> None:
        """Run an agent within its time limit, and record its end even after an error or cancellation."""
        policy = self.roster.policy
        end = RunEnd("killed", "")
        try:
            with member.scope, anyio.move_on_after(policy.timeout_seconds) as clock:
                end = await run(member)
            if clock.cancelled_caught and not member.why:
                end = RunEnd("failed", end.text, f"it ran longer than {policy.timeout_seconds:g} s")
        except ReverieError as error:
            end = RunEnd("failed", "", str(error))
        except Exception as error:
            end = RunEnd("failed", "", f"{type(error).__name__}: {error}")
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(member, end)

    async def _end(self, member: TeamMember, end: RunEnd) -> None:
        """Set an agent's final state, log its result, emit an event and wake waiters; later calls do nothing."""
        if member.outcome is not None:
            return
        member.state = "killed" if member.why else _STATES.get(end.status, "failed")
        member.ended = time.monotonic()
        limit = min(self.roster.policy.max_result_chars, self._session.parts.offload.policy.default_limit_chars)
        text = end.text
        result = text if len(text) <= limit else f"{text[:limit]}\n[cut here: {len(text) - limit:,} characters more]"
        if member.state == "completed":
            summary = summary_of(result) or member.description
        else:
            summary = member.why or end.reason or "it was stopped"
        outcome = AgentResult(
            member.id,
            member.kind,
            member.state,
            summary,
            result,
            member.turns,
            member.tokens,
            member.cost_usd,
            member.ended - member.began,
            member.kept[0],
            member.kept[1],
        )
        member.outcome = outcome
        if member.background and not self._closed:
            self._undelivered.append(outcome)
        usage = {"turns": member.turns, "tokens": member.tokens, "cost_usd": member.cost_usd}
        usage |= {"seconds": round(outcome.seconds, 3), "own_log": member.kind != FORK}
        finished = AgentFinished(Cause(_LAYER, summary[:200]), member.id, member.state, result, usage)
        with suppress(ReverieError):  # the log may be closed already; an agent without an end counts as killed
            await self._session.log.decide(finished)
        self._emit(
            AgentEnded(
                self._session.name,
                member.id,
                member.state,
                summary,
                member.turns,
                member.tokens,
                member.cost_usd,
            )
        )
        member.done.set()

    # -- results

    async def deliver(self) -> None:
        """Log each result of a background agent that was not delivered yet, so that the model sees it."""
        while self._undelivered:
            outcome = self._undelivered[0]
            text = notification_text(outcome, tag=os.urandom(4).hex())
            cause = Cause(_LAYER, f"{outcome.agent} {outcome.status}")
            await self._session.log.decide(MessageQueued(cause, letter_id(outcome.agent), text, outcome.agent))
            self._undelivered.pop(0)

    @property
    def unseen(self) -> list[str]:
        """The ids of ended background agents whose results the model has not seen yet."""
        return [outcome.agent for outcome in self._undelivered]

    async def wait_all(self) -> None:
        """Wait until no agent of this parent runs."""
        for one in list(self._own.values()):
            await one.done.wait()

    async def wait(self, agent: str) -> AgentStatus:
        """Wait until the agent with this id ends and return its state; raise ``InputError`` for an unknown id."""
        member = self._member(agent)
        await member.done.wait()
        return member.status(time.monotonic())

    # -- stopping

    async def stop(self, agent: str) -> str:
        """Stop the agent with this id and every agent it started; return a sentence about its end."""
        member = self._member(agent)
        if member.done.is_set():
            return f"{agent} has ended already: {member.state}."
        with anyio.CancelScope(shield=True):
            await self._stop_many([member], "it was stopped")
        return f"{agent} was stopped; it had taken {counted(member.turns, 'turn')}."

    async def close(self) -> None:
        """Stop all running agents that this parent started, and refuse to start more."""
        self._closed = True
        own = [one for one in self._own.values() if not one.done.is_set()]
        if own:
            with anyio.CancelScope(shield=True):
                await self._stop_many(own, "the agent that started it ended")

    def narrow(self, mode: str) -> None:
        """Restrict every running agent that this parent started to the permissions of a mode; never widen them."""
        for one in self._own.values():
            if one.narrow is not None and not one.done.is_set():
                one.narrow(mode)

    async def _stop_many(self, agents: list[TeamMember], why: str) -> None:
        families = [each for one in agents for each in self.roster.family(one.id)]
        for one in families:
            one.why = one.why or why
        await stop_all(families, self.roster.policy.stop_seconds)
        for one in families:
            if not one.done.is_set() and one.sever is not None:
                await one.sever()
        for one in agents:
            if not one.done.is_set():
                self._emit(FellBack(self._session.name, "agents", f"{one.id} did not react and was abandoned"))
                await self._end(one, RunEnd("killed", "", why))
        for one in families:
            if not one.done.is_set():
                one.state, one.ended = "killed", time.monotonic()
                one.done.set()

    def _member(self, agent: str) -> TeamMember:
        member = self.roster.agents.get(agent)
        if member is None or (self._id and all(one.id != self._id for one in self._ancestors(member))):
            known = ", ".join(one.id for one in self._own.values() if one.state == "running") or "none"
            raise InputError(f"there is no agent {agent[:80]!r} of yours; at work: {known}")
        return member

    def _ancestors(self, member: TeamMember) -> list[TeamMember]:
        """Return a list of an agent's parent, the parent's parent, and so on, without the main agent."""
        found: list[TeamMember] = []
        parent = self.roster.agents.get(member.parent)
        while parent is not None:
            found.append(parent)
            parent = self.roster.agents.get(parent.parent)
        return found


def letter_id(agent: str) -> str:
    """Return the id of the message that tells the end of a background agent."""
    return f"{agent}.ended"


def _logged_result(agent: str, kind: str, finished: AgentFinished) -> AgentResult:
    """Return the result of an agent that an earlier process logged and did not tell."""
    turns, tokens, cost, lasted = (finished.usage.get(name) for name in ("turns", "tokens", "cost_usd", "seconds"))
    return AgentResult(
        agent,
        kind,
        finished.status,
        finished.cause.reason,
        finished.text,
        turns if isinstance(turns, int) else 0,
        tokens if isinstance(tokens, int) else 0,
        float(cost) if isinstance(cost, int | float) else None,
        float(lasted) if isinstance(lasted, int | float) else 0.0,
    )
