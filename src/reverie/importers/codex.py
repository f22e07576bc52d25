"""Codex rollouts: ``{"timestamp", "type", "payload"}`` lines, and the older files of bare response items.

A reply is everything the model said between two inputs; its parts are separate items and share a derived id here.
Usage comes in an event after the reply. Reasoning is encrypted for its provider and cannot be imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..conversation.entries import ASSISTANT, ATTACHMENT, DECISION, USER, Entry
from ..values import object_of, replace, rows_of
from .chat_shape import arguments_of, content_of, usage_of
from .foreign_values import Record, as_count, as_list, as_text, compact_json, first_of
from .import_result import ImportedSession, RecordSource, SessionDraft, first_words, plain

NAME: Final = "codex"

_STATE: Final = frozenset({"session_meta", "world_state", "token_usage_record", "inter_agent_communication_metadata"})
_LINES: Final = _STATE | {"response_item", "turn_context", "event_msg", "compacted"}
CALLS: Final = frozenset({"function_call", "local_shell_call", "custom_tool_call", "tool_search_call"})
OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output"}
)
_SEALED: Final = frozenset({"reasoning", "compaction", "compaction_summary"})
_ITEMS: Final = CALLS | OUTPUTS | _SEALED | {"message", "agent_message"}
_NOT_CARRIED: Final = frozenset({"web_search_call", "image_generation_call", "ghost_snapshot", "other"})
_CONTEXT: Final = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "# AGENTS.md instructions")


def looks(row: Record) -> bool:
    """Return whether a record is a line of a Codex rollout, new or old."""
    kind = as_text(row.get("type"))
    if isinstance(row.get("payload"), dict):
        return kind in _LINES
    if not kind:
        old_head = "id" in row and "timestamp" in row and ("instructions" in row or "git" in row)
        document = isinstance(row.get("session"), dict) and isinstance(row.get("items"), list)
        return row.get("record_type") == "state" or old_head or document
    if kind == "message":
        parts = rows_of(row.get("content"))
        return "role" in row and any(as_text(part.get("type")).endswith("put_text") for part in parts)
    return (kind in CALLS | OUTPUTS and "call_id" in row) or (kind == "reasoning" and "summary" in row)


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with the one session of a rollout."""
    rollout = _Rollout(source)
    for row in _rows(source):
        rollout.take(row)
    draft = rollout.draft
    turn = next((entry.message for entry in draft.entries if _is_turn(entry)), None)
    draft.title = first_words(plain(turn["content"])) if turn else ""
    return [draft.done(source.damage)]


def _rows(source: RecordSource) -> Iterator[Record]:
    for row in source.rows:
        if isinstance(row.get("items"), list) and "type" not in row:
            yield object_of(row.get("session"))
            yield from rows_of(row["items"])
        else:
            yield row


