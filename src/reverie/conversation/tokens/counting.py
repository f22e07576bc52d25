"""The token count of the next request: the input billed for the last reply, plus an estimate of everything after it."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from .estimate import NOTHING, Measure, measure_message
from .learning import Estimator

PADDING: Final = 4 / 3
# A log recorded while a reply streamed often holds the output count from the start of the stream (1 to 8 tokens), so
# a reported count below this share of the estimate is replaced by the estimate.
BELIEVED_SHARE: Final = 0.6

ReplyBody = Mapping[str, Any]


class BilledTokens(Struct, frozen=True):
    """The tokens a reply reports: all input, cached or not, and its output."""

    input_tokens: int
    output_tokens: int


def _number(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) and value is not True and value > 0 else 0


def billed_tokens(reply: ReplyBody | None) -> BilledTokens | None:
    """Return the billed tokens of a reply, in Anthropic's or OpenAI's spelling; None if it bills no input."""
    usage = reply.get("usage") if reply else None
    if not isinstance(usage, (dict, Mapping)):  # dict first: the check against an abstract class is slow
        return None
    found = cast(Mapping[str, Any], usage)
    cached = _number(found, "cache_creation_input_tokens") + _number(found, "cache_read_input_tokens")
    total = _number(found, "input_tokens") + cached or _number(found, "prompt_tokens")
    output = _number(found, "output_tokens") or _number(found, "completion_tokens")
    return BilledTokens(total, output) if total else None


def cleared_tokens(reply: ReplyBody | None) -> int:
    """Return the input tokens that the provider says it left out of the request; 0 if it says nothing."""
    managed: Any = reply.get("context_management") if reply else None
    edits: Any = cast(Mapping[str, Any], managed).get("applied_edits") if isinstance(managed, Mapping) else None
    found = [cast(Mapping[str, Any], one) for one in edits or () if isinstance(one, Mapping)]
    return sum(_number(one, "cleared_input_tokens") for one in found)


def padded(tokens: float) -> int:
    """Return an estimate plus a third, rounded up, for a threshold check before any usage was reported."""
    return ceil(tokens * PADDING)


def _reply_tokens(reported: int, estimated: float) -> float:
    return reported if reported >= BELIEVED_SHARE * estimated else estimated


def _id(reply: ReplyBody | None) -> str:
    id = reply.get("id") if reply else None
    return id if isinstance(id, str) else ""


class TokenCount(Struct, frozen=True):
    """The running token count of a view, updated in O(1) per entry; its estimator learns from each bill.

    ``input_tokens`` is the input billed for the last reply (None after a cut), ``reply`` measures the pieces of that
    reply, and ``after`` measures every message since. ``overhead`` is the part of a request besides its messages
    (system prompt, tools), derived from the first bill after a start or a cut. ``cleared_tokens`` is the part of the
    last request that the provider left out and did not bill.
    """

    model: str = ""
    estimator: Estimator = field(default_factory=Estimator)
    input_tokens: int | None = None
    output_tokens: int = 0
    reply_id: str = ""
    reply: Measure = NOTHING
    after: Measure = NOTHING
    freed_tokens: float = 0.0
    overhead: float = 0.0
    cleared_tokens: int = 0

    @property
    def known(self) -> bool:
        """Whether a bill covers the messages in the view."""
        return self.input_tokens is not None

    @property
    def tokens(self) -> int:
        """The estimated input tokens of the next request."""
        correct = self.estimator.correction(self.model).tokens
        if self.input_tokens is None:
            return ceil(max(0.0, self.overhead + correct(self.after) - self.freed_tokens))
        own = _reply_tokens(self.output_tokens, correct(self.reply))
        return ceil(max(0.0, self.input_tokens + own + correct(self.after) - self.freed_tokens))

    @property
    def raw_tokens(self) -> int:
        """The estimated input tokens of the next request if the provider left nothing out."""
        return self.tokens + self.cleared_tokens

    @property
    def threshold_tokens(self) -> int:
        """The count to compare with a threshold: padded while no bill covers the view."""
        if self.known:
            return self.tokens
        estimate = self.estimator.correction(self.model).tokens(self.after)
        return ceil(max(0.0, self.overhead + padded(estimate) - self.freed_tokens))

    def after_measure(self, measure: Measure) -> TokenCount:
        """Return a new count after a measured message that is not a reply."""
        # Every message passes here, and replace() would cost four times as much.
        return TokenCount(
            self.model,
            self.estimator,
            self.input_tokens,
            self.output_tokens,
            self.reply_id,
            self.reply,
            self.after + measure,
            self.freed_tokens,
            self.overhead,
            self.cleared_tokens,
        )

    def after_reply(self, message: Mapping[str, Any], reply: ReplyBody | None) -> TokenCount:
        """Return a new count after a reply or another piece of it; its estimator has learned from the bill."""
        return self.after_measured_reply(measure_message(message), reply)

    def after_measured_reply(self, measure: Measure, reply: ReplyBody | None) -> TokenCount:
        """Return a new count as ``after_reply`` does, for a reply that was already measured."""
        usage = billed_tokens(reply)
        id = _id(reply)
        if id and id == self.reply_id and self.known:
            output = max(self.output_tokens, usage.output_tokens if usage else 0)
            return replace(self, reply=self.reply + measure, output_tokens=output)
        if usage is None or reply is None:
            return self.after_measure(measure)
        said = reply.get("model")
        model = said if isinstance(said, str) and said else self.model
        cleared = cleared_tokens(reply)
        sent = usage.input_tokens + cleared
        return TokenCount(
            model=model,
            estimator=self._updated_estimator(model, sent),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            reply_id=id,
            reply=measure,
            overhead=self._overhead(model, sent),
            cleared_tokens=cleared,
        )

    def _updated_estimator(self, model: str, sent_tokens: int) -> Estimator:
        """Return the estimator after a bill; it learns only if the previous bill is comparable.

        That is: the previous bill is known, was for the same model, and nothing left the view since.
        """
        if self.input_tokens is None or model != self.model or self.freed_tokens:
            return self.estimator
        grown = sent_tokens - self.input_tokens - self.cleared_tokens
        return self.estimator.learned(model, self.reply + self.after, grown)

    def _overhead(self, model: str, sent_tokens: int) -> float:
        if self.input_tokens is not None:
            return self.overhead
        return max(0.0, sent_tokens - self.estimator.correction(model).tokens(self.after))

    def freed(self, tokens: float) -> TokenCount:
        """Return a new count without these tokens, which a decision removed from the view, until the next bill."""
        return replace(self, freed_tokens=self.freed_tokens + tokens)

    def cleared(self, tokens: int) -> TokenCount:
        """Return a new count without these tokens, which the provider will not bill, until the next bill."""
        return replace(self.freed(tokens), cleared_tokens=self.cleared_tokens + tokens)

    def without(self, share: float) -> TokenCount:
        """Return a new count without this share of the messages, which a cut removed, until the next bill."""
        billed = self.tokens
        gone = max(0.0, billed - self.overhead) * max(0.0, share)
        return TokenCount(
            model=self.model,
            estimator=self.estimator,
            input_tokens=billed,
            freed_tokens=max(1.0, gone),  # above 0, so that the estimator learns nothing from the next bill
            overhead=self.overhead,
            cleared_tokens=round(self.cleared_tokens * (1 - max(0.0, share))),
        )

    def after_cut(self, shown: Measure = NOTHING) -> TokenCount:
        """Return a new count after a cut, when no bill covers the remaining messages; ``shown`` measures them."""
        return TokenCount(model=self.model, estimator=self.estimator, after=shown, overhead=self.overhead)
