"""What the count is made of, in order; measured when somebody asks, for a long log is folded without weighing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..entries import Message
from ..wire.flatten import Piece
from .counting import Counted
from .estimate import NOTHING, measure_message

__all__ = ["CUT", "Event", "Redrawn", "Replied", "Tally", "tallied"]


class Replied(Struct, frozen=True, gc=False):
    """A reply, what it reported, and the piece it put into the view, if any."""

    piece: Piece | None
    reply: Mapping[str, Any]


class Redrawn(Struct, frozen=True, gc=False):
    """A message that a decision shows otherwise from here on."""

    before: Message
    after: Message


class Cut(Struct, frozen=True):
    """What was shown is gone; the pieces that follow are what is left of it."""


CUT: Final = Cut()
Event: TypeAlias = Piece | Replied | Redrawn | Cut


class Tally(Struct, frozen=True):
    """Tokens shown and the count, after so many events."""

    events: int = 0
    tokens: int = 0
    counted: Counted = Counted()


def tallied(tally: Tally, events: Iterable[Event]) -> Tally:
    """Return the tally after these events."""
    at, tokens, counted = tally.events, tally.tokens, tally.counted
    for event in events:
        at += 1
        if isinstance(event, Piece):
            tokens += event.tokens
            counted = counted.after_measure(event.measure)
        elif isinstance(event, Replied):
            tokens += event.piece.tokens if event.piece else 0
            counted = counted.after_measured_reply(event.piece.measure if event.piece else NOTHING, event.reply)
        elif isinstance(event, Redrawn):
            gone, stays = measure_message(event.before), measure_message(event.after)
            tokens -= round(gone.total) - round(stays.total)
            # What a bill counted is taken off as the bill counts it, not as the bare estimate would.
            correct = counted.estimator.correction(counted.model).tokens
            counted = counted.freed(correct(gone) - correct(stays))
        else:
            tokens, counted = 0, counted.after_cut()
    return Tally(at, tokens, counted)
