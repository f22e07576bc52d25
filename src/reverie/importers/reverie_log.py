"""Our own session logs as one more format: each entry is read unchanged."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..conversation.entries import META, Entry
from ..conversation.log import newer_part
from ..schemas import LOG
from ..values import object_of, replace
from .foreign_values import Record, as_text
from .import_result import ImportedSession, RecordSource, safe_id

NAME: Final = "reverie"

_ENVELOPE: Final = frozenset({"uuid", "parent", "time", "session", "kind", "body"})


def looks(row: Record) -> bool:
    """Return whether a record is an entry of our log."""
    return isinstance(row.get("kind"), str) and isinstance(row.get("uuid"), str) and isinstance(row.get("body"), dict)


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with one session: the log's entries unchanged, with title, directory and model."""
    skipped: Counter[str] = Counter()
    entries: list[Entry] = []
    seen: set[str] = set()
    meta: Record = {}
    for row in source.rows:
        if not looks(row):
            skipped["not an entry"] += 1
        elif row["uuid"] in seen:
            skipped["repeated line"] += 1
        else:
            seen.add(row["uuid"])
            entries.append(_entry(row))
            if row["kind"] == META:
                meta.update(object_of(row["body"]))
    session = next((entry.session for entry in entries if entry.session), "") or source.stem
    if newer_part(entries):
        skipped["a decision of a newer Reverie"] += 1
        session, entries = f"{session}-fork", _messages(entries)
    title, cwd, model = (as_text(meta.get(name)) for name in ("title", "cwd", "model"))
    return [
        ImportedSession(NAME, safe_id(session), title, cwd, model, tuple(entries), dict(skipped), damage=source.damage)
    ]


def _messages(entries: list[Entry]) -> list[Entry]:
    """Return the messages of a log that a newer Reverie wrote, as a log of this version."""
    meta = Entry(f"{entries[0].uuid}-fork", None, entries[0].time, entries[0].session, META, {"schema": LOG})
    said = [entry for entry in entries if entry.message is not None]
    parents = [meta, *said]
    return [meta, *(replace(entry, parent=parents[at].uuid) for at, entry in enumerate(said))]


def _entry(row: Record) -> Entry:
    extra = {name: value for name, value in row.items() if name not in _ENVELOPE}
    parent = as_text(row.get("parent")) or None
    return Entry(
        row["uuid"], parent, as_text(row.get("time")), as_text(row.get("session")), row["kind"], row["body"], extra
    )
