"""The tokens and the money that one kind of background work used today."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ....cache.usage import Usage
from ....conversation.entries import iso
from ...session.ledger import LedgerStore


class DailyBudget:
    """Compares today's use (in UTC) by one source with a budget: added calls and, with a home, its ledger's."""

    def __init__(
        self, *, home: Path | None = None, source: str = "extract", clock: Callable[[], float] = time.time
    ) -> None:
        self._home = home
        self._source = source
        self._clock = clock
        self._day: str = ""
        self._tokens = 0
        self._usd = 0.0

    def add(self, usage: Usage, usd: float | None) -> None:
        """Count the usage and the cost of one call."""
        self._start_new_day()
        self._tokens += usage.input + usage.output
        self._usd += usd or 0.0

    def over(self, tokens: int, usd: float) -> str:
        """Return a sentence if today's use reaches these tokens or this cost, else an empty string; may block."""
        self._start_new_day()
        used, cost = self._tokens, self._usd
        if self._home is not None:
            with LedgerStore(self._home) as ledger:
                calls = ledger.calls(source=self._source, day=self._day)
            used = max(used, sum(call.actual.input + call.actual.output for call in calls))
            cost = max(cost, sum(call.usd or 0.0 for call in calls))
        if used >= tokens:
            return f"{used:,} of {tokens:,} tokens of today's budget are used"
        return f"${cost:.2f} of ${usd:.2f} of today's budget is spent" if cost >= usd else ""

    def _start_new_day(self) -> None:
        today: str = iso(self._clock())[:10]
        if today != self._day:
            self._day, self._tokens, self._usd = today, 0, 0.0
