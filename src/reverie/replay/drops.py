"""Find every drop in cache reads of a recorded session and its reason, from the billed tokens and the times alone.

A recording of another program holds neither its system prompt nor its tools. So a change by the client shows only in
the content that left the request: a recorded compaction, missing tokens without one, or a rewritten end. A lost prefix
remains, which the client may have changed or the server lost. A server loses it at any request. So if such losses fall
on new prompts more often than chance explains, the client changed the system prompt or the tools between the prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..cache.ledger import expected_usage
from ..cache.prices import Prices, prices_for
from ..cache.usage import Usage, reported_options
from ..cache.watch import REMOVED, RESTARTED, SERVER, UNSEEN, CacheWatch, registered_by, restarts
from ..conversation.authorship import is_prompt
from ..conversation.decisions import Compacted, Decision, PrefixRendered, Unknown, decision_of
from ..conversation.entries import DECISION
from ..conversation.wire.options import opening_of
from ..values import record, replace
from .recording import RecordedRequest, Recording

# Names of decisions for people.
_NAMES: Final[Mapping[str, str]] = {
    "compacted": "compaction",
    "compaction_undone": "compaction undone",
    "results_cleared": "clearing",
    "results_restored": "restoring",
    "images_dropped": "images dropped",
    "cache_edits": "cache edit",
}


@record
class CacheDrop:
    """A request that read less from the cache than the request before had left in it."""

    number: int
    at: float
    reason: str
    registered: bool
    expected: int
    actual: int
    idle_seconds: float
    usd: float | None = None

    @property
    def tokens(self) -> int:
        """The tokens that were billed again, or that left the request."""
        return self.expected - self.actual


def drops(recording: Recording, prices: Prices | None = None) -> list[CacheDrop]:
    """Return a list of a recording's drops in cache reads; requests without billed usage are left out.

    The money is counted at these prices, without them at those of the model that was asked.
    """
    found: list[CacheDrop] = []
    watch, opening = CacheWatch(), dict[str, Any]()
    for step in recording.steps:
        if step.billed is None:
            continue
        decided = _decisions(step)
        for one in decided:
            opening = opening_of(one) if isinstance(one, PrefixRendered) else opening
        registered = [*registered_by(decided), *("compacted" for one in decided if isinstance(one, Compacted))]
        request = {**opening, **reported_options(step.reply[0]), "model": step.model or recording.model}
        before = watch.before(request, step.at, registered=dict.fromkeys(registered))
        used = step.billed
        if _falls(watch, used):
            reason = _announced(before) or _reason(before, used, step)
            idle = step.at - watch.sent_at
            at_prices = prices or prices_for(request["model"])
            usd = None if before.registered else _lost(at_prices, used, watch.readable)
            found.append(
                CacheDrop(step.number, step.at, reason, bool(before.registered), watch.readable, used.read, idle, usd)
            )
        watch, _ = before.after(used, step.at)
    return _with_restarts(found, recording)


def _with_restarts(found: list[CacheDrop], recording: Recording) -> list[CacheDrop]:
    """Return the drops, those at new prompts with the client as their cause if that is no coincidence."""
    steps = [step for step in recording.steps if step.billed is not None]
    prompted = {step.number for step in steps if any(map(is_prompt, step.entries))}
    at_prompt = restarts([one.number for one in found if one.reason == UNSEEN], prompted, len(steps))
    return [replace(one, reason=RESTARTED) if one.number in at_prompt else one for one in found]


def _decisions(step: RecordedRequest) -> list[Decision]:
    found = [decision_of(entry.body) for entry in step.entries if entry.kind == DECISION]
    return [decision for decision in found if not isinstance(decision, Unknown)]


def _falls(watch: CacheWatch, used: Usage) -> bool:
    """Return whether a request read so much less than was cached that a cache watch would count it as a break."""
    policy = watch.policy
    fallen = used.read < policy.least_share * watch.readable
    return watch.sent is not None and fallen and watch.readable - used.read >= policy.least_tokens


def _announced(watch: CacheWatch) -> str | None:
    return f"{_NAMES.get(watch.registered[0], watch.registered[0])} (registered)" if watch.registered else None


def _reason(watch: CacheWatch, used: Usage, step: RecordedRequest) -> str:
    """Return why a request read less from the cache than the last call left there, when no decision announced it."""
    _, broke = watch.after(used, step.at)
    reason = broke.reason if broke is not None else SERVER
    return REMOVED if step.removed and reason == SERVER else reason


def _lost(prices: Prices | None, used: Usage, readable: int) -> float | None:
    return prices.cost_of(used) - prices.cost_of(expected_usage(used, readable)) if prices is not None else None
