"""The roster of one main agent's team: every member, its state, and the steps that stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import anyio

from ....layers.l7_relay import AgentResult, RelayPolicy, over_limit, start_problem
from ....settings import Mode
from ....tools.context import ToolContext
from ....values import record
from ...mail.local_queues import LocalQueues
from .types import TypeMemory

AgentState: TypeAlias = Literal["running", "completed", "failed", "killed"]
_KILL_COMMANDS, _CANCEL_TASK, _GIVE_UP = 0.25, 0.5, 0.75
"""Shares of the time to stop an agent: when its commands are killed, when its task is cancelled through shields, and
when the wait for it ends. The rest is a reserve for a busy machine."""


@record
class AgentStatus:
    """The state of one agent and its usage so far; ``line`` is its last progress line."""

    agent: str
    kind: str
    description: str
    state: AgentState
    depth: int
    parent: str
    background: bool
    turns: int
    tokens: int
    cost_usd: float | None
    line: str
    seconds: float


@dataclass(slots=True, eq=False)
class TeamMember:
    """One agent of a team: its state, its usage, and the functions and tasks by which it is stopped."""

    id: str
    kind: str
    description: str
    depth: int
    parent: str
    background: bool
    began: float
    ended: float | None = None
    state: AgentState = "running"
    turns: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    line: str = ""
    names: list[str] = field(default_factory=lambda: list[str]())
    """Files, functions and commands of the agent's last tool calls, newest first; a progress line names one of them."""
    tools: tuple[str, ...] = ()
    """The names of the tools that the agent may use."""
    outcome: AgentResult | None = None
    context: ToolContext | None = None
    """The context of the agent's tools, whose shell commands are killed when the agent is stopped."""
    narrow: Callable[[str], None] | None = None
    """Function that restricts the agent to the permissions of a mode; None before the agent runs."""
    sever: Callable[[], Awaitable[None]] | None = None
    """Function that closes the agent's log against further writes; None if it has no log of its own."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    task: asyncio.Task[None] | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    why: str = ""
    """The reason why the agent is being stopped; empty if it is not."""
    kept: tuple[str, str] = ("", "")
    """Path and branch of the worktree that holds the agent's changes; empty texts if there is none."""

    def status(self, now: float) -> AgentStatus:
        """Return the agent's state and usage as a record; ``now`` counts its seconds while it runs."""
        return AgentStatus(
            agent=self.id,
            kind=self.kind,
            description=self.description,
            state=self.state,
            depth=self.depth,
            parent=self.parent,
            background=self.background,
            turns=self.turns,
            tokens=self.tokens,
            cost_usd=self.cost_usd,
            line=self.line,
            seconds=(self.ended if self.ended is not None else now) - self.began,
        )


@record
class RunEnd:
    """The end of an agent's run: its status, its last text, and the reason if it did not complete."""

    status: str
    text: str
    reason: str = ""


MemberRun = Callable[[TeamMember], Awaitable[RunEnd]]
"""An async function that runs one agent to its end and returns that end."""


class Roster:
    """All agents under one main agent, at every depth; limits on their number and cost count all of them."""

    def __init__(self, policy: RelayPolicy) -> None:
        self.policy = policy
        self.agents: dict[str, TeamMember] = {}

    def start_problem(self, depth: int, prompt_chars: int) -> str:
        """Return why an agent of this depth may not start another now; empty if it may."""
        alive = sum(one.state == "running" for one in self.agents.values())
        started, usd = len(self.agents), self.usd
        return start_problem(self.policy, depth=depth, alive=alive, started=started, usd=usd, prompt_chars=prompt_chars)

    @property
    def usd(self) -> float:
        """The cost in dollars of all agents of the roster so far, as far as prices are known."""
        return sum(one.cost_usd or 0.0 for one in self.agents.values())

    def over_limit(self, member: TeamMember) -> str:
        """Return a text about the limit that an agent or the whole team has reached; empty if none."""
        seconds = time.monotonic() - member.began
        return over_limit(self.policy, turns=member.turns, tokens=member.tokens, seconds=seconds, family_usd=self.usd)

    def family(self, id: str) -> list[TeamMember]:
        """Return the agent with this id and every agent below it, descendants first."""
        found = [self.agents[id]]
        for one in found:
            found += [each for each in self.agents.values() if each.parent == one.id]
        return found[::-1]


async def stop_all(agents: list[TeamMember], seconds: float) -> None:
    """Stop agents and their commands, and return after ``seconds`` at the latest, even if some still run.

    First cancel them, so that they can clean up; then kill their commands; then cancel their tasks through every
    shield. The caller must close the log of an agent that still runs after that.
    """
    living = [one for one in agents if not one.done.is_set()]
    for one in living:
        one.scope.cancel()
    if await _have_ended(living, seconds * _KILL_COMMANDS):
        return
    for one in living:
        if one.context is not None:
            one.context.shells.kill_soon()
    if await _have_ended(living, seconds * (_CANCEL_TASK - _KILL_COMMANDS)):
        return
    for one in living:
        if one.task is not None and not one.done.is_set():
            one.task.cancel()
    await _have_ended(living, seconds * (_GIVE_UP - _CANCEL_TASK))


async def _have_ended(agents: list[TeamMember], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        for one in agents:
            await one.done.wait()
    return all(one.done.is_set() for one in agents)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A sub-agent's place in its team: the parts it shares with its parent, and the limits that apply to it."""

    id: str
    depth: int
    roster: Roster
    over_limit: Callable[[], str]
    """Function that returns a text about the limit that the sub-agent has reached; empty if none."""
    memory: TypeMemory | None = None
    has_parent_model: bool = True
    """Whether the sub-agent's model belongs to its parent, which also closes it."""
    queues: LocalQueues = field(default_factory=LocalQueues)
    """The message queues of the agents of this process, which write to each other by name."""
    lead: str = ""
    """The name of the agent that started this sub-agent."""
    lead_mode: Callable[[], Mode] = lambda: "plan"
    """Function that returns the permission mode of that agent, which limits the mode of this one."""
    background: bool = False
    """Whether that agent goes on meanwhile, so that it can answer messages."""
    protected: tuple[Path, ...] = ()
    """Paths where writes ask; empty means the Reverie directory."""
