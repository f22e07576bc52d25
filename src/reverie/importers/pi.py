"""pi sessions: one JSON line per entry, a plain sequence (version 1) or a tree by ``id`` and ``parentId`` (later)."""

from __future__ import annotations

from typing import Any, Final

from ..conversation.entries import ASSISTANT, ATTACHMENT, SYSTEM, USER
from ..values import object_of
from .chains import Node, newest_branch
from .chat_shape import arguments_of, stop_reason_of, usage_fields, use_block
from .foreign_values import Record, as_count, as_list, as_number, as_text, compact_json, first_of
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "pi"

_BOOKKEEPING: Final = frozenset(
    {"session", "thinking_level_change", "model_change", "label", "session_info", "custom", "usage", "leaf"}
)
_ENTRIES: Final = frozenset({"message", "compaction", "branch_summary", "custom_message"})


def looks(row: Record) -> bool:
    """Return whether a record is a line of a pi session."""
    kind = as_text(row.get("type"))
    if kind == "session":
        return "cwd" in row and "id" in row
    if kind == "message":
        return "parentUuid" not in row and "role" in object_of(row.get("message"))
    return kind in ("compaction", "thinking_level_change", "model_change", "branch_summary") and "timestamp" in row


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with the one session of a file; of a tree, its newest branch."""
    head = first_of([row for row in source.rows if row.get("type") == "session"])
    draft = SessionDraft(NAME, as_text(head.get("id")), source)
    draft.cwd = as_text(head.get("cwd"))
    draft.model = as_text(head.get("modelId"))
    placed = _EntryWriter(draft)
    for number, row in _branch(source, draft):
        placed.emit(row, number)
    return [draft.done(source.damage)]


def _branch(source: RecordSource, draft: SessionDraft) -> list[tuple[int, Record]]:
    """Return the line numbers and records of the newest branch, and count other lines in the draft as skipped.

    A file without ids is one branch.
    """
    nodes: dict[str, Node] = {}
    kept: list[tuple[int, Record]] = []
    for number, row in zip(source.lines, source.rows, strict=True):
        id = as_text(row.get("id"))
        if id in nodes:
            draft.skip("repeated line")
            continue
        if id and row.get("type") != "session":
            nodes[id] = Node(id, as_text(row.get("parentId")) or None)
        kept.append((number, row))
    branch = newest_branch(list(nodes.values()))
    draft.begins_late = branch.lacks_root({as_text(row.get("id")) for row in source.rows})
    for node in branch.abandoned:
        draft.abandon(node.uuid)
    for _ in branch.bridged:
        draft.skip("lost parent (joined to the message before it)")
    gone = {node.uuid for node in branch.abandoned}
    return [(number, row) for number, row in kept if as_text(row.get("id")) not in gone]


class _EntryWriter:
    """Adds pi's records to a draft and remembers their uuids, because a compaction names its first kept entry."""

    def __init__(self, draft: SessionDraft) -> None:
        self.draft = draft
        self.by_id: dict[str, str] = {}
        self.by_line: dict[int, str] = {}
        self.thinking = ""

    def emit(self, row: Record, line: int) -> None:
        """Append the entry for one record to the draft, or count the record there as skipped."""
        draft, kind, time = self.draft, as_text(row.get("type")), as_text(row.get("timestamp"))
        given = as_text(row.get("id"))
        before = len(draft.entries)
        if kind == "message":
            self._message(object_of(row.get("message")), given, time)
        elif kind == "compaction":
            self._compaction(row, time, line)
        elif kind == "branch_summary" and as_text(row.get("summary")):
            draft.say(USER, "user", as_text(row.get("summary")), time, given, summary="branch")
        elif kind == "custom_message" and (content := _content(row.get("content"))):
            about = {"type": as_text(row.get("customType")) or "custom"}
            draft.say(ATTACHMENT, "user", content, time, given, attachment=about)
        else:
            if kind == "model_change":
                draft.model = as_text(row.get("modelId")) or as_text(row.get("model")) or draft.model
            elif kind == "thinking_level_change":
                self.thinking = as_text(row.get("thinkingLevel"))
            elif kind == "session_info":
                draft.title = as_text(row.get("name")) or draft.title
            known = kind in _BOOKKEEPING or kind in _ENTRIES
            draft.skip(f"bookkeeping: {kind}" if known else f"unknown type: {kind[:40]}")
        if len(draft.entries) > before:
            self.by_line[line] = draft.entries[-1].uuid
            self.by_id[given] = draft.entries[-1].uuid

    def _message(self, message: Record, given: str, time: str) -> None:
        draft, role, content = self.draft, as_text(message.get("role")), _content(message.get("content"))
        if role == "assistant":
            self._reply(message, content, given, time)
        elif role == "toolResult" and (call := as_text(message.get("toolCallId"))):
            result: Record = {"type": "tool_result", "tool_use_id": call, "content": content}
            if message.get("isError") is True:
                result["is_error"] = True
            draft.say(USER, "user", [result], time, given)
        elif role == "bashExecution":
            _shell(draft, message, time, given)
        elif role in ("custom", "hookMessage") and content:
            about = {"type": as_text(message.get("customType")) or "custom"}
            draft.say(ATTACHMENT, "user", content, time, given, attachment=about)
        elif role == "user" and content:
            draft.say(USER, "user", content, time, given)
        else:
            empty = role in ("user", "toolResult", "custom", "hookMessage")
            draft.skip("message without content" if empty else f"unknown role: {role[:40]}")

    def _reply(self, message: Record, content: str | list[Record], given: str, time: str) -> None:
        draft, recorded = self.draft, object_of(message.get("usage"))
        stop = as_text(message.get("stopReason"))
        if not content:
            draft.add(SYSTEM, {"subtype": stop or "empty", "text": as_text(message.get("errorMessage"))}, time, given)
            return
        place = given or str(len(draft.entries))
        reply = draft.reply(
            as_text(message.get("responseId")) or f"{draft.session_id}-{place}",
            model=as_text(message.get("model")),
            thinking_level=self.thinking,
            stop_reason=stop_reason_of(stop),
        )
        if usage := usage_fields(recorded, "input", "cacheRead", "cacheWrite", "output"):
            reply["usage"], reply["recorded"] = usage, recorded
        cost = as_number(object_of(recorded.get("cost")).get("total"))
        if cost is not None:
            reply["cost_usd"] = cost
            draft.spend(cost)
        draft.say(ASSISTANT, "assistant", content, time, given, reply=reply)

    def _compaction(self, row: Record, time: str, line: int) -> None:
        draft, summary = self.draft, as_text(row.get("summary"))
        if not summary.strip():
            draft.skip("compaction without a readable summary")
            return
        tokens, kept = as_count(row.get("tokensBefore")), self._first_kept(row, line)
        draft.compacted("pi", summary, time, as_text(row.get("id")), tokens_before=tokens, first_kept=kept)

    def _first_kept(self, row: Record, line: int) -> str | None:
        """Return the uuid of a compaction's first kept entry, by its id or index in the file; None if unknown."""
        if id := as_text(row.get("firstKeptEntryId")):
            return self.by_id.get(id)
        place = row.get("firstKeptEntryIndex")
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < line - 1:
            return None
        after = [number for number in sorted(self.by_line) if number > place]
        messages = {entry.uuid for entry in self.draft.entries if entry.message is not None}
        return next((uuid for number in after if (uuid := self.by_line[number]) in messages), None)


