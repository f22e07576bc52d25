"""Layer 4 at work in a session: when the past becomes a summary, from what, and what is done around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....conversation.decisions import Cause, Compacted, CompactionFailed, CompactionUndone, PrefixRendered
from ....conversation.entries import META, Entry, new_uuid
from ....conversation.tokens.accounting import account, metrics
from ....conversation.tokens.estimate import estimate_request
from ....conversation.tokens.window import Thresholds
from ....errors import CompactionError, SessionError, WindowFull
from ....events import CompactionEnded, DecisionMade, Event, FellBack, ReplyObserved
from ....layers.l4_compact import plan_collapse, plan_snip, room_of, standing
from ....values import replace
from ..forks import forking
from .breaker import Breaker, breaker_of
from .draft import Asked, CompactionReport, Drafting

if TYPE_CHECKING:
    from ..parts import Kept

__all__ = ["Compacting", "CompactionReport"]

_COLLAPSE_TO = 0.75


class Compacting:
    """Runs layer 4 for one session."""

    def __init__(self, session: Kept) -> None:
        self._session = session
        self.breaker = Breaker()
        self._drafting = Drafting(session)
        self._explained = ""
        self._weighed: tuple[PrefixRendered, int] | None = None

    def resume(self, entries: list[Entry]) -> None:
        """Take up what an earlier process left in the log, and follow what comes."""
        self.breaker = breaker_of(entries, self._session.settings.compact)

    def hear(self, event: Event) -> None:
        """Follow the log as it grows."""
        if isinstance(event, ReplyObserved):
            self.breaker = self.breaker.replied()
        elif isinstance(event, DecisionMade) and isinstance(
            event.decision, Compacted | CompactionFailed | CompactionUndone
        ):
            now, policy = self._session.clock(), self._session.settings.compact
            self.breaker = self.breaker.after(event.decision, now, policy)

    # -- before a request

    async def before_request(self) -> None:
        """Make room where the window is nearly full, or where it is cheap; raise ``WindowFull`` where none can be."""
        session = self._session
        switches, policy = session.settings.switches, session.settings.compact
        if not switches.compact or forking():
            return
        lines, tokens = session.lines, session.view.counted.threshold_tokens + self._unbilled()
        if switches.collapse:
            if tokens >= policy.collapse_at * lines.effective:
                await self._collapse(lines)
            self._check(int(policy.collapse_blocks_at * lines.effective))
            return
        if switches.auto_compact:
            if tokens >= lines.auto_compact:
                if switches.snip:
                    await self._snip(lines)
                if session.view.counted.threshold_tokens + self._unbilled() >= lines.auto_compact:
                    await self._automatic("the window is nearly full", lines)
            elif policy.compact_when_cold and tokens >= policy.cold_share * lines.auto_compact:
                await self._when_cold(lines)
        self._check(lines.blocking)

    def _unbilled(self) -> int:
        """Estimate what stands before the messages, where no reply has been billed for it yet."""
        counted, prefix = self._session.view.counted, self._session.view.facts.prefix
        if counted.known or counted.overhead or prefix is None:
            return 0
        if self._weighed is None or self._weighed[0] is not prefix:
            self._weighed = prefix, estimate_request([], system=prefix.system, tools=prefix.tools)
        return self._weighed[1]

    def _check(self, limit: int) -> None:
        tokens = self._session.view.counted.tokens + self._unbilled()
        if tokens >= limit:
            raise WindowFull(
                f"the next request would hold about {tokens:,} tokens and the window takes {limit:,}: compact "
                "(session.compact() or 'reverie compact'), shorten the system prompt, or begin a new session",
                tokens=tokens,
                limit=limit,
            )

    async def _automatic(self, reason: str, lines: Thresholds, *, calls_model: bool = True) -> None:
        session = self._session
        now, policy = session.clock(), session.settings.compact
        blocked = session.view.counted.tokens + self._unbilled() >= lines.blocking
        why_not = self.breaker.why_not(policy, now, blocked=blocked)
        if why_not is not None:
            if why_not != self._explained:
                session.tell(FellBack(session.name, "compact", why_not))
            self._explained = why_not
            return
        self._explained = ""
        asked = Asked("auto", reason, lines, limit=lines.auto_compact, calls_model=calls_model)
        await self._tried(asked)

    async def _tried(self, asked: Asked) -> CompactionReport | None:
        """Compact; a failure is logged and told, and the turn goes on."""
        session = self._session
        try:
            report = await self._drafting.planned(asked)
            await self._applied(report, asked)
        except CompactionError as error:
            await session.decide(CompactionFailed(Cause("compact", asked.reason), str(error)))
            session.tell(FellBack(session.name, "compact", f"not compacted: {error}"))
            return None
        return report

    async def _when_cold(self, lines: Thresholds) -> None:
        """Compact early where the cache is gone, no call is needed, and it pays by a margin."""
        session = self._session
        policy, now = session.settings.compact, session.clock()
        if session.pipeline.placed is None or session.pipeline.life(now) != "cold":
            return
        if self.breaker.why_not(policy, now, blocked=False) is not None:
            return
        asked = Asked("auto", "the cache is cold", lines, limit=lines.auto_compact, calls_model=False)
        try:
            report = await self._drafting.planned(asked)
        except CompactionError:
            return  # nothing forces it
        if not report.price.act:
            return
        cause = replace(report.decision.cause, reason=f"the cache is cold and compacting {report.price.reason}")
        await self._applied(replace(report, decision=replace(report.decision, cause=cause)), asked)

    # -- on request

    async def compact(
        self,
        *,
        trigger: str = "manual",
        instructions: str = "",
        from_message: str | None = None,
        up_to: str | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> CompactionReport:
        """Compact, or only say what that would do; raise ``CompactionError`` where it cannot be done."""
        session = self._session
        if not session.settings.switches.compact:
            raise CompactionError("compaction is switched off: turn the switch 'compact' on")
        if from_message and up_to:
            raise CompactionError("name one message: from it on, or up to it")
        lines = session.lines if limit is None else replace(session.lines, effective=limit, window=limit)
        reason = "asked for" if trigger == "manual" else "the provider says the prompt is too long"
        asked = Asked(trigger, reason, lines, instructions, from_message, up_to, limit=limit or 0)
        report = await self._drafting.planned(asked)
        if not dry_run:
            await self._applied(report, asked)
        return report

    async def apply(self, report: CompactionReport) -> Entry:
        """Make a compaction that was planned; the view must be as it was then."""
        return await self._applied(report, Asked(report.decision.trigger, "", self._session.lines))

    async def reactively(self, tokens: int | None, limit: int | None) -> CompactionReport:
        """Compact because the provider refused the prompt; the result is well below what it says it takes."""
        count = self._session.view.counted.tokens
        target = int(limit * min(1.0, count / tokens)) if limit is not None and tokens else count  # in our own count
        try:
            return await self.compact(trigger="reactive", limit=max(1, target * 3 // 4))
        except CompactionError as error:
            await self._session.decide(CompactionFailed(Cause("compact", "prompt too long"), str(error)))
            raise

    async def undo(self, compaction: str | None = None) -> Entry:
        """Bring back what the last compaction took out of view, or the one named."""
        facts = self._session.view.facts
        standing_ones = [one for one in facts.compactions if one not in facts.undone]
        if not standing_ones:
            raise SessionError("there is no compaction to undo in this session")
        if compaction is not None and compaction not in standing_ones:
            raise SessionError(f"no compaction {compaction!r} stands in this session")
        cause = Cause("compact", "undone on request", moves_prefix=True)
        entry = await self._session.decide(CompactionUndone(cause, compaction or standing_ones[-1]))
        self._session.forget_known()
        return entry

    async def _applied(self, report: CompactionReport, asked: Asked) -> Entry:
        """Log it, and do what follows: hooks, metadata again, everybody told."""
        session = self._session
        cut_from = {item.uuid for item in standing(session.view)}
        if report.decision.last_before not in cut_from:
            raise CompactionError("the conversation has changed since this compaction was planned: plan it again")
        counts = metrics(account(session.view.messages()))
        entry = await session.decide(report.decision)
        session.forget_known()
        if session.view.facts.meta:
            await session.append(META, dict(session.view.facts.meta))
        if session.hooks is not None and report.method != "notes":
            await self._hooks_after(asked.trigger)
        session.tell(
            CompactionEnded(
                session.name,
                report.decision.trigger,
                report.method,
                report.tokens_before,
                report.tokens_after,
                len(report.loss.lost),
                report.model_calls,
                report.cost_usd,
                counts,
            )
        )
        return entry

    async def _hooks_after(self, trigger: str) -> None:
        session = self._session
        if session.hooks is None:
            return
        self._drafting.progress("hooks after")
        try:
            for event, payload in (("after_compact", {"trigger": trigger}), ("session_start", {"source": "compact"})):
                outcome = await session.hooks.run(event, payload)
                if outcome.context:
                    await session.attach(outcome.context, type="hook")
        finally:
            self._drafting.progress("done")

    # -- the smaller cuts

    async def _snip(self, lines: Thresholds) -> None:
        session = self._session
        tail = room_of(session.settings.compact, lines.effective).tail
        free = int(
            session.view.counted.threshold_tokens - (1 - session.settings.compact.least_freed) * lines.auto_compact
        )
        planned = plan_snip(session.view, tail, free_tokens=free, handle=f"cut-{new_uuid()[:12]}")
        if planned is not None:
            await session.decide(planned)
            session.forget_known()

    async def _collapse(self, lines: Thresholds) -> None:
        session = self._session
        tail = room_of(session.settings.compact, lines.effective).tail
        free = int(session.view.counted.threshold_tokens - _COLLAPSE_TO * lines.effective)
        for planned in plan_collapse(session.view, tail, free_tokens=free):
            await session.decide(planned)
            session.forget_known()
