"""The lines that name the causes of cache breaks, with their cost and a remedy."""

from __future__ import annotations

from collections.abc import Iterable

from ...cache.watch import losses_by_cause
from ..output import dollars, table


def draw_causes(losses: Iterable[tuple[str, float]]) -> None:
    """Print one line per cause of cache breaks, given dollars by reason: the cost, the cause and a remedy."""
    rows = [(f"  {dollars(usd)}", cause.title, cause.remedy) for cause, usd in losses_by_cause(losses)]
    table(["", "", ""], rows, right=(0,))
