"""Read the records of a file: compressed or plain, one per line or one whole document."""

from __future__ import annotations

import json
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from ..conversation.entries import clean
from ..conversation.log import Damage
from ..errors import InputError
from ..extras import needing
from .foreign_values import Record
from .import_result import RecordSource
from .salvage import salvage

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BOM: Final = b"\xef\xbb\xbf"
_EDGES: Final = b" \t\r\n\0"
_UNPACKED_BYTES: Final = 2**28
"""A compressed file may unpack to at most 256 MB,"""
_UNPACKED_RATIO: Final = 100
"""and to at most this many times its own size,"""
_UNPACKED_ALWAYS: Final = 2**20
"""but always to 1 MB."""
_PIECE_BYTES: Final = 2**16
_MAX_DAMAGES: Final = 1_000
"""This many broken lines are reported one by one; the rest as a count."""

_decoder: Final = msgspec.json.Decoder()


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """Return the bytes of a regular file, at most ``limit``; raise ``InputError`` if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError
            if not stat.S_ISREG(mode):
                raise InputError(f"{path} is not a regular file; give a recorded session")
            return file.read(limit)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give the path of a recorded session") from None
    except IsADirectoryError:
        raise InputError(
            f"{path} is a directory; give one recorded session, a file, or use 'reverie replay DIRECTORY'"
        ) from None
    except PermissionError:
        raise InputError(f"{path} may not be read by this user; check its permissions") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read ({said}); give a recorded session") from None


def decompressed(data: bytes, name: str) -> tuple[bytes, tuple[Damage, ...]]:
    """Return the data without Zstandard compression, and the damage; of a broken stream, the readable part.

    Raise ``InputError`` if the data unpacks to more than a recording would, or if the library is not installed.
    """
    if not data.startswith(ZSTD_MAGIC):
        return data, ()
    with needing("codex", f"{name} is compressed with Zstandard; install the extra", InputError):
        import zstandard
    limit = min(_UNPACKED_BYTES, max(_UNPACKED_ALWAYS, _UNPACKED_RATIO * len(data)))
    out, damage = BytesIO(), ()
    reader = zstandard.ZstdDecompressor().stream_reader(BytesIO(data), read_across_frames=True)
    try:
        while piece := reader.read(_PIECE_BYTES):
            if out.tell() + len(piece) > limit:
                raise InputError(
                    f"{name} unpacks to more than {limit:,} bytes from {len(data):,}: at most {_UNPACKED_RATIO} times "
                    f"the packed size and {_UNPACKED_BYTES // 2**20} MB are read; unpack a true recording yourself"
                )
            out.write(piece)
    except zstandard.ZstdError:
        lines = out.getvalue().count(b"\n")
        damage = (Damage(lines + 1, "the compressed stream is broken here", len(data)),)
    return out.getvalue(), damage


def decode_record(line: bytes) -> Any:
    """Return one decoded JSON value; raise ``ValueError`` with the reason if it is invalid."""
    try:
        return _decoder.decode(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except msgspec.DecodeError as error:
        # JavaScript writes half surrogate pairs where it cut a string; msgspec refuses them, but the record is intact.
        if b"\\ud" in line or b"\\uD" in line:
            try:
                return clean(json.loads(line))
            except (ValueError, RecursionError):
                pass
        raise ValueError(f"not JSON: {error}") from None


class _BrokenLines:
    """The broken lines of a file: the first ones each, the rest as a count."""

    def __init__(self) -> None:
        self.kept: list[Damage] = []
        self._more = self._more_bytes = 0
        self._last = 0

    def add(self, number: int, reason: str, size: int) -> None:
        """Add one broken line."""
        if len(self.kept) < _MAX_DAMAGES:
            self.kept.append(Damage(number, reason, size))
        else:
            self._more, self._more_bytes, self._last = self._more + 1, self._more_bytes + size, number

    def all(self) -> list[Damage]:
        """Return the damage of all lines."""
        if not self._more:
            return self.kept
        return [*self.kept, Damage(self._last, f"the last of {self._more:,} more broken lines", self._more_bytes)]


def source_of(data: bytes, name: str, damage: tuple[Damage, ...] = ()) -> RecordSource:
    """Return the records of a file and its damage: its lines, or its one document, or the intact part of that."""
    data = data.removeprefix(_BOM)
    records: list[tuple[int, Record]] = []
    broken = _BrokenLines()
    sessions: list[tuple[int, bytes]] = []
    for number, raw in enumerate(BytesIO(data), 1):
        line = raw.strip(_EDGES)
        if not line:
            if b"\0" in raw:
                broken.add(number, "nothing but NUL bytes", len(raw.rstrip(b"\n")))
            continue
        try:
            value = decode_record(line)
        except ValueError as error:
            if b'"history"' in line:
                sessions.append((number, line))
            broken.add(number, str(error), len(raw.rstrip(b"\n")))
            continue
        if isinstance(value, dict):
            if b"\0" in raw:
                broken.add(number, "NUL bytes around an intact record", len(raw.rstrip(b"\n")))
            records.append((number, cast(Record, value)))
        else:
            broken.add(number, f"a JSON {type(value).__name__}, not a record", len(raw.rstrip(b"\n")))
    if broken.kept and len(sessions) < 2 and _is_document(data, records):
        if whole := document_of(data, name, damage):
            return whole
    else:  # the line is a whole session: keep the intact part of it
        records += [(number, found[0]) for number, line in sessions if (found := salvage(line, number))]
        records.sort(key=lambda one: one[0])
    lines, rows = [number for number, _ in records], [row for _, row in records]
    return RecordSource(name, rows, (*damage, *broken.all()), lines=lines)


def _is_document(data: bytes, records: list[tuple[int, Record]]) -> bool:
    """Return whether the lines belong to one indented document and are not records of their own."""
    start = data[:64].lstrip(_EDGES)
    alone = start.startswith(b"{") and start[1:].lstrip(b" \t\r").startswith(b"\n")
    return alone or not records


def document_of(data: bytes, name: str, damage: tuple[Damage, ...] = ()) -> RecordSource | None:
    """Return the file as one record, from a whole document or its intact part; None if it holds no object."""
    try:
        value = decode_record(data.strip(_EDGES))
    except ValueError:
        saved = salvage(data)
        return RecordSource(name, [saved[0]], (*damage, *saved[1]), lines=[1]) if saved else None
    return RecordSource(name, [cast(Record, value)], damage, lines=[1]) if isinstance(value, dict) else None
