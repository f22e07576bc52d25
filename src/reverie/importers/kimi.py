"""Kimi Code sessions: the event log of one agent (``agents/<agent>/wire.jsonl`` in the folder of the session)."""

from __future__ import annotations

from typing import Any, Final

from ..conversation.entries import ASSISTANT, ATTACHMENT, USER, iso
from ..values import object_of
from .chat_shape import (
    arguments_of,
    content_of,
    declared_tools,
    result_block,
    stop_reason_of,
    usage_fields,
    use_block,
)
from .foreign_values import Record, as_count, as_number, as_text, compact_json
from .import_result import ImportedSession, RecordSource, SessionDraft, plain

NAME: Final = "kimi"

_MAIN: Final = "main"
_PARTS: Final = ("context.", "turn.", "usage.", "token_counting.", "llm.", "agent.", "profile.", "full_compaction.")


def looks(row: Record) -> bool:
    """Return whether a record is a line of a Kimi Code event log."""
    kind = as_text(row.get("type"))
    return (kind == "metadata" and "protocol_version" in row) or ("time" in row and kind.startswith(_PARTS))


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with the session of one agent: the main one, or a sub-agent named after its session."""
    log = _EventLog(source)
    for row in source.rows:
        log.take(row)
    return [log.draft.done(source.damage)]


class _EventLog:
    """An event log that is read line by line into ``draft``."""

    def __init__(self, source: RecordSource) -> None:
        session, _, agent = source.parents[-3:] if source.parents[-2:-1] == ("agents",) else (source.stem, "", _MAIN)
        self.draft = SessionDraft(NAME, session if agent == _MAIN else f"{session}.agent-{agent}", source)
        self.draft.agent = None if agent == _MAIN else agent
        self.asked: list[str] = []
        self.reply: Record = {}
        self.used: Record = {}

    def take(self, row: Record) -> None:
        """Add one line to the draft, or count it there as skipped."""
        draft, kind = self.draft, as_text(row.get("type"))
        at = as_number(row.get("time"))
        time = iso(at / 1000) if at and 0 < at < 1e14 else ""
        match kind:
            case "context.append_message":
                self._message(object_of(row.get("message")), time)
            case "context.append_loop_event":
                self._event(object_of(row.get("event")), time)
            case "context.apply_compaction":
                self._compaction(row, time)
            case _:
                if kind == "profile.bind":
                    draft.system = as_text(row.get("systemPrompt")) or draft.system
                    draft.cwd = as_text(object_of(row.get("environmentDisclosure")).get("cwd")) or draft.cwd
                elif kind == "llm.tools_snapshot":
                    draft.tools = declared_tools(row.get("tools"))
                elif kind == "llm.request":
                    draft.model = as_text(row.get("model")) or draft.model
                elif kind == "usage.record":
                    self.used = object_of(row.get("usage"))
                draft.skip(f"bookkeeping: {kind[:40]}")

    def _message(self, message: Record, time: str) -> None:
        content = content_of(message.get("content"))
        origin = object_of(message.get("origin"))
        if message.get("role") != "user" or not content:
            self.draft.skip("message without content" if not content else "message repeated by an event")
        elif origin.get("kind") == "user" or not origin:
            self.asked.append(plain(content))
            self.draft.say(USER, "user", content, time, as_text(message.get("id")))
        else:
            about = {"type": as_text(origin.get("variant")) or as_text(origin.get("kind"))}
            self.draft.say(ATTACHMENT, "user", content, time, attachment=about)

    def _event(self, event: Record, time: str) -> None:
        kind, id = as_text(event.get("type")), as_text(event.get("uuid"))
        part = object_of(event.get("part"))
        call = as_text(event.get("toolCallId"))
        if kind == "content.part" and (text := as_text(part.get("text"))):
            self._say({"type": "text", "text": text}, event, time, id)
        elif kind == "tool.call" and call:
            use = use_block(call, as_text(event.get("name")), arguments_of(event.get("args")))
            self._say(use, event, time, id)
        elif kind == "tool.result" and call:
            said = object_of(event.get("result"))
            content = _output(said.get("output")) or as_text(said.get("note"))
            result = result_block(call, content, is_error=said.get("isError") is True)
            self.draft.say(USER, "user", [result], time, f"{call}:result")
        else:
            if kind == "step.end" and (stop := stop_reason_of(event.get("finishReason"))):
                self.reply["stop_reason"] = stop
            self.draft.skip(f"bookkeeping: {kind[:40]}")

    def _say(self, block: Record, event: Record, time: str, id: str) -> None:
        step = as_text(event.get("stepUuid")) or id
        if self.reply.get("id") != step:
            usage = usage_fields(self.used, "inputOther", "inputCacheRead", "inputCacheCreation", "output")
            self.reply, self.used = self.draft.reply(step, model=self.draft.model, usage=usage), {}
        self.draft.say(ASSISTANT, "assistant", [block], time, id, reply=self.reply)

    def _compaction(self, row: Record, time: str) -> None:
        """Append a compaction; the newest messages of the user stay word for word."""
        kept, tokens = as_count(row.get("keptUserMessageCount")), as_count(row.get("tokensBefore"))
        summary = as_text(row.get("contextSummary")) or as_text(row.get("summary"))
        asked = self.asked[-kept:] if kept else []
        self.draft.compacted("Kimi Code", summary, time, tokens_before=tokens, kept_texts=asked)


def _output(output: Any) -> str:
    return output if isinstance(output, str) else plain(content_of(output)) or compact_json(output)
