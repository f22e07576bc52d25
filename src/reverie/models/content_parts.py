"""Content of the Messages API as parts of chat content; Chat Completions and Responses share it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

from ..cache.usage import usage_of
from ..conversation.entries import clean
from ..values import object_of

Block: TypeAlias = "Mapping[str, Any]"
Part: TypeAlias = "dict[str, Any]"

BREAKPOINT: Final = {"mode": "explicit"}
_UNSENT: Final = frozenset({"thinking", "redacted_thinking", "cache_edits"})
INVALID_JSON: Final = "INVALID_JSON"


def content_blocks(content: Any) -> Iterator[Block]:
    """Yield the blocks of a content; a string is one text block."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, Sequence):
        for block in cast("Sequence[Any]", content):
            yield cast("Block", block) if isinstance(block, Mapping) else {"type": "text", "text": str(block)}


def content_parts(blocks: Iterable[Block], *, marks: bool = False) -> list[Part]:
    """Return blocks with text as parts of chat content; with ``marks``, cache marks become breakpoints."""
    out: list[Part] = []
    for block in blocks:
        parts = _parts(block)
        if marks and parts and block.get("cache_control"):
            parts[-1]["prompt_cache_breakpoint"] = BREAKPOINT
        out += parts
    return out


def joined_text(blocks: Iterable[Block]) -> str:
    """Return the text of blocks, with an empty line between two of them."""
    return "\n\n".join(filter(None, map(_words, blocks)))


def text_part(text: str) -> Part:
    """Return a part with text."""
    return {"type": "text", "text": text}


def error_text(text: str) -> str:
    """Return the text of a failed call, marked as an error."""
    return text if text.lower().startswith("error") else f"Error: {text}"


def _parts(block: Block) -> list[Part]:
    source: Any = block.get("source")
    if isinstance(source, Mapping) and block.get("type") in ("image", "document"):
        fields = cast("Mapping[str, Any]", source)
        media = str(fields.get("media_type") or "application/octet-stream")
        url = fields.get("url") or f"data:{media};base64,{fields.get('data', '')}"
        if block.get("type") == "image" and fields.get("type") in ("base64", "url"):
            return [{"type": "image_url", "image_url": {"url": url}}]
        if fields.get("type") == "base64":
            name = str(block.get("title") or "document.pdf")
            return [{"type": "file", "file": {"filename": name, "file_data": url}}]
        if fields.get("type") == "text":
            return [text_part(str(fields.get("data", "")))]
    text = _words(block)
    return [text_part(text)] if text else []


def _words(block: Block) -> str:
    """Return the text of a block, or a placeholder with its type; empty for thinking and cache edits."""
    if block.get("type") in _UNSENT:
        return ""
    for key in ("text", "content"):
        said: Any = block.get(key)
        if isinstance(said, str):
            return said
        if isinstance(said, list) and key == "content":
            return joined_text(content_blocks(cast("list[Any]", said)))
    return f"[{block.get('type')}]"


def read_json(text: str | bytes) -> Any:
    """Return JSON from outside as plain values that can be encoded again; raise ``ValueError`` for other text."""
    try:
        return clean(json.loads(text, parse_constant=_no_constant))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def tool_input(text: str) -> dict[str, Any]:
    """Return a call's arguments, given as JSON text; {} for blank text, and other text under ``INVALID_JSON``."""
    if not text.strip():
        return {}
    try:
        value = read_json(text)
    except ValueError:
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {INVALID_JSON: clean(text)}


def malformed_input(block: Mapping[str, Any]) -> str | None:
    """Return the model's text if a call's arguments were not a JSON object; None if they were."""
    fields = object_of(block.get("input"))
    text = fields.get(INVALID_JSON)
    return text if len(fields) == 1 and isinstance(text, str) else None


def with_usage(body: dict[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a reply with the usage that another API reported, if it reported any."""
    usage = usage_of(reported)
    return {**body, "usage": usage.body()} if usage.input or usage.output else body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
