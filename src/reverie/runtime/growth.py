"""Extend a log by a recording that grew, lost its beginning, was cut short or went back to an earlier message."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast
from uuid import NAMESPACE_OID, uuid5

from ..conversation.decisions import (
    Cause,
    Compacted,
    CompactionUndone,
    Decision,
    Redacted,
    Snipped,
    Unknown,
    body_of,
    decision_of,
)
from ..conversation.entries import DECISION, META, Entry, encode_entry
from ..values import replace, rows_of

FRAGMENTS = ("history", "hooks")
"""Formats of prompts from a history file or from hooks; the real recording of the session takes their place."""
_WENT_BACK: Final = Cause("import", "the program went back to an earlier message", moves_prefix=True)


def extended(
    there: Sequence[Entry], found: Sequence[Entry], *, abandoned: Collection[str] = (), is_whole: bool = True
) -> list[Entry] | None:
    """Return a log with the entries of a recording that it does not have yet; None if it is another session's log.

    All messages of the log stay, and new ones get their place between them. Those that the program went back from
    leave the view, by a decision, until it returns to them: the ``abandoned`` ones, and those at the end of the log
    that a recording continued without, if it ``is_whole``. A log that the user has continued is another session. A
    secret that the user redacted does not come back.
    """
    was, now = _format(there), _format(found)
    if now in FRAGMENTS and was not in FRAGMENTS:
        return list(there)
    if any(_says(entry) and not entry.imported for entry in there):
        return None
    if was != now:
        return _replaced(there, found) if was in FRAGMENTS and now not in FRAGMENTS else None
    newer = {entry.uuid: entry for entry in found}
    places = {entry.uuid: place for place, entry in enumerate(there)}
    last = max((places[entry.uuid] for entry in found if _says(entry) and entry.uuid in places), default=len(there))
    if last == len(there) and any(map(_says, there)):
        if _texts(there) <= _texts(found):
            return _replaced(there, found)  # an older import, which named the same messages otherwise
        if _name(there) != _name(found):
            return None
    kept = list(there) if _redacted(there) else [_renewed(entry, newer.get(entry.uuid)) for entry in there]
    merged, new = _merged(kept, found)
    goes_on = is_whole and any(map(_says, new))
    behind = {entry.uuid for entry in there[last + 1 :] if goes_on and _says(entry)}
    merged, steps = _went_back(merged, (behind | set(abandoned)) - newer.keys(), newer)
    return _chained(there, [*merged, *steps, *(_retitled(there, found) if new else ()), *new])


def _replaced(there: Sequence[Entry], found: Sequence[Entry]) -> list[Entry]:
    """Return a recording in place of a log, with the persons that the log is about: their erasure must find it."""
    known = {entry.uuid for entry in found}
    told = [one for one in there[1:] if one.kind == META and "subject" in one.body and one.uuid not in known]
    return _chained(there, [*found[:1], *told, *found[1:]]) if told else list(found)


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
    return any(isinstance(_decision(entry), Redacted) for entry in entries)


def _renewed(entry: Entry, found: Entry | None) -> Entry:
    """Return the recording's version of an entry: of a message only if it has all that was kept of it."""
    if found is None or entry.kind == META or (entry.kind, entry.body) == (found.kind, found.body):
        return entry
    if entry.message is not None and not (found.message and _continues(entry.message, found.message)):
        return entry
    return replace(entry, kind=found.kind, body=found.body)


def _continues(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a message has the blocks of another one in their order, each text perhaps longer."""
    left = iter(_blocks(new))
    return all(any(_is_longer(block, one) for one in left) for block in _blocks(old))


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content: Any = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else rows_of(content)


def _is_longer(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    both = old.get("type"), new.get("type")
    return old == new or (both == ("text", "text") and str(new.get("text")).startswith(str(old.get("text"))))


def _merged(kept: Sequence[Entry], found: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return a log in the order of a recording, other entries behind those that they followed; and its new end."""
    named = {entry.uuid for entry in found}
    groups: list[list[Entry]] = [[]]
    for entry in kept:
        if entry.uuid in named:
            groups.append([entry])
        else:
            groups[-1].append(entry)
    known = {group[0].uuid: group for group in groups[1:]}
    merged = list(groups[0])
    new: list[Entry] = []
    for entry in found:
        if entry.uuid in known:
            merged += [*new, *known[entry.uuid]]
            new = []
        else:
            new.append(entry)
    return merged, new


def _went_back(kept: list[Entry], gone: set[str], newer: Mapping[str, Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return a log and new decisions for it, which take messages and compactions that are gone out of its view.

    Earlier decisions of this kind leave the log if the program returned to a message that they took out.
    """
    steps = {entry.uuid: taken for entry in kept if (taken := _taken_out(entry))}
    earlier = {uuid for taken in steps.values() for uuid in taken}
    if earlier & newer.keys():
        kept = [entry for entry in kept if entry.uuid not in steps]
        gone, earlier = gone | earlier - newer.keys(), set[str]()
    gone = gone - earlier
    fresh = [entry for entry in kept if entry.uuid in gone]
    messages = [entry.uuid for entry in fresh if _says(entry)]
    cuts = [entry.uuid for entry in fresh if isinstance(_decision(entry), Compacted)]
    made = [Snipped(_WENT_BACK, messages)] if messages else []
    decisions = [*(CompactionUndone(_WENT_BACK, cut) for cut in reversed(cuts)), *made]
    at = kept[-1].time if kept else ""
    return kept, [Entry(_id(*_named(one)), None, at, kept[0].session, DECISION, body_of(one)) for one in decisions]


def _decision(entry: Entry) -> Decision | Unknown | None:
    return decision_of(entry.body) if entry.kind == DECISION else None


def _named(decision: Snipped | CompactionUndone) -> list[str]:
    return decision.messages if isinstance(decision, Snipped) else [decision.compaction]


def _taken_out(entry: Entry) -> list[str]:
    """Return the messages and compactions that a decision of an earlier growth took out of the view."""
    decision = _decision(entry)
    if isinstance(decision, Snipped | CompactionUndone) and decision.cause == _WENT_BACK:
        return _named(decision)
    return []


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


def _chained(there: Sequence[Entry], merged: Sequence[Entry]) -> list[Entry]:
    """Return entries of which each is the parent of the next, where that was not so in the old log."""
    follows = {entry.uuid: before.uuid for before, entry in pairwise(there)}
    out = [*merged[:1]]
    for before, entry in pairwise(merged):
        out.append(entry if follows.get(entry.uuid) == before.uuid else replace(entry, parent=before.uuid))
    return out
