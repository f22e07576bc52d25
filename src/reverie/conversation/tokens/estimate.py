"""Token estimates for text, blocks and messages, by class of content.

The vocabularies of current models are not published, so a text is weighed by its bytes: letters are cheap, digits and
punctuation are expensive. The weights are a compromise between tokenizers, fitted to recorded usage;
``benchmarks/estimator.py`` measures them. The remaining error is learned per model and class (``learning.py``), so a
measure keeps its classes apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil
from operator import add
from typing import Any, Final, cast
from zlib import adler32

import msgspec

from ...values import replace
from ..entries import compact_json
from ..wire.documents import document_pages
from ..wire.images import GENERAL, base64_head, image_data, image_tokens

CLASSES: Final = ("prose", "code", "json", "cjk", "base64", "thinking", "frame", "media")
PROSE, CODE, JSON, CJK, BASE64, THINKING, FRAME, MEDIA = range(len(CLASSES))

MEDIA_TOKENS: Final = 2_000.0
MESSAGE_TOKENS: Final = 3.0
TOOL_USE_TOKENS: Final = 55.0
TOOL_RESULT_TOKENS: Final = 20.0
TOOL_TOKENS: Final = 12.0
BASE64_BYTES: Final = 1.4
# Redacted thinking is base64 of text of about the same length: four characters for three bytes, 4.2 bytes a token.
REDACTED_CHARS: Final = 5.6
WHOLE_CHARS: Final = 65_536
SLICES: Final = 32
SLICE_CHARS: Final = 1_024
SAMPLE_BYTES: Final = 512
NESTING: Final = 6
NAME_CHARS: Final = 128
# The model that sees most of an image: an older one is billed less, which is learned.
_SHARPEST: Final = replace(GENERAL, image_tokens=4_784, image_side=2_576)

# Weights are in fiftieths of a token.
_UNIT: Final = 50
_LOWER, _UPPER, _DIGIT, _MARK, _SPACE, _NEWLINE, _CONTROL = 12, 18, 45, 29, 9, 30, 35
_TWO, _THREE_OTHER, _THREE, _FOUR = 17, 28, 49, 100
# No byte of valid UTF-8 weighs more than a digit on average over its character, so the sum over this many bytes
# stays below the modulus of Adler-32 (65,521).
_SUM_BYTES: Final = 1_400


def _weight(byte: int) -> int:
    if byte < 0x80:
        char = chr(byte)
        if char.isalpha():
            return _LOWER if char.islower() else _UPPER
        if char.isdigit():
            return _DIGIT
        return _SPACE if char == " " else _NEWLINE if char in "\r\n" else _CONTROL if byte < 32 else _MARK
    if byte < 0xC0:
        return 0
    if byte < 0xE0:
        return _TWO
    return _FOUR if byte >= 0xF0 else _THREE if byte >= 0xE2 else _THREE_OTHER


_WEIGHTS: Final = bytes(_weight(byte) for byte in range(256))
_MARKS: Final = bytes([_MARK, _MARK])
_HUMP: Final = bytes([_LOWER, _UPPER])


class Measure(msgspec.Struct, frozen=True):
    """Estimated tokens by content class, in the order of ``CLASSES``."""

    by_class: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum over all classes."""
        return sum(self.by_class)

    def __add__(self, other: Measure) -> Measure:
        return Measure(tuple(map(add, self.by_class, other.by_class)))


NOTHING: Final = Measure((0.0,) * len(CLASSES))


def estimate_text(text: str) -> int:
    """Return the estimated tokens of a text, rounded up."""
    return ceil(_measured(text)[0]) if text else 0


def _measured(text: str) -> tuple[float, int]:
    """Return the estimated tokens and the class of a text; a huge text is sampled in evenly spaced slices."""
    length = len(text)
    if length <= WHOLE_CHARS:
        return _weighed(text.encode("utf-8", "surrogatepass"))
    step = length / SLICES
    slices = [text[int(at * step) : int(at * step) + SLICE_CHARS] for at in range(SLICES)]
    tokens, kind = _weighed("".join(slices).encode("utf-8", "surrogatepass"))
    return tokens * length / (SLICES * SLICE_CHARS), kind


def _weighed(data: bytes) -> tuple[float, int]:
    weights = data.translate(_WEIGHTS)
    size = len(weights)
    if size <= SAMPLE_BYTES:
        kind = _classified(data, weights)
    else:
        start = (size - SAMPLE_BYTES) // 2
        kind = _classified(data[start : start + SAMPLE_BYTES], weights[start : start + SAMPLE_BYTES])
    if kind == BASE64:
        return size / BASE64_BYTES, kind
    # The low half of Adler-32 is one plus the sum of all bytes: the quickest way to add them up from Python.
    units = 0
    for at in range(0, size, _SUM_BYTES):
        units += (adler32(weights[at : at + _SUM_BYTES]) & 0xFFFF) - 1
    # Two marks in a row are mostly one token.
    return (units - _MARK * weights.count(_MARKS)) / _UNIT, kind


