"""The forms of a tool result: content, text, exact bytes; and the texts that the view shows in place of results."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from ...values import object_of, record

Output: TypeAlias = str | bytes | list[Any]
Content: TypeAlias = str | list[Any]
Media: TypeAlias = Literal["text", "json", "bytes"]
OPENING: Final = "<persisted-output>"
CLOSING: Final = "</persisted-output>"


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


def preview_of(text: str, max_bytes: int) -> str:
    """Return the first ``max_bytes`` bytes of a text, cut at the last newline if that is in the second half."""
    data = text[: max_bytes + 1].encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    newline = data.rfind(b"\n", 0, max_bytes)
    end = newline if newline * 2 >= max_bytes else max_bytes
    return data[:end].decode("utf-8", "ignore")  # the cut can split only the last character


def persisted_text(text: str, *, size_bytes: int, path: str, handle: str, preview_bytes: int) -> str:
    """Return the text shown for a result that is stored in a file: its size, path, handle and a preview."""
    preview = preview_of(text, preview_bytes)
    more = "" if preview == text else "\n..."
    return (
        f"{OPENING}\n"
        f"Output too large to show whole: {_size(size_bytes)}. Full output saved to: {path}\n"
        f"Read or search it there, or read it back by its handle: {handle}\n\n"
        f"Preview (first {preview_bytes:,} bytes):\n"
        f"{preview}{more}\n"
        f"{CLOSING}"
    )


def repeated_text(first: str, tool: str, *, size_bytes: int, handle: str) -> str:
    """Return the text shown for a result that repeats that of the call ``first``, which is still in view."""
    by = f"{tool} call " if tool else ""
    return (
        f"[Identical to the result of {by}{first} above, {_size(size_bytes)}; "
        f"this one can be read back by its handle: {handle}]"
    )


def image_text(problem: str, about: str, path: str = "", handle: str = "", kind: str = "image") -> str:
    """Return the text shown for an image or document that cannot be sent: the problem, and the original's place."""
    advice = "Make a smaller copy to see it" if kind == "image" else "Take out the pages that you need to see them"
    where = f". Saved to: {path}\nIts handle: {handle}. {advice}" if handle else ""
    return f"[{kind.capitalize()} not shown: {problem} ({about}){where}]"


def scaled_text(about: str, size: str, path: str, handle: str) -> str:
    """Return the text shown beside the smaller copy of an image, with the place of the original if it was stored."""
    where = f" The original ({about}) is saved to: {path}, handle: {handle}" if handle else ""
    return f"[The image was scaled down to {size} pixels.{where}]"


def empty_text(tool: str) -> str:
    """Return the text shown for an empty result, with the tool's name."""
    return f"({tool or 'The tool'} completed with no output)"


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} bytes"
    kilobytes = count / 1_000
    short = f"{kilobytes:.1f} kB" if kilobytes < 1_000 else f"{kilobytes / 1_000:.1f} MB"
    return f"{short} ({count:,} bytes)"
