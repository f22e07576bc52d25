"""The lines that name the causes of cache breaks, with their cost and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...cache.watch import Cause, losses_by_cause
from ..output import dollars, table


def draw_causes(losses: Iterable[tuple[str, float]], remedies: Mapping[Cause, str] | None = None) -> None:
    """Print one line per cause of cache breaks, given dollars by reason: the cost, the cause and a remedy.

    ``remedies`` replace the general remedies of their causes.
    """
    found = losses_by_cause(losses)
    rows = [(f"  {dollars(usd)}", cause.title, (remedies or {}).get(cause, cause.remedy)) for cause, usd in found]
    table(["", "", ""], rows, right=(0,))
