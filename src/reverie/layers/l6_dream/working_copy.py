"""The memory files of one dream while it edits them, with the reason for each change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime

from ...errors import InputError
from ...memories.store.names import FOLDERS
from ...memories.store.records import MemoryRecord, front_matter, read_record
from ...text.dates import iso_day
from .changes import DreamFacts, FileChange


class WorkingCopy:
    """The memory files of a dream, edited in memory, with reasons; unreadable and team files are never changed."""

    def __init__(self, files: Mapping[str, bytes], facts: DreamFacts) -> None:
        self.before = dict(files)
        self.drafts = {file: data for file, data in facts.drafts.items() if file not in {*files, *facts.restored}}
        self.files: dict[str, bytes] = {**files, **self.drafts}
        self.moved: dict[str, str] = {}
        self.removed: dict[str, str] = {}
        self.why: dict[str, list[str]] = defaultdict(list)
        self.unreadable: dict[str, str] = {}
        self.aside: set[str] = set(facts.restored)
        """Files that are read and never changed: restored ones, and expired ones about which a person is asked."""
        self._facts = facts
        self._records: dict[str, MemoryRecord] = {}
        for file in sorted(self.files):
            self._take(file)

    def _take(self, file: str) -> None:
        memory = read_record(file, self.files[file], modified=_seconds(self._facts.modified.get(file, 0.0)))
        if memory.problem:
            self.unreadable[file] = memory.problem
        elif not memory.superseded_by and file.split("/", 1)[0] not in FOLDERS and not claims_team(self.files[file]):
            self._records[file] = memory

    @property
    def ours(self) -> dict[str, MemoryRecord]:
        """The memories that may be changed, in the order of their files."""
        return {file: self._records[file] for file in sorted(self._records) if file not in self.aside}

    def record(self, file: str) -> MemoryRecord:
        """Return a readable private memory as parsed from its current text."""
        return self._records[file]

    def text(self, file: str) -> str:
        """Return a file's current text."""
        return self.files[file].decode()

    def write(self, file: str, text: str, why: str) -> None:
        """Replace the text of a file in the copy, and record the reason."""
        self.files[file] = text.encode()
        self._records[file] = read_record(
            file, self.files[file], modified=_seconds(self._facts.modified.get(file, 0.0))
        )
        if why not in self.why[file]:
            self.why[file].append(why)

    def merge(self, file: str, into: str) -> None:
        """Remove a file from the copy, and record the file ``into`` that holds its facts."""
        self._drop(file)
        self.moved[file] = into

    def remove(self, file: str, why: str) -> None:
        """Remove a file from the copy, and record the reason."""
        self._drop(file)
        self.removed[file] = why

    def _drop(self, file: str) -> None:
        del self.files[file], self._records[file]

    def changes(self) -> tuple[FileChange, ...]:
        """Return the differences between the copy and the original files, sorted by file."""
        made: list[FileChange] = []
        for file in sorted({*self.before, *self.files}):
            before, after = self.before.get(file), self.files.get(file)
            if before == after:
                continue
            why = "; ".join(self.why[file])
            if after is None and file in self.moved:
                into = self._stands_in(file)
                made.append(FileChange(file, before, None, "merged", f"says the same as {into}", into))
            elif after is None:
                made.append(FileChange(file, before, None, "removed", self.removed[file]))
            elif before is None:
                made.append(FileChange(file, None, after, "added", why or "drafted from the daily logs"))
            else:
                made.append(FileChange(file, before, after, "changed", why))
        return tuple(made)

    def _stands_in(self, file: str) -> str:
        while file in self.moved:
            file = self.moved[file]
        return file


def claims_team(data: bytes) -> bool:
    """Return whether a file's own front matter says that it is shared; True if that cannot be read."""
    try:
        return front_matter(data.decode()).fields.get("scope") == "team"
    except (InputError, UnicodeDecodeError):
        return True


def _seconds(value: float) -> float:
    try:
        datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return 0.0
    return value


def day_of(memory: MemoryRecord) -> date | None:
    """Return the day a memory was created, else the day it was modified; None if neither is known."""
    return iso_day(memory.created) or iso_day(memory.modified)
