"""Cache breakpoints of a session's requests, and the state they leave in the provider's cache.

All of it follows from the log and the clock; the state after each call is logged with the call, so that a resumed
session continues from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import islice
from typing import Annotated, Any, cast

import msgspec

from ...cache.breakpoints import BlockPosition, BreakpointPlan, CacheEntry, CacheState, plan_marks
from ...cache.economics import (
    CarryingMeter,
    Compaction,
    Life,
    RelativeRates,
    SessionBill,
    Verdict,
    compaction_due,
    growth_per_turn,
    max_pings,
    turns_ahead,
    weigh_compaction,
)
from ...cache.usage import Usage
from ...conversation.entries import Message
from ...conversation.tokens.estimate import estimate_message
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...conversation.wire.request import messages_added_before
from ...values import record, replace

_PAUSE_SECONDS = (300.0, 3600.0)
_KEPT_ENTRIES = 8  # how many of the cache's entries each call logs: more than one request adds


@record
class _CacheState:
    ttl: str
    at: float
    end: tuple[int, int] | None = None
    cuts: int = 0
    opening: int = 0
    requests: int = 0
    pauses: int = 0
    held: tuple[tuple[int, int, str], ...] = ()
    boundary: int = -1
    carried: tuple[float, int] = (0.0, 0)
    bill: Annotated[tuple[float | int, ...], msgspec.Meta(max_length=7)] = ()
    turns_left: float | None = None
    prefix: str = "5m"


def _spelled(place: BlockPosition | None) -> list[int] | None:
    return None if place is None else [place.message, place.block]


def _place(spelled: tuple[int, int] | None) -> BlockPosition | None:
    return None if spelled is None else BlockPosition(*spelled)


def _first_difference(before: Message, after: Message) -> int:
    """Return the index of the first differing block; 0 if the roles differ, the shorter length if none does."""
    old, new = as_blocks(before), as_blocks(after)
    if before["role"] != after["role"]:
        return 0
    return next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )


def _earlier(one: BlockPosition | None, other: BlockPosition | None) -> BlockPosition | None:
    return min(filter(None, (one, other)), key=lambda place: (place.message, place.block), default=None)


def _newest(held: CacheEntry | None) -> list[CacheEntry]:
    return list(islice(held, _KEPT_ENTRIES)) if held is not None else []


def _read(state: Mapping[str, Any]) -> _CacheState | None:
    try:
        return msgspec.convert(state, _CacheState)
    except msgspec.ValidationError:
        return None


def _cache_after(after: CacheState | None, found: _CacheState) -> CacheState:
    """Return the state of the cache after one more call; a state lists the newest entries, so older ones follow."""
    listed = [CacheEntry(BlockPosition(message, block), ttl) for message, block, ttl in found.held]
    is_whole = after is None or len(listed) < _KEPT_ENTRIES
    held = None if after is None or is_whole else after.older_than(listed[0], found.at)
    for one in listed:
        held = CacheEntry(one.place, one.ttl, held)
    return CacheState(found.ttl, _place(found.end), found.at, held, found.prefix)


def _added_tokens(view: View) -> int:
    """Return the tokens that the last message has more than it was given, such as texts for empty results."""
    pieces = view.group(view.length - 1).pieces if view.length else ()
    return sum(
        max(0, one.tokens - estimate_message(one.message))
        for one in pieces
        if one.first_shown not in (None, one.message)
    )


class CachePlan:
    """Places the breakpoints of each request and tracks the entries of the provider's cache."""

    def __init__(self, *, compact_at: int, rates: RelativeRates, least_cached: int) -> None:
        """Expect the next compaction at ``compact_at`` tokens.

        ``rates`` are the prices of the model in use, ``least_cached`` is the smallest prefix in tokens that it caches.
        """
        self.placed: CacheState | None = None
        self.compact_at = compact_at
        self.rates = rates
        self.least_cached = least_cached
        self.model = ""
        """The model whose prices ``rates`` are; empty before the first request."""
        self._logged: _CacheState | None = None
        self._logged_cache: CacheState | None = None
        self._requests = 0
        self.fixed_ttl: str | None = None
        """The lifetime of every write; None if prices choose it."""
        self._pauses = 0
        self.meter = CarryingMeter()
        self.bill = SessionBill()
        self._is_late = self._is_changed = False
        self._added = 0
        self.turns_left: float | None = None
        """The least number of requests before the next compaction by price; None if it is unknown."""
        self.patience = 0.0
        """How many times its price carrying must cost before a compaction by price."""
        self.is_priced = True
        """Whether ``rates`` are prices that somebody pays; a model without a price has only assumed ratios."""
        self.cuts = 0
        """How many cuts the view had at the last request."""
        self._opening = 0
        self._boundary = -1
        self._is_rewrite = False
        # The last request: messages inserted by the builder, the view's list of finished messages, and the rest.
        self._first: list[Any] = []
        self._known: tuple[list[Any], int] | None = None
        self._rest: list[Any] = []

    def state(self) -> dict[str, Any]:
        """Return the state to log, from which a resumed session continues; empty before the first request.

        A field with its default is left out: the state is logged with every call.
        """
        placed = self.placed
        if placed is None:
            return {}
        state: dict[str, Any] = {
            "ttl": placed.ttl,
            "end": _spelled(placed.end),
            "at": placed.at,
            "cuts": self.cuts,
            "opening": self._opening,
            "requests": self._requests,
            "pauses": self._pauses,
            "boundary": self._boundary,
            "carried": [self.meter.spent, self.meter.window],
            "bill": list(astuple(self.bill)),
            "turns_left": self.turns_left,
            "prefix": placed.prefix,
            "held": [[one.place.message, one.place.block, one.ttl] for one in reversed(_newest(placed.held))],
        }
        usual = _CacheState("", 0.0)
        return {name: value for name, value in state.items() if value != getattr(usual, name)}

    def read(self, state: Mapping[str, Any]) -> None:
        """Take the state of the cache that a call logged; ignore a state that cannot be read."""
        self._logged = _read(state)
        if self._logged is not None:
            self._logged_cache = _cache_after(self._logged_cache, self._logged)

    def resume(self, messages: list[Any]) -> None:
        """Continue from the logged states of all calls that can be read and the messages sent with the last one."""
        found, self.placed, self._logged_cache = self._logged, self._logged_cache, None
        if found is None:
            self.placed = None
            return
        self.cuts, self._opening = found.cuts, found.opening
        self._requests, self._pauses, self._boundary = found.requests, found.pauses, found.boundary
        self.meter, self.turns_left = CarryingMeter(*found.carried), found.turns_left
        self.bill = SessionBill(*cast("tuple[Any, ...]", found.bill))
        if found.end is not None:
            self._rest = messages[: found.end[0] + 1]

    def mark(self, view: View, messages: list[Any], now: float) -> BreakpointPlan:
        """Return the breakpoints of a request, and record them and the cache entries that the request writes."""
        idle = now - self.placed.at if self.placed is not None else 0.0
        self._is_late = idle >= _PAUSE_SECONDS[0]
        self._pauses += _PAUSE_SECONDS[0] <= idle < _PAUSE_SECONDS[1]
        cut, self.cuts = view.cuts != self.cuts, view.cuts
        if cut:
            self.meter = CarryingMeter()
            written = view.group(0).tokens if view.length and view.group(0).is_compaction else 0
            self.bill = self.bill.summarised(written, self.rates)
        inserted = messages_added_before(view)
        cleared = self._newly_cleared(view, inserted)
        changed = _earlier(self._first_change(view, messages, inserted), cleared)
        self._is_changed = changed is not None
        self._added = _added_tokens(view)
        self._is_rewrite = self._is_changed and self.life(now) == "live"
        planned = plan_marks(
            messages,
            now=now,
            ttl=self.ttl(view, now, is_changed=self._is_changed),
            before=self.placed,
            changed=changed,
            cleared=self._boundary + 2 + inserted if cleared is not None else None,
        )
        self.placed = planned.after
        self._requests += 1
        if self._requests == 1 or cut:
            self._opening = view.token_count.tokens
        return planned

    def billed(self, used: Usage, compacted: float) -> None:
        """Add the tokens of a reply to the carrying cost; ``compacted`` is the size that a compaction leaves."""
        self.bill = self.bill.after(
            used,
            is_late=self._is_late,
            pauses=self._pauses,
            requests=self._requests,
            rates=self.rates,
            is_changed=self._is_changed,
            added=self._added,
        )
        self.meter = self.meter.after(
            read=used.read,
            total=used.input,
            output=used.output,
            compacted=compacted,
            rates=self.paid_rates,
            cleared=self._is_rewrite,
        )

    @property
    def paid_rates(self) -> RelativeRates:
        """The rates that this session pays: every token at the full price while its provider caches nothing.

        Of a prompt too short to be cached that says nothing.
        """
        return self.bill.rates(self.rates) if self.bill.cached >= self.least_cached else self.rates

    def max_pings(self) -> int:
        """Return how often the cache may be renewed before the next request (C9)."""
        bill = self.bill
        return max_pings(self.paid_rates, 1 - bill.kept / bill.cached if bill.cached else 1.0)

    def pinged(self, now: float, compacted: float | None = None) -> None:
        """Record that the last request was sent again, which renews its cache entries and costs a read."""
        if self.placed is not None:
            self.placed = replace(self.placed, at=now)
        if compacted is not None:
            self.meter = self.meter.kept_warm(self.bill.cached, compacted=compacted, rates=self.paid_rates)

    def mark_fork(self, view: View, messages: Sequence[Message], now: float) -> BreakpointPlan:
        """Return the breakpoints that a request with these messages would get, without recording them."""
        before = self._first, self._known, self._rest
        try:
            changed = self._first_change(view, list(messages), messages_added_before(view))
        finally:
            self._first, self._known, self._rest = before
        ttl = self.ttl(view, now, is_changed=changed is not None)
        return plan_marks(messages, now=now, ttl=ttl, before=self.placed, changed=changed)

    def _first_change(self, view: View, messages: list[Any], inserted: int) -> BlockPosition | None:
        """Return the first block that differs from the last request, None if none does; store this request.

        The view keeps finished messages in a list that only grows while nothing is cut, so most turns compare no
        more than the last few messages.
        """
        first, known, rest = self._first, self._known, self._rest
        # Where the view has cache edits, the builder may send its messages without them.
        self._known = settled = None if view.facts.edits else view.finished_messages
        self._first, self._rest = messages[:inserted], messages[inserted + (settled[1] if settled is not None else 0) :]
        if known is not None and settled is not None and known[0] is settled[0] and len(first) == inserted:
            start, sent = inserted + known[1], rest
        else:
            start, sent = 0, [*first, *(known[0][: known[1]] if known is not None else ()), *rest]
        last = start + len(sent) - 1
        for at, was in enumerate(sent, start):
            if at >= len(messages):
                return BlockPosition(at, 0)
            if messages[at] is not was and messages[at] != was:
                block = _first_difference(was, messages[at])
                return None if at == last and block == len(as_blocks(was)) else BlockPosition(at, block)
        return None

    def _newly_cleared(self, view: View, inserted: int) -> BlockPosition | None:
        """Return the first result that the provider shows in only one of the last and this request; store this state.

        The messages stay the same, but the provider caches them as it shows them.
        """
        cleared, before = view.clearing, self._boundary
        self._boundary = after = cleared.group if cleared is not None else -1
        excluded = cleared.excluded if cleared is not None else frozenset[str]()
        for at in range(min(before, after) + 1, min(max(before, after) + 1, view.length)):
            calls = [view.tool_call(called) for called in view.group(at).uses]
            if any(call is not None and call.name not in excluded for call in calls):
                return BlockPosition(at + 1 + inserted, 0)
        return None

    def life(self, now: float) -> Life:
        """Return how much of the last request is cached: ``live`` (all), ``tail dead`` (its head) or ``cold``."""
        if self.placed is None:
            return "cold"
        life = self.placed.life(now)
        return "live" if life == "live" else "tail dead" if life == "tail dead" else "cold"

    def live_tokens(self, view: View, now: float) -> int:
        """Return the tokens of the next request that the cache holds."""
        life = self.life(now)
        return view.token_count.tokens if life == "live" else self.bill.kept if life == "tail dead" else 0

    def has_prefix(self, now: float) -> bool:
        """Say whether a request that keeps only tools and system prompt can read them from the cache."""
        return self.placed is not None and bool(self.placed.prefix_held(now))

    def held_messages(self, view: View, now: float) -> tuple[int, ...]:
        """Return the messages of the view at which the entries of the cache end that can still be read, in order."""
        held = self.placed.still_held(now, None) if self.placed is not None else None
        inserted = messages_added_before(view)
        return tuple(reversed([one.place.message - inserted for one in held or ()]))

    def ttl(self, view: View, now: float, *, is_changed: bool) -> str:
        """Return the TTL given at construction, else the one that costs least with this session's pauses.

        A request with changed messages writes an unknown part of them again, so the long lifetime waits for the next.
        """
        life = "cold" if is_changed else self.life(now)
        return self.fixed_ttl or self.bill.lifetime(view.token_count.tokens, life, self.rates)

    def turns_ahead(self, view: View) -> float:
        """Estimate how many turns this session will still have before its next compaction."""
        turns = turns_ahead(
            turns=view.length // 2, window=view.token_count.tokens, opening=self._opening, limit=self.compact_at
        )
        return turns if self.turns_left is None else min(turns, self.turns_left)

    def growth(self, view: View) -> float:
        """Return the tokens by which this session has grown with each turn since its opening or its last cut."""
        return growth_per_turn(turns=view.length // 2, window=view.token_count.raw_tokens, opening=self._opening)

    def weigh_compaction(self, view: View, compaction: Compaction) -> Verdict:
        """Return the cost and savings of a compaction at this session's prices, and whether it pays."""
        return weigh_compaction(
            compaction,
            turns=self.turns_ahead(view),
            rates=self.paid_rates,
            growth=self.growth(view),
        )

    def compaction_due(self, view: View, compaction: Compaction, patience: float) -> Verdict:
        """Return whether carrying the window has cost enough to compact now (L4.18); note how soon it will have."""
        meter = self.meter if view.cuts == self.cuts else CarryingMeter()  # a cut since the last request begins anew
        verdict = compaction_due(
            meter,
            compaction,
            requests=self._requests,
            growth=self.growth(view),
            patience=patience,
            rates=self.paid_rates,
            room=self.bill.room,
        )
        self.turns_left, self.patience = None, patience
        if self.paid_rates.read > 0 and compaction.frees:
            self.turns_left = meter.turns_until(
                patience * verdict.cost, excess=compaction.frees, growth=self.growth(view), read=self.paid_rates.read
            )
        return verdict
