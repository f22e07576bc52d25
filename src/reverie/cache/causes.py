"""The causes of cache breaks in plain words, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..values import record, replace
from .watch import IDLE_LONG, IDLE_SHORT, REMOVED, RESTARTED, REWRITTEN, SERVER, UNSEEN


@record
class Cause:
    """A cause of cache breaks as a person would name it, and its remedy."""

    title: str
    remedy: str


_CHANGED: Final = Cause(
    "earlier messages were changed or removed", "keep the history as it is; Reverie clears and compacts when it pays"
)
_PREFIX: Final = Cause(
    "the system prompt changed", "keep times, file lists and other changing text out of the system prompt"
)
# By the beginning of a reason of the watch; the first that fits counts.
_CAUSES: Final = (
    (
        IDLE_SHORT,
        Cause("pauses of 5 to 60 minutes", "reverie config keep_warm true; elsewhere choose the 1-hour cache"),
    ),
    (IDLE_LONG, Cause("pauses of more than an hour", "compact before a long break, or begin a new session after it")),
    ("model", Cause("the model was switched", "switch models at a compaction or in a new session")),
    ("tools", Cause("the list of tools changed", "connect all tools and MCP servers before the first prompt")),
    ("system", _PREFIX),
    ("options", Cause("an option of the request changed", "choose thinking and effort when the session begins")),
    ("messages", _CHANGED),
    (REMOVED, _CHANGED),
    (REWRITTEN, _CHANGED),
    (
        RESTARTED,
        Cause("the system prompt or tools changed between two prompts, as after a restart", _PREFIX.remedy),
    ),
    (UNSEEN, Cause("the system prompt or tools changed, or the provider lost the cache", _PREFIX.remedy)),
    (SERVER, Cause("the provider lost the cache", "nothing; it is not on your side")),
)


def cause_of(reason: str) -> Cause:
    """Return the cause that a reason of the cache watch belongs to; an unknown reason is its own title."""
    return next((cause for start, cause in _CAUSES if reason.startswith(start)), Cause(reason, ""))


def losses_by_cause(losses: Iterable[tuple[str, float]]) -> list[tuple[Cause, float]]:
    """Return the dollars that reasons have cost, summed by cause, the most expensive first; none without cost.

    The title of a cause also names the block that cost most, where the reason names one.
    """
    found: dict[Cause, dict[str, float]] = {}
    for reason, usd in losses:
        reasons = found.setdefault(cause_of(reason), {})
        reasons[reason] = reasons.get(reason, 0.0) + usd
    rows = [(_with_block(cause, reasons), sum(reasons.values())) for cause, reasons in found.items()]
    return sorted(((cause, usd) for cause, usd in rows if usd > 0), key=lambda one: (-one[1], one[0].title))


def _with_block(cause: Cause, reasons: Mapping[str, float]) -> Cause:
    worst = max(reasons, key=lambda reason: reasons[reason])
    return replace(cause, title=f"{cause.title} ({worst})") if "[" in worst else cause
