"""Plan up to which call the provider leaves results out of requests. Pure: time, sizes and prices are arguments."""

from __future__ import annotations

from ...cache.economics import ClearingOption, Forecast, Verdict, weigh_clearing
from ...values import record
from .candidates import STUB_TOKENS, ClearableResult, TrimCandidates
from .plan import TrimFacts, TrimPlan, clears_live, trimming
from .policy import TrimPolicy


@record
class BoundaryPlan:
    """The results that the provider is to leave out from now on, oldest first, and the reason."""

    results: tuple[ClearableResult, ...]
    reason: str

    def as_trim(self) -> TrimPlan:
        """Return the clearing that shows the model the same, for a replay without a provider."""
        return trimming(self.results, self.reason, "priced")


def plan_boundary(pending: TrimCandidates, facts: TrimFacts, policy: TrimPolicy) -> BoundaryPlan | None:
    """Plan the next boundary: behind all results but the most recent ones, if this pays or the window is full.

    A provider leaves out the oldest results, so a clearing begins with the first one that it still shows. Return None
    if nothing should be cleared or the policy's mode or switches do not allow it.
    """
    is_cold = facts.life == "cold"
    if policy.mode != "provider" or not (policy.idle if is_cold else policy.priced):
        return None
    old = _old_batches(pending, max(1, policy.keep_cold if is_cold else policy.keep_priced))
    if not old:
        return None
    frees = sum(max(0, one.tokens - STUB_TOKENS) for one in old)
    if facts.limit and facts.window >= facts.limit and frees >= policy.forced_share * facts.limit:
        return BoundaryPlan(tuple(old), f"the window is full at {facts.limit:,} tokens")
    if not is_cold and not clears_live(facts, policy):
        return None
    verdict = _verdict(pending, old, frees, facts, policy)
    return BoundaryPlan(tuple(old), verdict.reason) if verdict.act else None


def _old_batches(pending: TrimCandidates, keep: int) -> list[ClearableResult]:
    """Return the results before the ``keep`` most recent ones and before unseen ones, without a part of a batch."""
    kept = pending.candidates[-keep:]
    first = min(kept[0].group, pending.unseen) if kept else 0
    return [one for one in pending.candidates[: len(pending.candidates) - len(kept)] if one.group < first]


def _verdict(
    pending: TrimCandidates, old: list[ClearableResult], frees: int, facts: TrimFacts, policy: TrimPolicy
) -> Verdict:
    before = pending.before(old[0], facts.held)
    after = pending.following(old[0], before)
    ahead = max(0, facts.window - after)
    if ahead < facts.least_cached:
        after += ahead  # too short to be cached alone, so it is written again too
    since = facts.round - policy.keep_priced
    carried = facts.rates.read * sum(one.tokens * max(0, since - one.round) for one in old)
    # The turns until the next summary.
    left = min(facts.turns_to_summary, max(0.0, (facts.summary_at - facts.raw_tokens) / max(1.0, facts.growth)))
    live = 0 if facts.life == "cold" else max(0, after - frees)
    option = ClearingOption(len(old), frees, live, carried, later=_dearer_summary(ahead, left, facts))
    turns = min(facts.turns, left) if facts.summary_at else facts.turns
    forecast = Forecast(turns, facts.need(policy), facts.window, facts.growth)
    return weigh_clearing(option, forecast, rates=facts.rates, room=facts.room)


def _dearer_summary(ahead: int, left: float, facts: TrimFacts) -> float:
    """Return the expected price of a summary by the provider that cannot read the cache behind the first clearing.

    The request for it has no context edits, so it contains all results, and reads them from the cache only if none was
    cleared. A session that had as many turns as are left until then is as likely to reach it as not. A compaction by
    price that costs more also comes later: carrying costs its price as often as the patience says.
    """
    if not facts.summary_at or facts.raw_tokens > facts.window:  # without a summary, or paid with an earlier clearing
        return 0.0
    chance = facts.round / max(1.0, facts.round + left)
    tokens = facts.raw_tokens + facts.growth * left
    rates = facts.rates.at(tokens)
    return chance * (1 + facts.patience) * (rates.input - rates.read) * max(0.0, tokens - ahead)
