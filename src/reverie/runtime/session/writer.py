"""The one writer of a session's log: it holds the lease, appends entries and folds them into the view."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, cast

from ...conversation.decisions import Decision, body_of
from ...conversation.entries import DECISION, Entry, decode_entry, encode_entry, iso, new_uuid
from ...conversation.log import ParsedLog, parse_log
from ...conversation.view import View
from ...errors import SessionReadOnly, StorageError
from ...ports import Lease, Storage

__all__ = ["LogWriter", "holder_text"]


def holder_text(at: float) -> str:
    """Return the text that names this process in its lease: process id, host and the time ``at``."""
    return f"pid {os.getpid()} on {socket.gethostname()} since {iso(at)}"


class LogWriter:
    """An open log: the view of its entries, and the lease to append where it was taken."""

    def __init__(self, storage: Storage, key: str, session: str, *, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._lease: Lease | None = None
        self.key = key
        self.session = session
        self.clock = clock
        self.view = View()
        self.entries = 0
        # A cancelled caller does not stop the thread that appends for it, so the next append waits for that thread.
        self._appending = Lock()
        self.in_doubt = False
        """Whether an append failed, so that its line may or may not be in the log."""

    def open(self, *, write: bool = True) -> ParsedLog:
        """Take the lease if ``write``, read the log, fold it into the view, and return the parsed log."""
        if write:
            self._lease = self._storage.lease(self.key, holder=holder_text(self.clock()))
        try:
            return self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> ParsedLog:
        loaded = parse_log(self._storage.load(self.key) or b"")
        self.view = View().fold_all(loaded.entries)
        self.entries = len(loaded.entries)
        return loaded

    def refresh(self) -> None:
        """Read the log again and fold it into the view, to see entries that another process appended."""
        self._load()

    def close(self) -> None:
        """Release the lease, if it is held; later appends raise ``SessionReadOnly``."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Append one entry and return it, durable and in the view; raise ``SessionReadOnly`` without the lease."""
        if self._lease is None:
            raise SessionReadOnly(
                f"session {self.session} is open for reading only; open it with mode='write', or leave a command in "
                "its inbox with reverie.runtime.session.inbox.post"
            )
        with self._appending:
            self._settle()
            entry = Entry(new_uuid(), self.view.last, iso(self.clock()), self.session, kind, body)
            line = encode_entry(entry)
            try:
                self._storage.append(self.key, line)
            except StorageError:
                self.in_doubt = True
                raise
            if not _is_plain(body):
                entry = decode_entry(line)  # the view must hold the entry as the log has it
            self.view = self.view.fold(entry)
            self.entries += 1
            return entry

    def settle(self) -> None:
        """Read the log again if an append failed, because its line may have been written."""
        with self._appending:
            self._settle()

    def _settle(self) -> None:
        if self.in_doubt:
            self._load()
            self.in_doubt = False

    def decide(self, decisions: Sequence[Decision]) -> list[Entry]:
        """Append decisions in order and return their entries."""
        return [self.append(DECISION, body_of(decision)) for decision in decisions]


def _is_plain(value: Any) -> bool:
    """Return whether JSON keeps a value unchanged, so that the view may hold the object itself."""
    kind = cast(type[object], type(value))
    if kind is str:
        return value.isascii() or not _has_surrogate(value)
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in cast("dict[Any, Any]", value).items())
    if kind is list:
        return all(_is_plain(item) for item in cast("list[Any]", value))
    if kind is float:
        return value - value == 0
    return value is None or kind is int or kind is bool


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
