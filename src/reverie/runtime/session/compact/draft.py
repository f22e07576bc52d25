"""Draft a compaction from notes, by the model or by the local note-taker, and check its effect before it is logged."""

from __future__ import annotations

from typing import Any

from ....cache.economics import Verdict
from ....conversation.decisions import Compacted
from ....conversation.entries import USER, new_uuid
from ....conversation.identifiers import Identifier, struck_names
from ....conversation.rules import rules_in
from ....conversation.thinking import thinking_sizes
from ....conversation.tokens.estimate import estimate_text
from ....conversation.tokens.window import Thresholds
from ....conversation.view import View
from ....conversation.wire.blocks import accepted_message, as_blocks
from ....errors import CompactionError
from ....events import CompactionProgressed, FellBack
from ....layers.l3_notes import Activity, Notes
from ....layers.l4_compact import (
    CompactionCause,
    CompactionText,
    CutRange,
    LossReport,
    QuotedWords,
    SignedSummary,
    SummaryBudget,
    UserMessages,
    compaction,
    cut_range_before_tail,
    cut_range_from,
    cut_range_up_to,
    expected_compaction,
    loss_between,
    provider_compaction,
    provider_cut_range,
    provider_instructions,
    round_cut_range,
    shown_text,
    summary_budget,
    tokens_of,
)
from ....ports import Model
from ....values import record, replace
from ..cache_plan import CachePlan
from ..host import SessionHost
from ..limits import compact_patience
from ..notes.activity import SessionActivity
from ..notes.keeper import NotesKeeper
from ..standing_context import StandingContext
from .provider import ProviderSummaries, ProviderSummary, SummaryRefused
from .summary import notes_summary, summarise

_SCALES = (1.0, 0.5, 0.25, 0.0)
_LEAST_RANGE = 500  # tokens below which a provider's summary is not worth a further try
_SURE = 0.85  # a request for a summary leaves room for errors of the estimate


@record
class CompactionReport:
    """A planned or finished compaction: its decision, effect on window and cost, quoted messages and losses."""

    decision: Compacted
    tokens_before: int
    tokens_after: int
    kept_messages: int
    words: QuotedWords
    loss: LossReport
    model_calls: int
    cost_usd: float | None
    price: Verdict
    """The price of compacting now against carrying the window on, in tokens at the input price."""
    is_estimate: bool = False
    """Whether this comes from a dry run that called no model: the model's own summary will differ."""
    refusal: str = ""
    """Why nothing would be compacted, in the report of a dry run; empty if it would."""

    @property
    def method(self) -> str:
        """The method of the summary: ``notes``, ``full``, ``from`` or ``up_to``."""
        return self.decision.method

    @property
    def summary(self) -> str:
        """The summary that replaces the compacted part."""
        return self.decision.summary

    @property
    def handle(self) -> str:
        """The handle that reads the compacted part back."""
        return self.decision.handle


@record
class CompactionRequest:
    """A request for a compaction: its trigger, its reason, the part to compact and the thresholds to keep."""

    trigger: str
    reason: str
    thresholds: Thresholds
    instructions: str = ""
    from_message: str | None = None
    up_to: str | None = None
    calls_model: bool = True
    by_provider: bool = True
    """Whether the provider may be asked for the summary: not after it declined to write this one."""
    limit: int = 0
    """The token count that an automatic compaction should get below."""
    bound: int = 0
    """The token count that it must get below where the window is full; 0 if it is not."""

    @property
    def partial(self) -> str:
        return "from" if self.from_message else "up_to" if self.up_to else ""


class _HookStopped(CompactionError):
    """A hook stopped the compaction."""


class FreesTooLittle(CompactionError):
    """The compaction would free too little; ``report`` shows it."""

    def __init__(self, report: CompactionReport) -> None:
        super().__init__(report.refusal)
        self.report = report


