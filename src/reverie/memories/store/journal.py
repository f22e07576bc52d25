"""The journal of a memory directory: author, time and reason of each change, with every version of every file.

Pure: parse and encode entries, and derive from them the state at a time, the author of each line, and how to undo
changes. ``journal_files`` writes it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from ...errors import InputError
from ...schemas import JOURNAL, is_newer
from ...values import field, record, replace
from .index import Hunk, lines_of
from .records import read_record, version_of
from .trust import Trust
from .trust_history import TrustHistory

Act: TypeAlias = Literal[
    "found",
    "outside",
    "saved",
    "updated",
    "confirmed",
    "rejected",
    "forgotten",
    "undone",
    "rewound",
    "reindexed",
    "dreamed",
]
"""``found``: existed before the journal; ``outside``: changed by a person or another program."""


Versions: TypeAlias = Mapping[str, Collection[str | None]]
"""Versions (hashes) by file."""


@record
class Change:
    """A change to one file: the hashes before and after (None: no such file), and the content after as text."""

    file: str
    before: str | None
    after: str | None
    text: str | None = None
    base64: str | None = None
    """The content if it is not UTF-8 text; this and ``text`` are None if it was erased or the file removed."""
    trust: Trust | None = None
    """The trust of the content, regardless of its own claim; None in old journals and for removals."""


@record
class JournalEntry:
    """One transaction of a memory directory: time, author, reason, kind, and the changes to files and index."""

    id: str
    time: str
    who: str
    why: str
    act: Act
    changes: list[Change] = field(default_factory=lambda: [])
    """The changes to files; empty in an entry that changed only the index."""
    index: Hunk | None = None
    index_before: str | None = None
    index_after: str | None = None
    source: list[str] = field(default_factory=lambda: [])
    undoes: list[str] = field(default_factory=lambda: [])
    schema: int = JOURNAL

    @property
    def number(self) -> int:
        """The position of the entry in the journal, counted from 1."""
        return int(self.id.removeprefix("c"))

    @property
    def files(self) -> list[str]:
        """The files that the transaction changed."""
        return [change.file for change in self.changes]


@record
class UnreadLine:
    """A line of the journal that is damaged or that a newer Reverie wrote; ``number`` is its id's, 0 if unknown."""

    number: int
    reason: str
    is_newer: bool = False


@record
class BlamedLine:
    """A line of a memory file, and the journal entry that added it."""

    number: int
    text: str
    id: str
    time: str
    who: str
    why: str


_decoder: Final = msgspec.json.Decoder(JournalEntry)
_ID: Final = re.compile(rb'"id"\s*:\s*"c(\d{1,15})"')
_MAX_NAMED: Final = 5


def change_to(file: str, before: str | None, data: bytes | None, *, trust: Trust | None = None) -> Change:
    """Return the change of a file from the hash ``before`` to this content (None removes the file)."""
    if data is None:
        return Change(file, before, None)
    try:
        return Change(file, before, version_of(data), text=data.decode(), trust=trust)
    except UnicodeDecodeError:
        return Change(file, before, version_of(data), base64=b64encode(data).decode(), trust=trust)


def content_of(change: Change) -> bytes | None:
    """Return a file's bytes after a change; None if the file was removed or the content erased."""
    if change.text is not None:
        return change.text.encode()
    return b64decode(change.base64) if change.base64 is not None else None


def encode(entry: JournalEntry) -> bytes:
    """Return an entry as a line of JSON, without its newline."""
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    plain["changes"] = [{key: value for key, value in change.items() if value is not None or key in ("before", "after")}
                        for change in plain["changes"]]  # fmt: skip
    return msgspec.json.encode({key: value for key, value in plain.items() if value not in (None, [])})


