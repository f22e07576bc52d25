"""Reading of a log: every intact line becomes an entry, and every damaged line is reported by number.

A log may be larger than the memory that a session may take, so its bytes are read in parts and its entries are
decoded when they are asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, overload

from ..errors import LogLost
from ..schemas import LOG, is_newer
from ..values import record
from .decisions import DECISIONS
from .entries import DECISION, META, Entry, decode_entry

Read: TypeAlias = Callable[[int, int], bytes]
"""Returns at most ``size`` bytes of a log from the offset ``start`` on; fewer only at its end."""

_BOM: Final = b"\xef\xbb\xbf"
_PART_BYTES: Final = 1 << 18
_FIRST_BYTES: Final = 1 << 14


@record
class Damage:
    """A damaged line of a log: its number from 1, the reason, and its size in bytes."""

    line: int
    reason: str
    size: int


class LoggedEntries(Sequence[Entry]):
    """The entries of a log, decoded from its bytes each time they are asked for."""

    def __init__(self, read: Read, places: array[int] | None = None) -> None:
        """Use the entries that begin at these offsets; ``read`` returns a part of the log."""
        self._read = read
        self.places = array("q") if places is None else places

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> LoggedEntries: ...
    def __getitem__(self, index: int | slice) -> Entry | LoggedEntries:
        if isinstance(index, slice):
            return LoggedEntries(self._read, self.places[index])
        return next(self.at([self.places[index]]))

    def __iter__(self) -> Iterator[Entry]:
        return self.at(self.places)

    def __reversed__(self) -> Iterator[Entry]:
        step = 64
        for end in range(len(self.places), 0, -step):
            yield from reversed(list(self.at(self.places[max(0, end - step) : end])))

    def at(self, places: Iterable[int]) -> Iterator[Entry]:
        """Yield the entries whose lines begin at these offsets; raise ``LogLost`` if one is no longer there."""
        start, part, size = 0, b"", _FIRST_BYTES
        for place in places:
            end = part.find(b"\n", place - start) if start <= place < start + len(part) else -1
            if end < 0:
                start, part, size = place, self._line_from(place, size), _PART_BYTES
                end = part.find(b"\n")
            entry = _entry_in(part[place - start : end if end >= 0 else len(part)])
            if isinstance(entry, str):
                raise LogLost(f"the log changed at byte {place}: {entry}", path="")
            yield entry

    def _line_from(self, place: int, size: int) -> bytes:
        """Return a part of the log that begins at an offset and has at least one whole line, if the log has it."""
        parts = [self._read(place, size)]
        while parts[-1] and b"\n" not in parts[-1]:
            parts.append(self._read(place + sum(map(len, parts)), _PART_BYTES))
        return b"".join(parts)


@record
class ParsedLog:
    """The readable entries of a log, its damaged lines, and the bytes of an incomplete last line (``torn``)."""

    entries: Sequence[Entry]
    damage: tuple[Damage, ...] = ()
    torn: bytes = b""


def parse_log(data: bytes) -> ParsedLog:
    """Return the readable entries of a log's bytes and its damaged lines; empty lines are skipped.

    Lines are split at newlines only. A last line without a newline is ``torn`` unless it can be read. A line that
    can be read once NUL bytes around it are removed gives an entry and a ``Damage``.
    """
    scan = LogScan(lambda start, size: data[start : start + size])
    entries = [entry for _, entry in scan]
    return ParsedLog(entries, tuple(scan.damage), scan.torn)


class LogScan:
    """One pass over a log, which yields the offset and the entry of each readable line and notes damage."""

    def __init__(self, read: Read) -> None:
        self.entries = LoggedEntries(read)
        self.damage: list[Damage] = []
        self.torn = b""
        self.size = 0
        self.is_torn = False
        """Whether the last line has no newline; it may be readable."""
        self._read = read

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        for number, (place, line, is_whole) in enumerate(_lines(self._read), 1):
            self.size, self.is_torn = place + len(line) + is_whole, bool(line) and not is_whole
            if not line or line.isspace():
                continue
            entry = _entry_in(line)
            if isinstance(entry, Entry):
                self.entries.places.append(place)
                if b"\0" in line:
                    self.damage.append(Damage(number, "NUL bytes around an intact entry", len(line)))
                yield place, entry
            elif is_whole:
                self.damage.append(Damage(number, entry, len(line)))
            else:
                self.torn = line

    def parsed(self) -> ParsedLog:
        """Return the log as far as it was read; its entries are not in memory."""
        return ParsedLog(self.entries, tuple(self.damage), self.torn)


def newer_part(entries: Iterable[Entry]) -> str:
    """Return the part of a log that only a newer Reverie understands, empty if there is none."""
    return next((why for why in map(newer_entry, entries) if why), "")


def newer_entry(entry: Entry) -> str:
    """Return why only a newer Reverie understands an entry of a log, empty if this one does."""
    body = entry.body
    if entry.kind == META and is_newer(body.get("schema"), LOG):
        return f"version {body['schema']} of the log, this Reverie knows {LOG}"
    if entry.kind == DECISION and body.get("moves_prefix") and body.get("decision") not in DECISIONS:
        return f"its decision {body.get('decision')!r} changes requests and is not known here"
    return ""


def _lines(read: Read) -> Iterator[tuple[int, bytes, bool]]:
    """Yield offset and bytes of each line, without its newline, and whether a newline ended it."""
    at = len(_BOM) if read(0, len(_BOM)) == _BOM else 0
    parts: list[bytes] = []
    position = at
    while part := read(position, _PART_BYTES):
        position += len(part)
        *ended, rest = part.split(b"\n")
        for line in ended:
            whole = b"".join((*parts, line)) if parts else line
            parts.clear()
            yield at, whole, True
            at += len(whole) + 1
        if rest:
            parts.append(rest)
    yield at, b"".join(parts), False


def _entry_in(line: bytes) -> Entry | str:
    """Return the entry of a line, also of one with NUL bytes that a crash left around it; else the reason."""
    try:
        return decode_entry(line)
    except ValueError as error:
        stripped = line.strip(b"\0 \r\t")
        if not stripped.startswith(b"{") or len(stripped) == len(line):
            return str(error)
        try:
            return decode_entry(stripped)
        except ValueError:
            return str(error)
