"""Plan which results to clear before a call. Pure: time, sizes and prices come in as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from ...cache.economics import ClearingOption, Forecast, Life, RelativeRates, Verdict, weigh_clearing
from ...conversation.decisions import CacheEdits, Cause, Replacement, ResultsCleared
from ...conversation.view import View
from ...values import record
from .candidates import STUB_TOKENS, ClearableResult, TrimCandidates
from .policy import TrimPolicy, cleared_text

LAYER: Final = "trim"


@record
class TrimFacts:
    """Facts about cache, window and prices just before a request."""

    life: Life
    window: int
    round: int
    turns: float
    rates: RelativeRates
    least_cached: int
    """The shortest prefix that the model caches, in tokens."""
    growth: float = 0.0
    """The tokens by which the window grows with each turn."""
    held: tuple[int, ...] | None = None
    """The messages at which entries of the cache end that can still be read, in order; None if unknown."""
    prefix_tokens: int = 0
    is_prefix_held: bool = True
    """Whether the cache has the part before the messages by itself."""
    pinned: frozenset[str] = frozenset()
    cleared: int = 0
    read_backs: int = 0
    thinking: tuple[tuple[int, int], ...] = ()
    """Message index and tokens of each reply whose thinking is lost if content before it changes."""
    limit: int = 0
    """The token count at which the window counts as full; 0 if unknown."""
    raw_tokens: int = 0
    """The tokens of the window with everything that the provider leaves out of it."""
    summary_at: int = 0
    """The raw token count at which the provider is asked for a summary of everything; 0 if it never is."""
    room: float = inf
    """The highest price, in uncached input tokens, that the session may risk."""
    turns_to_summary: float = inf
    """The turns until it is asked for one by price."""
    patience: float = 0.0
    """How many times its price carrying must cost before it is asked for one by price; 0 if it never is."""

    def need(self, policy: TrimPolicy) -> float:
        """Return the chance that a cleared result is read again, from the policy and this session's history."""
        return (self.read_backs + 1) / (self.cleared + 1 / policy.need)


@record
class TrimPlan:
    """A decision to clear results, its trigger (idle, window, priced or budget), and the calculation if priced."""

    decision: ResultsCleared
    trigger: str
    verdict: Verdict | None = None


def plan_trim(pending: TrimCandidates, facts: TrimFacts, policy: TrimPolicy) -> TrimPlan | None:
    """Plan the clearing before this request: all old results if the cache is cold, else those that save money.

    Return None if nothing should be cleared or the policy's mode or switches do not allow it.

    If the window is full, old results are cleared at any price, provided that this frees enough.
    """
    if policy.mode not in ("auto", "client", "cache_edit"):
        return None
    if facts.life == "cold":
        old = _old(pending, max(1, policy.keep_cold), facts.pinned) if policy.idle else []
        return trimming(old, "the cache is cold, so clearing is free", "idle") if old else None
    if not policy.priced or policy.mode == "cache_edit":
        return None
    return _forced(pending, facts, policy) or (_priced(pending, facts, policy) if clears_live(facts, policy) else None)


def clears_live(facts: TrimFacts, policy: TrimPolicy) -> bool:
    """Say whether results may be cleared by price although a part of the prompt is cached.

    After a pause only the entries of one hour are left. A clearing would end them too, and pauses come in groups, so it
    waits until the whole prompt is cached again, or nothing of it.
    """
    return policy.live and facts.life == "live"


def _may_go(one: ClearableResult, pinned: frozenset[str]) -> bool:
    return one.tokens > STUB_TOKENS and one.tool_use_id not in pinned and one.message not in pinned


def _old(pending: TrimCandidates, keep: int, pinned: frozenset[str]) -> list[ClearableResult]:
    older = pending.candidates[: max(0, len(pending.candidates) - keep)]
    return [one for one in older if one.group < pending.unseen and _may_go(one, pinned)]


def _forced(pending: TrimCandidates, facts: TrimFacts, policy: TrimPolicy) -> TrimPlan | None:
    """Plan to clear all old results if the window is full and that frees enough; None otherwise."""
    if not facts.limit or facts.window < facts.limit:
        return None
    old = _old(pending, max(1, policy.keep_priced), facts.pinned)
    if sum(one.tokens - STUB_TOKENS for one in old) < policy.forced_share * facts.limit:
        return None
    return trimming(old, f"the window is full at {facts.limit:,} tokens", "window")


