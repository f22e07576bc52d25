"""GitHub Copilot CLI sessions: an event log (``events.jsonl``); an event with an agent's id belongs to that agent."""

from __future__ import annotations

import re
from typing import Final

from ..conversation.entries import ASSISTANT, SYSTEM, USER
from ..values import object_of, rows_of
from .chat_shape import arguments_of, result_block, usage_fields, use_block
from .foreign_values import Record, as_count, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "copilot"

_EVENT: Final = re.compile(r"(?:session|user|assistant|tool|system|model|subagent|hook|skill|abort)\.\w+")


def looks(row: Record) -> bool:
    """Return whether a record is an event of a Copilot CLI session."""
    return isinstance(row.get("data"), dict) and "id" in row and bool(_EVENT.fullmatch(as_text(row.get("type"))))


def read(source: RecordSource) -> list[ImportedSession]:
    """Return the session of an event log, then its agents."""
    starts = (object_of(row.get("data")) for row in source.rows if row.get("type") == "session.start")
    session = next((id for data in starts if (id := as_text(data.get("sessionId")))), source.folder or source.stem)
    drafts: dict[str, SessionDraft] = {"": SessionDraft(NAME, session, source)}
    usages: dict[str, Record] = {}
    for row in source.rows:
        agent, data = as_text(row.get("agentId")), object_of(row.get("data"))
        if agent not in drafts:
            drafts[agent] = SessionDraft(NAME, f"{session}.agent-{agent}", source)
            drafts[agent].agent, drafts[agent].cwd = agent, drafts[""].cwd
        if row.get("type") == "session.usage_record":
            usage = object_of(data.get("usage"))
            usages[as_text(usage.get("apiCallId"))] = usage
        _emit(drafts[agent], row, data, usages)
    made = [draft.done(source.damage if not id else ()) for id, draft in drafts.items()]
    return [made[0], *(one for one in made[1:] if one.messages)]


def _emit(draft: SessionDraft, row: Record, data: Record, usages: dict[str, Record]) -> None:
    kind, id, time = as_text(row.get("type")), as_text(row.get("id")), as_text(row.get("timestamp"))
    text = as_text(data.get("content"))
    match kind:
        case "user.message" if text:
            draft.say(USER, "user", text, time, id)
        case "assistant.message":
            _reply(draft, data, usages, time, id)
        case "tool.execution_complete" if call := as_text(data.get("toolCallId")):
            error = as_text(object_of(data.get("error")).get("message"))
            content = as_text(object_of(data.get("result")).get("content")) or error
            result = result_block(call, content, is_error=data.get("success") is False)
            draft.say(USER, "user", [result], time, id)
        case "session.compaction_complete" if summary := as_text(data.get("summaryContent")):
            manual, tokens = data.get("trigger") == "manual", as_count(data.get("preCompactionTokens"))
            draft.compacted("Copilot CLI", summary, time, id, manual=manual, tokens_before=tokens)
        case "session.error":
            draft.add(SYSTEM, {"subtype": "error", "text": as_text(data.get("message"))}, time, id)
        case _:
            draft.system = text or draft.system if kind == "system.message" else draft.system
            draft.cwd = as_text(object_of(data.get("context")).get("cwd")) or draft.cwd
            draft.skip(f"bookkeeping: {kind}" if _EVENT.fullmatch(kind) else f"unknown type: {kind[:40]}")


def _reply(draft: SessionDraft, data: Record, usages: dict[str, Record], time: str, id: str) -> None:
    reply = draft.reply(as_text(data.get("messageId")) or id, model=as_text(data.get("model")))
    if used := usages.get(as_text(data.get("apiCallId"))):
        cached = as_count(used.get("cacheReadTokens")) + as_count(used.get("cacheWriteTokens"))
        counts = {**used, "fresh": max(0, as_count(used.get("inputTokens")) - cached)}
        reply["usage"] = usage_fields(counts, "fresh", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    content: list[Record] = [{"type": "text", "text": as_text(data.get("content"))}] if data.get("content") else []
    for one in rows_of(data.get("toolRequests")):
        called = as_text(one.get("toolCallId")), as_text(one.get("name"))
        content.append(use_block(*called, arguments_of(one.get("arguments"))))
    if content:
        draft.say(ASSISTANT, "assistant", content, time, id, reply=reply)
