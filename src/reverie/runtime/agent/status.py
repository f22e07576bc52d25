"""The figures of an agent: its window, its cost, and its background work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...cache.usage import Usage, usage_of
from ...conversation.decisions import AgentFinished, CallRecorded, decision_of
from ...conversation.entries import DECISION, META, REWOUND, Entry
from ...conversation.tokens.window import Level
from ...events import BackgroundChanged, DecisionMade, DreamChanged, Event
from ...values import object_of, record


@record
class Status:
    """The figures of an agent that a footer shows."""

    model: str
    mode: str
    tokens: int
    window: int
    window_percent: int
    to_compaction: int
    """Tokens left until automatic compaction; 0 if the threshold is passed."""
    cache_share: float | None
    """The share (0 to 1) of all input tokens that was read from the provider's cache; None before any input."""
    cost_usd: float | None
    background: tuple[str, ...]
    level: Level = "fine"
    """The highest threshold of the window that is reached."""
    agents: int = 0
    """The number of agents of its team that are running."""
    cleared: int = 0
    """Tokens of old results that the provider left out of the last request."""
    plan: str = ""
    """The state of the session's plan; empty if there never was one."""


class Meter:
    """Adds up the usage and cost of a session's model calls: first from log entries, then from events."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.usage = Usage()
        self.usd = 0.0
        self.unpriced = False
        self.background: dict[str, str] = {}
        for entry in entries:
            if entry.kind == DECISION:
                found = decision_of(entry.body)
                if isinstance(found, CallRecorded):
                    self._add(found)
                elif isinstance(found, AgentFinished):
                    self._add_agent(found)
            elif entry.kind == META and (spent := object_of(object_of(entry.body.get(REWOUND)).get("spent"))):
                self.usage, self.usd = usage_of(object_of(spent.get("usage"))), float(spent.get("usd") or 0)
                self.unpriced = spent.get("unpriced") is True

    @property
    def spent(self) -> dict[str, Any]:
        """The totals, for the log of a session that goes on from a copy of a part of this one."""
        return {"usage": self.usage.body(), "usd": self.usd, "unpriced": self.unpriced}

    def on_event(self, event: Event) -> None:
        """Update the totals and ``background`` from one event; ignore events of other kinds."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, CallRecorded):
            self._add(event.decision)
        elif isinstance(event, DecisionMade) and isinstance(event.decision, AgentFinished):
            self._add_agent(event.decision)
        elif isinstance(event, BackgroundChanged):
            if event.state in ("started", "running"):
                self.background[event.what] = event.detail
            else:
                self.background.pop(event.what, None)
        elif isinstance(event, DreamChanged):
            if event.state in ("starting", "updating"):
                self.background["dream"] = event.state
            else:
                self.background.pop("dream", None)

    @property
    def running(self) -> tuple[str, ...]:
        """The background work that runs, with its detail."""
        return tuple(f"{what} {detail}".strip() for what, detail in self.background.items())

    @property
    def tokens(self) -> int:
        """The number of input and output tokens of all model calls."""
        return self.usage.input + self.usage.output

    @property
    def cost_usd(self) -> float | None:
        """The cost in dollars as far as prices are known; None if there were calls and none had a known price."""
        return None if self.unpriced and not self.usd else self.usd

    @property
    def cache_share(self) -> float | None:
        """The share (0 to 1) of input tokens that was read from the provider's cache; None before any input."""
        return self.usage.read / self.usage.input if self.usage.input else None

    def _add(self, call: CallRecorded) -> None:
        self.usage = self.usage.plus(usage_of(call.usage))
        if call.cost_usd is None:
            self.unpriced = True
        else:
            self.usd += call.cost_usd

    def _add_agent(self, ended: AgentFinished) -> None:
        """Add the cost of a finished sub-agent whose calls are in a log of its own; ignore a fork."""
        cost = ended.usage.get("cost_usd")
        if ended.usage.get("own_log") is True and isinstance(cost, int | float):
            self.usd += cost
