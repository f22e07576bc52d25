"""Write an invented session as the lines of a Claude Code session, so that it can be imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.entries import ASSISTANT, DECISION, META, Entry

Row = dict[str, Any]


def as_claude_code_jsonl(entries: Sequence[Entry]) -> bytes:
    """Return the session as bytes in Claude Code's JSONL format, each result with its call as parent."""
    meta = next((entry for entry in entries if entry.kind == META), None)
    cwd = str(meta.body.get("cwd", "")) if meta else ""
    rows: list[Row] = []
    called: dict[str, str] = {}
    last: str | None = None
    for entry in entries:
        for row in _rows(entry):
            answered = [called[one] for one in _ids(row, "tool_result", "tool_use_id") if one in called]
            row["parentUuid"] = answered[0] if answered else last
            if row.get("subtype") == "compact_boundary":
                row["logicalParentUuid"], row["parentUuid"] = last, None
            rows.append({"isSidechain": False, "userType": "external", "cwd": cwd, "sessionId": entry.session, **row})
            called |= {one: row["uuid"] for one in _ids(row, "tool_use", "id")}
            last = row["uuid"]
    title = meta.body.get("title") if meta else None
    if title and last:
        rows.insert(0, {"type": "summary", "summary": title, "leafUuid": last})
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()


def _rows(entry: Entry) -> list[Row]:
    if entry.kind == DECISION:
        return _compaction(entry)
    if entry.message is None:
        return []
    reply = {**entry.reply, "type": "message"} if entry.kind == ASSISTANT else {}
    row: Row = {"type": entry.kind, "uuid": entry.uuid, "timestamp": entry.time}
    return [{**row, "message": {**reply, **entry.message}}]


def _compaction(entry: Entry) -> list[Row]:
    """Return the two lines of a compaction, boundary and summary; other decisions have no line."""
    made = decision_of(entry.body)
    if not isinstance(made, Compacted):
        return []
    said = {"trigger": made.trigger, "preTokens": made.tokens_before}
    boundary: Row = {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"}
    summary: Row = {"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": made.summary}}
    return [
        {**boundary, "uuid": entry.uuid, "timestamp": entry.time, "compactMetadata": said},
        {**summary, "uuid": f"{entry.uuid}-summary", "timestamp": entry.time},
    ]


def _ids(row: Row, kind: str, key: str) -> Iterable[str]:
    content: Any = cast(Row, row.get("message") or {}).get("content")
    if not isinstance(content, list):
        return []
    blocks = cast("list[Row]", content)
    return [str(block.get(key)) for block in blocks if block.get("type") == kind]
