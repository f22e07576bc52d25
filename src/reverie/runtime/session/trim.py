"""Layer 2 in a session: clear old tool results before a request, by price, by budget or by cache edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...cache.economics import Life
from ...conversation.decisions import Decision, ResultsCleared
from ...conversation.reads import forgotten_files
from ...conversation.view import View
from ...errors import SessionError
from ...events import ResultsTrimmed
from ...layers.l2_trim import (
    STUB_TOKENS,
    ClearableResult,
    TrimCandidates,
    TrimFacts,
    TrimPlan,
    TrimPolicy,
    plan_budget,
    plan_cache_edit,
    plan_trim,
)
from ...values import record
from .cache_plan import CachePlan
from .log import SessionLog

__all__ = ["Trimmer"]

_LOOK_EVERY: Final = 32  # candidates between two looks through all of them, so that a turn's work stays flat


@record
class _TrimState:
    cleared: int = 0
    read_backs: int = 0


class Trimmer:
    """Runs layer 2 for one session: clears old tool results."""

    def __init__(self, policy: TrimPolicy, cache: CachePlan, *, least_cached: int = 1_024) -> None:
        """Clear by a policy; ``least_cached`` is the smallest prefix in tokens that the provider caches."""
        self.policy = policy
        self.by_budget = False
        """Whether results are also cleared before a request until they fit the policy's budget."""
        self.read_backs = 0
        self._cache = cache
        self._pending = TrimCandidates(policy)
        self._least_cached = least_cached
        self._cleared = 0
        self._next_look = 0

    def state(self) -> dict[str, Any]:
        """Return the counts of cleared results and of read-backs, from which a resumed session continues."""
        return {"cleared": self._cleared, "read_backs": self.read_backs}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from logged counts; ignore a state that cannot be read."""
        try:
            found = msgspec.convert(state, _TrimState)
        except msgspec.ValidationError:
            return
        self._cleared, self.read_backs = found.cleared, found.read_backs

    async def before_request(self, log: SessionLog) -> None:
        """Log the clearing or cache edit due before this request; with ``by_budget``, also clear to the budget."""
        planned = self.plan(log.view, log.clock())
        if isinstance(planned, TrimPlan):
            await self._clear(log, planned)
            return
        if planned is not None:
            await log.decide(planned)
        if self.by_budget and self.policy.mode == "client":
            await self.clear_to(log)

    async def clear_to(self, log: SessionLog, target_tokens: int | None = None) -> ResultsTrimmed | None:
        """Clear the oldest results until the clearable ones fit a budget; return the event, None if all fit.

        Raise ``SessionError`` if the provider clears in this session.
        """
        if self.policy.mode == "provider":
            raise SessionError("the provider clears in this session: set trim.mode to 'client' to clear from here")
        self._pending.follow(log.view)
        pinned = log.view.facts.pinned
        planned = plan_budget(self._pending, self.policy, target=target_tokens, pinned=pinned)
        return await self._clear(log, planned) if planned is not None else None

    def plan(self, view: View, now: float) -> TrimPlan | Decision | None:
        """Return the clearing or the cache edit that layer 2 wants before this request; None if it wants none."""
        if view.cuts != self._cache.cuts:
            self._next_look = 0
        self._pending.follow(view)
        life = self._cache.life(now)
        if self._worth_looking(view, life):
            planned = plan_trim(self._pending, self._facts(view, life), self.policy)
            if planned is not None:
                return planned
            self._next_look = view.length // 2 + 1 + len(self._pending.candidates) // _LOOK_EVERY
        return plan_cache_edit(view, self.policy)

    def record(self, decision: ResultsCleared) -> None:
        """Count a clearing and take its results out of the index of candidates."""
        gone = {one.tool_use_id for one in decision.cleared}
        self._pending.clear(gone, STUB_TOKENS)
        self._cleared += len(gone)

    def unsettled(self) -> tuple[int | None, int]:
        """Return how many messages and how many tokens come before the results that may be cleared soon.

        The number of messages is None where it is 0 or there are no such results.
        """
        recent: list[ClearableResult] = self._pending.candidates[-max(1, self.policy.keep_priced) :]
        if not recent:
            return None, self._pending.written
        return recent[0].group if recent[0].group > 0 else None, self._pending.start(recent[0])

    async def _clear(self, log: SessionLog, planned: TrimPlan) -> ResultsTrimmed:
        """Log a clearing, count its results, and emit and return its event."""
        before = log.view
        gone = [one.tool_use_id for one in planned.decision.cleared]
        uses = [use for use in map(before.tool_call, gone) if use is not None]
        await log.decide(planned.decision)
        self.record(planned.decision)
        tools, paths = sorted({use.name for use in uses}), forgotten_files(before, log.view)
        event = ResultsTrimmed(log.name, planned.trigger, tools, paths, before.tokens, log.view.tokens)
        log.emit(event)
        return event

    def _worth_looking(self, view: View, life: Life) -> bool:
        """Return whether to look through all candidates; rarely on a live cache, to keep a turn's work flat."""
        looks = life != "live" or view.length // 2 >= self._next_look
        return looks or view.token_count.tokens >= self._cache.compact_at

    def _facts(self, view: View, life: Life) -> TrimFacts:
        cache = self._cache
        return TrimFacts(
            life=life,
            window=view.token_count.tokens,
            round=view.length // 2,
            turns=cache.turns_ahead(view),
            settled_offset=cache.settled_offset,
            prefix_tokens=round(view.token_count.overhead),
            least_cached=self._least_cached,
            ttl=cache.placed.ttl if cache.placed is not None else cache.chosen_ttl(),
            tail_ttl="5m",
            rates=cache.rates,
            pinned=view.facts.pinned,
            cleared=self._cleared,
            read_backs=self.read_backs,
            limit=cache.compact_at,
        )
