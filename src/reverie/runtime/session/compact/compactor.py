"""Layer 4 in a session: decide when to compact, log the compaction, run hooks around it, and undo it."""

from __future__ import annotations

from itertools import dropwhile
from typing import Any, Literal

from ....conversation.boundary import CLEAR_RESULTS, CLEARS
from ....conversation.decisions import Cause, Compacted, CompactionFailed, CompactionUndone, PrefixRendered, decision_of
from ....conversation.entries import ASSISTANT, DECISION, META, Entry, new_uuid, reply_id
from ....conversation.tokens.accounting import account, added_texts, attachments_in, metrics
from ....conversation.tokens.estimate import estimate_request
from ....conversation.tokens.window import Thresholds
from ....conversation.wire.request import awaits_provider
from ....errors import CompactionError, SessionError, WindowFull
from ....events import CompactionEnded, DecisionMade, Event, FellBack, ReplyObserved
from ....layers.l4_compact import plan_collapse, plan_snip, summary_budget, tokens_of
from ....values import replace
from ...guard.hooks import Hooks
from ..cache_plan import CachePlan
from ..forks import forking
from ..host import SessionHost
from ..notes.activity import SessionActivity
from ..notes.keeper import NotesKeeper
from ..standing_context import StandingContext
from ..thinking import ThinkingWatch
from .background import BackgroundCompaction
from .breaker import Breaker
from .draft import CompactionDraft, CompactionReport, CompactionRequest, FreesTooLittle
from .provider import ProviderSummaries

__all__ = ["CompactionReport", "Compactor"]

_COLLAPSE_TO = 0.75
_NEARLY = 0.9  # share of the room for a summary request at which the summary is begun


