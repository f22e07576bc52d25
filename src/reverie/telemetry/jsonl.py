"""Write every event to a file as a line of JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import msgspec

from ..conversation.entries import clean, iso
from ..events import Event, event_body


class JsonLines:
    """A listener that appends every event to a file, one JSON object per line, its time first.

    A failed write never stops the session: ``lost`` counts the events that are not in the file, ``error`` is the
    reason for the last one, and the next event is tried again. Only its owner can read the file.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self.lost = 0
        self.error = ""
        self._clock = clock
        self._lock = Lock()
        self._file: int | None = None
        self._torn = False

    def __call__(self, event: Event) -> None:
        """Append one event to the file; count it as lost if that fails."""
        with self._lock:
            try:
                self._append(self._line(event))
            except Exception as error:
                self.lost += 1
                self.error = str(error) or type(error).__name__
                self._close_file()

    def close(self) -> None:
        """Close the file; a later event opens it again."""
        with self._lock:
            self._close_file()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _line(self, event: Event) -> bytes:
        line = {"time": iso(self._clock()), **event_body(event)}
        try:
            return msgspec.json.encode(line) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError):
            return msgspec.json.encode(clean(line)) + b"\n"

    def _append(self, line: bytes) -> None:
        if self._file is None:
            # Not blocking: a pipe without a reader must not stop the session.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(self.path, flags, 0o600)
        rest = b"\n" + line if self._torn else line
        while rest:
            written = os.write(self._file, rest)
            rest = rest[written:]
            # If the rest fails, the next event starts on its own line.
            self._torn = bool(rest)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                os.close(file)
            except OSError as error:
                self.error = str(error)
