"""Apply a dream: check its changes, commit them as one journal entry, and report them; every function may block.

The report is written before the commit in state "applying" and again after it, so that after a kill the journal tells
which of the two happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import InputError, StorageError
from ...layers.l6_dream import (
    DreamChange,
    DreamPolicy,
    DreamProposal,
    DreamReport,
    DreamTransaction,
    FileChange,
    Question,
    change_of,
    dream_transaction,
    files_on,
    restored_files,
    undo_draft,
)
from ...memories.rules.taxonomy import lint_memory
from ...memories.store.drafts import Draft
from ...memories.store.journal import History, JournalEntry
from ...memories.store.records import read_record, version_of
from ...memories.store.store import MemoryStore, Transaction
from ...memories.store.trust import Trust
from ...text.counts import counted
from ...values import record, replace
from .reports import ReportFiles, entry_of


@record
class Snapshot:
    """The memory files of a directory at one moment, with their trust, the index and the time."""

    files: Mapping[str, bytes]
    trusts: Mapping[str, Trust]
    index: str
    time: str
    restored: frozenset[str] = frozenset()
    """The files that a person restored by undoing a dream."""


@record
class DreamUndo:
    """An undone dream; ``restored`` are the files it restored, ``stayed`` those that were changed later."""

    dream: str
    entry: str
    restored: tuple[str, ...]
    stayed: tuple[str, ...] = ()
    dry_run: bool = False


def snapshot_of(store: MemoryStore, *, notice: bool = True) -> Snapshot:
    """Return the memories of a directory; ``notice`` first records edits by other programs in the journal."""
    found: list[Snapshot] = []

    def look(transaction: Transaction) -> None:
        files, trusts = files_on(transaction)
        restored = restored_files(transaction.history)
        found.append(Snapshot(files, trusts, transaction.index, transaction.now, restored))

    store.commit(look, notice=notice, dry_run=True)
    return found[0]


class DreamApplication:
    """Applies the proposals of one dream to a memory directory."""

    def __init__(self, store: MemoryStore, reports: ReportFiles, policy: DreamPolicy, snapshot: Snapshot) -> None:
        self._store = store
        self._reports = reports
        self._policy = policy
        self._before = snapshot

    def planned(self, report: DreamReport, dreams: Sequence[DreamProposal], *, confirmed: bool) -> DreamReport:
        """Return the report with the changes that pass the checks, without writing anything."""
        _, done = self._commit(report.dream, "", dreams, confirmed=confirmed, dry_run=True)
        return self._reported(report, dreams, done)

    def carry_out(self, report: DreamReport, dreams: Sequence[DreamProposal], *, confirmed: bool) -> DreamReport:
        """Commit the planned changes and return the final report, which the caller saves.

        The report is first saved in state "applying".
        """
        self._reports.save(replace(report, state="applying"))
        chosen = _chosen(dreams, {change.file for change in report.changes})
        counts = counted(len(report.changes), "change")
        entry, done = self._commit(report.dream, counts, chosen, confirmed=confirmed, dry_run=False)
        return replace(self._reported(report, dreams, done), state="completed", entry=entry)

    def _reported(self, report: DreamReport, dreams: Sequence[DreamProposal], done: DreamTransaction) -> DreamReport:
        before, now = self._before.files, self._before.time
        after = files_after(before, done.made)
        return replace(
            report,
            changes=_changes(done.made, dreams),
            not_done=(*report.not_done, *done.skipped),
            questions=_questions(dreams, after),
            files_before=len(before),
            files_after=done.files,
            index_lines=done.index.count("\n"),
            wrong_before=_wrong(before, now),
            wrong_after=_wrong(after, now),
        )

    def _commit(
        self, dream: str, counts: str, dreams: Sequence[DreamProposal], *, confirmed: bool, dry_run: bool
    ) -> tuple[str, DreamTransaction]:
        """Commit the valid changes of some proposals, or only plan them; return the journal entry's id and the plan."""
        plans: list[DreamTransaction] = []

        def plan(transaction: Transaction) -> Draft | None:
            why = f"{dream}: {counts}"
            plans.append(dream_transaction(transaction, dreams, self._policy, why=why, confirmed=confirmed))
            return plans[-1].draft

        try:
            entry = self._store.commit(plan, dry_run=dry_run)
        except StorageError:
            made = entry_of(self._store.history(), dream)  # a durable entry counts, even if a later step failed
            if not made or dry_run:
                raise
            return made, plans[-1]
        return entry.id if entry is not None else "", plans[-1]


def files_after(files: Mapping[str, bytes], changes: Sequence[FileChange]) -> dict[str, bytes]:
    """Return a copy of the files with the changes applied."""
    after = dict(files)
    for change in changes:
        if change.after is None:
            after.pop(change.file, None)
        else:
            after[change.file] = change.after
    return after


def _chosen(dreams: Sequence[DreamProposal], files: set[str]) -> list[DreamProposal]:
    return [replace(one, changes=tuple(change for change in one.changes if change.file in files)) for one in dreams]


def _changes(changes: Sequence[FileChange], dreams: Sequence[DreamProposal]) -> tuple[DreamChange, ...]:
    by = {change.file: dreamed.by for dreamed in dreams for change in dreamed.changes}
    return tuple(change_of(change, by.get(change.file, "local")) for change in changes)


def _questions(dreams: Sequence[DreamProposal], after: Mapping[str, bytes]) -> tuple[Question, ...]:
    found: dict[tuple[str, tuple[str, ...]], Question] = {}
    for dreamed in dreams:
        for one in dreamed.questions:
            if any(file not in after or read_record(file, after[file]).superseded_by for file in one.files):
                continue  # the dream itself settled it
            versions = tuple(version_of(after[file]) for file in one.files)
            found.setdefault((one.topic, one.files), replace(one, versions=versions))
    return tuple(found.values())


def _wrong(files: Mapping[str, bytes], today: str) -> int:
    return sum(bool(lint_memory(read_record(file, data), today=today)) for file, data in files.items())


# -- undo


def undo_dream(store: MemoryStore, reports: ReportFiles, dream: str | None, *, author: str, dry_run: bool) -> DreamUndo:
    """Undo a dream, the last one that is not undone if none is named; raise ``InputError`` if there is none."""
    entry = _undoable(store.history(), dream)
    stayed: list[tuple[str, ...]] = []

    def plan(transaction: Transaction) -> Draft:
        draft, left = undo_draft(transaction, transaction.history.entry(entry.id), who=author)
        stayed.append(left)
        return draft

    made = store.commit(plan, notice=True, dry_run=dry_run)
    name = entry.why.partition(":")[0]
    done = made.id if made is not None and not dry_run else ""
    if done and (report := reports.read(name)) is not None:
        reports.save(replace(report, state="completed", entry=entry.id, undone=done))
    return DreamUndo(name, done, tuple(made.files) if made is not None else (), stayed[-1], dry_run)


def _undoable(history: History, dream: str | None) -> JournalEntry:
    """Return the journal entry of a dream that is not undone, by default the last; else raise ``InputError``."""
    gone = history.undone_ids()
    for entry in reversed(history.entries):
        if entry.act == "dreamed" and (dream is None or dream in (entry.id, entry.why.partition(":")[0])):
            if entry.id not in gone:
                return entry
            if dream is not None:
                raise InputError(f"the dream {dream} is undone already; undo that change to redo it")
    what = f"the dream {dream[:60]!r} changed nothing here" if dream is not None else "there is no dream to undo"
    raise InputError(f"{what}; 'reverie memory log' lists the changes")
