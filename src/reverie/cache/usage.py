"""The token usage of a call, by billing category: cache read, 5-minute write, 1-hour write, uncached, output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..conversation.entries import Entry
from ..conversation.tokens.estimate import estimate_block
from ..conversation.wire.blocks import as_blocks
from ..values import record

_NOTHING: Final[Mapping[str, Any]] = {}
_LEAST_SHARE: Final = 0.6  # of the estimate, which is at most that far off


@record
class Usage:
    """The tokens of one call or of several, by billing category."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    uncached: int = 0
    output: int = 0

    @property
    def write(self) -> int:
        """All tokens written to the cache."""
        return self.write_5m + self.write_1h

    @property
    def input(self) -> int:
        """All input tokens."""
        return self.read + self.write_5m + self.write_1h + self.uncached

    @property
    def readable(self) -> int:
        """The tokens the next call can read: those this call read and those it wrote."""
        return self.read + self.write_5m + self.write_1h

    def body(self) -> dict[str, int]:
        """Return the usage as a reply of the Messages API reports it."""
        return {
            "input_tokens": self.uncached,
            "cache_creation_input_tokens": self.write,
            "cache_read_input_tokens": self.read,
            "output_tokens": self.output,
        }

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both usages, category by category."""
        return Usage(
            self.read + other.read,
            self.write_5m + other.write_5m,
            self.write_1h + other.write_1h,
            self.uncached + other.uncached,
            self.output + other.output,
        )

    def minus(self, other: Usage) -> Usage:
        """Return the difference of both usages, category by category and at least 0."""
        return Usage(
            max(0, self.read - other.read),
            max(0, self.write_5m - other.write_5m),
            max(0, self.write_1h - other.write_1h),
            max(0, self.uncached - other.uncached),
            max(0, self.output - other.output),
        )


def usage_fields(usage: Usage, output_tokens: int = 0) -> dict[str, Any]:
    """Return a usage as the dict that Anthropic reports."""
    return {
        "input_tokens": usage.uncached,
        "cache_creation_input_tokens": usage.write,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.write_5m,
            "ephemeral_1h_input_tokens": usage.write_1h,
        },
        "output_tokens": output_tokens,
    }


def usage_of(reported: Mapping[str, Any]) -> Usage:
    """Return the usage a reply reports, in Anthropic's or OpenAI's format; missing numbers count as 0.

    Where it lists iterations, such as a compaction by the provider, they are the bill.
    """
    if "prompt_tokens" in reported or "input_tokens_details" in reported or "prompt_tokens_details" in reported:
        return _openai(reported)
    listed: Any = reported.get("iterations")
    given = cast("list[Any]", listed) if isinstance(listed, list) else []
    parts = [cast("Mapping[str, Any]", one) for one in given if isinstance(one, Mapping)]
    return _summed(parts, reported) if parts else _anthropic(reported)


def _summed(parts: list[Mapping[str, Any]], reported: Mapping[str, Any]) -> Usage:
    """Return the sum of all iterations; cache figures that only the whole has are taken from there."""
    total = Usage()
    for part in parts:
        total = total.plus(_anthropic(part))
    whole = _anthropic(reported)
    if total.readable == 0:
        total = total.plus(Usage(whole.read, whole.write_5m, whole.write_1h))
    return total


def _anthropic(reported: Mapping[str, Any]) -> Usage:
    written = _count(reported, "cache_creation_input_tokens")
    made = _mapping(reported, "cache_creation")
    long = _count(made, "ephemeral_1h_input_tokens")
    short = max(written - long, _count(made, "ephemeral_5m_input_tokens"))
    return Usage(
        _count(reported, "cache_read_input_tokens"),
        short,
        long,
        _count(reported, "input_tokens"),
        _count(reported, "output_tokens"),
    )


def _openai(reported: Mapping[str, Any]) -> Usage:
    details = _mapping(reported, "prompt_tokens_details") or _mapping(reported, "input_tokens_details")
    total = _count(reported, "prompt_tokens") or _count(reported, "input_tokens")
    read = min(_count(details, "cached_tokens") or _count(reported, "prompt_cache_hit_tokens"), total)
    written = min(_count(details, "cache_write_tokens"), total - read)
    output = _count(reported, "completion_tokens") or _count(reported, "output_tokens")
    return Usage(read=read, write_5m=written, uncached=total - read - written, output=output)


def _mapping(reported: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = reported.get(key)
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else _NOTHING


def _count(reported: Mapping[str, Any], key: str) -> int:
    value = reported.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def reported_usage(pieces: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the usage that the entries of one recorded reply report; None if they report no input.

    Their largest output counts. Some programs record the output of the first piece only: where it is far below the
    text of the reply, the text is counted instead.
    """
    reported = [
        cast("dict[str, Any]", one.reply["usage"]) for one in pieces if isinstance(one.reply.get("usage"), dict)
    ]
    if not reported or not usage_of(reported[0]).input:
        return None
    output = max(usage_of(one).output for one in reported)
    estimated = reply_tokens(pieces)
    return {**reported[0], "output_tokens": output if output >= _LEAST_SHARE * estimated else estimated}


def reported_options(reply: Entry) -> dict[str, Any]:
    """Return the options of a request that its recorded reply names: the level of thinking."""
    level = reply.reply.get("thinking_level")
    return {"thinking": level} if level else {}


def reply_tokens(pieces: Sequence[Entry]) -> int:
    """Return an estimate of the tokens in the entries of one reply."""
    return sum(estimate_block(block) for one in pieces if one.message is not None for block in as_blocks(one.message))
