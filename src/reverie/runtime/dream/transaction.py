"""A dream carried out: checked, written down, made as one change of the journal, and told; every step may block.

First the report says what is about to be written, then the journal makes it, then the report says that it was made. So
whoever comes after a kill knows from the journal which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...errors import InputError, StorageError
from ...layers.l6_dream import (
    DreamChange,
    DreamPolicy,
    DreamProposal,
    DreamReport,
    DreamTransaction,
    FileChange,
    OpenQuestion,
    RefusedChange,
    SkippedChange,
    capped_index,
    change_of,
    dream_transaction,
    files_on,
    undo_draft,
    validation,
)
from ...memories.rules.taxonomy import lint_memory
from ...memories.store.drafts import Draft
from ...memories.store.journal import History, JournalEntry
from ...memories.store.records import read_record, version_of
from ...memories.store.store import MemoryStore, Transaction
from ...memories.store.trust import Trust
from ...values import record, replace
from .reports import Reports, entry_of

__all__ = ["Applying", "Snapshot", "Undone", "snapshot_of", "undo_dream"]


@record
class Snapshot:
    """A memory directory at one moment."""

    files: Mapping[str, bytes]
    trusts: Mapping[str, Trust]
    index: str
    time: str


@record
class Undone:
    """A dream that was taken back; ``stayed`` are files that somebody changed since and that were left alone."""

    dream: str
    entry: str
    restored: tuple[str, ...]
    stayed: tuple[str, ...] = ()
    dry_run: bool = False


def snapshot_of(shelf: MemoryStore, *, notice: bool = True) -> Snapshot:
    """Return a directory as it is; with ``notice`` what was changed outside is journaled, so that it can come back."""
    found: list[Snapshot] = []

    def look(desk: Transaction) -> None:
        files, trusts = files_on(desk)
        found.append(Snapshot(files, trusts, desk.index, desk.now))

    shelf.commit(look, notice=notice)
    return found[0]


class Applying:
    """Carries one dream out."""

    def __init__(self, shelf: MemoryStore, reports: Reports, policy: DreamPolicy, snapshot: Snapshot) -> None:
        self._shelf = shelf
        self._reports = reports
        self._policy = policy
        self._before = snapshot

    def planned(self, report: DreamReport, dreams: Sequence[DreamProposal], *, confirmed: bool) -> DreamReport:
        """Return the report of what would be done, were nothing to change meanwhile."""
        files = self._before.files
        checked = validation(files, dreams, self._policy, trusts=self._before.trusts, confirmed=confirmed)
        after = _after(files, checked.kept)
        index = capped_index(self._before.index, after, [one.file for one in checked.kept if one.after is not None])
        return replace(
            report,
            changes=_told(checked.kept, dreams),
            not_done=(*report.not_done, *_not_done(checked.refused, dreams)),
            questions=_asked(dreams, after),
            files_before=len(files),
            files_after=len(after),
            index_lines=index.count("\n"),
            wrong_before=_wrong(files, self._before.time),
            wrong_after=_wrong(after, self._before.time),
        )

    def carry_out(self, report: DreamReport, dreams: Sequence[DreamProposal], *, confirmed: bool) -> DreamReport:
        """Make the changes, and return the report of what was made; it is saved by whoever ends the run."""
        self._reports.save(replace(report, state="applying"))
        chosen = _chosen(dreams, {change.file for change in report.changes})
        counts = f"{len(report.changes)} changes" if len(report.changes) != 1 else "1 change"
        plans: list[DreamTransaction] = []

        def plan(desk: Transaction) -> Draft | None:
            plans.append(
                dream_transaction(desk, chosen, self._policy, why=f"{report.dream}: {counts}", confirmed=confirmed)
            )
            return plans[-1].draft

        entry = self._committed(report.dream, plan)
        done = plans[-1]
        after = _after(self._before.files, done.made)
        return replace(
            report,
            state="completed",
            entry=entry,
            changes=_told(done.made, dreams),
            not_done=(*report.not_done, *_not_done(done.skipped, dreams)),
            questions=_asked(dreams, after),
            files_after=done.files,
            wrong_after=_wrong(after, self._before.time),
        )

    def _committed(self, dream: str, plan: Callable[[Transaction], Draft | None]) -> str:
        try:
            entry = self._shelf.commit(plan)
        except StorageError:
            made = entry_of(self._shelf.history(), dream)  # a line that is durable has happened, whatever failed then
            if made:
                return made
            raise
        return entry.id if entry is not None else ""


def _after(files: Mapping[str, bytes], changes: Sequence[FileChange]) -> dict[str, bytes]:
    after = dict(files)
    for change in changes:
        if change.after is None:
            after.pop(change.file, None)
        else:
            after[change.file] = change.after
    return after


def _chosen(dreams: Sequence[DreamProposal], files: set[str]) -> list[DreamProposal]:
    return [replace(one, changes=tuple(change for change in one.changes if change.file in files)) for one in dreams]


def _by(dreams: Sequence[DreamProposal]) -> dict[str, str]:
    return {change.file: dreamed.by for dreamed in dreams for change in dreamed.changes}


def _told(changes: Sequence[FileChange], dreams: Sequence[DreamProposal]) -> tuple[DreamChange, ...]:
    by = _by(dreams)
    return tuple(change_of(change, by.get(change.file, "local")) for change in changes)


def _not_done(refused: Sequence[RefusedChange], dreams: Sequence[DreamProposal]) -> tuple[SkippedChange, ...]:
    by = _by(dreams)
    return tuple(
        SkippedChange(one.change.file, one.change.act, one.why, by.get(one.change.file, "local")) for one in refused
    )


def _asked(dreams: Sequence[DreamProposal], after: Mapping[str, bytes]) -> tuple[OpenQuestion, ...]:
    found: dict[tuple[str, tuple[str, ...]], OpenQuestion] = {}
    for dreamed in dreams:
        for one in dreamed.questions:
            versions = tuple(version_of(after[file]) if file in after else "" for file in one.files)
            found.setdefault((one.topic, one.files), OpenQuestion(one.topic, one.files, one.text, versions))
    return tuple(found.values())


def _wrong(files: Mapping[str, bytes], today: str) -> int:
    return sum(bool(lint_memory(read_record(file, data), today=today)) for file, data in files.items())


# -- taking one back


def undo_dream(shelf: MemoryStore, reports: Reports, dream: str | None, *, author: str, dry_run: bool) -> Undone:
    """Take a dream back, the last one that stands where none is named."""
    entry = _standing(shelf.history(), dream)
    stayed: list[tuple[str, ...]] = []

    def plan(desk: Transaction) -> Draft:
        draft, left = undo_draft(desk, desk.history.entry(entry.id), who=author)
        stayed.append(left)
        return draft

    made = shelf.commit(plan, notice=True, dry_run=dry_run)
    name = entry.why.partition(":")[0]
    done = made.id if made is not None and not dry_run else ""
    if done and (report := reports.read(name)) is not None:
        reports.save(replace(report, state="completed", entry=entry.id, undone=done))
    return Undone(name, done, tuple(made.files) if made is not None else (), stayed[-1], dry_run)


def _standing(history: History, dream: str | None) -> JournalEntry:
    """Return the entry of a dream that was not taken back."""
    gone: set[str] = set()
    for entry in reversed(history.entries):
        if entry.undoes and entry.id not in gone:
            gone.update(entry.undoes)
    for entry in reversed(history.entries):
        if entry.act == "dreamed" and (dream is None or dream in (entry.id, entry.why.partition(":")[0])):
            if entry.id not in gone:
                return entry
            if dream is not None:
                raise InputError(f"the dream {dream} was taken back already; undo that change to bring it back")
    what = (
        f"no dream {dream[:60]!r} changed anything here"
        if dream is not None
        else "no dream stands that could be undone"
    )
    raise InputError(f"{what}; 'reverie memory log' lists what was done")
