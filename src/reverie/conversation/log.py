"""Reading of a whole log: every intact line becomes an entry, and every damaged line is reported by number."""

from __future__ import annotations

from ..values import record
from .entries import Entry, decode_entry

__all__ = ["Damage", "ParsedLog", "parse_log"]

_BOM = b"\xef\xbb\xbf"


@record
class Damage:
    """A damaged line of a log: its number from 1, the reason, and its size in bytes."""

    line: int
    reason: str
    size: int


@record
class ParsedLog:
    """The readable entries of a log, its damaged lines, and the bytes of an incomplete last line (``torn``)."""

    entries: list[Entry]
    damage: tuple[Damage, ...] = ()
    torn: bytes = b""


def parse_log(data: bytes) -> ParsedLog:
    """Return the readable entries of a log's bytes and its damaged lines; empty lines are skipped.

    Lines are split at newlines only. A last line without a newline is ``torn`` unless it can be read. A line that
    can be read once NUL bytes around it are removed gives an entry and a ``Damage``.
    """
    entries: list[Entry] = []
    damage: list[Damage] = []
    torn = b""
    lines = data.removeprefix(_BOM).split(b"\n")
    last = len(lines)
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            entries.append(decode_entry(line))
        except ValueError as error:
            rescued = _without_nuls(line)
            if rescued is not None:
                entries.append(rescued)
                damage.append(Damage(number, "NUL bytes around an intact entry", len(line)))
            elif number == last:
                torn = line
            else:
                damage.append(Damage(number, str(error), len(line)))
    return ParsedLog(entries, tuple(damage), torn)


def _without_nuls(line: bytes) -> Entry | None:
    """Return the entry of a line that is intact except for NUL bytes that a crash left around it, else None."""
    stripped = line.strip(b"\0 \r\t")
    if not stripped.startswith(b"{") or len(stripped) == len(line):
        return None
    try:
        return decode_entry(stripped)
    except ValueError:
        return None
