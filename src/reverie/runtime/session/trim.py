"""Layer 2 in a session: clear old tool results before a request, by price, by budget or by cache edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, cast

import msgspec

from ...cache.economics import Life
from ...conversation.decisions import Cause, ClearingBoundaryMoved, Decision, ResultsCleared
from ...conversation.reads import files_in_view, forgotten_files
from ...conversation.thinking import replies_with_thinking, thinking_sizes, thinking_tokens
from ...conversation.tool_calls import path_of
from ...conversation.view import View
from ...errors import SessionError
from ...events import FellBack, ResultsTrimmed
from ...layers.l2_trim import (
    BoundaryPlan,
    TrimCandidates,
    TrimFacts,
    TrimPlan,
    TrimPolicy,
    plan_boundary,
    plan_budget,
    plan_cache_edit,
    plan_trim,
    provider_clearing,
    thinking_option,
)
from ...model_facts import ModelFacts, facts_of
from ...text.counts import counted
from ...values import record, replace
from .cache_plan import CachePlan
from .limits import DEFAULT_MODEL, EDITING_BETA
from .log import SessionLog
from .prefix import RequestOptions

_LOOK_EVERY: Final = 32  # candidates between two looks through all of them, so that a turn's work stays flat


@record
class _TrimState:
    cleared: int = 0
    read_backs: int = 0
    next_look: int = 0


class Trimmer:
    """Runs layer 2 for one session: clears old tool results."""

    def __init__(self, policy: TrimPolicy, cache: CachePlan) -> None:
        """Clear by a policy and by the prices of a cache plan."""
        self.policy = policy
        self.by_budget = False
        """Whether results are also cleared before a request until they fit the policy's budget."""
        self.blocking = 0
        """The token count from which no request is sent."""
        self.read_backs = 0
        self._cache = cache
        self._pending = TrimCandidates(policy)
        self._cleared = 0
        self._next_look = 0
        self._facts_of_model = facts_of(DEFAULT_MODEL)
        self._is_chosen = False
        self.summary_at = 0
        """The token count of all messages at which the provider is asked for a summary; 0 if it never is."""
        self._said: set[str] = set()

    def use(self, policy: TrimPolicy, facts: ModelFacts, *, by_budget: bool, is_chosen: bool) -> None:
        """Clear by a policy, for a model with these facts; ``is_chosen`` if the settings name the policy's mode."""
        if policy.mode != self.policy.mode:
            self._pending = TrimCandidates(policy)
        self.policy, self.by_budget = policy, by_budget
        self._facts_of_model, self._is_chosen = facts, is_chosen

    def with_clearing(self, asked: RequestOptions) -> RequestOptions:
        """Return the options of the next request; in the mode ``provider`` they ask the provider to keep thinking."""
        if not self.may_clear(asked):
            return asked
        thinking = asked.body.get("thinking")
        kind = cast("Mapping[str, Any]", thinking).get("type") if isinstance(thinking, Mapping) else None
        thinks = kind != "disabled" and (kind is not None or self._facts_of_model.checks_thinking)
        option = thinking_option(thinks=thinks)
        return replace(asked, body={**asked.body, "context_management": option}) if option else asked

    def may_clear(self, asked: RequestOptions) -> bool:
        """Say whether the provider clears by our decisions, not by a rule that the caller passed."""
        able = self._facts_of_model.context_editing
        return self.policy.mode == "provider" and able and "context_management" not in asked.body

    def state(self) -> dict[str, Any]:
        """Return counts and the round of the next look, from which a resumed session continues; a 0 is left out."""
        state = {"cleared": self._cleared, "read_backs": self.read_backs, "next_look": self._next_look}
        return {name: value for name, value in state.items() if value}

    def resume(self, state: Mapping[str, Any], decisions: Iterable[object]) -> None:
        """Continue from a logged state and the decisions since then; ignore a state that cannot be read."""
        try:
            found = msgspec.convert(state, _TrimState)
        except msgspec.ValidationError:
            return
        self._cleared, self.read_backs, self._next_look = found.cleared, found.read_backs, found.next_look
        for one in decisions:
            if isinstance(one, ResultsCleared | ClearingBoundaryMoved):
                self._cleared += len(one.cleared) if isinstance(one, ResultsCleared) else one.results

    async def before_request(self, log: SessionLog, *, summary_at: int = 0) -> None:
        """Log the clearing or cache edit due before this request; with ``by_budget``, also clear to the budget.

        ``summary_at`` is the token count of all messages at which the provider is asked for a summary; 0 if never.
        """
        self._report_means(log)
        self.summary_at = summary_at
        planned = self.plan(log.view, log.clock())
        if isinstance(planned, TrimPlan):
            await self._clear(log, planned)
            return
        if isinstance(planned, BoundaryPlan):
            await self._move_boundary(log, planned)
        elif planned is not None:
            await log.decide(planned)
        if self.by_budget and self.policy.mode == "client":
            await self.clear_to(log)

    async def after_reply(self, log: SessionLog, reply: Mapping[str, Any]) -> None:
        """Log which results the provider left out of the request that this reply answers, if that is news."""
        before = log.view
        decision = provider_clearing(before, reply)
        if decision is None:
            return
        await log.decide(decision)
        if not decision.tool_use_ids:
            return
        uses = {called: use for called in decision.tool_use_ids if (use := before.tool_call(called)) is not None}
        shown = files_in_view(before)
        paths = {
            path for called, use in uses.items() if (path := path_of(use.input)) and shown.get(path) in (None, called)
        }
        tools = sorted({use.name for use in uses.values()})
        billed = before.token_count.input_tokens or 0
        log.emit(
            ResultsTrimmed(
                log.name,
                "provider",
                tools,
                sorted(paths),
                billed + decision.tokens,
                billed,
                list(decision.tool_use_ids),
            )
        )

    def report_price(self, log: SessionLog, tool_use_ids: Iterable[str]) -> str:
        """Emit and return the price in thinking of changing these results in the view; "" if it costs none."""
        price = self._price(log.view, tool_use_ids)
        if price:
            log.emit(FellBack(log.name, "thinking", price))
        return price

    def _price(self, view: View, tool_use_ids: Iterable[str]) -> str:
        calls = [call for call in map(view.tool_call, tool_use_ids) if call is not None]
        if not self._facts_of_model.checks_thinking or not calls:
            return ""
        lost = replies_with_thinking(view, start=min(call.group for call in calls) + 1)
        replies, tokens = counted(len(lost), "later reply"), thinking_tokens(view, lost)
        return f"this drops the thinking of {replies}, about {tokens:,} tokens" if lost else ""

    def _report_means(self, log: SessionLog) -> None:
        """Emit, once for each, the reason why results are not cleared as the settings say, or the price of clearing."""
        facts, mode = self._facts_of_model, self.policy.mode
        if mode == "provider" and not facts.context_editing:
            how = "set trim.mode to 'auto' or 'client'"
            self._report_once(log, f"the provider of {facts.name} clears no results; {how}")
        if not facts.checks_thinking:
            return
        why = f"{facts.name} refuses its thinking once an earlier message has changed"
        if mode == "off" and not self._is_chosen:
            self._pending.follow(log.view)
            if len(self._pending.candidates) <= self.policy.keep_cold:
                return  # no result is old enough to be cleared
            how = f"pass betas=[{EDITING_BETA!r}] to prepare() and send with client.beta.messages"
            self._report_once(log, f"{why}, so results are not cleared here; to let the provider clear them, {how}")
        elif self.by_budget and mode != "client":
            how = "session.trim() clears here at that price, or set trim.mode to 'client'"
            self._report_once(log, f"{why}, so budget_trim clears nothing; {how}")
        elif mode == "client":
            how = "leave trim.mode at 'auto' to let the provider clear them"
            self._report_once(log, f"{why}: each clearing here drops the thinking after it; {how}")

    def _report_once(self, log: SessionLog, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            log.emit(FellBack(log.name, "trim", why))

    async def clear_to(self, log: SessionLog, target_tokens: int | None = None) -> ResultsTrimmed | None:
        """Clear the oldest results until the clearable ones fit a budget; return the event, None if all fit.

        On a model that checks thinking, an event reports the price in thinking first. Raise ``SessionError`` if the
        settings say that the provider clears in this session.
        """
        if self.policy.mode == "provider" and self._is_chosen:
            raise SessionError("the provider clears in this session: set trim.mode to 'client' to clear from here")
        self._pending.follow(log.view)
        pinned = log.view.facts.pinned
        planned = plan_budget(self._pending, self.policy, target=target_tokens, pinned=pinned)
        return await self._clear(log, planned) if planned is not None else None

    def plan(self, view: View, now: float) -> TrimPlan | BoundaryPlan | Decision | None:
        """Return the clearing or the cache edit that layer 2 wants before this request; None if it wants none."""
        if view.cuts != self._cache.cuts:
            self._next_look = 0
        self._pending.follow(view)
        life = self._cache.life(now)
        if self._worth_looking(view, life):
            facts = self._facts(view, life, now)
            planned = plan_trim(self._pending, facts, self.policy) or plan_boundary(self._pending, facts, self.policy)
            if planned is not None:
                return planned
            self._next_look = view.length // 2 + 1 + len(self._pending.candidates) // _LOOK_EVERY
        return plan_cache_edit(view, self.policy)

    def record(self, decision: ResultsCleared) -> None:
        """Count a clearing and take its results out of the index of candidates."""
        gone = {one.tool_use_id for one in decision.cleared}
        self._pending.clear(gone)
        self._cleared += len(gone)

    async def _move_boundary(self, log: SessionLog, planned: BoundaryPlan) -> None:
        """Log up to which call the provider leaves results out from now on."""
        facts, view = log.view.facts, log.view
        gone = {one.tool_use_id for one in planned.results}
        tokens = view.token_count.estimator.correction(view.token_count.model).tokens
        sizes = (tokens(one.piece.measure) for one in view.results if one.tool_use_id in gone)
        prefix, before = facts.amended or facts.prefix, facts.boundary
        declared = (str(tool.get("name")) for tool in prefix.tools) if prefix is not None else ()
        excluded = {tool for tool in (*declared, *view.tool_names()) if not self.policy.may_clear(tool)}
        excluded.update(before.excluded if before is not None else ())
        cause = Cause("trim", planned.reason, frees=round(sum(sizes)))
        upto = planned.results[-1].tool_use_id
        await log.decide(ClearingBoundaryMoved(cause, upto, sorted(excluded), len(gone)))
        self._pending.clear(gone)
        self._cleared += len(gone)

    async def _clear(self, log: SessionLog, planned: TrimPlan) -> ResultsTrimmed:
        """Log a clearing, count its results, and emit and return its event."""
        before = log.view
        gone = [one.tool_use_id for one in planned.decision.cleared]
        uses = [use for use in map(before.tool_call, gone) if use is not None]
        price = self.report_price(log, gone)
        decision, cause = planned.decision, planned.decision.cause
        if price:
            decision = replace(decision, cause=replace(cause, reason=f"{cause.reason}; {price}"))
        await log.decide(decision)
        self.record(decision)
        tools, paths = sorted({use.name for use in uses}), forgotten_files(before, log.view)
        event = ResultsTrimmed(log.name, planned.trigger, tools, paths, before.tokens, log.view.tokens, gone)
        log.emit(event)
        return event

    def _worth_looking(self, view: View, life: Life) -> bool:
        """Return whether to look through all candidates; rarely on a live cache, to keep a turn's work flat."""
        looks = life != "live" or view.length // 2 >= self._next_look
        return looks or view.token_count.tokens >= self._cache.compact_at

    def _facts(self, view: View, life: Life, now: float) -> TrimFacts:
        cache, counted = self._cache, view.token_count
        loses_thinking = self._facts_of_model.checks_thinking and self.policy.mode == "client"
        return TrimFacts(
            life=life,
            window=counted.tokens,
            round=view.length // 2,
            turns=cache.turns_ahead(view),
            held=cache.held_messages(view, now),
            prefix_tokens=round(counted.overhead),
            is_prefix_held=cache.has_prefix(now),
            least_cached=cache.least_cached,
            growth=cache.growth(view),
            rates=cache.paid_rates,
            pinned=view.facts.pinned,
            cleared=self._cleared,
            read_backs=self.read_backs,
            limit=cache.compact_at if not self.summary_at else self.blocking,
            raw_tokens=counted.raw_tokens,
            summary_at=self.summary_at,
            room=cache.bill.room,
            turns_to_summary=inf if cache.turns_left is None else cache.turns_left,
            patience=0.0 if cache.turns_left is None else cache.patience,
            thinking=tuple(thinking_sizes(view)) if loses_thinking else (),
        )
