"""Turn the changes of a dream into one transaction, planned while the directory is locked.

A file that changed since the dream read it is skipped, with every change that depends on it. The index is never
proposed: it is derived from the files, within its caps. Undoing a dream restores its files byte for byte and skips
files that changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...errors import InputError, UnsafePath
from ...memories.store.drafts import Draft, Transaction
from ...memories.store.index import (
    LINE_CHARS,
    MAX_BYTES,
    MAX_LINES,
    Hunk,
    changed,
    lines_of,
    listed_line,
    patched,
    rebuilt,
)
from ...memories.store.journal import History, JournalEntry
from ...memories.store.names import is_memory
from ...memories.store.records import MemoryRecord, read_record, version_of
from ...memories.store.trust import TRUSTS, Trust
from ...text.words import has_run, words
from ...values import record, replace
from .changes import DreamProposal, FileChange, SkippedChange
from .plan import whole_text
from .policy import DreamPolicy
from .validate import validation

AUTHOR: Final = "dream"
"""The author that the journal names for changes of a dream."""
_LONG: Final = 1.25
_ROOM_LINES: Final = 20
_ROOM_BYTES: Final = 2_500
"""Space that a shortened index leaves for memories saved until the next dream."""
_LEFT_OUT: Final = "> {many} more memories are not listed here; search finds them."
_ORDER: Final = ("feedback", "user", "reference", "project")


@record
class DreamTransaction:
    """The draft of a dream's transaction (None if there is nothing to write), its changes, and those left out."""

    draft: Draft | None
    made: tuple[FileChange, ...] = ()
    skipped: tuple[SkippedChange, ...] = ()
    files: int = 0
    """The number of memories after the transaction."""
    index: str = ""
    """The index after the transaction."""


def dream_transaction(
    table: Transaction, dreams: Sequence[DreamProposal], policy: DreamPolicy, *, why: str, confirmed: bool = False
) -> DreamTransaction:
    """Return the transaction for the valid changes of these dreams; files that changed since are skipped.

    ``confirmed`` says that a person allows any number of deletions.
    """
    now, trusts = files_on(table)
    skipped: list[SkippedChange] = []
    left: list[DreamProposal] = []
    for dreamed in dreams:
        fresh: list[FileChange] = []
        for change in dreamed.changes:
            if now.get(change.file) == change.before:
                fresh.append(change)
            else:
                skipped.append(SkippedChange(change.file, change.act, "it was changed meanwhile", dreamed.by))
        left.append(replace(dreamed, changes=tuple(fresh)))
    restored = restored_files(table.history)
    checked = validation(now, left, policy, trusts=trusts, restored=restored, confirmed=confirmed)
    skipped += checked.refused
    after = dict(now)
    for change in checked.kept:
        if change.after is None:
            del after[change.file]
        else:
            after[change.file] = change.after
    files = {change.file: change.after for change in checked.kept}
    index = capped_index(table.index, after, [file for file, data in files.items() if data is not None])
    draft = None
    if files or index != table.index:
        expect = {change.file: None if change.before is None else version_of(change.before) for change in checked.kept}
        draft = Draft("dreamed", AUTHOR, why, files, index, expect=expect)
    return DreamTransaction(draft, checked.kept, tuple(skipped), len(after), index)


def files_on(table: Transaction) -> tuple[dict[str, bytes], dict[str, Trust]]:
    """Return the bytes of every current memory file, and the trust of each.

    An existing memory that cannot be read raises: nothing is decided about a directory that is only partly known. Only
    plain files are memories.
    """
    found: dict[str, bytes] = {}
    trusts: dict[str, Trust] = {}
    listed = [line.file for line in lines_of(table.index) if is_memory(line.file)]
    known = [file for file, version in table.history.known.items() if version is not None]
    for file in dict.fromkeys((*(head.file for head in table.heads()), *known, *listed)):
        try:
            data, memory = table.read(file), table.record(file)
        except UnsafePath:
            continue
        if data is not None and memory is not None:
            found[file], trusts[file] = data, memory.trust
    return found, trusts


# -- the index


def capped_index(text: str, files: Mapping[str, bytes], fresh: Iterable[str] = ()) -> str:
    """Return the index of these files within its caps; lines of people stay, ``fresh`` files get new lines."""
    memories = {file: read_record(file, data) for file, data in files.items()}
    text = "\n".join(line for line in text.split("\n") if not _is_left_out(line))
    renewed: dict[str, str | None] = {}
    rows = text.split("\n")
    fresh = set(fresh)
    for line in lines_of(text):
        memory = memories.get(line.file)
        if memory is not None and (line.file in fresh or _is_long(rows[line.number], line.hook, memory)):
            renewed[line.file] = listed_line(memory)
    # A line that points to a file that is not a memory belongs to a person.
    theirs = [MemoryRecord(line.file, line.title) for line in lines_of(text) if not is_memory(line.file)]
    text = rebuilt(changed(text, renewed) if renewed else text, (*memories.values(), *theirs))
    return _within(text, memories)


