"""Daily logs of a long-lived assistant: what stands in them since a time, and the memories it would make."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...conversation.entries import USER, Entry
from ...errors import StorageError
from ...layers.l5_extract.local import Candidate, extract
from ...layers.l5_extract.noted import noted_in
from ...memories.store.daily import LogLine, day_of, read_log
from ...memories.store.journal_files import read_plain
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import worst
from ...values import record, replace

if TYPE_CHECKING:
    from .memory import Memory

__all__ = ["LogDraft", "drafts_from_logs", "logged_since"]

_LOGS: Final = "logs"
_MOST_LINES: Final = 10_000


@record
class LogDraft:
    """A memory to be, and the note it comes from."""

    candidate: Candidate
    line: LogLine

    @property
    def source(self) -> str:
        """Where it comes from: the session that noted it, else the log itself."""
        return self.line.source or self.line.file


def logged_since(memory: Memory, since: datetime | None = None) -> list[LogLine]:
    """Return the notes in the daily logs since a time, oldest first, the newest ten thousand at most.

    Times in a log are local and of the minute, so the minute of ``since`` is read again rather than passed over.
    """
    moment = since.astimezone() if since is not None else None
    day, minute = (f"{moment:%Y-%m-%d}", f"{moment:%H:%M}") if moment else ("", "")
    found: list[LogLine] = []
    for file in sorted(_log_files(memory.path)):
        if day_of(file) < day:
            continue
        try:
            data = read_plain(str(memory.path), file) or b""
        except StorageError:
            continue  # no plain file, so no log
        lines = read_log(file, data.decode("utf-8", "replace"))
        found += [line for line in lines if line.day > day or not line.time or line.time >= minute]
    return found[-_MOST_LINES:]


def _log_files(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root / _LOGS, followlinks=False):
        folders.sort()
        for name in names:
            file = os.path.relpath(os.path.join(folder, name), root)
            if day_of(file):
                yield file


def drafts_from_logs(
    lines: Sequence[LogLine], existing: Iterable[MemoryRecord] = (), *, instructions: Sequence[str] = ()
) -> list[LogDraft]:
    """Return the memories that notes hold and that are not there yet, found without a model.

    Each is as trusted as its note, which is an agent's word at best; relative dates are those of the note's day.
    """
    by_place = {f"{line.file}:{line.number}": line for line in lines}
    entries = [
        Entry(place, None, f"{line.day}T{line.time or '12:00'}:00Z", "", USER, _message(line.text))
        for place, line in by_place.items()
    ]
    made = extract(entries, existing, instructions=instructions, most=len(entries), find=noted_in)
    drafts: list[LogDraft] = []
    for one in made.candidates:
        line = by_place[one.message]
        drafts.append(LogDraft(replace(one, trust=worst((one.trust, line.trust))), line))
    return drafts


def _message(text: str) -> dict[str, object]:
    return {"message": {"role": "user", "content": text}}
