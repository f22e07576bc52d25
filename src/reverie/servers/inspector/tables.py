"""Requests as data that is small for long sessions: each block and message once, each request as a difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import Any, Final, cast

import msgspec

from ...cache.breakpoints import BreakpointPlan
from ...conversation.entries import Message, clean
from ...conversation.tokens.accounting import account
from ...conversation.tokens.estimate import measure_block
from ...conversation.tokens.learning import Correction
from ...values import object_of

CATEGORIES: Final = (
    "beside", "human", "context", "assistant", "local_command", "tool_requests", "tool_results", "other"
)  # fmt: skip
"""The categories of a window; ``beside`` is everything billed besides the messages: system prompt and tools."""
_encoder: Final = msgspec.json.Encoder()
_LISTS: Final = ("system", "tools")


class Tables:
    """The blocks, messages and openings of all requests of a session; each has an index and is stored once."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.categories: list[int] = []
        self.tools: list[str] = []
        """The tool of each block that is a call or a result; empty for others."""
        self.messages: list[dict[str, Any]] = []
        self.heads: list[list[tuple[str, Any]]] = []
        self.context: set[str] = set()
        """Texts in the user's role that a program added."""
        self._indexes: dict[bytes, int] = {}
        self._known: dict[int, tuple[Message, int]] = {}
        self._names: dict[str, str] = {}

    def message(self, message: Message) -> int:
        """Return the index of a message; one that was seen before as the same object is not looked at again."""
        found = self._known.get(id(message))
        if found is not None:
            return found[1]
        content = message["content"]
        role = str(message.get("role"))
        refs = self.block(content, role) if isinstance(content, str) else [self.block(one, role) for one in content]
        index = self._index("\0m", {**message, "content": refs}, self.messages)
        self._known[id(message)] = message, index
        return index

    def block(self, block: Any, role: str) -> int:
        """Return the index of a block in a message of this role, or of a part of an opening."""
        count = len(self.blocks)
        index = self._index(role, block, self.blocks)
        if index == count:
            self.categories.append(self._category(block, role))
            self.tools.append(self._tool(block))
        return index

    def head(self, request: Mapping[str, Any]) -> int:
        """Return the index of everything in a request but its messages; the order of the fields is kept."""
        fields: list[tuple[str, Any]] = []
        for key, value in request.items():
            if key == "messages":
                fields.append((key, None))
            elif key in _LISTS and isinstance(value, list):
                fields.append((key, [self.block(one, key) for one in cast("list[Any]", value)]))
            else:
                fields.append((key, self.block(value, key)))
        return self._index("\0h", fields, self.heads)

    def tokens(self, correction: Correction) -> list[int]:
        """Return the estimated tokens of each block."""
        return [ceil(correction.tokens(measure_block(block))) for block in self.blocks]

    def _index(self, kind: str, value: Any, table: list[Any]) -> int:
        try:
            data = _encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            value = clean(value)
            data = _encoder.encode(value)
        digest = blake2b(data, digest_size=16, person=kind.encode()[:16]).digest()
        index = self._indexes.setdefault(digest, len(table))
        if index == len(table):
            table.append(value)
        return index

    def _category(self, block: Any, role: str) -> int:
        if role in (*_LISTS, "model") or role not in ("user", "assistant", "system"):
            return 0
        content = block if isinstance(block, str) else [block]
        found = account([{"role": role, "content": content}], context=self.context).by_category()
        return CATEGORIES.index(max(found, key=lambda name: found[name]))

    def _tool(self, block: Any) -> str:
        fields = object_of(block)
        if fields.get("type") == "tool_use":
            self._names[str(fields.get("id"))] = str(fields.get("name"))
        return self._names.get(str(fields.get("id") or fields.get("tool_use_id")), "")


def shared_start(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return how many items two lists share at the beginning, by comparisons of ever smaller slices."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def spliced(before: Sequence[int], after: Sequence[int]) -> tuple[int, int, list[int]]:
    """Return how many items two lists share at the beginning and at the end, and the new ones between."""
    first = shared_start(before, after)
    last = shared_start(before[first:][::-1], after[first:][::-1])
    return first, last, list(after[first : len(after) - last])


def joined(before: Sequence[int], splice: Sequence[Any]) -> list[int]:
    """Return the list that a splice makes of the one before."""
    first, last, between = splice
    return [*before[:first], *between, *before[len(before) - last :]]


def marks_data(planned: BreakpointPlan) -> dict[str, Any]:
    """Return breakpoints as values of JSON."""
    return {
        "at": [[place.message, place.block, ttl] for place, ttl in planned.marks],
        "ttl": planned.prefix_ttl,
        "system": planned.marks_system,
        "tools": planned.marks_tools,
    }


def blocks_of(messages: Sequence[Mapping[str, Any]], ids: Iterable[int]) -> list[int]:
    """Return the indexes of the blocks of messages, in order."""
    found: list[int] = []
    for id in ids:
        content: Any = messages[id]["content"]
        found += cast("list[int]", content) if isinstance(content, list) else [content]
    return found
