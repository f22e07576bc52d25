"""The token tally of a view: events in order, measured when the count is read, which keeps folding a long log cheap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..entries import Message
from ..wire.flatten import MessagePiece
from .counting import TokenCount
from .estimate import NOTHING, measure_message


class ReplyEvent(Struct, frozen=True, gc=False):
    """A reply arrived: the piece it added to the view, if any, and the fields the provider sent with it."""

    piece: MessagePiece | None
    reply: Mapping[str, Any]


class RedrawEvent(Struct, frozen=True, gc=False):
    """A decision changed how a message is shown."""

    before: Message
    after: Message


class ClearingEvent(Struct, frozen=True, gc=False):
    """The provider will leave more results out of the next request: an estimate of their tokens."""

    tokens: int


class CutEvent(Struct, frozen=True):
    """A cut emptied the view; the pieces that follow are those that remain.

    With ``keeps_bill`` the cut only removed messages, so the last bill minus those still counts.
    """

    keeps_bill: bool = False


class KeptEvent(Struct, frozen=True):
    """All pieces that remain after a cut were counted."""


CUT: Final = CutEvent()
SNIP: Final = CutEvent(keeps_bill=True)
KEPT: Final = KeptEvent()
CountEvent: TypeAlias = MessagePiece | ReplyEvent | RedrawEvent | ClearingEvent | CutEvent | KeptEvent


class Tally(Struct, frozen=True):
    """The estimated tokens of the view and its running token count, after the first ``events`` events."""

    events: int = 0
    tokens: int = 0
    token_count: TokenCount = TokenCount()
    before: tuple[int, TokenCount] | None = None
    """The estimated tokens and the count before a cut whose remaining pieces are being counted."""


def tally_after(tally: Tally, events: Iterable[CountEvent]) -> Tally:
    """Return a new tally after these further events."""
    at, tokens, count, before = tally.events, tally.tokens, tally.token_count, tally.before
    for event in events:
        at += 1
        if isinstance(event, MessagePiece):
            tokens += event.tokens
            count = count.after_measure(event.measure)
        elif isinstance(event, ReplyEvent):
            tokens += event.piece.tokens if event.piece else 0
            count = count.after_measured_reply(event.piece.measure if event.piece else NOTHING, event.reply)
        elif isinstance(event, RedrawEvent):
            old, new = measure_message(event.before), measure_message(event.after)
            tokens -= round(old.total) - round(new.total)
            # The bill counted the message in corrected tokens, so the difference is corrected as well.
            correct = count.estimator.correction(count.model).tokens
            count = count.freed(correct(old) - correct(new))
        elif isinstance(event, ClearingEvent):
            count = count.cleared(event.tokens)
        elif isinstance(event, CutEvent):
            before = (tokens, count) if event.keeps_bill and count.known and tokens else None
            tokens, count = 0, count.after_cut()
        elif before is not None:
            count, before = before[1].without(1 - tokens / before[0]), None
    return Tally(at, tokens, count, before)
