"""Prompts that a program keeps in one history file for all sessions: Claude Code and Codex.

They outlive the sessions, so the words of a person can be recovered after a program deleted the rest.
"""

from __future__ import annotations

from typing import Final

from ..conversation.entries import USER, iso
from ..digests import hex_of
from ..values import object_of
from .foreign_values import Record, as_number, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft, first_words

NAME: Final = "history"


def looks(row: Record) -> bool:
    """Return whether a record is a prompt in a history file."""
    return ("display" in row and "project" in row and "timestamp" in row) or (
        "session_id" in row and "ts" in row and "text" in row
    )


def read(source: RecordSource) -> list[ImportedSession]:
    """Return one session per session of the history; a prompt without an id belongs to its directory's day."""
    drafts: dict[str, SessionDraft] = {}
    for row in source.rows:
        at = as_number(row.get("timestamp")) or 1000 * (as_number(row.get("ts")) or 0)
        time = iso(at / 1000) if 0 < at < 1e14 else ""
        cwd, text = as_text(row.get("project")), _prompt(row)
        day = f"prompts-{time[:10]}-{hex_of(cwd.encode('utf-8', 'surrogateescape'))[:8]}"
        id = as_text(row.get("sessionId")) or as_text(row.get("session_id")) or day
        draft = drafts.setdefault(id, SessionDraft(NAME, id, source))
        draft.cwd = draft.cwd or cwd
        if text.strip():
            draft.say(USER, "user", text, time)
            draft.title = draft.title or f"Recovered prompts: {first_words(text)}"
    return [draft.done() for draft in drafts.values() if draft.entries]


def _prompt(row: Record) -> str:
    text = as_text(row.get("display")) or as_text(row.get("text"))
    pasted = (as_text(object_of(one).get("content")) for one in object_of(row.get("pastedContents")).values())
    return "\n\n".join([text, *(one for one in pasted if one and one not in text)])
