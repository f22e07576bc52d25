"""opencode sessions: the document of ``opencode export``, and the same rows in its SQLite database.

A message has parts. A part of type ``compaction`` in a user's message is answered by a summary, and ``tail_start_id``
names the first message that stays.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..conversation.entries import ASSISTANT, SYSTEM, USER, iso
from ..errors import InputError
from ..values import object_of, rows_of
from .chat_shape import image_of, result_block, stop_reason_of, usage_fields, use_block
from .foreign_values import Record, as_count, as_number, as_text, compact_json
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "opencode"
MAGIC: Final = b"SQLite format 3\0"

_STEPS: Final = frozenset({"step-start", "step-finish", "patch", "snapshot", "agent", "retry", "compaction"})


def looks(row: Record) -> bool:
    """Return whether a record is an exported session."""
    messages = rows_of(row.get("messages"))
    return "directory" in object_of(row.get("info")) and all("parts" in one for one in messages)


def read(source: RecordSource) -> list[ImportedSession]:
    """Return the sessions of a document or of the documents of a database, each sub-agent after its parent."""
    return [_session(source, row) for row in source.rows]


def sessions_in(path: Path) -> dict[str, int]:
    """Return the time of the last change of each session in a database; raise ``InputError`` if it is no such one.

    A message and a part that change leave the time of their session as it is.
    """
    tables = (
        "SELECT id, time_updated FROM session",
        *(f"SELECT session_id, MAX(time_updated) FROM {table} GROUP BY session_id" for table in ("message", "part")),
    )
    changed: dict[str, int] = {}
    for id, at in (row for query in tables for row in _rows(path, query)):
        changed[as_text(id)] = max(changed.get(as_text(id), 0), as_count(at))
    return changed


def source_of(path: Path, wanted: list[str] | None = None) -> RecordSource:
    """Return the sessions of a database as documents, or only the ``wanted``; raise ``InputError`` if it has none."""
    names = ("id", "parent_id", "directory", "title", "agent", "cost", "time_created")
    found = _rows(path, f"SELECT {', '.join(names)} FROM session ORDER BY time_created, id")
    rows: list[Record] = []
    for row in found:
        info: Record = {**dict(zip(names, row, strict=True)), "parentID": row[1]}
        if wanted is None or info["id"] in wanted:
            rows.append({"info": info, "messages": list(_messages(path, info["id"]))})
    if wanted is None and not rows:
        raise InputError(f"{path} holds no session")
    return RecordSource(path.name, rows)


def _messages(path: Path, session: str) -> Iterator[Record]:
    parts: dict[str, list[Record]] = {}
    for id, message, data in _rows(path, "SELECT id, message_id, data FROM part WHERE session_id = ?", session):
        parts.setdefault(message, []).append({**_decoded(data), "id": id})
    order = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for id, data in _rows(path, order, session):
        mine = sorted(parts.get(id, []), key=lambda part: part["id"])
        yield {"info": {**_decoded(data), "id": id}, "parts": mine}


def _rows(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, from a connection that cannot write and leaves no file behind."""
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{alone}", uri=True, timeout=10)) as opened:
            return opened.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be read as a database of opencode ({error})") from None


def _decoded(data: Any) -> Record:
    try:
        return object_of(json.loads(data))
    except (TypeError, ValueError):
        return {}


def _session(source: RecordSource, document: Record) -> ImportedSession:
    info = object_of(document.get("info"))
    id, parent = as_text(info.get("id")), as_text(info.get("parentID"))
    draft = SessionDraft(NAME, f"{parent}.agent-{id}" if parent else id, source)
    draft.agent = as_text(info.get("agent")) or id if parent else None
    draft.cwd, draft.title = as_text(info.get("directory")), as_text(info.get("title"))
    kept = ""
    for message in rows_of(document.get("messages")):
        about, parts = object_of(message.get("info")), rows_of(message.get("parts"))
        compaction = next((part for part in parts if part.get("type") == "compaction"), None)
        if compaction is not None:
            kept = as_text(compaction.get("tail_start_id")) or " "
        elif about.get("summary") is True and kept:
            _compacted(draft, about, parts, kept.strip())
            kept = ""
        else:
            _emit(draft, about, parts)
    return draft.done(source.damage)


