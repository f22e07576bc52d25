"""Our own session logs as one more format: each entry is read unchanged."""

from __future__ import annotations

from typing import Final

from ..conversation.entries import META, Entry
from ..conversation.log import Damage, newer_part
from ..schemas import LOG
from ..values import object_of, replace
from .foreign_values import Record, as_text
from .import_result import ImportedSession, RecordSource, SkipCounts, safe_id

NAME: Final = "reverie"

_ENVELOPE: Final = frozenset({"uuid", "parent", "time", "session", "kind", "body"})


def looks(row: Record) -> bool:
    """Return whether a record is an entry of our log."""
    return isinstance(row.get("kind"), str) and isinstance(row.get("uuid"), str) and isinstance(row.get("body"), dict)


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with one session: the log's entries unchanged, with title, directory and model."""
    tally = SkipCounts()
    entries: list[Entry] = []
    seen: set[str] = set()
    meta: Record = {}
    for number, row in source.records:
        if not looks(row):
            tally.skip("not an entry", number)
        elif row["uuid"] in seen:
            tally.skip("repeated line", number)
        else:
            seen.add(row["uuid"])
            entries.append(_entry(row))
            if row["kind"] == META:
                meta.update(object_of(row["body"]))
    session = next((entry.session for entry in entries if entry.session), "") or source.stem
    if newer_part(entries):
        tally.skip("a decision of a newer Reverie", 1)
        session, entries = f"{session}-fork", _messages(entries)
    return [_imported(session, meta, entries, tally, source.damage)]


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


def _imported(
    session: str, meta: Record, entries: list[Entry], tally: SkipCounts, damage: tuple[Damage, ...]
) -> ImportedSession:
    return ImportedSession(
        NAME,
        safe_id(session),
        as_text(meta.get("title")),
        as_text(meta.get("cwd")),
        as_text(meta.get("model")),
        tuple(entries),
        dict(tally.counts),
        dict(tally.lines),
        damage,
    )
