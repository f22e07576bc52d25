"""Clearing by the provider: up to which call, the rule that a request declares, and the results that it leaves out.

A provider applies the declared rule to each request afresh and reports counts, not ids. The same rule over the same
calls tells which results are gone; where the counts differ, the reported one is used, oldest results first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from ...cache.economics import ClearingOption, Forecast, Verdict, weigh_clearing
from ...conversation.boundary import CLEAR_RESULTS
from ...conversation.decisions import Cause, ResultsClearedByProvider
from ...conversation.tokens.counting import ReplyBody, billed_tokens, cleared_tokens
from ...conversation.tool_calls import path_of
from ...conversation.view import View
from ...text.counts import counted
from ...values import record, replace
from .candidates import STUB_TOKENS, ClearableResult, TrimCandidates
from .plan import TrimFacts, TrimPlan, clears_live, trimming
from .policy import TrimPolicy

_THINKING: Final = "clear_thinking_20251015"
_INPUT_CHARS: Final = 40


@record
class SentCall:
    """A tool call of a request whose result the request contains."""

    id: str
    tool: str


@record
class ClearingRule:
    """The rule by which a provider leaves tool results out of a request; the defaults are the provider's."""

    trigger: int = 100_000
    by_tokens: bool = True
    """Whether the trigger counts input tokens; otherwise it counts tool calls."""
    keep: int = 3
    least_tokens: int = 0
    excluded: frozenset[str] = frozenset()

    @staticmethod
    def of(options: Mapping[str, Any]) -> ClearingRule | None:
        """Return the rule that a request's options declare, or None if they declare none."""
        managed = _mapping(options.get("context_management"))
        edits = (_mapping(one) for one in _listed(managed.get("edits")))
        found = next((one for one in edits if one.get("type") == CLEAR_RESULTS), None)
        if found is None:
            return None
        default, trigger = ClearingRule(), _mapping(found.get("trigger"))
        return ClearingRule(
            _value(trigger, default.trigger),
            trigger.get("type") != "tool_uses",
            _value(_mapping(found.get("keep")), default.keep),
            _value(_mapping(found.get("clear_at_least")), 0),
            frozenset(str(one) for one in _listed(found.get("exclude_tools"))),
        )

    def may_clear(self, calls: Iterable[SentCall]) -> list[str]:
        """Return the calls whose results this rule does not exclude by their tool, in order."""
        return [one.id for one in calls if one.tool not in self.excluded]


def thinking_option(*, thinks: bool) -> dict[str, Any]:
    """Return the ``context_management`` option that asks the provider to keep all thinking; empty without thinking."""
    return {"edits": [{"type": _THINKING, "keep": "all"}]} if thinks else {}


def results_left_out(
    calls: Sequence[SentCall], rule: ClearingRule, *, input_tokens: int, freed_tokens: Mapping[str, int] | int
) -> list[str]:
    """Return the ids of the calls whose results a rule leaves out of a request, oldest first.

    ``input_tokens`` is the size of the request with all results; ``freed_tokens`` is the number of tokens that leave,
    if the provider reported it, or the estimated number for each result.
    """
    if (input_tokens if rule.by_tokens else len(calls)) <= rule.trigger:
        return []
    may_go = rule.may_clear(calls)
    gone = may_go[: max(0, len(may_go) - rule.keep)]
    freed = freed_tokens if isinstance(freed_tokens, int) else sum(freed_tokens.get(one, 0) for one in gone)
    return gone if freed >= rule.least_tokens else []


def provider_clearing(view: View, reply: ReplyBody) -> ResultsClearedByProvider | None:
    """Return the decision on results that the provider cleared in the view's last reply; None if none is new."""
    facts = view.facts
    count, tokens, billed = _reported_count(reply), cleared_tokens(reply), billed_tokens(reply)
    size = (billed.input_tokens if billed is not None else 0) + tokens
    before, boundary = facts.cleared_by_provider, facts.boundary
    cleared = view.clearing
    if cleared is not None and boundary is not None and count == cleared.cleared and boundary.upto in before:
        return None
    own = ClearingRule.of(facts.prefix.options) if facts.prefix is not None else None
    if not count and not before and cleared is None and (own is None or (own.by_tokens and size <= own.trigger)):
        return None
    calls, rule = _sent_calls(view), own or ClearingRule()
    if cleared is not None:
        rule = replace(rule, trigger=1, excluded=cleared.excluded)
        rule = replace(rule, keep=max(0, len(rule.may_clear(calls)) - cleared.cleared))
    computed = results_left_out(
        calls, rule, input_tokens=size, freed_tokens=tokens if count else _estimated_tokens(view)
    )
    gone = rule.may_clear(calls)[:count]
    added = [one for one in gone if one not in before]
    back = sorted(one for one in before.difference(gone) if view.tool_call(one) is not None)
    differs, last = count != len(computed), facts.clearing
    if not added and not back and differs == (last is not None and last.count != last.computed):
        return None
    return ResultsClearedByProvider(
        Cause("trim", _reason(count, len(computed), tokens, len(added), back)),
        added,
        _announcement(view, added),
        tokens,
        count,
        len(computed),
        back,
    )


def _reason(count: int, computed: int, tokens: int, added: int, back: Sequence[str]) -> str:
    if count or not back:
        left_out = counted(count, "result")
        said = f"the provider left {left_out} out of the request, {added} of them new: {tokens:,} tokens"
    else:
        said = f"the provider shows {counted(len(back), 'result')} again"
    return said if count == computed else f"{said}; its rule leaves out {computed} by our calculation"


def _announcement(view: View, added: Sequence[str]) -> str:
    """Return the line that tells the model which results are gone and by which handles it can read them again."""
    if not added:
        return ""
    named = "; ".join(f"{_named(view, one)} handle: {one}" for one in added)
    return f"[The content of these old tool results was cleared and can be read again by handle. {named}]"


def _named(view: View, called: str) -> str:
    """Return a call as a few words: its tool and the file or the first text that it was given."""
    call = view.tool_call(called)
    if call is None:
        return "Result"
    about = path_of(call.input) or next((text for text in call.input.values() if isinstance(text, str)), "")
    line = " ".join(about.split())
    return f"{call.name} {line[-_INPUT_CHARS:]}".strip()


def _sent_calls(view: View) -> list[SentCall]:
    """Return the calls of the request that the view's last reply answered, in the order of the request."""
    open_calls = set(view.unanswered())
    calls: list[SentCall] = []
    for group in view.groups:
        for called in group.uses:
            call = view.tool_call(called)
            if call is not None and called not in open_calls:
                calls.append(SentCall(called, call.name))
    return calls


def _estimated_tokens(view: View) -> dict[str, int]:
    tokens = view.token_count.estimator.correction(view.token_count.model).tokens
    hidden = view.overrides.results
    return {one.tool_use_id: round(tokens(one.piece.measure)) for one in view.results if one.tool_use_id not in hidden}


def _reported_count(reply: ReplyBody) -> int:
    edits = _listed(_mapping(reply.get("context_management")).get("applied_edits"))
    counts = (_mapping(one).get("cleared_tool_uses") for one in edits)
    return sum(count for count in counts if isinstance(count, int) and count > 0)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _value(given: Mapping[str, Any], default: int) -> int:
    value = given.get("value")
    return value if isinstance(value, int) and not isinstance(value, bool) else default


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
    if ahead < facts.least_cached or not (before or facts.is_prefix_held):
        after += ahead  # too short to be cached alone, or not cached alone any more, so it is written again too
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
