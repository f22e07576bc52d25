"""Read the daily logs of a long-lived assistant and turn their lines into memory drafts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from ...errors import StorageError
from ...memories.rules.taxonomy import TYPES, claim_of, description_for, vagueness
from ...memories.store.journal_files import LOGS
from ...memories.store.names import daily_log, file_for, title_for
from ...memories.store.records import MemoryRecord, new_text
from ...memories.store.side_files import LogLine, SideFiles, day_of, log_line, read_log
from ...memories.store.trust import Trust, worst
from ...text.dates import absolute, iso_day
from ...text.words import sentences, words
from ...values import record

_MOST_LINES: Final = 10_000
_LABEL: Final = re.compile(rf"({'|'.join(TYPES)}):\s+(?=\S)", re.IGNORECASE)


@record
class LogDraft:
    """A memory that could be made from one line of a daily log."""

    text: str
    type: str
    line: LogLine

    @property
    def source(self) -> str:
        """The session that wrote the line, or the log file if the line names none."""
        return self.line.source or self.line.file

    @property
    def trust(self) -> Trust:
        """The trust of the line, at most that of an agent."""
        return worst((self.line.trust, "agent"))

    @property
    def file(self) -> str:
        """The name of the memory file."""
        return file_for(self.type, title_for(claim_of(self.text)), text=self.text)

    def content(self) -> bytes:
        """Return the content of the memory file."""
        noon = f"{self.line.day}T12:00:00Z"
        claim = claim_of(self.text)
        reason = self.text[len(claim) :].strip()
        name, about = title_for(claim), description_for(self.text)
        if vagueness(about, name) and not vagueness(about):  # a dream leaves out one that only repeats its name
            about = f"{about} (logged on {self.line.day})"
        fields = {
            "name": name,
            "description": about,
            "type": self.type,
            "source": self.source,
            "trust": self.trust,
            "created": noon,
            "modified": noon,
        }
        return new_text(fields, f"{claim}\n\n{reason}\n" if reason else f"{claim}\n").encode()


def append_log(files: SideFiles, now: datetime, text: str, *, source: str, trust: Trust) -> str:
    """Append a line to the log of a day, in local time, and return the log's file."""
    file = daily_log(now.date())
    files.append(file, log_line(now, text, source=source, trust=trust).encode())
    return file


def logged_since(files: SideFiles, since: datetime | None = None) -> list[LogLine]:
    """Return a list of the daily logs' lines since a time, oldest first, at most the newest ten thousand.

    Log times are local and have minute precision, so lines from the minute of ``since`` are included.
    """
    moment = since.astimezone() if since is not None else None
    day, minute = (f"{moment:%Y-%m-%d}", f"{moment:%H:%M}") if moment else ("", "")
    found: list[LogLine] = []
    for file, text in _logs(files, day):
        found += [line for line in read_log(file, text) if line.day > day or not line.time or line.time >= minute]
    return found[-_MOST_LINES:]


def forget_logged(files: SideFiles, source: str) -> None:
    """Remove the lines of one source, such as a session, from all daily logs."""
    for file, text in _logs(files):
        gone = {line.number for line in read_log(file, text) if line.source == source}
        if gone:
            kept = [line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in gone]
            files.replace(file, "".join(kept).encode())


def log_files(files: SideFiles) -> list[str]:
    """Return the daily log files as paths relative to a memory directory, oldest first."""
    return [file for file in files.names(LOGS) if day_of(file)]


def _logs(files: SideFiles, since: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and text of each daily log since a day."""
    for file in log_files(files):
        if day_of(file) >= since:
            with suppress(StorageError):  # a link or a folder is not a log
                yield file, (files.read(file) or b"").decode("utf-8", "replace")


def drafts_from_logs(lines: Sequence[LogLine], existing: Iterable[MemoryRecord] = ()) -> list[LogDraft]:
    """Return a list of drafts, one for each line whose text no existing memory contains.

    The agent wrote each line deliberately, so its text is kept unchanged. The draft is a project memory unless the
    line begins with another type ("feedback: ..."). Relative dates count from the line's day.
    """
    known = {said for one in existing for said in (words(one.body), *sentences(one.body))}
    drafts: list[LogDraft] = []
    for line in lines:
        label = _LABEL.match(line.text)
        text = line.text[label.end() :] if label else line.text
        text = absolute(text, iso_day(line.day)).text
        said = words(text)
        if said and said not in known:
            known.add(said)
            drafts.append(LogDraft(text, label[1].lower() if label else "project", line))
    return drafts
