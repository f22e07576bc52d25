"""Memory that connections read into and exchanges keep, used again: new pages cost more than the copying itself."""

from __future__ import annotations

from collections import deque
from typing import Final

Bytes = bytes | memoryview
_SLAB_BYTES: Final = 1_048_576
_LEAST_ROOM: Final = 262_144
_LEAST_VIEW: Final = 65_536
"""Smaller pieces are copied: one that is kept for long must not hold a slab of others."""
_MOST_SLABS: Final = 128
_TRIES: Final = 4


class Slabs:
    """The memory of all connections of one event loop: a read goes behind the last one, and nothing is overwritten.

    A slab comes into use again when no view of it is left: no exchange and no write buffer has a part of it.
    """

    def __init__(self) -> None:
        self._slab = bytearray(_SLAB_BYTES)
        self._at = 0
        self._used = deque[bytearray](maxlen=_MOST_SLABS)

    def room(self) -> memoryview:
        """Return memory for the next read."""
        if _SLAB_BYTES - self._at < _LEAST_ROOM:
            self._used.append(self._slab)
            self._slab, self._at = self._free(), 0
        return memoryview(self._slab)[self._at :]

    def read(self, count: int) -> memoryview:
        """Return the bytes of a read into ``room``."""
        start, self._at = self._at, self._at + count
        return memoryview(self._slab)[start : self._at]

    def _free(self) -> bytearray:
        for _ in range(min(_TRIES, len(self._used))):
            slab = self._used.popleft()
            try:
                slab.pop()  # impossible while a view exists
            except BufferError:
                self._used.append(slab)
            else:
                slab.append(0)
                return slab
        return bytearray(_SLAB_BYTES)


def kept(piece: Bytes) -> Bytes:
    """Return a piece to keep for long."""
    return piece if len(piece) >= _LEAST_VIEW else bytes(piece)
