"""Plan changes to a memory directory: pure functions from the current files to the new ones.

Each runs while the directory is locked and returns the draft of one transaction, or None if nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from ...errors import InputError, StorageConflict
from ...values import field, record
from .frontmatter import Value
from .index import INDEX, changed, lines_of, listed_line, patched, rebuilt
from .journal import Act, Change, History, JournalEntry
from .names import check_file
from .records import MemoryRecord, new_text, read_record, revised_text, version_of
from .trust import Trust, worst


@record
class Draft:
    """A planned transaction: new contents by file (None removes a file), and the new index (None if unchanged)."""

    act: Act
    who: str
    why: str
    files: Mapping[str, bytes | None]
    index: str | None = None
    source: tuple[str, ...] = ()
    undoes: tuple[str, ...] = ()
    expect: Mapping[str, str | None] = field(default_factory=lambda: dict[str, str | None]())
    """The hash each file must have for the change to be made; None means that it must not exist."""


@record
class Revision:
    """A new version of a memory: the fields to change (None removes a field), and its new body (None keeps it)."""

    file: str
    changes: Mapping[str, Value | None]
    body: str | None
    trust: Trust
    source: tuple[str, ...] = ()
    expect: str | None = None
    """The hash that the file must have now; None accepts any."""


class Transaction:
    """The state of a memory directory under its lock, which a plan reads; each file is read once."""

    def __init__(
        self,
        history: History,
        now: str,
        *,
        load: Callable[[str], bytes | None],
        parsed: Callable[[str, bytes], MemoryRecord],
        heads: Callable[[], list[MemoryRecord]],
    ) -> None:
        """Read files by ``load`` and their memories by ``parsed``; ``heads`` returns all without their bodies."""
        self.history = history
        self.now = now
        self.heads = heads
        self.seen: dict[str, bytes | None] = {}
        self._load = load
        self._parsed = parsed

    @cached_property
    def index_data(self) -> bytes | None:
        """The bytes of the index, None if there is none; raise ``StorageError`` if it is too large."""
        return self._load(INDEX)

    @property
    def index(self) -> str:
        """The text of the index when the transaction began."""
        return (self.index_data or b"").decode("utf-8", "surrogateescape")

    def read(self, file: str) -> bytes | None:
        """Return the bytes of a memory file; None if it does not exist; raise ``UnsafePath`` for a bad name."""
        if file not in self.seen:
            check_file(file)
            self.seen[file] = self._load(file)
        return self.seen[file]

    def record(self, file: str) -> MemoryRecord | None:
        """Return a memory with its body and its trust by the journal; None if it does not exist."""
        data = self.read(file)
        return None if data is None else self._parsed(file, data)


def _day(now: str) -> str:
    return f"{now[:19]}Z"


def save(table: Transaction, file: str, fields: Mapping[str, Value], body: str, *, who: str, why: str) -> Draft | None:
    """Plan a new memory and its index line; None if the file exists with the same body and still holds.

    Raise ``StorageConflict`` if the file exists with another body.
    """
    there = table.record(file)
    if there is not None:
        if there.body.strip() == body.strip():
            return _revived(table, there, who, why) if there.superseded_by else None
        raise StorageConflict(
            f"a memory {file} exists already with another text; update it, or give another name", path=file
        )
    data = new_text({**fields, "created": _day(table.now), "modified": _day(table.now)}, body).encode()
    source = fields.get("source", "")
    return Draft(
        "saved",
        who,
        why,
        {file: data},
        changed(table.index, {file: listed_line(read_record(file, data))}),
        (source,) if isinstance(source, str) and source else tuple(source) if isinstance(source, list) else (),
        expect={file: None},
    )


def _revived(table: Transaction, memory: MemoryRecord, who: str, why: str) -> Draft:
    """Return the draft that lets a superseded memory hold again, because somebody said it again."""
    data = table.read(memory.file) or b""
    fields: dict[str, Value | None] = {"superseded_by": None, "ended": None, "modified": _day(table.now)}
    new = revised_text(data.decode("utf-8", "surrogateescape"), fields).encode("utf-8", "surrogateescape")
    index = changed(table.index, {memory.file: listed_line(read_record(memory.file, new))})
    return Draft("updated", who, why, {memory.file: new}, index, expect={memory.file: version_of(data)})


def revise(table: Transaction, revision: Revision, *, who: str, why: str) -> Draft | None:
    """Plan another version of a memory; None if nothing changes. Its trust can only fall, its sources only grow.

    Raise ``InputError`` if there is no such memory, ``StorageConflict`` if it changed since ``expect``.
    """
    file, changes, body, expect = revision.file, revision.changes, revision.body, revision.expect
    old, data = _there(table, file)
    if old.problem:
        raise InputError(f"{file} cannot be changed: {old.problem}; repair the file by hand first")
    if expect is not None and version_of(data) != expect:  # even if the text is equal: another author wrote it
        raise StorageConflict(f"{file} was changed meanwhile; read it again and repeat the change", path=file)
    same = body is None or body.strip() == old.body.strip()
    if same and all(_is_set(old, key, value) for key, value in changes.items()):
        return None
    sources = list(dict.fromkeys((*old.source, *revision.source)))
    fields: dict[str, Value | None] = {
        **changes,
        "modified": _day(table.now),
        "trust": worst((old.trust, revision.trust)),
    }
    if sources:
        fields["source"] = sources[0] if len(sources) == 1 else sources
    new = revised_text(data.decode("utf-8", "surrogateescape"), fields, None if same else body)
    new_data = new.encode("utf-8", "surrogateescape")
    now = read_record(file, new_data)
    listed = any(line.file == file for line in lines_of(table.index))
    index = table.index
    if listed != now.is_listed or _title(now) != _title(old):
        index = changed(index, {file: listed_line(now)})
    return Draft("updated", who, why, {file: new_data}, index, revision.source, expect={file: version_of(data)})


def _is_set(old: MemoryRecord, key: str, value: Value | None) -> bool:
    known = getattr(old, key) if key in ("name", "description", "type", "expires") else old.extra.get(key)
    return (known or None) == (value or None)


def _there(table: Transaction, file: str) -> tuple[MemoryRecord, bytes]:
    data, memory = table.read(file), table.record(file)
    if data is None or memory is None:
        raise InputError(f"there is no memory {file}; 'reverie memory list' lists all memories")
    return memory, data


def forget(table: Transaction, files: Sequence[str], *, who: str, why: str) -> Draft:
    """Plan the removal of memories and their index lines; raise ``InputError`` if one does not exist."""
    for file in files:
        _there(table, file)
    index = changed(table.index, dict.fromkeys(files))
    return Draft("forgotten", who, why, dict.fromkeys(files), index)


def forget_source(table: Transaction, source: str, *, who: str) -> Draft | None:
    """Plan to remove all content from one source: each file returns to its version before, or is removed.

    Later versions of such a file are dropped too, since they may be derived from it. None if nothing came from it.
    """
    files: dict[str, bytes | None] = {}
    derived = table.history.versions_from(lambda one: comes_from(one, source))
    for entry in table.history.entries:
        if any(comes_from(one, source) for one in entry.source):
            for change in entry.changes:
                data = table.read(change.file) if change.file not in files and change.after is not None else None
                if data is not None and version_of(data) in derived[change.file]:
                    files[change.file] = table.history.content_before(change)
    for head in table.heads():
        if head.file not in files and any(comes_from(one, source) for one in head.source):
            files[head.file] = None
    if not files:
        return None
    return Draft("forgotten", who, f"all that came from {source}", files, _following(table, table.index, files))


def comes_from(said: str, source: str) -> bool:
    """Say whether a source of a memory, such as ``session message``, is this source or a part of it."""
    return said == source or said.startswith(f"{source} ")


def _following(table: Transaction, index: str, files: Mapping[str, bytes | None]) -> str:
    """Return the index without the removed files (None), with a line for each other file that lacks one or is renamed.

    A line whose file keeps its name and description stays, because a person may have written it.
    """
    listed = {line.file: line for line in lines_of(index)}
    lines: dict[str, str | None] = {}
    for file, data in files.items():
        if data is None:
            lines[file] = None
            continue
        now, before = read_record(file, data), table.read(file)
        if file not in listed or (before is not None and _title(read_record(file, before)) != _title(now)):
            lines[file] = listed_line(now)
    return changed(index, lines) if lines else index


def _title(memory: MemoryRecord) -> tuple[str, str]:
    return memory.name, memory.description


def undo(table: Transaction, entries: Sequence[JournalEntry], *, who: str) -> Draft:
    """Plan to undo these journal entries, given newest first, byte for byte.

    Raise ``InputError`` if a later change to one of the files is not undone too.
    """
    target = table.history.reversal(entries)
    files = {file: data for file, (_, data) in target.items()}
    names = ", ".join(entry.id for entry in entries)
    return Draft(
        "undone",
        who,
        f"undo of {names}",
        files,
        _index_before(table, entries, files),
        undoes=tuple(entry.id for entry in entries),
        expect={file: version for file, (version, _) in target.items()},
    )


def _index_before(table: Transaction, entries: Sequence[JournalEntry], files: Mapping[str, bytes | None]) -> str:
    """Return the index as before these journal entries, given newest first.

    It is restored byte for byte if it was not changed since; else lines are added and removed by file.
    """
    index, clean = table.index, True
    for entry in entries:
        back = index if entry.index is None else patched(index, entry.index, backwards=True)
        clean = clean and back is not None and entry.act != "outside"
        index = index if back is None else back
    return index if clean else _following(table, index, files)


def rewind(table: Transaction, later: Sequence[JournalEntry], *, who: str, why: str) -> Draft | None:
    """Plan to restore every file to its version before these entries (newest first); None if nothing differs."""
    history = table.history
    versions: dict[str, Change] = {}
    for entry in later:
        versions.update((change.file, change) for change in entry.changes)
    files = {
        file: history.content_before(change)
        for file, change in versions.items()
        if history.known.get(file) != change.before
    }
    index = _index_before(table, later, files)
    return Draft("rewound", who, why, files, index) if files or index != table.index else None


def reindex(table: Transaction, *, who: str) -> Draft | None:
    """Plan to rebuild the index from the files; None if it is right already."""
    index = rebuilt(table.index, table.heads())
    return Draft("reindexed", who, "", {}, index) if index != table.index else None


def bring(table: Transaction, files: Mapping[str, bytes | None]) -> Draft | None:
    """Plan to take over files from outside, with index lines made from them; None if there are none."""
    if not files:
        return None
    return Draft("outside", "outside", "imported", files, _following(table, table.index, files), ("outside",))


def confirm(table: Transaction, file: str, *, who: str, seen: str = "") -> Draft | None:
    """Plan to give a memory user trust because the user confirmed it; None if it has that.

    ``seen`` begins the hash of the text that the user saw; raise ``InputError`` if the file has another one.
    """
    memory, data = _there(table, file)
    if not version_of(data).startswith(seen):
        raise InputError(f"{file} has changed since it was shown; see it again with 'reverie memory review'")
    if memory.trust == "user":
        return None
    old = data.decode("utf-8", "surrogateescape")
    text = revised_text(old, {"trust": "user"})
    if text == old:  # the file claimed user trust before it was confirmed
        text = revised_text(old, {"modified": _day(table.now)})
    new = text.encode("utf-8", "surrogateescape")
    return Draft(
        "confirmed", who, "", {file: new}, _following(table, table.index, {file: new}), expect={file: version_of(data)}
    )


def last_trusted(history: History, file: str) -> bytes | None:
    """Return the bytes of a file's last version with agent or user trust since its creation; None if none."""
    for _, change in reversed(history.of_file(file)):
        if change.after is None:
            return None
        data = history.content(file, change.after)
        if (history.trust_of(file, change.after) or read_record(file, data).trust) != "unconfirmed":
            return data
    return None


def reject(table: Transaction, file: str, *, who: str) -> Draft:
    """Plan to restore the last trusted version of an unconfirmed memory, or to remove it if there is none.

    Raise ``InputError`` if the memory is not unconfirmed.
    """
    memory, data = _there(table, file)
    if memory.trust != "unconfirmed":
        raise InputError(f"{file} is not waiting to be confirmed; to remove it, forget it")
    files = {file: last_trusted(table.history, file)}
    return Draft("rejected", who, "", files, _following(table, table.index, files), expect={file: version_of(data)})