class _Rollout:
    """A rollout that is read line by line into ``draft``."""

    def __init__(self, source: RecordSource) -> None:
        head = first_of([row for row in _rows(source) if _is_head(row)])
        meta = object_of(head.get("payload")) or head
        id, parent = as_text(meta.get("id")) or as_text(meta.get("session_id")), as_text(meta.get("parent_thread_id"))
        spawned = object_of(object_of(object_of(meta.get("source")).get("subagent")).get("thread_spawn"))
        parent = parent or as_text(spawned.get("parent_thread_id"))
        self.draft = draft = SessionDraft(NAME, f"{parent}.agent-{id}" if parent else id, source)
        draft.agent = (as_text(meta.get("agent_path")) or id) if parent else None
        self.inherited = as_count(meta.get("subagent_history_start_ordinal")) if parent else 0
        draft.cwd = as_text(meta.get("cwd"))
        instructions = as_text(object_of(meta.get("base_instructions")).get("text")) or as_text(
            meta.get("instructions")
        )
        draft.system = instructions or None
        self.reply: Record | None = None
        self.speaking = False
        self.replies = 0
        self.total: Any = None
        self.tokens = 0
        self.asked = False
        self.cut: int | None = None

    def take(self, row: Record) -> None:
        """Add one line to the draft, or count it there as skipped."""
        kind, time = as_text(row.get("type")), as_text(row.get("timestamp"))
        payload = object_of(row.get("payload"))
        if kind == "response_item" and as_count(row.get("ordinal")) < self.inherited:
            self.draft.skip("inherited from its parent")
        elif kind == "response_item":
            self._item(payload, time)
        elif kind == "event_msg":
            self._event(payload)
        elif kind == "compacted":
            self._compacted(payload, time)
        elif kind == "turn_context":
            self.draft.model = as_text(payload.get("model")) or self.draft.model
            self.draft.cwd = self.draft.cwd or as_text(payload.get("cwd"))
            self.draft.skip("bookkeeping: turn_context")
        elif kind in _ITEMS and not payload:
            self._item(row, time)
        elif kind in _STATE or _is_head(row) or row.get("record_type") == "state":
            self.draft.skip(f"bookkeeping: {kind or 'session state'}")
        else:
            self.draft.skip(f"unknown type: {kind[:40]}")

    def _item(self, item: Record, time: str) -> None:
        kind = as_text(item.get("type"))
        role = as_text(item.get("role"))
        if kind in CALLS or (kind == "message" and role == "assistant"):
            self._spoke(item, kind, time)
            return
        if kind in _SEALED:
            self.draft.skip(f"{kind} (sealed for its provider)")
            return
        if kind not in ("message", "agent_message") and kind not in OUTPUTS:
            known = kind in _NOT_CARRIED
            self.draft.skip(f"{kind} (no result recorded)" if known else f"unknown item: {kind[:40]}")
            return
        self.speaking = False
        call = as_text(item.get("call_id"))
        if kind in OUTPUTS and call:
            output = item.get("output") if "output" in item else item.get("tools")
            self.draft.say(USER, "user", [result_of(call, output)], time)
        elif kind not in OUTPUTS and (content := content_of(item.get("content"))):
            if role == "user":
                self.asked = self.asked or not plain(content).startswith(_CONTEXT)
                self.draft.say(USER, "user", content, time)
            else:
                self.draft.say(ATTACHMENT, "user", content, time, attachment={"type": role or kind})
        else:
            self.draft.skip("message without content")

    def _spoke(self, item: Record, kind: str, time: str) -> None:
        content = content_of(item.get("content")) if kind == "message" else call_of(item, kind)
        if not content:
            self.draft.skip("message without content")
            return
        if not self.speaking or self.reply is None:
            self.replies += 1
            self.reply = self.draft.reply(f"{self.draft.session_id}-reply-{self.replies}", model=self.draft.model)
            self.speaking = True
        self.draft.say(ASSISTANT, "assistant", content, time, reply=self.reply)

    def _event(self, event: Record) -> None:
        kind = as_text(event.get("type"))
        info = object_of(event.get("info"))
        if kind == "token_count" and info:
            self._counted(info)
        elif kind == "thread_rolled_back":
            self._rolled_back(as_count(event.get("num_turns")))
        elif kind == "task_started":
            self.asked, self.cut = False, None
        elif kind == "task_complete" and self.cut is not None and not self.asked:
            # Nothing was said in a turn that compacted: the user asked for the compaction.
            entry = self.draft.entries[self.cut]
            self.draft.entries[self.cut] = replace(entry, body={**entry.body, "trigger": "manual"})
        self.draft.skip(f"bookkeeping: {kind[:40] or 'event'}")

    def _counted(self, info: Record) -> None:
        """Add reported usage to the last reply; a repeated total is not a new call and is ignored."""
        total, last = info.get("total_token_usage"), object_of(info.get("last_token_usage"))
        if total is not None and total == self.total:
            return
        self.total = total
        usage = usage_of(last)
        self.tokens = sum(usage.values()) if usage else self.tokens
        if usage and self.reply is not None and "usage" not in self.reply:
            self.reply["usage"], self.reply["recorded"] = usage, last
        self.speaking = False

    def _rolled_back(self, turns: int) -> None:
        """Remove the user's last turns and all entries after them, unless a decision is among these."""
        entries = self.draft.entries
        starts = [at for at, entry in enumerate(entries) if _is_turn(entry)]
        if not turns or not starts:
            return
        first = starts[-min(turns, len(starts))]
        if any(entry.kind == DECISION for entry in entries[first:]):
            return
        for entry in entries[first:]:
            self.draft.abandon(entry.uuid)
        del entries[first:]
        said = [entry.uuid for entry in entries if entry.message is not None]
        self.draft.last_message = said[-1] if said else None
        self.speaking = False

    def _compacted(self, item: Record, time: str) -> None:
        summary = as_text(item.get("message"))
        said = [
            (as_text(one.get("role")), text)
            for one in rows_of(item.get("replacement_history"))
            if (text := plain(content_of(one.get("content")))) and text != summary
        ]
        kept = [text for _, text in said] if summary.strip() else []
        if not summary.strip():
            summary = "\n\n".join(f"{role}: {text}" for role, text in said)
        if not summary.strip():
            self.draft.skip("compaction without a readable summary")
            return
        self.draft.compacted("Codex", summary, time, tokens_before=self.tokens, kept_texts=kept)
        self.speaking = False
        self.cut = len(self.draft.entries) - 1


def _is_head(row: Record) -> bool:
    return row.get("type") == "session_meta" or ("type" not in row and "id" in row and "timestamp" in row)


def _is_turn(entry: Entry) -> bool:
    message = entry.message
    if entry.kind != USER or message is None:
        return False
    text = plain(message["content"])
    return bool(text) and not text.startswith(_CONTEXT)


def call_of(item: Record, kind: str) -> list[Record]:
    """Return a call of a tool as a list of one block; an empty list without an id or a name."""
    id = as_text(item.get("call_id")) or as_text(item.get("id"))
    if kind == "local_shell_call":
        name, given = "local_shell", object_of(item.get("action"))
    elif kind == "custom_tool_call":
        name, given = as_text(item.get("name")), {"input": as_text(item.get("input"))}
    else:
        name, given = as_text(item.get("name")) or kind, arguments_of(item.get("arguments"))
        if (server := as_text(item.get("namespace"))).startswith("mcp__"):
            name = f"{server}__{name}"
    return [{"type": "tool_use", "id": id, "name": name, "input": given}] if id and name else []


def result_of(call: str, output: Any) -> Record:
    """Return a tool result; the output is a text, a list of parts, or in older files ``{content, success}``."""
    result: Record = {"type": "tool_result", "tool_use_id": call}
    said = object_of(output)
    if said:
        if said.get("success") is False:
            result["is_error"] = True
        output = said["content"] if "content" in said else compact_json(said)
    result["content"] = content_of(output) if isinstance(output, (str, list)) else compact_json(as_list(output))
    return result
