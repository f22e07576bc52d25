"""Decode server-sent events from chunks of bytes of any size; an event counts once it is complete."""

from __future__ import annotations

from collections.abc import Iterator

from ..values import record

__all__ = ["EventDecoder", "ServerEvent"]

_BOM = b"\xef\xbb\xbf"


@record
class ServerEvent:
    """One event: its name, empty where none was given, and its data."""

    name: str
    data: str


class EventDecoder:
    """A decoder that collects bytes and yields the events that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete; raise ``UnicodeDecodeError`` for bytes that are not UTF-8."""
        lines = (self._rest + chunk).splitlines(keepends=True)
        # A carriage return at the end may be half of a line end, so it waits for the next chunk.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                yield event

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
