"""Budgets of a day or a month, of all sessions or of one project, measured by the ledger.

All sessions are those of a home, or of a tenant on all machines if the sessions are in a database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ...settings import Settings
from ...text.counts import dollars
from ...values import record
from ..session.ledger import open_ledger

_FIRST_DAY: Final = {"day": "%Y-%m-%d", "month": "%Y-%m-01"}


@record
class BudgetUse:
    """The cost and tokens that sessions or background work used in a period, and their budget."""

    what: str
    usd: float
    of_usd: float
    tokens: int
    of_tokens: int
    """0 if tokens are not limited."""
    per: str
    """The period of the budget: ``day``, ``month`` or ``run``."""
    setting: str = ""


class Budgets:
    """The budgets that a policy sets for all sessions, and for those of one project."""

    def __init__(self, settings: Settings, project: str) -> None:
        """Leave out the budgets of a project if ``project`` is empty."""
        self._settings = settings
        self._limits: list[tuple[str, float, str, str | None]] = []
        for whose in ("", "project_") if project else ("",):
            for period in _FIRST_DAY:
                name = f"budget_{whose}{period}_usd"
                limit: float | None = getattr(settings.agent, name)
                if limit is not None:
                    self._limits.append((name, limit, period, project if whose else None))

    def over(self, now: float) -> str:
        """Return a clause about the first budget that is spent; empty if none is."""
        for one in self.used(now):
            if one.usd >= one.of_usd:
                spent = f"{dollars(one.usd)} of {dollars(one.of_usd)}"
                return f"{spent} a {one.per} for {one.what} is spent (setting {one.setting})"
        return ""

    def used(self, now: float) -> list[BudgetUse]:
        """Return each budget with the dollars that are spent of it in the period of ``now``, by UTC."""
        if not self._limits:
            return []
        today = datetime.fromtimestamp(now, UTC)
        with open_ledger(self._settings) as ledger:
            return [
                BudgetUse(
                    "all sessions" if project is None else "this project",
                    ledger.spent(today.strftime(_FIRST_DAY[period]), project=project),
                    limit,
                    0,
                    0,
                    period,
                    f"agent.{name}",
                )
                for name, limit, period, project in self._limits
            ]
