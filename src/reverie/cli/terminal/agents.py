"""Lines about the agents of a session: a live one while an agent works, a final one when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from ...events import AgentEnded, AgentProgressed, AgentStarted, Event
from ..output import counted, dollars
from .calls import one_line
from .colours import Paint
from .footer import thousands

SHOWN: Final = 6
"""Maximum number of agents with a live line; further agents are only counted."""


@dataclass(slots=True)
class _RunningAgent:
    description: str
    line: str
    since: float


class AgentLines:
    """The lines about a session's agents, made from their events; the running agents are remembered."""

    def __init__(
        self, paint: Paint, clock: Callable[[], float] = time.monotonic, columns: Callable[[], int] = lambda: 120
    ) -> None:
        self._paint = paint
        self._columns = columns
        self._clock = clock
        self._working: dict[str, _RunningAgent] = {}

    def on_event(self, event: Event) -> list[str]:
        """Update the running agents from an event; return lines when an agent starts or ends."""
        match event:
            case AgentStarted():
                self._working[event.agent] = _RunningAgent(event.description, "", self._clock())
                place = " in the background" if event.background else ""
                return self._folded(
                    self._paint("◇", "busy"), f"{event.agent} started{place}: {one_line(event.description)}"
                )
            case AgentProgressed():
                if event.agent in self._working:
                    self._working[event.agent].line = event.line
            case AgentEnded():
                self._working.pop(event.agent, None)
                mark = self._paint("◆", "done" if event.status == "completed" else "failed")
                cost = "" if event.cost_usd is None else f", {dollars(event.cost_usd)}"
                used = f"({counted(event.turns, 'turn')}, {thousands(event.tokens)} tokens{cost})"
                return self._folded(mark, f"{event.agent} {event.status}: {one_line(event.summary, 100)}", used)
            case _:
                pass
        return []

    def _folded(self, mark: str, text: str, used: str = "") -> list[str]:
        """Return a text as lines that fit the screen: a mark before the first, the usage dim at the end."""
        room = max(20, self._columns() - 3)
        lines = wrap(text, room, break_on_hyphens=False) or [""]
        if used and len(lines[-1]) + 1 + len(used) <= room:
            lines[-1] += f" {self._paint(used, 'dim')}"
        elif used:
            lines.append(self._paint(used, "dim"))
        return [f"{mark} {lines[0]}", *(f"  {line}" for line in lines[1:])]

    def live(self) -> list[str]:
        """Return a line for each of the first six running agents, and a line that counts the further ones."""
        lines: list[str] = []
        for name, one in list(self._working.items())[:SHOWN]:
            seconds = self._clock() - one.since
            doing = one_line(one.line or one.description, max(12, min(60, self._columns() - len(name) - 10)))
            lines.append(f"{self._paint('◇', 'busy')} {name} {self._paint(f'{doing} {seconds:.0f} s', 'dim')}")
        if len(self._working) > SHOWN:
            lines.append(self._paint(f"  … {counted(len(self._working) - SHOWN, 'more agent')}", "dim"))
        return lines
