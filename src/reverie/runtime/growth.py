"""Extend a log by a recording that grew, lost its beginning, was cut short or went back to an earlier message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import NAMESPACE_OID, uuid5

from ..conversation.decisions import Cause, Redacted, Snipped, body_of, decision_of
from ..conversation.entries import DECISION, META, Entry, encode_entry
from ..values import replace

FRAGMENTS = ("history", "hooks")
"""Formats of prompts from a history file or from hooks; the real recording of the session takes their place."""


def extended(there: Sequence[Entry], found: Sequence[Entry]) -> list[Entry] | None:
    """Return a log with the entries of a recording that it does not have yet; None if it is another session's log.

    All entries of the log stay. Messages that the program went back from leave the view, by a decision. A log that
    the user has continued is another session. What the user redacted does not come back.
    """
    was, now = _format(there), _format(found)
    if now in FRAGMENTS and was not in FRAGMENTS:
        return list(there)
    if any(_says(entry) and not entry.imported for entry in there):
        return None
    if was != now:
        return list(found) if was in FRAGMENTS and now not in FRAGMENTS else None
    known = {entry.uuid for entry in there}
    shared = {entry.uuid for entry in found if _says(entry)} & known
    if not shared and any(map(_says, there)):
        if _texts(there) <= _texts(found):
            return list(found)  # an older import, which named the same messages otherwise
        if _name(there) != _name(found):
            return None
    newer = {entry.uuid: entry for entry in found}
    kept = list(there) if _redacted(there) else [_renewed(entry, newer.get(entry.uuid)) for entry in there]
    new = [entry for entry in found if entry.uuid not in known]
    if not new:
        return kept
    return [*kept, *_following(kept[-1] if kept else None, [*_left(there, shared), *_retitled(there, found), *new])]


def _says(entry: Entry) -> bool:
    return entry.message is not None


def _source(entries: Sequence[Entry]) -> dict[str, object]:
    source = entries[0].body.get("source") if entries and entries[0].kind == META else None
    return cast("dict[str, object]", source) if isinstance(source, dict) else {}


def _format(entries: Sequence[Entry]) -> object:
    return _source(entries).get("format")


def _name(entries: Sequence[Entry]) -> object:
    return _source(entries).get("name")


def _texts(entries: Sequence[Entry]) -> set[bytes]:
    return {encode_entry(Entry("", None, "", "", entry.kind, entry.message)) for entry in entries if entry.message}


def _redacted(entries: Sequence[Entry]) -> bool:
    return any(entry.kind == DECISION and isinstance(decision_of(entry.body), Redacted) for entry in entries)


def _renewed(entry: Entry, found: Entry | None) -> Entry:
    """Return the recording's version of an entry where it adds facts to the same message, such as its usage."""
    if found is None or not _says(entry) or entry.message != found.message or entry.body == found.body:
        return entry
    return replace(entry, body=found.body)


def _left(there: Sequence[Entry], shared: set[str]) -> list[Entry]:
    """Return a decision that takes messages behind the last shared one out of the view; none if there are none.

    Without a shared message the recording lost its past, and nothing was taken back.
    """
    last = max((place for place, entry in enumerate(there) if entry.uuid in shared), default=len(there))
    gone = [entry.uuid for entry in there[last + 1 :] if _says(entry)]
    if not gone:
        return []
    decision = Snipped(Cause("import", "the program went back to an earlier message", moves_prefix=True), gone)
    first = there[0]
    return [Entry(_id(*gone), None, there[-1].time, first.session, DECISION, body_of(decision))]


def _retitled(there: Sequence[Entry], found: Sequence[Entry]) -> list[Entry]:
    """Return an entry with the title and the model of a recording if the log has others; no title if it is redacted."""
    said = {name: value for entry in there if entry.kind == META for name, value in entry.body.items()}
    now = {name: found[0].body.get(name) for name in (("model",) if _redacted(there) else ("title", "model"))}
    changed = {name: value for name, value in now.items() if value and value != said.get(name)}
    if not changed:
        return []
    first = found[0]
    return [Entry(_id(first.uuid, *map(str, changed.values())), None, first.time, first.session, META, changed)]


def _id(*parts: str) -> str:
    return str(uuid5(NAMESPACE_OID, ":".join(parts)))


def _following(last: Entry | None, entries: Sequence[Entry]) -> list[Entry]:
    """Return entries that follow another one, each the parent of the next."""
    out: list[Entry] = []
    for entry in entries:
        before = out[-1] if out else last
        out.append(replace(entry, parent=before.uuid if before else None))
    return out