def _priced(pending: TrimCandidates, facts: TrimFacts, policy: TrimPolicy) -> TrimPlan | None:
    """Compare every position at which clearing could start, and plan the one that saves most; None if none saves.

    Stale reads may be cleared even if they are among the most recent results.
    """
    candidates = [one for one in pending.candidates if _may_go(one, facts.pinned)]
    kept = candidates[-max(1, policy.keep_priced) :]
    recent = {one.tool_use_id for one in kept} - pending.superseded
    may_go = [one for one in candidates if one.tool_use_id not in recent and one.group < pending.unseen]
    if not may_go:
        return None
    best: tuple[Verdict, int] | None = None
    frees, carried = 0, 0.0
    forecast = Forecast(facts.turns, facts.need(policy), facts.window, facts.growth)
    # Writing a token to a live cache again costs at least this. If that alone exceeds the possible saving, or the cost
    # of carrying so far, there is nothing to compare; that holds for nearly every position on nearly every turn.
    least = facts.rates.write_5m - facts.rates.read
    since, read = facts.round - policy.keep_priced, facts.rates.read
    for at in range(len(may_go) - 1, -1, -1):
        one = may_go[at]
        frees += one.tokens - STUB_TOKENS
        came = one.round
        if came < since:
            carried += read * one.tokens * (since - came)
        before = pending.before(one, facts.held)
        after = pending.following(one, before)
        ahead = facts.prefix_tokens + before
        if ahead < facts.least_cached or not (before or facts.is_prefix_held):
            after += ahead  # too short to be cached alone, or not cached alone any more, so it is written again too
        rewrite = least * (after - frees)
        too_dear = carried < rewrite or read * frees * facts.turns <= rewrite
        if rewrite > 0 and not facts.rates.steps and too_dear:
            continue
        lost = sum(tokens for group, tokens in facts.thinking if group > one.group)
        clearing = ClearingOption(len(may_go) - at, frees, max(0, after - frees), carried, lost)
        verdict = weigh_clearing(clearing, forecast, rates=facts.rates, room=facts.room)
        if verdict.act and (best is None or verdict.net > best[0].net):
            best = (verdict, at)
    if best is None:
        return None
    return trimming(may_go[best[1] :], best[0].reason, "priced", best[0])


def trimming(gone: Sequence[ClearableResult], reason: str, trigger: str, verdict: Verdict | None = None) -> TrimPlan:
    frees = sum(one.tokens - STUB_TOKENS for one in gone)
    replaced = [
        Replacement(one.tool_use_id, cleared_text(one.tool_use_id), one.tool_use_id, one.tokens) for one in gone
    ]
    return TrimPlan(ResultsCleared(Cause(LAYER, reason, frees, moves_prefix=True), replaced), trigger, verdict)


def plan_budget(
    pending: TrimCandidates, policy: TrimPolicy, *, target: int | None = None, pinned: frozenset[str] = frozenset()
) -> TrimPlan | None:
    """Plan to clear old results, stale reads first, until the clearable ones fit the target; None if none may go.

    ``target`` is a token count, by default ``policy.budget_tokens``.
    """
    target = policy.budget_tokens if target is None else target
    total = sum(one.tokens for one in pending.candidates)
    old = _old(pending, policy.keep_budget, pinned)
    stale = [one for one in old if one.tool_use_id in pending.superseded]
    gone: list[ClearableResult] = []
    for one in (*stale, *(one for one in old if one.tool_use_id not in pending.superseded)):
        if total <= target:
            break
        gone.append(one)
        total -= one.tokens - STUB_TOKENS
    if not gone:
        return None
    return trimming(gone, f"clearable results were above {target:,} tokens", "budget")


def plan_cache_edit(view: View, policy: TrimPolicy, *, fork: bool = False) -> CacheEdits | None:
    """Plan to delete the oldest results from the provider's cached prefix once there are more than ``edit_above``.

    Return None in a fork, without the provider's support, in another mode, or if nothing may go.
    """
    prefix, final = view.facts.prefix, view.final
    able = prefix is not None and "cache_edits" in prefix.capabilities
    if fork or not able or policy.mode != "cache_edit" or view.last is None or final is None:
        return None
    edited = {called for edit in view.facts.edits for called in edit.tool_use_ids}
    unseen = view.length - (final.role == "user")
    registered = [
        one
        for one in view.results
        if policy.may_clear(one.tool)
        and one.tool_use_id not in edited
        and one.tool_use_id not in view.overrides.results
    ]
    if len(registered) <= policy.edit_above:
        return None
    older = registered[: max(0, len(registered) - policy.edit_keep)]
    pinned = view.facts.pinned
    gone = [
        one
        for one in older
        if one.group < unseen and not one.has_images and one.tool_use_id not in pinned and one.message not in pinned
    ]
    if not gone:
        return None
    frees = sum(one.tokens for one in gone)
    cause = Cause(LAYER, f"more than {policy.edit_above} results in the cached prefix", frees)
    return CacheEdits(cause, [one.tool_use_id for one in gone], view.last)
