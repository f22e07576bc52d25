"""The reports of the last dreams over a directory, as JSON and as Markdown, and their open questions."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import msgspec

from ...errors import InputError, StorageError
from ...layers.l6_dream import DreamReport, Question, markdown
from ...memories.store.journal import History
from ...memories.store.records import version_of
from ...memories.store.side_files import SideFiles, read_plain
from ...memories.store.store import MemoryStore
from ...schemas import REPORT, is_newer
from ...values import replace
from .progress import FOLDER

_NAME: Final = re.compile(r"(d\d{8}T\d{9}-[0-9a-f]{6})\.(json|md)")
_decoder: Final = msgspec.json.Decoder(DreamReport)


def entry_of(history: History, dream: str) -> str:
    """Return the id of the journal entry of a dream; empty if the dream changed nothing."""
    found = (one for one in reversed(history.entries) if one.act == "dreamed" and one.why.startswith(f"{dream}:"))
    return next((one.id for one in found), "")


class ReportFiles:
    """The reports beside the memories of one project; every method may block."""

    def __init__(self, files: SideFiles, *, keep: int = 30) -> None:
        self._files = files
        self._keep = max(1, keep)

    def save(self, report: DreamReport) -> None:
        """Write a report durably as JSON; a final one also as Markdown, and delete the oldest over the limit."""
        self._files.replace(f"{FOLDER}/{report.dream}.json", msgspec.json.encode(report))
        if report.state != "applying":
            self._files.replace(f"{FOLDER}/{report.dream}.md", markdown(report).encode())
            self._prune()

    def read(self, dream: str) -> DreamReport | None:
        """Return a dream's report as it was written; None if there is none or it cannot be decoded."""
        if not _NAME.fullmatch(f"{dream}.json"):
            return None
        data = self._files.read(f"{FOLDER}/{dream}.json")
        try:
            found = _decoder.decode(data) if data else None
        except (msgspec.MsgspecError, ValueError):  # also for a byte that is no UTF-8
            return None
        return None if found is None or is_newer(found.schema, REPORT) else found

    def get(self, dream: str) -> DreamReport:
        """Return a dream's report; raise ``InputError`` if there is none."""
        found = self.read(dream)
        if found is None:
            if dream in self._names():
                raise InputError(f"{self.problem(dream)}; 'reverie dream --undo {dream}' still undoes the dream")
            raise InputError(
                f"there is no report of a dream {dream[:60]!r}; 'reverie dream --status' names the last one"
            )
        return found

    def damaged(self) -> list[str]:
        """Return the names of the dreams whose report cannot be read, newest first."""
        return [name for name in self._names() if self.read(name) is None]

    def problem(self, dream: str) -> str:
        """Return a sentence on a report that cannot be read."""
        data = self._files.read(f"{FOLDER}/{dream}.json") or b""
        try:
            version: Any = msgspec.json.decode(data).get("schema")
        except (msgspec.MsgspecError, AttributeError):
            version = None
        path = self._files.path(f"{FOLDER}/{dream}.json")
        return f"{path} {'was written by a newer Reverie' if is_newer(version, REPORT) else 'is damaged'}"

    def all(self) -> list[DreamReport]:
        """Return a list of all readable reports, newest first."""
        found = (self.read(name) for name in self._names())
        return [report for report in found if report is not None]

    def last(self) -> DreamReport | None:
        """Return the newest readable report, or None."""
        return next((report for name in self._names() if (report := self.read(name)) is not None), None)

    def _names(self) -> list[str]:
        names = (_NAME.fullmatch(file.removeprefix(f"{FOLDER}/")) for file in self._files.names(FOLDER))
        return sorted((found[1] for found in names if found and found[2] == "json"), reverse=True)

    def _prune(self) -> None:
        with suppress(StorageError):
            for name in self._names()[self._keep :]:
                for ending in ("md", "json"):
                    self._files.delete(f"{FOLDER}/{name}.{ending}")

    def settle(self, history: History) -> list[DreamReport]:
        """Complete, save and return the reports of dreams that were killed while they wrote, by the journal."""
        finished: list[DreamReport] = []
        for report in self.all():
            if report.state == "applying":
                done = settled_report(report, history)
                self.save(done)
                finished.append(done)
        return finished


def settled_report(report: DreamReport, history: History) -> DreamReport:
    """Return a report in state "applying" as completed or killed, depending on the journal."""
    entry = entry_of(history, report.dream)
    if entry:
        made = set(history.entry(entry).files)
        changes = tuple(change for change in report.changes if change.file in made)
        return replace(report, state="completed", entry=entry, changes=changes, problem="killed after its last write")
    return replace(report, state="killed", changes=(), files_after=report.files_before)


def open_questions(store: MemoryStore, *, keep: int = 30) -> list[Question]:
    """Return a list of the questions of dreams that the user has not answered, newest first.

    A question is open while all its memories are unchanged since it was asked.
    """
    found: dict[tuple[str, tuple[str, ...]], Question] = {}
    for report in ReportFiles(store.files, keep=keep).all():
        if report.state == "completed" and not report.undone:
            for one in report.questions:
                found.setdefault((one.topic, one.files), one)
    return [one for one in found.values() if _is_open(store.root, one)]


def _is_open(root: str, one: Question) -> bool:
    try:
        now = [read_plain(root, file) for file in one.files]
    except StorageError:
        return False
    return tuple("" if data is None else version_of(data) for data in now) == one.versions
