"""Qwen Code chats: one JSON line per message, chained by ``parentUuid``, with the parts of the Gemini API."""

from __future__ import annotations

from typing import Final

from ..conversation.entries import ASSISTANT, SYSTEM, USER
from ..values import object_of, rows_of
from .chains import Node, newest_branch
from .chat_shape import blocks_of, gemini_usage
from .foreign_values import Record, as_count, as_text, first_of
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "qwen"

_SPEAKERS: Final = frozenset({"user", "assistant", "tool_result"})


def looks(row: Record) -> bool:
    """Return whether a record is a line of a Qwen Code chat."""
    if "parentUuid" not in row or "uuid" not in row:
        return False
    if row.get("type") == "system":
        return "systemPayload" in row
    return as_text(row.get("type")) in _SPEAKERS and isinstance(object_of(row.get("message")).get("parts"), list)


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with the one session of a chat, its newest branch."""
    rows = dict[str, Record]()
    first = first_of([row for row in source.rows if row.get("sessionId")])
    session, agent = as_text(first.get("sessionId")), as_text(first.get("agentId"))
    draft = SessionDraft(NAME, f"{session}.agent-{agent}" if agent else session, source)
    draft.agent = agent or None
    draft.cwd = as_text(first.get("cwd"))
    for row in source.rows:
        uuid = as_text(row.get("uuid"))
        if uuid and uuid not in rows:
            rows[uuid] = row
        else:
            draft.skip("repeated line" if uuid else "message without an id")
    nodes = [_node(uuid, row) for uuid, row in rows.items()]
    branch = newest_branch(nodes)
    draft.begins_late = branch.lacks_root(rows)
    for node in branch.abandoned:
        draft.abandon(node.uuid)
    for node in branch.kept:
        _emit(draft, rows[node.uuid], node)
    return [draft.done(source.damage)]


def _node(uuid: str, row: Record) -> Node:
    uses, answers = _ids(row, "functionCall"), _ids(row, "functionResponse")
    return Node(uuid, as_text(row.get("parentUuid")) or None, uses=uses, answers=answers)


def _ids(row: Record, kind: str) -> tuple[str, ...]:
    parts = rows_of(object_of(row.get("message")).get("parts"))
    return tuple(as_text(object_of(part.get(kind)).get("id")) for part in parts if kind in part)


def _emit(draft: SessionDraft, row: Record, node: Node) -> None:
    kind, time = as_text(row.get("type")), as_text(row.get("timestamp"))
    blocks = blocks_of(object_of(row.get("message")).get("parts"))
    if kind == "system":
        _emit_system(draft, row, node, time)
    elif not blocks:
        draft.skip("message without content")
    elif kind == "assistant":
        names = ("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
        usage = gemini_usage(object_of(row.get("usageMetadata")), *names)
        reply = draft.reply(node.uuid, model=as_text(row.get("model")), usage=usage)
        draft.say(ASSISTANT, "assistant", blocks, time, node.uuid, reply=reply)
    elif kind in _SPEAKERS:
        draft.say(USER, "user", blocks, time, node.uuid)
    else:
        draft.skip(f"unknown type: {kind[:40]}")


def _emit_system(draft: SessionDraft, row: Record, node: Node, time: str) -> None:
    subtype, payload = as_text(row.get("subtype")), object_of(row.get("systemPayload"))
    history = rows_of(payload.get("compressedHistory"))
    if subtype == "chat_compression" and history:
        texts = [block["text"] for one in history for block in blocks_of(one.get("parts")) if block["type"] == "text"]
        info = object_of(payload.get("info"))
        draft.compacted(
            "Qwen Code",
            texts[0] if texts else "",
            time,
            node.uuid,
            manual=info.get("triggerReason") == "manual",
            tokens_before=as_count(info.get("originalTokenCount")),
            kept_texts=texts[1:],
        )
    elif text := as_text(payload.get("text")) or as_text(payload.get("message")):
        draft.add(SYSTEM, {"subtype": subtype, "text": text}, time, node.uuid)
    else:
        draft.skip(f"bookkeeping: {subtype or 'system'}"[:60])
