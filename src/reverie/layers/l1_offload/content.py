"""The forms of a tool result: the content to show, the text to read, and the exact bytes to store."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ...values import object_of, record

Output: TypeAlias = str | bytes | list[Any]
Content: TypeAlias = str | list[Any]
Media: TypeAlias = Literal["text", "json", "bytes"]


@record
class ResultForms:
    """The output of a tool: the content that a message carries, and the exact bytes to store.

    ``media`` is ``bytes`` if the bytes are not valid UTF-8; the content then shows U+FFFD in their place.
    """

    content: Content
    data: bytes
    media: Media


def result_forms(output: Output) -> ResultForms:
    """Return the content to show, the bytes to store and their media type for the output of a tool."""
    if isinstance(output, list):
        return ResultForms(output, _serialised(output), "json")
    if isinstance(output, str):
        try:
            return ResultForms(output, output.encode(), "text")
        except UnicodeEncodeError:
            data = _unescaped(output)
            return ResultForms(data.decode("utf-8", "replace"), data, "bytes")
    try:
        return ResultForms(output.decode(), output, "text")
    except UnicodeDecodeError:
        return ResultForms(output.decode("utf-8", "replace"), output, "bytes")


def size_chars(content: Content) -> int:
    """Count the characters of a result; images and binary documents count as zero."""
    if isinstance(content, str):
        return len(content)
    return sum(len(_part_text(part)) for part in content if not _is_media(part))


def text_of(content: Content) -> str:
    """Return the text of a result: its blocks joined by newlines, those without text as JSON."""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content)


def has_media(content: Content) -> bool:
    """Say whether a result holds an image or a binary document."""
    return not isinstance(content, str) and any(_is_media(part) for part in content)


def is_empty(content: Content) -> bool:
    """Say whether a result has no text but white space, and no image or binary document."""
    if isinstance(content, str):
        return not content or content.isspace()
    return not has_media(content) and not text_of(content).strip()


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        block = cast("dict[str, Any]", part)
        text = block.get("text") if block.get("type") == "text" else _source(block).get("data")
        if isinstance(text, str) and not _is_media(block):
            return text
    return _serialised(part).decode("utf-8", "replace")


def _is_media(part: Any) -> bool:
    kind = object_of(part).get("type")
    return kind == "image" or (kind == "document" and _source(part).get("type") != "text")


def _source(block: Any) -> dict[str, Any]:
    return object_of(block.get("source")) if block.get("type") == "document" else {}


def _serialised(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return json.dumps(value, default=str).encode()  # json keeps lone surrogates; msgspec refuses them


def _unescaped(text: str) -> bytes:
    """Return the bytes of a text with lone surrogates: the original bytes if Python escaped them on decoding."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