def _emit(draft: SessionDraft, about: Record, parts: list[Record]) -> None:
    id, time = as_text(about.get("id")), _time(about)
    if about.get("role") == "user":
        content = [block for part in parts if (block := _said(part))]
        if content:
            synthetic = all(part.get("synthetic") is True for part in parts)
            draft.say(USER, "user", content, time, id, **({"meta": True} if synthetic else {}))
        else:
            draft.skip("message without content")
        return
    tokens = object_of(about.get("tokens"))
    counts = {**tokens, **object_of(tokens.get("cache"))}
    reply = draft.reply(
        id,
        model=as_text(about.get("modelID")),
        stop_reason=stop_reason_of(as_text(about.get("finish")).replace("-", "_")),
        usage=usage_fields(counts, "input", "read", "write", "output", "reasoning"),
    )
    cost = as_number(about.get("cost"))
    if cost:
        reply["cost_usd"] = cost
        draft.spend(cost)
    before = len(draft.entries)
    for part in parts:
        _emit_part(draft, part, reply, time)
    if len(draft.entries) == before and (error := object_of(about.get("error"))):
        text = as_text(object_of(error.get("data")).get("message")) or as_text(error.get("name"))
        draft.add(SYSTEM, {"subtype": "error", "text": text}, time, id)


def _emit_part(draft: SessionDraft, part: Record, reply: Record, time: str) -> None:
    """Append a part of a reply; a call and its result are entries of their own, because the result comes later."""
    kind, id, state = as_text(part.get("type")), as_text(part.get("id")), object_of(part.get("state"))
    call = as_text(part.get("callID"))
    if kind == "text" and (block := _said(part)):
        draft.say(ASSISTANT, "assistant", [block], time, id, reply=reply)
    elif kind == "tool" and call and state.get("status") == "pending":
        draft.skip("call that is being written")
    elif kind == "tool" and call:
        use = use_block(call, as_text(part.get("tool")), object_of(state.get("input")))
        draft.say(ASSISTANT, "assistant", [use], time, id, reply=reply)
        if (status := as_text(state.get("status"))) in ("completed", "error"):
            content = as_text(state.get("output")) or as_text(state.get("error"))
            result = result_block(call, content, is_error=status == "error")
            draft.say(USER, "user", [result], time, f"{id}:result")
    elif kind == "reasoning":
        draft.skip("reasoning (sealed for its provider)")
    elif kind not in _STEPS and kind != "text":
        draft.skip(f"unknown type: {kind[:40]}")


def _compacted(draft: SessionDraft, about: Record, parts: list[Record], kept: str) -> None:
    known = {entry.uuid for entry in draft.entries}
    replies = [entry.uuid for entry in draft.entries if entry.reply.get("id") == kept]
    summary = "\n".join(block["text"] for part in parts if (block := _said(part)) and block["type"] == "text")
    first = kept if kept in known else replies[0] if replies else None
    draft.compacted("opencode", summary, _time(about), as_text(about.get("id")), first_kept=first)


def _said(part: Record) -> Record | None:
    kind, text = as_text(part.get("type")), as_text(part.get("text"))
    if kind == "text":
        return {"type": "text", "text": text} if text else None
    if kind == "file":
        url = as_text(part.get("url"))
        if as_text(part.get("mime")).startswith("image/") and url:
            return image_of(url)
        return {"type": "text", "text": compact_json({key: part.get(key) for key in ("filename", "mime", "url")})}
    return None


def _time(about: Record) -> str:
    made = as_number(object_of(about.get("time")).get("created")) or 0
    return iso(made / 1000) if 0 < made < 1e14 else ""
