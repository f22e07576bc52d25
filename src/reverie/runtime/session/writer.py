"""The one writer of a session's log: it holds the lease, appends, and folds what it appended."""

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
    """Say who this process is, for people who meet its lease."""
    return f"pid {os.getpid()} on {socket.gethostname()} since {iso(at)}"


class LogWriter:
    """A session's log, open: the view of all that is in it, and the right to append if it was taken."""

    def __init__(self, storage: Storage, key: str, session: str, *, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._lease: Lease | None = None
        self.key = key
        self.session = session
        self.clock = clock
        self.view = View()
        self.entries = 0
        # A caller that gives up waiting does not stop the thread that appends for it: the next append waits for that.
        self._appending = Lock()
        self._doubtful = False

    def open(self, *, write: bool = True) -> ParsedLog:
        """Take the lease if asked to, read the log and fold it."""
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
        """Read the log again; a read-only view does so to see what the writer has added."""
        self._load()

    def close(self) -> None:
        """Give the lease back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Append one entry; when this returns it is safe and in the view."""
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
                self._doubtful = True
                raise
            if not _is_plain(body):
                entry = decode_entry(line)  # the view holds what the log holds, not what could not be written
            self.view = self.view.fold(entry)
            self.entries += 1
            return entry

    def settle(self) -> None:
        """Read the log again if an append failed since: its line may be there all the same."""
        with self._appending:
            self._settle()

    def _settle(self) -> None:
        if self._doubtful:
            self._load()
            self._doubtful = False

    def decide(self, decisions: Sequence[Decision]) -> list[Entry]:
        """Append decisions, in order."""
        return [self.append(DECISION, body_of(decision)) for decision in decisions]


def _is_plain(value: Any) -> bool:
    """Say whether the value is exactly what its line says, so that the view may hold it as it came."""
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
