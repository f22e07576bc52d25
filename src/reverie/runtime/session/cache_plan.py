"""A turn's decisions in their order: what layer 2 clears, and where the breakpoints stand.

What is kept here between turns follows from the log and the clock; a resumed session builds it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ...cache.breakpoints import Held, Place, Placed, Planned, plan_marks
from ...cache.economics import CLASSIC, Compaction, Life, Rates, Verdict, choose_ttl, turns_ahead, weigh_compaction
from ...conversation.decisions import Decision, ResultsCleared
from ...conversation.entries import Message
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...layers.l2_trim import STUB_TOKENS, Pending, TrimFacts, Trimming, TrimPolicy, plan_cache_edit, plan_trim
from ...values import record

__all__ = ["Pipeline"]

_PAUSE = (300.0, 3600.0)
_KEPT_ENDS = 8  # how many of the cache's entries a resumed session knows of


@record
class _State:
    ttl: str
    at: float
    settled: tuple[int, int] | None = None
    end: tuple[int, int] | None = None
    settled_offset: int | None = None
    cuts: int = 0
    opening: int = 0
    requests: int = 0
    pauses: int = 0
    cleared: int = 0
    read_backs: int = 0
    held: tuple[tuple[int, int, str], ...] = ()


def _spelled(place: Place | None) -> list[int] | None:
    return None if place is None else [place.message, place.block]


def _place(spelled: tuple[int, int] | None) -> Place | None:
    return None if spelled is None else Place(*spelled)


def _first_difference(before: Message, after: Message) -> int:
    """Return the first block of a message that is not as it was, or how many there were."""
    old, new = as_blocks(before), as_blocks(after)
    if before["role"] != after["role"]:
        return 0
    return next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )


def _newest(held: Held | None) -> list[Held]:
    return list(islice(held, _KEPT_ENDS)) if held is not None else []


class Pipeline:
    """What happens to a view before it is sent."""

    def __init__(
        self,
        trim: TrimPolicy,
        *,
        compact_at: int,
        rates: Rates = CLASSIC,
        ttl: str | None = None,
        least_cached: int = 1_024,
        look_every: int = 32,
    ) -> None:
        self.trim = trim
        self.pending = Pending(trim)
        self.placed: Placed | None = None
        self.compact_at = compact_at
        self.requests = 0
        self.read_backs = 0
        self.last: Trimming | None = None
        self._rates = rates
        self._ttl = ttl
        self._least_cached = least_cached
        self._look_every = look_every
        self._pauses = 0
        self._cleared = 0
        self._cuts = 0
        self._opening = 0
        self._settled_offset: int | None = None
        # The last request: what the builder put first, the list of the view's finished messages, and what came after.
        self._first: list[Any] = []
        self._known: tuple[list[Any], int] | None = None
        self._rest: list[Any] = []
        self._next_look = 0

    def plan(self, view: View, now: float) -> list[Decision]:
        """Return what layer 2 decides before this request."""
        if view.cuts != self._cuts:
            self._next_look = 0
        self.pending.follow(view)
        self.last = None
        life = self._life(now)
        if self._worth_looking(life, view):
            self.last = plan_trim(self.pending, self._facts(view, life), self.trim)
            if self.last is None:
                self._next_look = view.length // 2 + 1 + len(self.pending.candidates) // self._look_every
        if self.last is None:
            edit = plan_cache_edit(view, self.trim)
            return [] if edit is None else [edit]
        self._note(self.last.decision)
        return [self.last.decision]

    def state(self) -> dict[str, Any]:
        """Return what a resumed session must know to go on from here."""
        placed = self.placed
        if placed is None:
            return {}
        return {
            "ttl": placed.ttl,
            "settled": _spelled(placed.settled),
            "end": _spelled(placed.end),
            "at": placed.at,
            "settled_offset": self._settled_offset,
            "cuts": self._cuts,
            "opening": self._opening,
            "requests": self.requests,
            "pauses": self._pauses,
            "cleared": self._cleared,
            "read_backs": self.read_backs,
            "held": [[one.place.message, one.place.block, one.ttl] for one in reversed(_newest(placed.held))],
        }

    def resume(self, state: Mapping[str, Any], messages: list[Any]) -> None:
        """Go on from what the last call of an earlier process left; a state that cannot be read is no state."""
        try:
            found = msgspec.convert(state, _State)
        except msgspec.ValidationError:
            return
        held: Held | None = None
        for message, block, ttl in found.held:
            held = Held(Place(message, block), ttl, held)
        self.placed = Placed(found.ttl, _place(found.settled), _place(found.end), found.at, held)
        self._settled_offset = found.settled_offset
        self._cuts, self._opening = found.cuts, found.opening
        self.requests, self._pauses = found.requests, found.pauses
        self._cleared, self.read_backs = found.cleared, found.read_backs
        if found.end is not None:
            self._rest = messages[: found.end[0] + 1]

    def reprice(self, rates: Rates) -> None:
        """Go by these prices from now on."""
        self._rates = rates

    def forget(self) -> None:
        """Build the index of results anew; what was planned last was not logged."""
        self.pending = Pending(self.trim)

    def note(self, decision: ResultsCleared) -> None:
        """Take in a clearing that was decided elsewhere, by hand or by budget."""
        self._note(decision)

    def mark(self, view: View, messages: list[Any], now: float) -> Planned:
        """Place the breakpoints of this request and remember what it leaves in the cache."""
        life = self._life(now)
        if self.placed is not None and _PAUSE[0] <= now - self.placed.at < _PAUSE[1]:
            self._pauses += 1
        ttl = self.placed.ttl if self.placed is not None and life != "cold" else self._chosen_ttl()
        cut, self._cuts = view.cuts != self._cuts, view.cuts
        shift = 1 if view.length and view.group(0).role == "assistant" else 0  # the builder puts a user before it
        changed = self._first_change(view, messages, shift)
        settled = self._settled_messages(shift)
        planned = plan_marks(messages, now=now, ttl=ttl, before=self.placed, changed=changed, settled=settled)
        if planned.after.settled != (self.placed.settled if self.placed is not None else None):
            self._settled_offset = self._tail_offset()
        self.placed = planned.after
        self.requests += 1
        if self.requests == 1 or cut:
            self._opening = view.counted.tokens
        return planned

    def mark_fork(self, view: View, messages: Sequence[Message], now: float) -> Planned:
        """Place the breakpoints of a fork as this request would have them, and take no note of it."""
        life = self._life(now)
        ttl = self.placed.ttl if self.placed is not None and life != "cold" else self._chosen_ttl()
        before = self._first, self._known, self._rest
        shift = 1 if view.length and view.group(0).role == "assistant" else 0
        try:
            changed = self._first_change(view, list(messages), shift)
        finally:
            self._first, self._known, self._rest = before
        return plan_marks(messages, now=now, ttl=ttl, before=self.placed, changed=changed)

    def _first_change(self, view: View, messages: list[Any], shift: int) -> Place | None:
        """Return the first block that is not as the last request had it; None where this one extends it.

        The view keeps finished messages in a list that only grows while nothing is redrawn, so that most turns keep and
        compare no more than the last few.
        """
        first, known, rest = self._first, self._known, self._rest
        # Where edits stand in the view, the builder may send its messages without them.
        self._known = settled = None if view.facts.edits else view.settled
        self._first, self._rest = messages[:shift], messages[shift + (settled[1] if settled is not None else 0) :]
        if known is not None and settled is not None and known[0] is settled[0] and len(first) == shift:
            start, sent = shift + known[1], rest
        else:
            start, sent = 0, [*first, *(known[0][: known[1]] if known is not None else ()), *rest]
        last = start + len(sent) - 1
        for at, was in enumerate(sent, start):
            if at >= len(messages):
                return Place(at, 0)
            if messages[at] is not was and messages[at] != was:
                block = _first_difference(was, messages[at])
                return None if at == last and block == len(as_blocks(was)) else Place(at, block)
        return None

    def life(self, now: float) -> Life:
        """Say what of the last request the provider's cache still holds."""
        return self._life(now)

    def weigh_compaction(self, view: View, compaction: Compaction, *, need: float, margin: float) -> Verdict:
        """Price a compaction by this session's prices and the turns it is likely to have."""
        window = view.counted.tokens
        turns = turns_ahead(turns=view.length // 2, window=window, opening=self._opening, limit=self.compact_at)
        return weigh_compaction(
            compaction, turns=turns, need=need, margin=margin, ttl=self._chosen_ttl(), rates=self.rates
        )

    @property
    def rates(self) -> Rates:
        """The prices gone by, as ratios to the input price."""
        return self._rates

    def _life(self, now: float) -> Life:
        if self.placed is None:
            return "cold"
        life = self.placed.life(now)
        return "live" if life == "live" else "tail dead" if life == "tail dead" else "cold"

    def _chosen_ttl(self) -> str:
        return self._ttl or choose_ttl(pauses=self._pauses, requests=self.requests, rates=self._rates)

    def _worth_looking(self, life: Life, view: View) -> bool:
        """Look through the candidates only now and then where there are many, so that a turn's work does not grow."""
        return life != "live" or view.length // 2 >= self._next_look or view.counted.tokens >= self.compact_at

    def _facts(self, view: View, life: Life) -> TrimFacts:
        ttl = self.placed.ttl if self.placed is not None else self._chosen_ttl()
        window = view.counted.tokens
        turns = turns_ahead(turns=view.length // 2, window=window, opening=self._opening, limit=self.compact_at)
        return TrimFacts(
            life=life,
            window=window,
            round=view.length // 2,
            turns=turns,
            settled_offset=self._settled_offset,
            prefix_tokens=round(view.counted.overhead),
            least_cached=self._least_cached,
            ttl=ttl,
            tail_ttl="5m",
            rates=self._rates,
            pinned=view.facts.pinned,
            cleared=self._cleared,
            read_backs=self.read_backs,
            limit=self.compact_at,
        )

    def _note(self, decision: ResultsCleared) -> None:
        gone = {one.tool_use_id for one in decision.cleared}
        self.pending.clear(gone, STUB_TOKENS)
        self._cleared += len(gone)

    def _settled_messages(self, shift: int) -> int | None:
        """Return how many messages come before the results that may still be cleared soon."""
        recent = self.pending.candidates[-max(1, self.trim.keep_priced) :]
        return recent[0].group + shift if recent and recent[0].group > 0 else None

    def _tail_offset(self) -> int:
        recent = self.pending.candidates[-max(1, self.trim.keep_priced) :]
        return self.pending.start(recent[0]) if recent else self.pending.written