def _content(content: Any) -> str | list[Record]:
    if isinstance(content, str):
        return content
    return [block for part in as_list(content) if (block := _block(object_of(part)))]


def _block(part: Record) -> Record | None:
    kind = as_text(part.get("type"))
    if kind == "text":
        text = as_text(part.get("text"))
        return {"type": "text", "text": text} if text else None
    if kind == "thinking":
        signature = as_text(part.get("thinkingSignature"))
        if part.get("redacted") is True:
            return {"type": "redacted_thinking", "data": signature}
        return {"type": "thinking", "thinking": as_text(part.get("thinking")), "signature": signature}
    if kind == "toolCall":
        name, id = as_text(part.get("name")), as_text(part.get("id"))
        return use_block(id, name, arguments_of(part.get("arguments"))) if id and name else None
    if kind == "image":
        source = {"type": "base64", "media_type": as_text(part.get("mimeType")), "data": as_text(part.get("data"))}
        return {"type": "image", "source": source}
    return {"type": "text", "text": compact_json(part)} if part else None


def _shell(draft: SessionDraft, message: Record, time: str, given: str) -> None:
    """Add a command that the user ran: as a message, or as a system entry if it was hidden from the model."""
    output = as_text(message.get("output"))
    said = f"The user ran `{as_text(message.get('command'))}`:\n```\n{output}\n```"
    code = message.get("exitCode")
    said += "\nIt was cancelled." if message.get("cancelled") is True else f"\nExit code {code}." if code else ""
    if path := as_text(message.get("fullOutputPath")):
        said += f"\nThe output is cut; all of it is in {path}."
    if message.get("excludeFromContext") is True:
        draft.add(SYSTEM, {"subtype": "bash_execution", "text": said}, time, given)
    else:
        draft.say(USER, "user", said, time, given)