def _classified(data: bytes, weights: bytes) -> int:
    size = len(data)
    if weights.count(0) * 3 > size:
        return CJK
    # Few texts have so few spaces, and spaces are quicker to count than humps.
    if size >= 64 and weights.count(_SPACE) * 33 < size and weights.count(_HUMP) * 12 > size:
        return BASE64
    if data.count(b'"') * 25 > size and data.count(b":") * 60 > size:
        return JSON
    return CODE if weights.count(_MARK) * 11 > size else PROSE


def _text(text: str, into: list[float], kind: int | None = None) -> None:
    if text:
        tokens, found = _measured(text)
        into[found if kind is None else kind] += tokens


@lru_cache(maxsize=1_024)
def _name_tokens(name: str) -> float:
    """Return the estimated tokens of a tool's name, cached because a session calls few different tools."""
    return _measured(name)[0]


def _block(block: Any, into: list[float], depth: int = 0) -> None:
    """Add a block's estimated tokens by class to ``into``; the data of media is never weighed as text."""
    if isinstance(block, str):
        return _text(block, into)
    if not isinstance(block, dict):
        return _text(compact_json(block), into, JSON)
    fields = cast(dict[str, Any], block)
    kind = fields.get("type")
    if kind == "image" or kind == "document":
        into[MEDIA] += _media_tokens(fields)
    elif kind == "text" and isinstance(fields.get("text"), str):
        _text(fields["text"], into)
    elif kind == "thinking" and isinstance(fields.get("thinking"), str):
        _text(fields["thinking"], into, THINKING)
    elif kind == "redacted_thinking":
        into[THINKING] += len(str(fields.get("data") or "")) / REDACTED_CHARS
    elif kind == "compaction":
        said, sealed = str(fields.get("content") or ""), str(fields.get("signature") or "")
        _text(said, into)
        # A summary that only its model reads is in the signature, together with the text.
        into[THINKING] += max(0, len(sealed) - len(said)) / REDACTED_CHARS
    elif isinstance(kind, str) and kind.endswith("tool_use"):
        into[FRAME] += TOOL_USE_TOKENS
        name = str(fields.get("name") or "")
        into[JSON] += _name_tokens(name) if len(name) <= NAME_CHARS else _measured(name)[0]
        _text(compact_json(fields.get("input")), into, JSON)
    elif (kind == "tool_result" or kind == "mcp_tool_result") and depth < NESTING:
        into[FRAME] += TOOL_RESULT_TOKENS
        _content(fields.get("content"), into, depth + 1)
    else:
        _text(compact_json(fields), into, JSON)
    return None


def _media_tokens(block: dict[str, Any]) -> float:
    """Return the tokens of an image by its pixels; a flat number for each page, and for an image of unknown size."""
    if block.get("type") == "document":
        return MEDIA_TOKENS * max(1, document_pages(block))
    given = image_data(block)
    head = None if given is None else base64_head(given[0])
    return MEDIA_TOKENS if head is None else float(image_tokens(head.width, head.height, _SHARPEST))


def _content(content: Any, into: list[float], depth: int = 0) -> None:
    if isinstance(content, str):
        _text(content, into)
    elif isinstance(content, list):
        for block in cast("list[Any]", content):
            _block(block, into, depth)
    elif content is not None:
        _block(content, into, depth)


def measure_block(block: Any) -> Measure:
    """Return the estimated tokens of one content block of any kind, by class."""
    into = [0.0] * len(CLASSES)
    _block(block, into)
    return Measure(tuple(into))


def measure_message(message: Mapping[str, Any]) -> Measure:
    """Return the estimated tokens of one message by class: its content and the provider's framing."""
    into = [0.0] * len(CLASSES)
    into[FRAME] = MESSAGE_TOKENS
    _content(message.get("content"), into)
    return Measure(tuple(into))


def measure_messages(messages: Iterable[Mapping[str, Any]]) -> Measure:
    """Return the estimated tokens of all these messages together, by class."""
    total = NOTHING
    for message in messages:
        total += measure_message(message)
    return total


def measure_request(
    messages: Iterable[Mapping[str, Any]], *, system: Any = None, tools: Sequence[Any] | None = None
) -> Measure:
    """Return the estimated tokens of a whole request by class: tools, system prompt and messages."""
    into = [0.0] * len(CLASSES)
    _content(system, into)
    for tool in tools or ():
        into[FRAME] += TOOL_TOKENS
        _text(compact_json(tool), into, JSON)
    return Measure(tuple(into)) + measure_messages(messages)


def estimate_block(block: Any) -> int:
    """Return the estimated tokens of one content block, rounded up."""
    return ceil(measure_block(block).total)


def estimate_message(message: Mapping[str, Any]) -> int:
    """Return the estimated tokens of one message with its framing, rounded up."""
    return ceil(measure_message(message).total)


def estimate_request(
    messages: Iterable[Mapping[str, Any]], *, system: Any = None, tools: Sequence[Any] | None = None
) -> int:
    """Return the estimated tokens of a whole request, rounded up: tools, system prompt and messages."""
    return ceil(measure_request(messages, system=system, tools=tools).total)
