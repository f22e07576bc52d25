"""Daily logs as text: one line per note, with the time, the session and the trust.

Any program may write these files, so a line has agent trust at best.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from ...values import record
from .trust import Trust, claimed, worst

_LINE: Final = re.compile(r"- (\d\d:\d\d) \((user|agent|unconfirmed)(?:, ([^()\s][^()]{0,199}))?\) (\S.*)")
_FILE: Final = re.compile(r"logs/(\d{4})/(\d\d)/(\1-\2-\d\d)\.md")
_BULLET: Final = re.compile(r"\s*(?:[-*+]\s+)?(\S.*)")


@record
class LogLine:
    """One note of a daily log, with its day, session (``source``) and trust."""

    day: str
    time: str
    """Local hour and minute of the note; empty if the line has none."""
    text: str
    source: str
    trust: Trust
    file: str
    number: int
    """The line number in the file, from 1."""


def log_line(moment: datetime, text: str, *, source: str = "", trust: Trust = "agent") -> str:
    """Return a note as one line of a daily log, with time, trust and source."""
    origin = re.sub(r"[()\s]+", " ", source).strip()[:200]
    return f"- {moment:%H:%M} ({trust}{f', {origin}' if origin else ''}) {' '.join(text.split())}"


def day_of(file: str) -> str:
    """Return the ISO day of a log file from its path; empty if that is not the path of a log."""
    found = _FILE.fullmatch(file)
    return found[3] if found else ""


def read_log(file: str, text: str) -> list[LogLine]:
    """Return the notes in a daily log; lines in another form count too, headings and rules do not."""
    found: list[LogLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        noted = _LINE.fullmatch(line.rstrip())
        if noted:
            trust = worst((claimed(noted[2]), "agent"))
            found.append(LogLine(day_of(file), noted[1], noted[4], noted[3] or "", trust, file, number))
        elif (own := _BULLET.fullmatch(line.rstrip())) and not re.match(r"#|[-=*_]{3,}$", own[1]):
            found.append(LogLine(day_of(file), "", own[1], "", "agent", file, number))
    return found
