"""The count before the next request: what the last reply was billed, plus an estimate of all that followed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from .estimate import NOTHING, Measure, measure_message, measure_messages
from .learning import Estimator

__all__ = ["PADDING", "Counted", "Reply", "Usage", "count", "padded", "usage_of"]

PADDING: Final = 4 / 3
# A recording made while a reply streamed in often holds the output count of its start (1 to 8). Below this share of
# what the reply's own content is estimated at, the report is not believed.
BELIEVED_SHARE: Final = 0.6

Reply = Mapping[str, Any]


class Usage(Struct, frozen=True):
    """What a reply reports: all input, cached or not, and its output."""

    input_tokens: int
    output_tokens: int


def _number(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) and value is not True and value > 0 else 0


def usage_of(reply: Reply | None) -> Usage | None:
    """Read the usage of a reply, in Anthropic's or OpenAI's spelling; none where no input was billed."""
    usage = reply.get("usage") if reply else None
    if not isinstance(usage, (dict, Mapping)):  # dict first: asking an abstract class costs more than all the rest
        return None
    found = cast(Mapping[str, Any], usage)
    cached = _number(found, "cache_creation_input_tokens") + _number(found, "cache_read_input_tokens")
    total = _number(found, "input_tokens") + cached or _number(found, "prompt_tokens")
    output = _number(found, "output_tokens") or _number(found, "completion_tokens")
    return Usage(total, output) if total else None


def padded(tokens: float) -> int:
    """Pad an estimate for a threshold check made before any usage is known."""
    return ceil(tokens * PADDING)


def _reply_tokens(reported: int, estimated: float) -> float:
    return reported if reported >= BELIEVED_SHARE * estimated else estimated


def count(
    said: Sequence[tuple[Mapping[str, Any], Reply | None]],
    *,
    model: str = "",
    estimator: Estimator | None = None,
    overhead: float = 0.0,
) -> int:
    """Count what the next request holds, given messages and, for replies, what the provider said beside them.

    A reply with several tool calls may be stored as pieces that share an id and repeat its usage, with results in
    between: walk back to the first of them; everything from there on is estimated, the reply's own pieces against
    its reported output. ``overhead`` is what every request holds beside messages, where no usage says it.
    """
    correction = (estimator or Estimator()).correction(model)
    usages = [usage_of(reply) for _, reply in said]
    last = next((at for at in reversed(range(len(said))) if usages[at]), None)
    if last is None:
        return ceil(overhead + correction.tokens(measure_messages(message for message, _ in said)))
    id, first = _id(said[last][1]), last
    for at in reversed(range(last)):
        if usages[at] is not None:
            if not id or _id(said[at][1]) != id:
                break
            first = at
    own, rest, output, billed = NOTHING, NOTHING, 0, 0
    for at in range(first, len(said)):
        message, reply = said[at]
        if at == first or (id and _id(reply) == id):
            own += measure_message(message)
            usage = usages[at] or Usage(0, 0)
            output, billed = max(output, usage.output_tokens), billed or usage.input_tokens
        else:
            rest += measure_message(message)
    return ceil(billed + _reply_tokens(output, correction.tokens(own)) + correction.tokens(rest))


def _id(reply: Reply | None) -> str:
    id = reply.get("id") if reply else None
    return id if isinstance(id, str) else ""


class Counted(Struct, frozen=True):
    """The same count kept running, O(1) an entry, learning from each reply.

    ``input_tokens`` is what the last reply was billed, none after a cut; ``reply`` measures its own pieces;
    ``after`` everything else since; ``overhead`` what a request holds beside messages (system prompt, tools), as
    the last reply to a request without known usage showed it.
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

    @property
    def known(self) -> bool:
        """Say whether usage was reported for what is in view."""
        return self.input_tokens is not None

    @property
    def tokens(self) -> int:
        """The count before the next request."""
        correct = self.estimator.correction(self.model).tokens
        if self.input_tokens is None:
            return ceil(max(0.0, self.overhead + correct(self.after) - self.freed_tokens))
        own = _reply_tokens(self.output_tokens, correct(self.reply))
        return ceil(max(0.0, self.input_tokens + own + correct(self.after) - self.freed_tokens))

    @property
    def threshold_tokens(self) -> int:
        """The count to hold against a threshold: padded where it rests on no usage."""
        if self.known:
            return self.tokens
        estimate = self.estimator.correction(self.model).tokens(self.after)
        return ceil(max(0.0, self.overhead + padded(estimate) - self.freed_tokens))

    def after_message(self, message: Mapping[str, Any]) -> Counted:
        """Count a message that is no reply."""
        return self.after_measure(measure_message(message))

    def after_measure(self, measure: Measure) -> Counted:
        """Count something measured already."""
        # Spelled out, because this runs for every message and replace() costs four times as much.
        return Counted(
            self.model,
            self.estimator,
            self.input_tokens,
            self.output_tokens,
            self.reply_id,
            self.reply,
            self.after + measure,
            self.freed_tokens,
            self.overhead,
        )

    def after_reply(self, message: Mapping[str, Any], reply: Reply | None) -> Counted:
        """Count a reply, or one more piece of it, and learn from what it was billed."""
        return self.after_measured_reply(measure_message(message), reply)

    def after_measured_reply(self, measure: Measure, reply: Reply | None) -> Counted:
        """Count a reply measured already."""
        usage = usage_of(reply)
        id = _id(reply)
        if id and id == self.reply_id and self.known:
            output = max(self.output_tokens, usage.output_tokens if usage else 0)
            return replace(self, reply=self.reply + measure, output_tokens=output)
        if usage is None or reply is None:
            return self.after_measure(measure)
        said = reply.get("model")
        model = said if isinstance(said, str) and said else self.model
        return Counted(
            model=model,
            estimator=self._taught(model, usage),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            reply_id=id,
            reply=measure,
            overhead=self._overhead(model, usage),
        )

    def _taught(self, model: str, usage: Usage) -> Estimator:
        """Learn only where the bill before is known, was for the same model, and nothing left the view since."""
        if self.input_tokens is None or model != self.model or self.freed_tokens:
            return self.estimator
        grown = usage.input_tokens - self.input_tokens
        return self.estimator.learned(model, self.reply + self.after, grown)

    def _overhead(self, model: str, usage: Usage) -> float:
        if self.input_tokens is not None:
            return self.overhead
        return max(0.0, usage.input_tokens - self.estimator.correction(model).tokens(self.after))

    def freed(self, tokens: float) -> Counted:
        """Take off what a decision removed from the view, until the next reply reports."""
        return replace(self, freed_tokens=self.freed_tokens + tokens)

    def after_cut(self, shown: Measure = NOTHING) -> Counted:
        """Start over after a compaction with what is still shown: no usage speaks of this view."""
        return Counted(model=self.model, estimator=self.estimator, after=shown, overhead=self.overhead)