def _is_left_out(line: str) -> bool:
    return line.startswith("> ") and line.rstrip("\r").endswith(_LEFT_OUT.partition("}")[2])


def _is_long(row: str, hook: str, memory: MemoryRecord) -> bool:
    """Say whether an index line is too long and its memory contains all words of its hook."""
    return len(row) > _LONG * LINE_CHARS and has_run(words(whole_text(memory)), words(hook))


def _within(text: str, memories: Mapping[str, MemoryRecord]) -> str:
    """Return the index within its caps: all, or the most important lines and a line that counts the others."""
    if _fits(text):
        return text
    ranked = sorted(
        (line.file for line in lines_of(text) if line.file in memories), key=lambda one: _rank(memories[one])
    )
    low, high = 0, len(ranked)
    while low < high:  # the fewest lines that must be removed
        middle = (low + high) // 2
        if _fits(_without(text, ranked[len(ranked) - middle :]), _ROOM_LINES, _ROOM_BYTES):
            high = middle
        else:
            low = middle + 1
    return _without(text, ranked[len(ranked) - low :])


def _without(text: str, files: Sequence[str]) -> str:
    if not files:
        return text
    kept = changed(text, dict.fromkeys(files))
    return kept + ("" if not kept or kept.endswith("\n") else "\n") + _LEFT_OUT.format(many=len(files)) + "\n"


def _fits(text: str, lines: int = 0, size: int = 0) -> bool:
    """Say whether an index is within its caps with this many lines and bytes to spare."""
    bytes_now = len(text.encode("utf-8", "surrogateescape"))
    return text.count("\n") <= MAX_LINES - lines and bytes_now <= MAX_BYTES - size


def _rank(memory: MemoryRecord) -> tuple[int, int, tuple[int, ...]]:
    """Return a sort key of a memory's importance: trust, then type, then newest first."""
    kind = _ORDER.index(memory.type) if memory.type in _ORDER else len(_ORDER)
    newest = tuple(-ord(letter) for letter in memory.modified[:19])
    return TRUSTS.index(memory.trust) // 2, kind, newest


# -- undo


def restored_files(history: History) -> frozenset[str]:
    """Return the files that stand as they were before a dream that a person undid; later dreams leave them so."""
    undone = history.undone_ids()
    dreamed = [entry for entry in history.entries if entry.act == "dreamed" and entry.id in undone]
    return frozenset(
        change.file for entry in dreamed for change in entry.changes if history.known.get(change.file) == change.before
    )


def undo_draft(table: Transaction, entry: JournalEntry, *, who: str) -> tuple[Draft, tuple[str, ...]]:
    """Return the draft that undoes a dream's journal entry, and the files left alone because they changed since.

    Raise ``InputError`` if every file it changed was changed again.
    """
    history = table.history
    files: dict[str, bytes | None] = {}
    expect: dict[str, str | None] = {}
    stay: list[str] = []
    for change in entry.changes:
        if history.known.get(change.file) != change.after:
            stay.append(change.file)
            continue
        files[change.file] = history.content_before(change)
        expect[change.file] = change.after
    if not files and entry.changes:
        raise InputError(f"nothing of {entry.id} can be undone: every file it changed was changed again since")
    index = _index_before(table, entry, files, stay)
    draft = Draft("undone", who, f"undo of {entry.why}", files, index, undoes=(entry.id,), expect=expect)
    return draft, tuple(stay)


def _index_before(
    table: Transaction, entry: JournalEntry, files: Mapping[str, bytes | None], stay: Sequence[str]
) -> str:
    """Return the current index with the lines of the undone files as before the dream; other later lines stay."""
    now = table.index
    hunk = entry.index or Hunk(0, [], [])
    back = patched(now, hunk, backwards=True)
    if back is not None and not stay:
        there = {line.file for line in lines_of(now)} - {line.file for line in lines_of("\n".join(hunk.new))}
        if there <= {line.file for line in lines_of(back)}:
            return back
    lines: dict[str, str | None] = {}
    old = {line.file: text for text in hunk.old for line in lines_of(text)}
    listed = {line.file for line in lines_of(now)}
    for file, data in files.items():
        if data is None:
            lines[file] = None
        else:
            lines[file] = old.get(file) or listed_line(read_record(file, data))
    unlisted = {file: line for file, line in old.items() if file not in listed and file not in lines}
    known = {head.file for head in table.heads()}
    lines.update((file, line) for file, line in unlisted.items() if file in known)
    return changed(now, lines)