class Compactor:
    """Runs layer 4 for one session: compacts, snips or collapses the view, and undoes compactions."""

    def __init__(
        self,
        session: SessionHost,
        cache: CachePlan,
        notes: NotesKeeper,
        activity: SessionActivity,
        thinking: ThinkingWatch,
        standing: StandingContext,
    ) -> None:
        self._session = session
        self._cache = cache
        self.breaker = Breaker()
        self._thinking = thinking
        self._standing = standing
        self._draft = CompactionDraft(session, cache, notes, activity, ProviderSummaries(session, thinking), standing)
        self.background = BackgroundCompaction(session, self._draft)
        self._explained = ""
        self._weighed: tuple[PrefixRendered, int] | None = None
        self._refused: set[str] = set()
        self._last_reply = ""

    def read(self, entry: Entry) -> None:
        """Update the circuit breaker from an entry of the log."""
        if entry.kind == DECISION and str(entry.body.get("decision", "")).startswith("compact"):
            self.breaker = self.breaker.after(decision_of(entry.body), entry.at, self._session.policy.settings.compact)
        elif entry.kind == ASSISTANT and (reply := reply_id(entry)) != self._last_reply:
            self._last_reply = reply
            self.breaker = self.breaker.replied()

    def on_event(self, event: Event) -> None:
        """Update the circuit breaker from an event about a reply, a compaction, its failure or its undo."""
        if isinstance(event, ReplyObserved):
            self.breaker = self.breaker.replied()
        elif isinstance(event, DecisionMade) and isinstance(
            event.decision, Compacted | CompactionFailed | CompactionUndone
        ):
            now, policy = self._session.log.clock(), self._session.policy.settings.compact
            self.breaker = self.breaker.after(event.decision, now, policy)

    # -- before a request

    async def before_request(self) -> None:
        """Cut the view if the window is nearly full or it pays; raise ``WindowFull`` if the request cannot fit.

        Nothing happens in a fork; while the switch ``compact`` is off, only the limit holds.
        """
        session = self._session
        switches, policy = session.policy.settings.switches, session.policy.settings.compact
        if forking():
            return
        at = session.policy.thresholds
        self._check_opening(at.blocking)
        if not switches.compact:
            self._check(at.blocking)
            return
        if awaits_provider(session.log.view) and session.log.view.token_count.tokens < at.blocking:
            return  # a compaction adds a message, which would give up the call that the provider paused
        await self._swap(at)
        tokens = session.log.view.token_count.threshold_tokens + self._unbilled()
        if switches.collapse and self._may_cut("collapse"):
            if tokens >= policy.collapse_at * at.effective:
                await self._collapse(at)
            self._check(int(policy.collapse_blocks_at * at.effective))
            return
        if switches.auto_compact:
            await self._by_size(tokens, at)
        self._check(at.blocking)

    async def _by_size(self, tokens: int, at: Thresholds) -> None:
        """Compact at the threshold, begin in the background before it, or compact early by price."""
        session = self._session
        policy = session.policy.settings.compact
        may_snip = session.policy.settings.switches.snip and self._may_cut("snip")
        if tokens >= at.auto_compact:
            if may_snip:
                await self._snip(at)
            if session.log.view.token_count.threshold_tokens + self._unbilled() >= at.auto_compact:
                await self._at_threshold(at)
        elif self._nears(tokens, at):
            begun = self._start_background(self._draft.price_reason(at) or "the window fills up", at)
            if not begun and self._raw_tokens() >= self._draft.summary_room(at):
                await self._automatic("the messages hardly fit a request for a summary", at)
        elif not policy.prefers_provider(session.policy.facts):
            await self._by_price(at)

    async def _swap(self, at: Thresholds) -> None:
        """Put a compaction in place that was written in the background."""
        asked = CompactionRequest("auto", "written in the background", at)
        report = await self.background.report(asked)
        if report is not None:
            await self._applied(report, asked)

    async def _at_threshold(self, at: Thresholds) -> None:
        """Compact in the background, or here if that is not offered or the window is full."""
        reason = "the window is nearly full"
        is_full = self._session.log.view.token_count.tokens + self._unbilled() >= at.blocking
        if not is_full and self._start_background(reason, at):
            return
        if self.background.is_running:
            await self.background.wait(self._session.policy.settings.compact.summary_seconds)
            await self._swap(at)
        if self._session.log.view.token_count.threshold_tokens + self._unbilled() >= at.auto_compact:
            await self._automatic(reason, at)

    def _nears(self, tokens: int, at: Thresholds) -> bool:
        """Say whether a summary should be written soon: the window fills up, the messages hardly fit, or it pays.

        The provider may have cleared results, so the messages may be larger than the window.
        """
        if not self._session.policy.settings.compact.prefers_provider(self._session.policy.facts):
            return False
        is_near = tokens >= at.warning or self._raw_tokens() >= _NEARLY * self._draft.summary_room(at)
        return is_near or bool(self._draft.price_reason(at))

    @property
    def summary_at(self) -> int:
        """The token count of all messages at which the provider is asked for a summary; 0 if it never is."""
        session = self._session
        switches, policy = session.policy.settings.switches, session.policy.settings.compact
        if not (switches.compact and switches.auto_compact and policy.prefers_provider(session.policy.facts)):
            return 0
        counted, at = session.log.view.token_count, session.policy.thresholds
        room = int(_NEARLY * self._draft.summary_room(at)) + round(counted.overhead)
        return room if counted.cleared_tokens else min(room, at.warning)

    def _raw_tokens(self) -> int:
        """Return the tokens of all messages, with the results that the provider leaves out of its requests."""
        counted = self._session.log.view.token_count
        return counted.raw_tokens - round(counted.overhead)

    def _start_background(self, reason: str, at: Thresholds) -> bool:
        policy = self._session.policy.settings.compact
        if self.breaker.declined or not policy.in_background or not policy.prefers_provider(self._session.policy.facts):
            return False
        if self.breaker.why_not(policy, self._session.log.clock(), blocked=False) is not None:
            return False
        return self.background.start(CompactionRequest("auto", reason, at))

    async def background_request(self) -> dict[str, Any] | None:
        """Return a request for the provider's summary if one is due, for a caller that sends it; None if not."""
        session = self._session
        switches, policy = session.policy.settings.switches, session.policy.settings.compact
        if session.log.view.facts.prefix is None or not (
            switches.compact and switches.auto_compact and policy.in_background
        ):
            return None
        at, tokens = session.policy.thresholds, session.log.view.token_count.threshold_tokens + self._unbilled()
        may_try = not self.breaker.declined and self.breaker.why_not(policy, session.log.clock(), blocked=False) is None
        if not (may_try and self._nears(tokens, at)):
            return None
        reason = self._draft.price_reason(at) or "the window fills up"
        return await self.background.request(CompactionRequest("auto", reason, at))

    def _unbilled(self) -> int:
        """Return the tokens of the next request that the last bill lacks, besides new messages.

        These are system prompt and tools before the first bill, and results that a provider had left out if the next
        request does not ask for that.
        """
        counted, prefix = self._session.log.view.token_count, self._session.log.view.facts.prefix
        options = prefix.options if prefix is not None else {}
        edits: Any = options.get("context_management")
        clears = prefix is not None and (CLEARS in prefix.capabilities or CLEAR_RESULTS in repr(edits))
        return self._opening() + (0 if clears else counted.cleared_tokens)

    def _opening(self) -> int:
        """Estimate the tokens of system prompt and tools; return 0 once a reply has reported them."""
        counted, prefix = self._session.log.view.token_count, self._session.log.view.facts.prefix
        if counted.known or counted.overhead or prefix is None:
            return 0
        if self._weighed is None or self._weighed[0] is not prefix:
            self._weighed = prefix, estimate_request([], system=prefix.system, tools=prefix.tools)
        return self._weighed[1]

    def _check_opening(self, limit: int) -> None:
        """Raise ``WindowFull``, before a compaction is tried in vain, if system prompt and tools are too large."""
        tokens = self._opening() or round(self._session.log.view.token_count.overhead)
        if tokens >= limit:
            raise WindowFull(
                f"system prompt and tools alone need about {tokens:,} tokens and the window takes {limit:,}: shorten "
                "them, or use a model with a larger window in a new session",
                tokens=tokens,
                limit=limit,
            )

    def _check(self, limit: int) -> None:
        tokens = self._session.log.view.token_count.tokens + self._unbilled()
        if tokens >= limit:
            raise WindowFull(
                f"the next request would hold about {tokens:,} tokens and the window takes {limit:,}: compact "
                "(session.compact() or 'reverie compact'), shorten the system prompt, or begin a new session",
                tokens=tokens,
                limit=limit,
            )

    async def _automatic(self, reason: str, at: Thresholds) -> None:
        session = self._session
        now, policy = session.log.clock(), session.policy.settings.compact
        blocked = session.log.view.token_count.tokens + self._unbilled() >= at.blocking
        why_not = self.breaker.why_not(policy, now, blocked=blocked)
        if why_not is not None:
            if why_not != self._explained:
                session.log.emit(FellBack(session.log.name, "compact", why_not))
            self._explained = why_not
            return
        self._explained = ""
        may_try = self.breaker.why_not(policy, now, blocked=False) is None
        calls_model = may_try or not self.breaker.is_open(policy)  # an open breaker spends no call
        limit, bound = at.auto_compact - self._unbilled(), at.blocking - self._unbilled() if blocked else 0
        may_ask = not self.breaker.declined
        asked = CompactionRequest(
            *("auto", reason, at), calls_model=calls_model, by_provider=may_ask, limit=limit, bound=bound
        )
        await self._tried(asked)

    async def _tried(self, asked: CompactionRequest) -> CompactionReport | None:
        """Compact and return the report; log a failure, emit an event and return None: the turn goes on."""
        session = self._session
        try:
            report = await self._draft.plan(asked)
            await self._applied(report, asked)
        except CompactionError as error:
            await session.log.decide(CompactionFailed(Cause("compact", asked.reason), str(error)))
            session.log.emit(FellBack(session.log.name, "compact", f"not compacted: {error}"))
            return None
        return report

    async def when_idle(self) -> bool:
        """Begin a compaction that has become due by price while the cache has the prefix; say whether one began."""
        session = self._session
        switches, at = session.policy.settings.switches, session.policy.thresholds
        if forking() or not (switches.compact and switches.auto_compact) or awaits_provider(session.log.view):
            return False
        reason = self._draft.price_reason(at)
        if not reason or session.policy.settings.compact.prefers_provider(session.policy.facts):
            return bool(reason) and self._start_background(reason, at)
        cuts = session.log.view.cuts
        await self._by_price(at)
        return session.log.view.cuts != cuts

    async def _by_price(self, at: Thresholds) -> None:
        """Compact without a model call if carrying the window has cost enough (L4.18).

        Not in a session with thinking that a model checks: the kept messages would lose it.
        """
        session = self._session
        if session.policy.facts.checks_thinking or self._thinking.binds:
            return
        reason = self._draft.price_reason(at)
        policy, now = session.policy.settings.compact, session.log.clock()
        if not reason or self.breaker.why_not(policy, now, blocked=False) is not None:
            return
        await self._tried(CompactionRequest("auto", reason, at, limit=at.auto_compact, calls_model=False))

    # -- on request

    async def compact(
        self,
        *,
        trigger: Literal["manual", "reactive"] = "manual",
        instructions: str = "",
        from_message: str | None = None,
        up_to: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> CompactionReport:
        """Compact and return the report, or in a dry run an estimate without a call; raise ``CompactionError``.

        A dry run reports a compaction that would free too little, with its ``refusal``. ``limit`` is the token count
        that the window must get below.
        """
        try:
            report, asked = await self._planned(
                trigger, instructions, from_message, up_to, dry_run=dry_run, limit=limit
            )
        except FreesTooLittle as error:
            if dry_run:
                return replace(error.report, is_estimate=self._session.model is not None)
            raise
        if not dry_run:
            await self._applied(report, asked)
        return report

    async def plan(
        self, *, instructions: str = "", from_message: str | None = None, up_to: str | None = None
    ) -> CompactionReport:
        """Return a compaction for ``apply`` without logging it; the model, if there is one, writes its summary."""
        report, _ = await self._planned("manual", instructions, from_message, up_to)
        return report

    async def _planned(
        self,
        trigger: str,
        instructions: str,
        from_message: str | None,
        up_to: str | None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> tuple[CompactionReport, CompactionRequest]:
        session = self._session
        if not session.policy.settings.switches.compact:
            raise CompactionError("compaction is switched off: turn the switch 'compact' on")
        if from_message and up_to:
            raise CompactionError("pass from_message or up_to, not both")
        at, wanted = session.policy.thresholds, 0
        if limit is not None:
            wanted = limit * 3 // 4
            at = replace(at, effective=wanted, window=wanted)
        reason = "asked for" if trigger == "manual" else "the provider says the prompt is too long"
        asked = CompactionRequest(
            *(trigger, reason, at, instructions, from_message, up_to),
            calls_model=not dry_run,
            limit=wanted,
            bound=(limit or 0) * 9 // 10,
        )
        return await self._draft.plan(asked), asked

    async def apply(self, report: CompactionReport) -> Entry:
        """Log a planned compaction, run hooks, and return its entry; raise if the view changed since the plan."""
        asked = CompactionRequest(report.decision.trigger, "", self._session.policy.thresholds)
        return await self._applied(report, asked)

    async def reactively(self, tokens: int | None, limit: int | None) -> CompactionReport:
        """Compact well below the limit that the provider named in its refusal; log a failure and raise it."""
        count = self._session.log.view.token_count.tokens + self._unbilled()
        target = int(limit * min(1.0, count / tokens)) if limit is not None and tokens else count  # in our own count
        try:
            return await self.compact(trigger="reactive", limit=max(1, target))
        except CompactionError as error:
            await self._session.log.decide(CompactionFailed(Cause("compact", "prompt too long"), str(error)))
            raise

    async def undo(self, compaction: str | None = None) -> Entry:
        """Undo the last compaction, or the named one, and return the entry; raise ``SessionError`` without one."""
        return await self._session.log.decide(self.undoing(compaction))

    def undoing(self, compaction: str | None = None) -> CompactionUndone:
        """Return the decision that undoes the last compaction, or the named one; raise ``SessionError`` without one."""
        facts = self._session.log.view.facts
        active = [one for one in facts.compactions if one not in facts.undone]
        if not active:
            raise SessionError("there is no compaction to undo in this session")
        if compaction is not None and compaction not in active:
            raise SessionError(f"this session has no compaction {compaction!r} to undo")
        cause = Cause("compact", "undone on request", moves_prefix=True)
        return CompactionUndone(cause, compaction or active[-1])

    async def _applied(self, report: CompactionReport, asked: CompactionRequest) -> Entry:
        """Log a compaction and the metadata again, run hooks, emit the event, and return the first entry."""
        session, view = self._session, self._session.log.view
        items = view.items_in_view()
        if report.decision.last_before not in {item.uuid for item in items}:
            raise CompactionError("the conversation has changed since this compaction was planned: plan it again")
        counts = metrics(account(view.messages(), attachments_in(view), context=added_texts(view)))
        kept = dropwhile(lambda item: item.uuid != report.decision.first_kept, items)
        again = 0 if report.decision.from_message else sum(tokens_of(view, item) for item in kept)
        entry = await session.log.decide(report.decision)
        if session.log.view.facts.meta:
            await session.log.append(META, dict(session.log.view.facts.meta))
        if session.hooks is not None:
            await self._hooks_after(session.hooks, asked.trigger)
        session.log.emit(
            CompactionEnded(
                session.log.name,
                report.decision.trigger,
                report.method,
                report.tokens_before,
                report.tokens_after,
                len(report.loss.lost),
                report.model_calls,
                report.cost_usd,
                counts,
                again,
            )
        )
        return entry

    async def _hooks_after(self, hooks: Hooks, trigger: str) -> None:
        session = self._session
        self._draft.progress("hooks after")
        try:
            outcome = await hooks.run("after_compact", {"trigger": trigger})
            if outcome.context:
                await session.log.attach(outcome.context, type="hook")
            await self._standing.run_start_hooks(hooks, "compact")
        finally:
            self._draft.progress("done")

    # -- the smaller cuts

    def _may_cut(self, switch: str) -> bool:
        """Say whether messages may be cut from the middle; a model that checks thinking refuses its thinking then."""
        session = self._session
        binds = session.policy.facts.checks_thinking or self._thinking.binds
        if binds and switch not in self._refused:
            self._refused.add(switch)
            name = session.policy.facts.name if session.policy.facts.checks_thinking else "a model of this session"
            why = f"{name} refuses its thinking once an earlier message has changed: compacting instead"
            session.log.emit(FellBack(session.log.name, switch, f"{why}; turn the switch off"))
        return not binds

    async def _snip(self, at: Thresholds) -> None:
        session, view, policy = self._session, self._session.log.view, self._session.policy.settings.compact
        tail = summary_budget(policy, at.effective).tail
        free = int(view.token_count.threshold_tokens - (1 - policy.least_freed) * at.auto_compact)
        planned = plan_snip(view, tail, free_tokens=free, handle=f"cut-{new_uuid()[:12]}")
        if planned is not None:
            await session.log.decide(planned)

    async def _collapse(self, at: Thresholds) -> None:
        session = self._session
        tail = summary_budget(session.policy.settings.compact, at.effective).tail
        free = int(session.log.view.token_count.threshold_tokens - _COLLAPSE_TO * at.effective)
        for planned in plan_collapse(session.log.view, tail, free_tokens=free):
            await session.log.decide(planned)
