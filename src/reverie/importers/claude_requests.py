"""The exact requests and the bill that Claude Code records beside the messages of a session.

``api-request-shape`` holds the system prompt and the tools, ``api-request-blob`` a message, and ``api-request`` a call:
the number of messages that it keeps of an earlier call and the hashes of those behind them. A message of
the transcript has no blob; its hash is that of its JSON with sorted keys. ``cost-state`` is the host's own total.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, cast

from ..cache.usage import Usage, usage_of
from ..values import object_of, record, rows_of
from .foreign_values import Record, as_count, as_list, as_number, as_text
from .import_result import RecordedBill, plain

RECORDS: Final = frozenset({"api-request", "api-request-shape", "api-request-blob", "cost-state"})


@record
class RecordedRequests:
    """The calls of a file by id, and the shapes and messages that they name by hash."""

    calls: Mapping[str, Record]
    shapes: Mapping[str, Record]
    blobs: Mapping[str, Record]

    def shape_of(self, request: str) -> tuple[str | None, list[Record] | None]:
        """Return the system prompt and the tools of a call; None for a part that the file does not hold."""
        shape = self.shapes.get(as_text(self.calls.get(request, {}).get("shapeHash")), {})
        system = plain(shape.get("system"))
        return system or None, rows_of(shape.get("tools")) if "tools" in shape else None

    def messages_of(self, request: str, said: Iterable[Record]) -> list[Record] | None:
        """Return the messages of a call, from blobs and from ``said``; None if one of them is unknown."""
        hashes = self._hashes(request)
        if hashes is None:
            return None
        missing = set(hashes) - self.blobs.keys()
        others = {_hash_of(form): form for message in said for form in _forms(message)} if missing else {}
        found = [self.blobs.get(name) or others.get(name) for name in hashes]
        return None if None in found else cast("list[Record]", found)

    def _hashes(self, request: str) -> list[str] | None:
        tails: list[tuple[list[str], int]] = []
        seen: set[str] = set()
        while (call := self.calls.get(request)) is not None and request not in seen:
            seen.add(request)
            tails.append(([as_text(name) for name in as_list(call.get("tail"))], as_count(call.get("keep"))))
            request = as_text(call.get("base"))
            if not request:
                break
        if not tails or (request and request not in seen):
            return None
        out: list[str] = []
        for tail, keep in reversed(tails):
            if keep > len(out):
                return None
            out[keep:] = tail
        return out


def requests_in(rows: Iterable[Record]) -> RecordedRequests:
    """Return the recorded calls of a transcript."""
    found = RecordedRequests({}, {}, {})
    kinds: dict[str, tuple[Any, str, str]] = {
        "api-request": (found.calls, "id", ""),
        "api-request-shape": (found.shapes, "shapeHash", "shape"),
        "api-request-blob": (found.blobs, "hash", "message"),
    }
    for row in rows:
        if (kind := kinds.get(as_text(row.get("type")))) is not None:
            into, key, value = kind
            into[as_text(row.get(key))] = object_of(row.get(value)) if value else row
    return found


def bill_in(rows: Iterable[Record]) -> RecordedBill | None:
    """Return the host's total, and the usage by model that is in it but in no reply of the file.

    The host counts on when a session is resumed; a new start counts from zero, so the last total of each start counts.
    """
    states: dict[float | None, Record] = {}
    replies: dict[str, Record] = {}
    for row in rows:
        message = object_of(row.get("message"))
        if row.get("type") == "cost-state":
            states[as_number(row.get("startTime"))] = row
        elif message.get("usage"):
            replies[as_text(message.get("id"))] = message
    if not states:
        return None
    other: dict[str, Usage] = {}
    for state in states.values():
        for model, usage in object_of(state.get("modelUsage")).items():
            other[model] = other.get(model, Usage()).plus(_counted(object_of(usage)))
    calls = [(as_text(one.get("model")), usage_of(object_of(one.get("usage")))) for one in replies.values()]
    for model, usage in calls:
        if model in other:
            other[model] = other[model].minus(usage)
    total = sum(as_number(state.get("totalCostUSD")) or 0.0 for state in states.values())
    return RecordedBill(total, tuple(calls), {model: usage for model, usage in other.items() if usage != Usage()})


def _counted(usage: Record) -> Usage:
    names = ("cacheReadInputTokens", "cacheCreationEphemeral5mInputTokens", "cacheCreationEphemeral1hInputTokens")
    read, write_5m, write_1h = (as_count(usage.get(name)) for name in names)
    write_5m = write_5m if write_5m or write_1h else as_count(usage.get("cacheCreationInputTokens"))
    return Usage(read, write_5m, write_1h, as_count(usage.get("inputTokens")), as_count(usage.get("outputTokens")))


def _forms(message: Record) -> list[Record]:
    content = message.get("content")
    block = {"type": "text", "text": content}
    return [message, {**message, "content": [block]}] if isinstance(content, str) else [message]


def _hash_of(message: Record) -> str:
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode("utf-8", "replace")).hexdigest()
