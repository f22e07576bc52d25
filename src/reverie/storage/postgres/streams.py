"""Deflate streams of logs: each entry goes on the stream of those before it, so words they share are stored once."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from typing import Final

from ...errors import StorageError

_STREAM_BYTES: Final = 262_144
"""The inflated bytes after which a stream ends, as many as a log is read in at once: the most read before a part."""
_MAX_OPEN: Final = 64  # a quarter of a megabyte each
_FLUSHED: Final = b"\x00\x00\xff\xff"
"""The end of every flushed piece, which is not stored."""


class Stream:
    """A deflate stream; ``file`` and ``end`` say where its last piece was stored, None before its first one."""

    def __init__(self) -> None:
        self.file: int | None = None
        self.end: int | None = None
        self._size = 0
        self._deflate = zlib.compressobj()

    def deflated(self, data: bytes) -> tuple[bytes, bool | None]:
        """Return the next piece to store, and whether a stream begins with it; None: it is as it was, and ends one."""
        if self._size >= _STREAM_BYTES:
            self.__init__()
        begins = self._size == 0
        self._size += len(data)
        small = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        if len(small) - len(_FLUSHED) < len(data):
            return small[: -len(_FLUSHED)], begins
        self.__init__()
        return data, None


class Streams:
    """The streams that a storage may go on with, one a log; the least recently used ones are forgotten."""

    def __init__(self) -> None:
        self._open: dict[str, Stream] = {}
        self._lock = threading.Lock()

    def take(self, key: str, offset: int | None) -> Stream:
        """Take the stream that goes on at an offset, so that no other thread uses it, or return a new one."""
        with self._lock:
            found = self._open.pop(key, None)
        return found if found is not None and found.end == offset else Stream()

    def keep(self, key: str, stream: Stream, file: int, end: int) -> None:
        """Keep a stream whose last piece was stored in a file and ends at an offset."""
        stream.file, stream.end = file, end
        with self._lock:
            self._open[key] = stream
            if len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]


def inflated(key: str, pieces: Iterable[tuple[bytes, bool | None]]) -> bytes:
    """Return the bytes of consecutive pieces, each with whether a stream begins with it, None if it is as it was."""
    parts, stream = list[bytes](), zlib.decompressobj()
    try:
        for data, begins in pieces:
            if begins:
                stream = zlib.decompressobj()
            parts.append(data if begins is None else stream.decompress(data + _FLUSHED))
    except zlib.error as error:
        raise StorageError(f"{key} is damaged in the database; restore it from a backup", path=key) from error
    return b"".join(parts)
