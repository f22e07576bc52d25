"""Tool calls in the view: their tool, their input and the file they are about."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, cast

from msgspec import Struct

from ..values import object_of, rows_of
from .entries import Message
from .wire.blocks import Block, call_as_text, is_text_call

CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
PATH_KEYS: Final = ("file_path", "path", "filePath", "notebook_path")
COMPLETED: Final = "completed"
"""The status of a step that is done."""
_STEP_LISTS: Final = ("todos", "plan", "items")


class ToolCall(Struct, frozen=True, gc=False):
    """A tool call in the view; ``group`` is the index of its message in the view."""

    name: str
    input: dict[str, Any]
    group: int


def is_sent_call(block: Block) -> bool:
    """Say whether a block is a call of the caller's tools that requests show as one."""
    return block["type"] == "tool_use" and not is_text_call(block["id"])


def steps_in(given: Any) -> list[tuple[str, str]] | None:
    """Return the steps of a call that replaces a list of them, each as its text and status; None if it has no list."""
    fields = object_of(given)
    listed = next((fields[key] for key in _STEP_LISTS if isinstance(fields.get(key), list)), None)
    if listed is None:
        return None
    found = [(one.get("content") or one.get("step"), str(one.get("status") or "")) for one in rows_of(listed)]
    return [(text, status) for text, status in found if isinstance(text, str) and text.strip()]


def path_of(arguments: dict[str, Any]) -> str | None:
    """Return the path of the file that a call's input names, or None if it names no file."""
    for key in PATH_KEYS:
        found = arguments.get(key)
        if isinstance(found, str) and found:
            return found
    return None


def span_of(arguments: dict[str, Any]) -> str:
    """Return the ``offset`` and ``limit`` in a call's input joined by ``+``, or only the given one, or ''."""
    return f"{arguments.get('offset', '')}+{arguments.get('limit', '')}".strip("+")


def with_fresh_calls(message: Message, known: Container[str]) -> tuple[Message, list[Block]]:
    """Return the message with calls of a known or repeated id turned into text, and a list of its other calls.

    A provider rejects an id that occurs twice. The message is the same object if it has no such call.
    """
    content = message["content"]
    if isinstance(content, str):
        return message, []
    blocks = cast("list[Block]", content)
    uses: list[Block] = []
    taken: set[str] = set()
    out: list[Block] = []
    same = True
    for block in blocks:
        if block["type"] not in CALLS:
            out.append(block)
        elif block["id"] in taken or block["id"] in known:
            out.append(call_as_text(block))
            same = False
        else:
            taken.add(block["id"])
            uses.append(block)
            out.append(block)
    return (message if same else {**message, "content": out}), uses
