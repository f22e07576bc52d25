"""What one kind of background work has used today, by the ledger of all sessions where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ....cache.usage import Usage
from ....conversation.entries import iso
from ...session.ledger import LedgerStore

__all__ = ["Spending"]


class Spending:
    """Tokens and money of a day: those of every session in the ledger, or only those counted here."""

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
        """Count one call."""
        self._turn_page()
        self._tokens += usage.input + usage.output
        self._usd += usd or 0.0

    def over(self, tokens: int, usd: float) -> str:
        """Say which budget of the day is spent; nothing while neither is. This may block."""
        self._turn_page()
        used, cost = self._tokens, self._usd
        if self._home is not None:
            with LedgerStore(self._home) as ledger:
                calls = ledger.calls(source=self._source, day=self._day)
            used = max(used, sum(call.actual.input + call.actual.output for call in calls))
            cost = max(cost, sum(call.usd or 0.0 for call in calls))
        if used >= tokens:
            return f"{used:,} of {tokens:,} tokens of today's budget are used"
        return f"${cost:.2f} of ${usd:.2f} of today's budget is spent" if cost >= usd else ""

    def _turn_page(self) -> None:
        today: str = iso(self._clock())[:10]
        if today != self._day:
            self._day, self._tokens, self._usd = today, 0, 0.0
