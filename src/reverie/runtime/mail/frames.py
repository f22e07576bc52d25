"""Frames on a mail socket: four bytes that say how long it is, then the letter or the answer."""

from __future__ import annotations

from typing import Final

from ...errors import InputError
from ...layers.l7_relay import MAX_LETTER_BYTES

__all__ = ["FrameReader", "framed"]

_HEAD_BYTES: Final = 4
_READ_BYTES: Final = 65_536


def framed(data: bytes) -> bytes:
    """Return data as one frame."""
    if not 0 < len(data) <= MAX_LETTER_BYTES:
        raise InputError(f"a frame holds 1 to {MAX_LETTER_BYTES:,} bytes, not {len(data):,}")
    return len(data).to_bytes(_HEAD_BYTES, "big") + data


class FrameReader:
    """Puts one frame together from whatever pieces arrive; it holds no more than has come."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._length: int | None = None

    @property
    def wanted(self) -> int:
        """How many bytes to read next at most, so that none of what follows the frame is read; 0 when it is whole."""
        whole = _HEAD_BYTES if self._length is None else self._length
        return min(_READ_BYTES, whole - len(self._held))

    def feed(self, piece: bytes) -> None:
        """Take in a piece; a length that no frame has is an ``InputError``, at once."""
        self._held += piece
        if self._length is None and len(self._held) >= _HEAD_BYTES:
            length = int.from_bytes(self._held[:_HEAD_BYTES], "big")
            if not 0 < length <= MAX_LETTER_BYTES:
                raise InputError(f"a frame of {length:,} bytes was announced; {MAX_LETTER_BYTES:,} is the most")
            self._length = length
            del self._held[:_HEAD_BYTES]

    def frame(self) -> bytes:
        """Return the whole frame; only when ``wanted`` is 0."""
        return bytes(self._held)
