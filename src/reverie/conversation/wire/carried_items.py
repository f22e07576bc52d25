"""Items of other providers, carried through the log inside thinking blocks.

Some items must go back to their model as they came: reasoning items with encrypted content, the signature that a
server puts on a tool call, reasoning text of a chat server. They travel as ``redacted_thinking`` or ``thinking``
blocks whose data or signature begins with a mark, so that every layer treats them as thinking. A provider of the
Messages API never gets one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ..entries import Message, clean

MARK: Final = "openai:"
CARRIED: Final = "carried_items"
"""The capability of a model whose replies carry such items, logged with the prefix."""
_FIELDS: Final = {"redacted_thinking": "data", "thinking": "signature", "compaction": "signature"}
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def carried_block(item: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a block that carries an item, which is read only by the model that made it."""
    return {"type": "redacted_thinking", "data": sealed(item, model)}


def carried_text(text: str, field: str) -> dict[str, Any]:
    """Return a block with a chat server's reasoning text; ``field`` is the field of the message it came in."""
    return {"type": "thinking", "thinking": text, "signature": MARK + field}


def sealed(item: Mapping[str, Any], model: str) -> str:
    """Return an item and its model as marked text."""
    value = {"model": model, "item": item}
    try:
        return MARK + _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return MARK + _encode(clean(value)).decode()


def is_carried(block: Mapping[str, Any]) -> bool:
    """Say whether a block carries an item of another provider."""
    field = _FIELDS.get(block.get("type", ""))
    return field is not None and str(block.get(field) or "").startswith(MARK)


def carried_item(block: Mapping[str, Any], model: str | None = None) -> dict[str, Any] | None:
    """Return the item that a block carries; None if there is none or another model than ``model`` made it."""
    field = _FIELDS.get(block.get("type", ""))
    text = block.get(field) if field is not None else None
    if not isinstance(text, str) or not text.startswith(f"{MARK}{{"):
        return None
    try:
        value = _decode(text[len(MARK) :])
    except msgspec.DecodeError:
        return None
    item: Any = value.get("item")
    right = model is None or value.get("model") == model
    return cast("dict[str, Any]", item) if right and isinstance(item, dict) else None


def text_field(block: Mapping[str, Any]) -> str:
    """Return the field in which a block's reasoning text came from a chat server, empty for other blocks."""
    signature = block.get("signature") if block.get("type") == "thinking" else None
    return signature[len(MARK) :] if isinstance(signature, str) and signature.startswith(MARK) else ""


def without_carried(messages: Sequence[Message]) -> list[Message]:
    """Return messages for a provider of the Messages API; those that carry nothing are the same objects."""
    return [_without(message) for message in messages]


def _without(message: Message) -> Message:
    content: Any = message["content"]
    if message["role"] != "assistant" or isinstance(content, str):
        return message
    blocks = cast("list[dict[str, Any]]", content)
    if not any(map(is_carried, blocks)):
        return message
    kept = [_readable(block) if is_carried(block) else block for block in blocks]
    shown = [block for block in kept if block is not None]
    role = "user" if blocks[0].get("type") == "compaction" else "assistant"
    return {"role": role, "content": shown or [{"type": "text", "text": "[no content]"}]}


def _readable(block: dict[str, Any]) -> dict[str, Any] | None:
    text = block.get("content") if block.get("type") == "compaction" else None
    return {"type": "text", "text": text} if isinstance(text, str) and text.strip() else None
