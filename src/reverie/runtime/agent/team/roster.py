"""The agents of one main agent: who they are, how they stand, and how one is brought to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from ....layers.l7_relay import Census, Outcome, RelayPolicy, Spent
from ....tools.context import ToolContext
from ....values import record

__all__ = ["AgentState", "AgentStatus", "Roster", "TeamMember", "stop_all"]

AgentState: TypeAlias = Literal["running", "completed", "failed", "killed"]
_HURRY, _CUT_OFF, _LET_GO = 0.25, 0.5, 0.75
"""Shares of the time a stopped agent has: when its commands are killed, when its task is cancelled through shields, and
when nobody waits for it any more. The rest is for a machine that is busy."""


@record
class AgentStatus:
    """How an agent stands."""

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
    """One agent that was started: what it is, what it used, and the handles by which it is stopped."""

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
    """Files and words of its last call, by which a line about it can be known to name something."""
    tools: tuple[str, ...] = ()
    """The tools it may use."""
    outcome: Outcome | None = None
    context: ToolContext | None = None
    """Its side of its tools; the commands in it die with it."""
    narrow: Callable[[str], None] | None = None
    """Let it do no more without asking than a mode allows."""
    sever: Callable[[], None] | None = None
    """Let it write nothing more to its log."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    task: asyncio.Task[None] | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    why: str = ""
    """Why it is being stopped."""
    kept: tuple[str, str] = ("", "")
    """The path and branch of a worktree that holds its changes."""

    def spent(self, now: float) -> Spent:
        """Return what it has used so far."""
        return Spent(self.turns, self.tokens, now - self.began)

    def status(self, now: float) -> AgentStatus:
        """Return how it stands."""
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
    """All agents of one main agent, however deep; the limits are theirs together."""

    def __init__(self, policy: RelayPolicy) -> None:
        self.policy = policy
        self.agents: dict[str, TeamMember] = {}

    def admit(self, spawned: TeamMember) -> None:
        """Count one more."""
        self.agents[spawned.id] = spawned

    def census(self, depth: int) -> Census:
        """Return how things stand for one that is so deep."""
        alive = sum(one.state == "running" for one in self.agents.values())
        return Census(depth, alive, len(self.agents), self.usd)

    @property
    def usd(self) -> float:
        """What all of them cost so far, as far as prices are known."""
        return sum(one.cost_usd or 0.0 for one in self.agents.values())

    def family(self, id: str) -> list[TeamMember]:
        """Return an agent and all it started, the deepest first."""
        found = [self.agents[id]]
        for one in found:
            found += [each for each in self.agents.values() if each.parent == one.id]
        return found[::-1]


async def stop_all(agents: list[TeamMember], seconds: float) -> None:
    """End agents and whatever they run, within so many seconds, whether they want to or not.

    First they are cancelled and may clean up; then their commands are killed; then their tasks are cancelled through
    every shield. What is left after that is let go: it holds no process and may write nothing any more.
    """
    living = [one for one in agents if not one.done.is_set()]
    for one in living:
        one.scope.cancel()
    if await _ended(living, seconds * _HURRY):
        return
    for one in living:
        if one.context is not None:
            one.context.shells.let_die()
    if await _ended(living, seconds * (_CUT_OFF - _HURRY)):
        return
    for one in living:
        if one.task is not None and not one.done.is_set():
            one.task.cancel()
    await _ended(living, seconds * (_LET_GO - _CUT_OFF))


async def _ended(agents: list[TeamMember], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        for one in agents:
            await one.done.wait()
    return all(one.done.is_set() for one in agents)