class CompactionDraft:
    """Plans compactions for one session without logging them; it logs only the cost of its calls."""

    def __init__(
        self,
        session: SessionHost,
        cache: CachePlan,
        notes: NotesKeeper,
        activity: SessionActivity,
        summaries: ProviderSummaries,
        standing: StandingContext,
    ) -> None:
        self.summaries = summaries
        self._standing = standing
        self._session = session
        self._cache = cache
        self._notes = notes
        self._activity = activity
        self._saying = UserMessages()

    def progress(self, phase: str, characters: int = 0) -> None:
        """Emit the phase of a compaction and the number of characters written so far."""
        self._session.log.emit(CompactionProgressed(self._session.log.name, phase, characters))

    async def plan(self, asked: CompactionRequest) -> CompactionReport:
        session = self._session
        if not session.log.view.length:
            raise CompactionError("there is nothing to compact: the conversation is empty")
        self.progress("compacting")
        try:
            return await self._written(asked)
        finally:
            self.progress("done")

    async def _written(self, asked: CompactionRequest) -> CompactionReport:
        """Return the first report that succeeds, cheapest method first: notes, the model, the local note-taker."""
        session = self._session
        policy, switches = session.policy.settings.compact, session.policy.settings.switches
        fixed, effective = round(session.log.view.token_count.overhead), asked.thresholds.effective
        room = summary_budget(policy, effective - max(0, fixed - effective // 4))  # a large prefix leaves little room
        room = room.beside(self._saying.follow(session.log.view))
        model = session.model if asked.calls_model else None
        by_provider = asked.by_provider and not asked.partial and policy.prefers_provider(session.policy.facts)
        if by_provider and self.summaries.offered(model):
            report = await self._by_provider(asked)
            if report is not None:
                return report
        if switches.compact_from_notes and not asked.partial and not asked.instructions and session.model is not None:
            await self._notes.wait(policy.wait_seconds)
            report = await self._from_notes(asked, room)
            if report is not None:
                return report
        has_local = switches.compact_from_notes or asked.trigger == "manual"
        failed: CompactionError | None = None
        if model is not None:
            try:
                return await self._full(asked, room, model)
            except CompactionError as error:
                failed = error
                if not has_local or (asked.trigger == "manual" and isinstance(error, _HookStopped)):
                    raise
                session.log.emit(FellBack(session.log.name, "compact", f"{error}; the local note-taker writes it"))
        if not has_local:
            raise CompactionError("no model and no compaction from notes: pass model= or turn the switch on")
        report = await self._locally(asked, room)
        if failed is not None:
            return replace(report, model_calls=failed.calls)
        return replace(report, is_estimate=not asked.calls_model and session.model is not None)

    async def _by_provider(self, asked: CompactionRequest) -> CompactionReport | None:
        """Draft with the provider's signed summary; return None, after an event, if there is none."""
        try:
            taking, made = await self.by_provider(asked)
            return await self.swapped(asked, taking, made.signed, made.calls, made.cost_usd)
        except _HookStopped:
            raise
        except CompactionError as error:
            self._session.log.emit(FellBack(self._session.log.name, "compact by the provider", str(error)))
            return None

    async def by_provider(self, asked: CompactionRequest) -> tuple[CutRange, ProviderSummary]:
        """Return a range of the view and the provider's summary of it; raise ``CompactionError`` without one."""
        session = self._session
        if session.model is None:
            raise CompactionError("no model: pass model= to Session.open()")
        instructions, most = await self._wishes(asked)
        calls = 0
        while True:
            taking = self._provider_range(asked, most)
            try:
                made = await self.summaries.write(session.model, taking, instructions)
                return taking, replace(made, calls=made.calls + calls)
            except SummaryRefused as error:
                calls += error.calls
                most = most * 2 // 3
                if not error.too_long or most < _LEAST_RANGE:
                    raise SummaryRefused(str(error), calls=calls, later=error.later) from error

    async def provider_request(self, asked: CompactionRequest) -> tuple[CutRange, dict[str, Any], dict[str, Any]]:
        """Return a range, the request for the provider's summary of it, and the digests that it covers."""
        instructions, most = await self._wishes(asked)
        taking = self._provider_range(asked, most)
        return taking, *await self.summaries.request(taking, instructions)

    def has_range(self, asked: CompactionRequest) -> bool:
        """Say whether a summary by the provider is worth its price: it must replace at least half of the messages."""
        view = self._session.log.view
        try:
            taking = self._provider_range(asked, self.summary_room(asked.thresholds))
        except CompactionError:
            return False
        return sum(tokens_of(view, item) for item in taking.kept) <= view.tokens / 2

    def _provider_range(self, asked: CompactionRequest, most: int) -> CutRange:
        return provider_cut_range(self._session.log.view, self._provider_budget(asked).tail, max_tokens=most)

    def _provider_budget(self, asked: CompactionRequest) -> SummaryBudget:
        """Return the budgets of a compaction by the provider, which follow the threshold if that was lowered."""
        return summary_budget(self._session.policy.settings.compact, asked.thresholds.auto_compact)

    async def _wishes(self, asked: CompactionRequest) -> tuple[str, int]:
        """Return the instructions for the provider's summary, and the tokens of messages that it may cover."""
        budget = self._provider_budget(asked)
        facts = self._session.log.view.facts
        wishes, rules = await self._instructions(asked), rules_in(facts.standing)
        instructions = provider_instructions(facts.notes, wishes, budget=budget, rules=rules)
        room = self.summary_room(asked.thresholds) - estimate_text(instructions)
        view = self._session.log.view
        billed = view.token_count.raw_tokens - view.token_count.overhead
        return instructions, int(room * view.tokens / billed) if billed > 0 else room  # in tokens of the estimate

    async def swapped(
        self, asked: CompactionRequest, taking: CutRange, signed: SignedSummary, calls: int, cost: float | None
    ) -> CompactionReport:
        """Return the report of a compaction that puts a signed summary in place of a range."""
        room = self._provider_budget(asked)
        written = CompactionText("provider", signed.text, await self._names())
        return await self._checked(asked, taking, written, room, calls, cost, signed)

    def summary_room(self, at: Thresholds) -> int:
        """Return the tokens of messages that surely fit a request for a summary, without its instructions."""
        return max(0, int(at.effective * _SURE - self._session.log.view.token_count.overhead))

    async def _instructions(self, asked: CompactionRequest) -> str:
        """Run the hooks before a compaction; return the caller's instructions and theirs, or raise if one stops it."""
        session = self._session
        await session.log.sync()
        if session.hooks is None:
            return asked.instructions
        self.progress("hooks before")
        payload = {"trigger": asked.trigger, "instructions": asked.instructions}
        outcome = await session.hooks.run("before_compact", payload)
        if outcome.block:
            raise _HookStopped(f"a hook stopped it: {outcome.reason or 'no reason given'}")
        self.progress("compacting")
        return "\n\n".join(one for one in (asked.instructions, outcome.instructions) if one)

    async def _from_notes(self, asked: CompactionRequest, room: SummaryBudget) -> CompactionReport | None:
        """Draft from existing notes without a call; return None, after an event, if the notes are unusable.

        Without notes, return None at once.
        """
        session = self._session
        facts = session.log.view.facts
        if not session.policy.settings.switches.notes or not any(text.strip() for text in facts.notes.values()):
            return None
        try:
            if facts.notes_covered is None:
                raise CompactionError("the notes do not say which messages they cover, so all messages are kept")
            taking = cut_range_before_tail(session.log.view, room.tail, cursor=facts.notes_covered)
            written = await self._by_notes(asked, taking, room, by_others=True)
            return await self._checked(asked, taking, written, room, 0, None)
        except CompactionError as error:
            session.log.emit(FellBack(session.log.name, "compact from notes", str(error)))
            return None

    async def _full(self, asked: CompactionRequest, room: SummaryBudget, model: Model) -> CompactionReport:
        session = self._session
        method = asked.partial or "full"
        taking = self._taking(asked, room)
        instructions = await self._instructions(asked)
        made = await summarise(
            session,
            model,
            method,
            quote=_quote(taking, method),
            instructions=instructions,
            limit=asked.thresholds.window,
            on_text=lambda characters: self.progress("compacting", characters),
        )
        view = session.log.view
        body, wrong = await session.log.run_blocking(lambda: struck_names(made.text, view.entries()))
        if wrong:
            session.log.emit(FellBack(session.log.name, "compact", f"{wrong} names of the summary are not in the log"))
        written = CompactionText(method, body, await self._names())
        try:
            return await self._checked(asked, taking, written, room, made.calls, made.cost_usd)
        except CompactionError as error:
            raise CompactionError(str(error), calls=made.calls) from error

    async def _locally(self, asked: CompactionRequest, room: SummaryBudget) -> CompactionReport:
        """Draft from notes that the local note-taker writes now; cut the tail while the result is too large."""
        view = self._session.log.view
        wrong = CompactionError("there is nothing to compact")
        attempts = [(scale, asked) for scale in ((1.0,) if asked.partial else _SCALES)]
        if asked.bound:  # a full window: any room is better than none
            attempts.append((0.0, replace(asked, limit=asked.bound)))
        for scale, asked in attempts:
            less = room.scaled(scale)
            if asked.trigger == "manual":  # the caller may still give results of calls that wait
                less = replace(less, tail=replace(less.tail, keeps_open=True))
            try:
                taking = self._taking(asked, less) if asked.partial else cut_range_before_tail(view, less.tail)
                written = await self._by_notes(asked, taking, less)
                return await self._checked(asked, taking, written, less, 0, None)
            except CompactionError as error:
                wrong = error
        raise wrong

    async def _by_notes(
        self, asked: CompactionRequest, taking: CutRange, room: SummaryBudget, *, by_others: bool = False
    ) -> CompactionText:
        """Return a summary from the log: notes of a person or a model, local ones elsewhere, and accounts of requests.

        A partial summary is about the messages of its range alone. With ``by_others``, the notes of others stay as they
        are; else they are brought up to date.
        """
        view = self._session.log.view
        foreign = frozenset[str]() if asked.partial else view.facts.notes_foreign
        theirs = {name: text for name, text in view.facts.notes.items() if name in foreign and text.strip()}
        before = Notes({}) if by_others else Notes(theirs)
        theirs = theirs if by_others else {}

        def written(activity: Activity) -> CompactionText:
            text = notes_summary(activity, taking, room, before=before, theirs=theirs, foreign=foreign)
            return replace(text, method=asked.partial) if asked.partial else text

        if asked.partial:
            part = [item.entry for item in taking.cut]
            return await self._session.log.run_blocking(lambda: written(Activity().add_all(part)))
        return await self._session.log.run_blocking(lambda: self._activity.read(view, written))

    def _taking(self, asked: CompactionRequest, room: SummaryBudget) -> CutRange:
        view = self._session.log.view
        if asked.from_message:
            return cut_range_from(view, asked.from_message)
        if asked.up_to:
            return cut_range_up_to(view, asked.up_to)
        return round_cut_range(view, room.tail.tokens)

    async def _names(self) -> dict[Identifier, tuple[int, str]]:
        """Return the exact names the session has used."""
        view = self._session.log.view
        return await self._session.log.run_blocking(lambda: self._activity.read(view, Activity.named))

    async def _checked(
        self,
        asked: CompactionRequest,
        taking: CutRange,
        written: CompactionText,
        room: SummaryBudget,
        calls: int,
        cost: float | None,
        signed: SignedSummary | None = None,
    ) -> CompactionReport:
        """Build the decision, foresee its effect and return a report; raise if it would free too little."""
        session = self._session
        view, policy = session.log.view, session.policy.settings.compact
        handle = f"cut-{new_uuid()[:12]}"
        cause = CompactionCause(asked.trigger, asked.reason, handle)
        if signed is None:
            decision, words = compaction(view, taking, written, room, cause, spoken=self._saying)
        else:
            decision, words = provider_compaction(view, taking, signed, written, room, cause, spoken=self._saying)
        after = await session.log.foresee(decision)
        said = [one for saying in await self._standing.preview(after) for one in saying.items]
        # With the results that the provider leaves out, because the messages after the cut have those as well.
        before = view.token_count.raw_tokens
        again = sum(estimate_text(one.text) for one in said)
        left = after.token_count.tokens + again
        least = 0.0 if asked.bound else policy.least_freed if signed is None else policy.least_freed / 2
        refusal = ""
        if left > (1 - least) * before:
            fixed = round(view.token_count.overhead)
            around = f"; {fixed:,} of them are system prompt and tools, which stay" if fixed >= left // 4 else ""
            sizes = f"{before:,} tokens before, {left:,} after, and at least {least:.0%} must go"
            refusal = f"it would free too little: {sizes}{around}"
        count = left if asked.limit == asked.bound else after.token_count.threshold_tokens + again
        if not refusal and asked.limit and count >= asked.limit:
            raise CompactionError(
                f"the result would still be too large: {before:,} tokens before, {count:,} after, of {asked.limit:,}"
            )
        loss = loss_between(taking.cut, shown_text(after), handle=handle)
        checks = session.policy.facts.checks_thinking
        kept_thinking = sum(tokens for _, tokens in thinking_sizes(after)) if checks else 0
        price = self._priced(view, left, calls, 0 if signed is not None else kept_thinking)
        reason = decision.cause.reason + self._choice(view, left, kept_thinking, by_provider=signed is not None)
        cause_of = replace(decision.cause, reason=reason, frees=before - left + again)
        decision = replace(decision, cause=cause_of, tokens_after=left, loss=loss.counts)
        kept = len(taking.kept)
        report = CompactionReport(decision, before, left, kept, words, loss, calls, cost, price, refusal=refusal)
        if refusal:
            raise FreesTooLittle(report)
        return report

    def _choice(self, view: View, after: int, thinking: int, *, by_provider: bool) -> str:
        """Return the prices of a summary by the provider and of one by us, in a clause; empty if there is no choice."""
        if not self._session.policy.facts.checks_thinking or not self.summaries.offered(self._session.model):
            return ""
        theirs, ours = self._priced(view, after, 1).cost, self._priced(view, after, 0, thinking).cost
        lost = f", with {thinking:,} tokens of thinking lost" if thinking else ""
        made = "by the provider" if by_provider else "by us"
        return f"; {made}: the provider's summary costs about {theirs:,.0f} input tokens, ours {ours:,.0f}{lost}"

    def price_reason(self, at: Thresholds) -> str:
        """Return the reason to compact by price (L4.18); empty if it does not pay yet or the preset leaves it out.

        The price has a summary call also where notes make it needless: without it, twice as many compactions save
        little more, and each one loses detail (docs/design/0014).
        """
        session, cache = self._session, self._cache
        patience = compact_patience(session.policy.settings)
        if not patience or cache.placed is None or not cache.is_priced:
            return ""
        now = session.log.clock()
        option = expected_compaction(
            session.log.view,
            session.policy.settings.compact,
            at.effective,
            live=cache.live_tokens(session.log.view, now),
            calls=1,
            rates=cache.paid_rates,
        )
        verdict = cache.compaction_due(session.log.view, option, patience)
        return verdict.reason if verdict.act else ""

    def _priced(self, view: View, after: int, calls: int, lost_thinking: int = 0) -> Verdict:
        """Return the price of the compaction against carrying the window on, and whether it pays."""
        cache, policy = self._cache, self._session.policy.settings.compact
        option = expected_compaction(
            view,
            policy,
            self._session.policy.thresholds.effective,
            live=cache.live_tokens(view, self._session.log.clock()),
            calls=1 if calls else 0,
            rates=cache.paid_rates,
            lost_thinking=lost_thinking,
        )
        return cache.weigh_compaction(view, replace(option, after=after))


def _quote(taking: CutRange, method: str) -> str:
    """Return the text of the message at which a partial summary begins or ends."""
    items = taking.cut if method == "from" else taking.kept
    message = accepted_message(items[0].message, items[0].message.get("role", USER)) if items else None
    blocks = as_blocks(message) if message is not None else []
    return " ".join(str(block.get("text") or block.get("name") or "") for block in blocks).strip() or "(a tool result)"
