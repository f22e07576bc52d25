"""Frames on a mail socket: the length in four bytes, then the letter or the answer."""

from __future__ import annotations

from typing import Final

from ...errors import InputError
from ...layers.l7_relay import MAX_LETTER_BYTES

_HEAD_BYTES: Final = 4
_READ_BYTES: Final = 65_536


def frame_of(data: bytes) -> bytes:
    """Return data with its length in front; raise ``InputError`` if it is empty or too long."""
    if not 0 < len(data) <= MAX_LETTER_BYTES:
        raise InputError(f"a frame must have 1 to {MAX_LETTER_BYTES:,} bytes, not {len(data):,}")
    return len(data).to_bytes(_HEAD_BYTES, "big") + data


class FrameReader:
    """Assembles one frame from the pieces that arrive; it buffers only received bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._length: int | None = None

    @property
    def wanted(self) -> int:
        """The most bytes to read next without reading past the frame; 0 when the frame is complete."""
        whole = _HEAD_BYTES if self._length is None else self._length
        return min(_READ_BYTES, whole - len(self._held))

    def feed(self, piece: bytes) -> None:
        """Add a piece; raise ``InputError`` as soon as the announced length is invalid."""
        self._held += piece
        if self._length is None and len(self._held) >= _HEAD_BYTES:
            length = int.from_bytes(self._held[:_HEAD_BYTES], "big")
            if not 0 < length <= MAX_LETTER_BYTES:
                raise InputError(f"a frame of {length:,} bytes was announced; the limit is {MAX_LETTER_BYTES:,}")
            self._length = length
            del self._held[:_HEAD_BYTES]

    def frame(self) -> bytes:
        """Return the complete frame; call this only when ``wanted`` is 0."""
        return bytes(self._held)