def read_entries(data: bytes) -> Iterator[tuple[JournalEntry | UnreadLine, int]]:
    """Yield every complete line, as an entry or as ``UnreadLine``, with the offset after it."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        line = data[start:end]
        try:
            entry = _decoder.decode(line)
            unread = entry.number <= 0 or is_newer(entry.schema, JOURNAL)
            yield (_unread(line, f"version {entry.schema}") if unread else entry), end + 1
        except (msgspec.MsgspecError, ValueError) as error:
            yield _unread(line, str(error)), end + 1
        start = end + 1


def _unread(line: bytes, reason: str) -> UnreadLine:
    found = _ID.search(line)
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # a letter that is no UTF-8 is a ValueError
        fields = None
    known = isinstance(fields, dict)
    act: Any = cast("dict[str, Any]", fields).get("act") if known else None
    version: Any = cast("dict[str, Any]", fields).get("schema") if known else None
    newer = is_newer(version, JOURNAL) or (isinstance(act, str) and act not in get_args(Act))
    return UnreadLine(int(found[1]) if found else 0, reason, newer)


def erased(entry: JournalEntry, files: Collection[str], versions: Versions) -> JournalEntry:
    """Return an entry without contents, index lines and reason if it changed these files, whose names it hides.

    ``versions`` are versions (hashes) of other files whose contents go too; their names stay.
    """
    hunk = entry.index
    named = (line.file for line in lines_of("\n".join(hunk.old + hunk.new))) if hunk is not None else ()
    if any(file in files or file in versions for file in named):
        entry = replace(entry, index=None)
    changes = [_erased_change(one, files, versions) for one in entry.changes]
    if changes == entry.changes:
        return entry
    whole = all(new != old for new, old in zip(changes, entry.changes, strict=True))
    source = [] if whole else entry.source  # the others may have to be found by it
    return replace(entry, changes=changes, index=None, why="(erased)" if entry.why else "", source=source)


def _erased_change(change: Change, files: Collection[str], versions: Versions) -> Change:
    if change.file in files:
        return replace(change, file=erased_name(change.file), text=None, base64=None)
    return replace(change, text=None, base64=None) if change.after in versions.get(change.file, ()) else change


def erased_name(file: str) -> str:
    """Return the name, made from a hash, that replaces the name of an erased file."""
    return f"erased_{version_of(file.encode())[:12]}.md"


class History:
    """The journal entries of a directory so far, and the state of its files derived from them."""

    def __init__(self, entries: Iterable[JournalEntry] = (), *, highest: int = 0) -> None:
        """Start from some entries; ``highest`` is the highest number that was ever given to one."""
        self.entries: list[JournalEntry] = []
        self.is_newer = False
        """Whether a newer Reverie wrote a part of the journal, so that this one must not write."""
        self.highest = highest
        self._lines = 0
        self._unread: list[tuple[int, UnreadLine]] = []
        self._known: dict[str, str | None] = {}
        self._indexed: str | None = None
        self._by_id: dict[str, int] = {}
        self._trusts: dict[tuple[str, str], Trust] = {}
        self.trusts = TrustHistory()
        """The trust of each file's last version."""
        for entry in entries:
            self.add(entry)

    def pass_over(self, line: UnreadLine) -> None:
        """Count a line that cannot be read, so that its id is not given again."""
        self._lines += 1
        self._unread.append((self._lines, line))
        self.is_newer = self.is_newer or line.is_newer
        self.highest = max(self.highest, line.number, self._lines)

    def problems(self) -> list[str]:
        """Return a sentence for each line that cannot be read and one for all changes that are missing."""
        found = [
            f"line {number} was written by a newer Reverie"
            if line.is_newer
            else f"line {number} is damaged ({line.reason}); its change cannot be undone"
            for number, line in self._unread
        ]
        there = {entry.number for entry in self.entries} | {line.number for _, line in self._unread}
        missing = [f"c{number}" for number in range(1, self.highest + 1) if number not in there]
        unnamed = sum(not line.number for _, line in self._unread)
        if len(missing) > unnamed:
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            found.append(f"has no {', '.join(missing[:_MAX_NAMED])}{more}: these changes cannot be undone")
        return found

    def add(self, entry: JournalEntry) -> None:
        """Add the next journal entry and update the derived state; nothing is written to disk."""
        self._lines += 1
        self.highest = max(self.highest, entry.number)
        self._by_id[entry.id] = len(self.entries)
        self.entries.append(entry)
        self.trusts.add(entry.act, entry.changes)
        for change in entry.changes:
            self._known[change.file] = change.after
            if change.after is not None and change.trust is not None:
                self._trusts[change.file, change.after] = change.trust
        if entry.index is not None or entry.index_after is not None or entry.index_before is not None:
            self._indexed = entry.index_after

    @property
    def known(self) -> Mapping[str, str | None]:
        """The last known hash of each file; None if the file was removed."""
        return self._known

    def trust_of(self, file: str, version: str) -> Trust | None:
        """Return the trust that a version (hash) of a file had when it was last written; None if unknown."""
        return self._trusts.get((file, version))

    @property
    def index_version(self) -> str | None:
        """The last known hash of the index; None if it did not exist."""
        return self._indexed

    @property
    def next_id(self) -> str:
        """The id that the next entry must have, such as ``c12``."""
        return f"c{self.highest + 1}"

    def entry(self, name: str) -> JournalEntry:
        """Return the entry with this id; raise ``InputError`` if there is none."""
        at = self._by_id.get(name)
        if at is None:
            raise InputError(f"the journal has no change {name!r}; 'reverie memory log' lists them")
        return self.entries[at]

    def of_file(self, file: str) -> list[tuple[JournalEntry, Change]]:
        """Return a file's changes, oldest first, each with its entry."""
        return [(entry, change) for entry in self.entries for change in entry.changes if change.file == file]

    def versions_from(self, comes_from: Callable[[str], bool]) -> Versions:
        """Return the versions of each file since its first change with a source that ``comes_from`` accepts.

        The entry names it, or the memory itself: a dream has many sources. A version that the file had before that is
        not among them, also if it was restored later.
        """
        before: dict[str, set[str]] = {}
        found: dict[str, set[str | None]] = {}
        for entry in self.entries:
            is_from = any(comes_from(one) for one in entry.source)
            for change in entry.changes:
                data = content_of(change)
                says = data is not None and any(map(comes_from, read_record(change.file, data).source))
                if is_from or says or change.file in found:
                    found.setdefault(change.file, set()).update({change.after} - {None, *before.get(change.file, ())})
                elif change.after is not None:
                    before.setdefault(change.file, set()).add(change.after)
        return found

    def content(self, file: str, version: str) -> bytes:
        """Return the bytes of a version (hash) of a file; raise ``InputError`` if they were erased."""
        for _, change in reversed(self.of_file(file)):
            if change.after == version:
                data = content_of(change)
                if data is not None:
                    return data
        raise InputError(f"that version of {file} was erased from the journal and cannot come back")

    def content_before(self, change: Change) -> bytes | None:
        """Return a file's bytes before a change, None if there was no file; raise ``InputError`` if erased."""
        return None if change.before is None else self.content(change.file, change.before)

    def last_undoable(self, count: int) -> list[JournalEntry]:
        """Return the last ``count`` entries that can be undone, newest first: neither undone nor undos themselves.

        Raise ``InputError`` if there are fewer.
        """
        gone = self.undone_ids()
        found = [one for one in reversed(self.entries) if one.id not in gone and one.act not in ("undone", "found")]
        if len(found) < count or not found:
            have = f"only {len(found)} of {count} changes can be undone" if found else "there is nothing to undo"
            raise InputError(f"{have}; 'reverie memory log' lists all changes")
        return found[:count]

    def undone_ids(self) -> set[str]:
        """Return the ids of entries that were undone by an undo that was not undone itself."""
        gone: set[str] = set()
        for entry in reversed(self.entries):
            if entry.undoes and entry.id not in gone:
                gone.update(entry.undoes)
        return gone

    def reversal(self, entries: Sequence[JournalEntry]) -> dict[str, tuple[str | None, bytes | None]]:
        """Return for each file the hash it must have now, and its bytes after undoing these entries, newest first.

        The bytes are None if the file is to be removed. Raise ``InputError`` if a later change is not undone too.
        """
        target: dict[str, tuple[str | None, bytes | None]] = {}
        state: dict[str, str | None] = dict(self._known)
        for entry in entries:
            for change in entry.changes:
                if state.get(change.file) != change.after:
                    later = self._later(entry, change)
                    raise InputError(
                        f"cannot undo {entry.id}: {change.file} was changed again by {later}; undo that too"
                    )
                first = target[change.file][0] if change.file in target else change.after
                target[change.file] = (first, self.content_before(change))
                state[change.file] = change.before
        return target

    def _later(self, entry: JournalEntry, change: Change) -> str:
        later = [one for one, _ in self.of_file(change.file) if one.number > entry.number]
        return f"{later[-1].id} ({later[-1].who})" if later else "someone"

    def since(self, time: str = "", *, after: str = "") -> list[JournalEntry]:
        """Return the entries later than a time (ISO 8601 in UTC), or than the entry ``after``, newest first.

        Files found when the journal began do not count as changes.
        """
        last = self.entry(after).number if after else 0
        later = (entry.number > last if after else entry.time > time for entry in self.entries)
        found = [
            entry for entry, is_later in zip(self.entries, later, strict=True) if is_later and entry.act != "found"
        ]
        return found[::-1]

    def blame(self, file: str) -> list[BlamedLine]:
        """Return the lines of a file's last journaled version, each with the entry that added it."""
        owned: list[tuple[str, JournalEntry]] = []
        versions: dict[str | None, list[tuple[str, JournalEntry]]] = {}
        for entry, change in self.of_file(file):
            if change.after in versions:  # content restored by an undo keeps its author
                owned = versions[change.after]
                continue
            data = content_of(change) or b""
            lines = data.decode("utf-8", "replace").splitlines()
            matcher = SequenceMatcher(None, [line for line, _ in owned], lines, autojunk=False)
            now: list[tuple[str, JournalEntry]] = []
            for tag, a, b, c, d in matcher.get_opcodes():
                now += owned[a:b] if tag == "equal" else [(line, entry) for line in lines[c:d]]
            owned = versions[change.after] = now
        return [
            BlamedLine(number, line, entry.id, entry.time, entry.who, entry.why)
            for number, (line, entry) in enumerate(owned, 1)
        ]
