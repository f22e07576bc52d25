"""Convert names, schemas and content of MCP servers to the Messages API."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from .tool import Output

MAX_NAME_CHARS: Final = 64
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]+")
# Keywords that the Messages API refuses at the top of a tool's schema.
_REFUSED: Final = ("oneOf", "anyOf", "allOf")


def tool_names(raw: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a dict from each (server, tool) to a unique name that the provider accepts, in sorted order.

    A name that is too long or already taken ends in a hash of its server and tool.
    """
    found: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for pair in sorted(set(raw)):
        plain = "__".join(("mcp", *(_UNFIT.sub("_", part) or "_" for part in pair)))
        name = plain
        if len(plain) > MAX_NAME_CHARS or plain in taken:
            mark = hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()[:8]
            name = f"{plain[: MAX_NAME_CHARS - 9]}_{mark}"
        taken.add(name)
        found[pair] = name
    return found


def schema_of(given: object) -> tuple[dict[str, Any], str]:
    """Return an input schema that the provider accepts, and a note about removed keywords (empty if none)."""
    schema = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    refused = [key for key in _REFUSED if key in schema]
    for key in refused:
        del schema[key]
    if schema.get("type") != "object":
        schema["type"] = "object"
    return schema, f"{', '.join(refused)} at the top of its schema is not sent to the model" if refused else ""


def output_of(result: Mapping[str, Any]) -> Output:
    """Convert an MCP tool's result (``content``, ``structuredContent``, ``isError``) to an ``Output``."""
    content = result.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    blocks = [_block(cast("Mapping[str, Any]", part)) for part in parts if isinstance(part, Mapping)]
    structured = result.get("structuredContent")
    if structured is not None and not any(_repeats(block, structured) for block in blocks):
        blocks.append(_text(json.dumps(structured, ensure_ascii=False)))
    return Output(_joined(blocks), is_error=result.get("isError") is True)


def _joined(blocks: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return one text if all blocks are text; otherwise the list of blocks without empty text blocks."""
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _repeats(block: Mapping[str, Any], structured: object) -> bool:
    """Return whether a text block says the same as the structured content, also as ``{"result": value}``."""
    if block["type"] != "text":
        return False
    try:
        said = json.loads(block["text"])
    except (ValueError, RecursionError):
        # A server may write a lone value as bare text next to {"result": value}.
        said = block["text"]
    return said == structured or {"result": said} == structured or {"result": block["text"]} == structured


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "text":
            return _text(str(part.get("text", "")))
        case "image":
            return _binary("image", part.get("mimeType"), part.get("data"))
        case "audio":
            return _binary("audio", part.get("mimeType"), part.get("data"))
        case "resource_link":
            return _text(_link(part))
        case "resource":
            inner = part.get("resource")
            return _resource(cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {})
        case other:
            return _text(f"[content of an unknown kind: {str(other)[:80]}]")


def _resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    text, uri = resource.get("text"), str(resource.get("uri", ""))
    if isinstance(text, str):
        return _text(f"[resource {uri}]\n{text}")
    return _binary(f"resource {uri}", resource.get("mimeType"), resource.get("blob"))


def _link(part: Mapping[str, Any]) -> str:
    shown = f"[resource {part.get('title') or part.get('name') or ''}: {part.get('uri', '')}]"
    said = part.get("description")
    return f"{shown} {said}" if said else shown


def _binary(label: str, media: object, data: object) -> dict[str, Any]:
    """Return an image block, which the session checks; for other data a text block that describes it."""
    if isinstance(data, str) and isinstance(media, str) and media.startswith("image/") and data:
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return _text(f"[{label} of type {media or 'unknown'}, {size:,} bytes, cannot be shown]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
