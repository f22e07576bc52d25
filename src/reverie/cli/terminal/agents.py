"""The agents of a conversation: a line each while they work, a line when they end, and the command ``/agents``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import InputError
from ...events import AgentEnded, AgentProgressed, AgentStarted, Event
from .calls import one_line
from .footer import dollars, thousands

if TYPE_CHECKING:
    from .colours import Paint
    from .conversation import Conversation

__all__ = ["AgentLines", "agents_command"]

SHOWN: Final = 6
"""Agents whose lines are on the screen at once; the rest are counted."""


@dataclass(slots=True)
class _Working:
    description: str
    line: str
    since: float


class AgentLines:
    """What is known of the agents at work."""

    def __init__(self, paint: Paint, clock: Callable[[], float] = time.monotonic) -> None:
        self._paint = paint
        self._clock = clock
        self._working: dict[str, _Working] = {}

    def hear(self, event: Event) -> str:
        """Take in one event; return the line that goes up for good, if one does."""
        match event:
            case AgentStarted():
                self._working[event.agent] = _Working(event.description, "", self._clock())
                behind = " in the background" if event.background else ""
                return f"{self._paint('◇', 'busy')} {event.agent} started{behind}: {one_line(event.description)}"
            case AgentProgressed():
                if event.agent in self._working:
                    self._working[event.agent].line = event.line
            case AgentEnded():
                self._working.pop(event.agent, None)
                mark = self._paint("◆", "done" if event.status == "completed" else "failed")
                cost = "" if event.cost_usd is None else f", {dollars(event.cost_usd)}"
                used = self._paint(f"({counted(event.turns)}, {thousands(event.tokens)} tokens{cost})", "dim")
                return f"{mark} {event.agent} {event.status}: {one_line(event.summary, 100)} {used}"
            case _:
                pass
        return ""

    def live(self) -> list[str]:
        """Return a line for each agent at work."""
        lines: list[str] = []
        for name, one in list(self._working.items())[:SHOWN]:
            seconds = self._clock() - one.since
            doing = one_line(one.line or one.description, 60)
            lines.append(f"{self._paint('◇', 'busy')} {name} {self._paint(f'{doing} {seconds:.0f} s', 'dim')}")
        if len(self._working) > SHOWN:
            lines.append(self._paint(f"  and {len(self._working) - SHOWN} more agents", "dim"))
        return lines


def counted(turns: int) -> str:
    """Say how many turns were taken."""
    return f"{turns:,} turn{'' if turns == 1 else 's'}"


async def agents_command(talk: Conversation, rest: str) -> None:
    """List the agents of this session, or stop one."""
    word, _, name = rest.partition(" ")
    if word == "stop" and name.strip():
        talk.transcript.note(await talk.agent.stop_agent(name.strip()))
        return
    if rest:
        raise InputError("/agents lists them, /agents stop ID stops one")
    lines: list[str] = []
    for one in talk.agent.agents():
        cost = "" if one.cost_usd is None else f" · {dollars(one.cost_usd)}"
        used = f"{counted(one.turns)} · {thousands(one.tokens)} tokens{cost} · {one.seconds:.0f} s"
        shown = one_line(one.line if one.state == "running" else one.description, 60)
        lines.append(f"{'  ' * one.depth}{one.agent}  {one.state}  {shown}  {talk.paint(used, 'dim')}")
    talk.transcript.put("block", lines or [talk.paint("no agents were started in this session", "dim")])
