"""Decode server-sent events from chunks of bytes of any size; an event counts once it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..errors import ModelError
from ..values import record

MAX_EVENT_BYTES: Final = 2**25
"""An event may have at most this many bytes: the largest carry a whole reply."""
_BOM = b"\xef\xbb\xbf"


@record
class ServerEvent:
    """One event: its name, empty where none was given, and its data."""

    name: str
    data: str


class EventDecoder:
    """A decoder that collects bytes and yields the events that they complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._bytes = 0
        self._name = ""
        self._data: list[str] = []
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete.

        Raise ``UnicodeDecodeError`` for bytes that are not UTF-8, and ``ModelError`` for an event that is too big.
        """
        self._bytes += len(chunk)
        waiting = self._rest
        waiting.append(chunk)
        # Bytes are joined once a line ends, and not at every chunk: that would cost the square of the line's length.
        ends = b"\n" in chunk or b"\r" in chunk or (len(waiting) > 1 and waiting[-2].endswith(b"\r"))
        lines = b"".join(waiting).splitlines(keepends=True) if ends else []
        if ends:
            # A carriage return at the end may be half of a line end, so it waits for the next chunk.
            self._rest = [lines.pop()] if lines and not lines[-1].endswith(b"\n") else []
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                yield event
        if self._bytes > MAX_EVENT_BYTES:
            raise ModelError(f"the stream sent an event of more than {MAX_EVENT_BYTES // 2**20} MB; it is not read")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self._bytes = "", [], sum(map(len, self._rest))
            return event
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
