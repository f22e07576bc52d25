"""The roster of one main agent's team: every member, its state, and the steps that stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from ....layers.l7_relay import AgentCounts, AgentResult, AgentSpending, RelayPolicy, over_limit
from ....tools.context import ToolContext
from ....values import record

__all__ = ["AgentState", "AgentStatus", "Roster", "TeamMember", "stop_all"]

AgentState: TypeAlias = Literal["running", "completed", "failed", "killed"]
_KILL_COMMANDS, _CANCEL_TASK, _GIVE_UP = 0.25, 0.5, 0.75
"""Shares of the time to stop an agent: when its commands are killed, when its task is cancelled through shields, and
when the wait for it ends. The rest is a reserve for a busy machine."""


@record
class AgentStatus:
    """The state of an agent and its usage so far."""

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
    """One agent of the team: its state, its usage, and the handles that stop it."""

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
    """Files and words of its last call; a progress line must name one of them."""
    tools: tuple[str, ...] = ()
    """The tools it may use."""
    outcome: AgentResult | None = None
    context: ToolContext | None = None
    """The context of its tools; its commands are killed with it."""
    narrow: Callable[[str], None] | None = None
    """Restrict it to the permissions of a mode."""
    sever: Callable[[], None] | None = None
    """Stop every further write to its log."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    task: asyncio.Task[None] | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    why: str = ""
    """The reason for stopping it."""
    kept: tuple[str, str] = ("", "")
    """The path and branch of the worktree that holds its changes."""

    def spent(self, now: float) -> AgentSpending:
        """Return the turns, tokens and seconds it has used so far."""
        return AgentSpending(self.turns, self.tokens, now - self.began)

    def status(self, now: float) -> AgentStatus:
        """Return its state as a record."""
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


class Roster:
    """All agents under one main agent, at every depth; the limits apply to all of them together."""

    def __init__(self, policy: RelayPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.policy = policy
        self.clock = clock
        self.agents: dict[str, TeamMember] = {}

    def admit(self, member: TeamMember) -> None:
        """Add an agent."""
        self.agents[member.id] = member

    def census(self, depth: int) -> AgentCounts:
        """Return the counts that limit an agent at this depth: how many run, how many were started, and their cost."""
        alive = sum(one.state == "running" for one in self.agents.values())
        return AgentCounts(depth, alive, len(self.agents), self.usd)

    @property
    def usd(self) -> float:
        """The cost of all of them so far, as far as prices are known."""
        return sum(one.cost_usd or 0.0 for one in self.agents.values())

    def over_limit(self, member: TeamMember) -> str:
        """Return the limit that an agent has reached; an empty text if there is none."""
        return over_limit(self.policy, member.spent(self.clock()), family_usd=self.usd)

    def family(self, id: str) -> list[TeamMember]:
        """Return an agent and every agent it started, the deepest first."""
        found = [self.agents[id]]
        for one in found:
            found += [each for each in self.agents.values() if each.parent == one.id]
        return found[::-1]


async def stop_all(agents: list[TeamMember], seconds: float) -> None:
    """Stop agents and their commands within a number of seconds.

    First cancel them, so that they can clean up; then kill their commands; then cancel their tasks through every
    shield. An agent that still runs after that is abandoned: it holds no process and cannot write to its log.
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
