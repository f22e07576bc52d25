"""Gemini CLI chats: a header, messages that later lines with the same id complete, and changes of the whole record.

A resumed chat repeats its history under ``$set``; only messages that are new there are taken. Older versions write one
document with a list of messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..conversation.entries import ASSISTANT, ATTACHMENT, SYSTEM, USER
from ..values import object_of, rows_of
from .chat_shape import blocks_of, gemini_usage, result_of, use_block
from .foreign_values import Record, as_list, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "gemini"

_SPEAKERS: Final = frozenset({"user", "gemini"})
_NOTICES: Final = frozenset({"info", "error", "warning"})
_CONTEXT: Final = "<session_context>"


def looks(row: Record) -> bool:
    """Return whether a record is a line of a Gemini CLI chat, or a whole chat."""
    if "projectHash" in row:
        return "startTime" in row or isinstance(row.get("messages"), list)
    if isinstance(row.get("$set"), dict) or isinstance(row.get("$rewindTo"), str):
        return True
    return as_text(row.get("type")) in _SPEAKERS and "id" in row and "content" in row and "parentUuid" not in row


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with the one session of a chat."""
    chat = _Chat(source)
    for row in source.rows:
        chat.take(row)
    draft = chat.draft
    for row in chat.messages.values():
        chat.emit(row)
    draft.agent = "subagent" if chat.kind == "subagent" else None
    return [draft.done(source.damage)]


class _Chat:
    """A chat: its messages by id as the lines leave them, and the entries that they become."""

    def __init__(self, source: RecordSource) -> None:
        rows = source.rows
        heads = [*rows, *(object_of(row.get("$set")) for row in rows)]
        id = next((name for row in heads if (name := as_text(row.get("sessionId")))), "")
        self.draft = SessionDraft(NAME, id or source.stem, source)
        self.kind = next((as_text(row.get("kind")) for row in rows if "projectHash" in row), "")
        directories = (one for row in heads for one in as_list(row.get("directories")))
        self.draft.cwd = next((one for one in directories if isinstance(one, str)), source.directory)
        self.messages: dict[str, Record] = {}
        self.answered: set[str] = set()

    def take(self, row: Record) -> None:
        """Apply one line to the messages."""
        if back := as_text(row.get("$rewindTo")):
            later = list(self.messages)
            for id in later[later.index(back) :] if back in later else later:
                del self.messages[id]
                self.draft.abandon(id)
            return
        changed = object_of(row.get("$set"))
        for one in [*rows_of(row.get("messages")), *rows_of(changed.get("messages"))]:
            if not self._is_known(one):
                self.messages[as_text(one.get("id"))] = one
        id = as_text(row.get("id"))
        if id and "type" in row:
            self.messages[id] = row
        elif "messages" not in row and "messages" not in changed:
            self.draft.skip("bookkeeping: chat state")

    def _is_known(self, message: Record) -> bool:
        """Return whether a message of a repeated history is there: itself, or all calls that it answers."""
        answers = {block["tool_use_id"] for block in _results(message)}
        known = {block["tool_use_id"] for one in self.messages.values() for block in _results(one)}
        return as_text(message.get("id")) in self.messages or bool(answers and answers <= known)

    def emit(self, row: Record) -> None:
        """Append the entries of one message to the draft, or count it there as skipped."""
        draft, kind = self.draft, as_text(row.get("type"))
        time, id = as_text(row.get("timestamp")), as_text(row.get("id"))
        blocks = blocks_of(row.get("content"))
        if kind == "gemini":
            self._reply(row, blocks, time, id)
        elif kind in _NOTICES:
            draft.add(SYSTEM, {"subtype": kind, "text": _text(blocks)}, time, id)
        elif kind != "user":
            draft.skip(f"unknown type: {kind[:40]}")
        elif _text(blocks).startswith(_CONTEXT):
            draft.say(ATTACHMENT, "user", blocks, time, id, attachment={"type": "session_context"})
        else:
            fresh = [block for block in blocks if block.get("tool_use_id") not in self.answered]
            if fresh:
                self._say_results(fresh, time, id)
            elif not blocks:
                draft.skip("message without content")

    def _say_results(self, blocks: list[Record], time: str, id: str) -> None:
        self.answered |= {block["tool_use_id"] for block in blocks if "tool_use_id" in block}
        self.draft.say(USER, "user", blocks, time, id)

    def _reply(self, row: Record, blocks: list[Record], time: str, id: str) -> None:
        """Append a reply, each call as an entry of its own, because a later line adds it; then the results."""
        calls = rows_of(row.get("toolCalls"))
        usage = gemini_usage(object_of(row.get("tokens")), "input", "cached", "output", "thoughts")
        reply = self.draft.reply(id, model=as_text(row.get("model")), usage=usage)
        uses = [block for block in blocks if block["type"] == "tool_use"]
        texts = [block for block in blocks if block["type"] != "tool_use"]
        named = {use["id"] for use in uses}
        uses += [
            use_block(call["id"], as_text(call.get("name")), object_of(call.get("args")))
            for call in calls
            if as_text(call.get("id")) and call["id"] not in named
        ]
        if texts:
            self.draft.say(ASSISTANT, "assistant", texts, time, id, reply=reply)
        for use in uses:
            self.draft.say(ASSISTANT, "assistant", [use], time, f"{id}:{use['id']}", reply=reply)
        for result in _results({"content": [part for call in calls for part in as_list(call.get("result"))]}):
            self._say_results([result], time, f"{result['tool_use_id']}:result")


def _results(message: Record) -> Iterator[Record]:
    for part in as_list(message.get("content")):
        response = object_of(object_of(part).get("functionResponse"))
        if id := as_text(response.get("id")) or as_text(response.get("name")):
            yield result_of(id, object_of(response.get("response")))


def _text(blocks: list[Record]) -> str:
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")
