"""The tokens and the money that extraction used today."""

from __future__ import annotations

import time
from collections.abc import Callable

from ....cache.usage import Usage
from ....conversation.entries import iso
from ....settings import Settings
from ....text.counts import dollars
from ...session.ledger import open_ledger


class DailyBudget:
    """Compares today's use (in UTC) by extraction with a budget: added calls and, with settings, the ledger's."""

    def __init__(self, *, settings: Settings | None = None, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
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
        if self._settings is not None:
            with open_ledger(self._settings) as ledger:
                calls = ledger.calls(source="extract", day=self._day)
            used = max(used, sum(call.actual.input + call.actual.output for call in calls))
            cost = max(cost, sum(call.usd or 0.0 for call in calls))
        if used >= tokens:
            return f"{used:,} of {tokens:,} tokens of today's budget are used"
        return f"{dollars(cost)} of {dollars(usd)} of today's budget is spent" if cost >= usd else ""

    def _start_new_day(self) -> None:
        today: str = iso(self._clock())[:10]
        if today != self._day:
            self._day, self._tokens, self._usd = today, 0, 0.0
