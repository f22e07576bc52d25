"""The one writer of a session's log: it holds the lease, appends entries and folds them into the view."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import Event, Lock, RLock
from typing import Any, Final, Literal, NoReturn, cast

from ...conversation.cuts import Item
from ...conversation.decisions import Decision, body_of
from ...conversation.entries import DECISION, META, USER, Entry, decode_entry, encode_entry, iso, new_uuid
from ...conversation.log import LoggedEntries, LogScan, ParsedLog, newer_entry
from ...conversation.view import View
from ...errors import LogLost, NewerVersion, SessionReadOnly, StorageConflict, StorageError
from ...ports import Lease, Storage
from ...schemas import LOG, newer
from ...storage.files import FileStorage
from ...values import replace

_MAX_NAMES: Final = 1_000
_FORK: Final = (
    "upgrade Reverie, or fork it: reverie export {0} --output fork.jsonl, then reverie import fork.jsonl "
    "copies its messages to a new session"
)
_NOT_WRITABLE: Final = {
    "": "is not open: enter it with 'async with Session.open(...)', or without asyncio 'with SyncSession.open(...)'",
    "read": "is open for reading only; open it with mode='write', or leave a message in its inbox with Session.post()",
    "write": "is closed: open it again",
}
"""Why a log without a lease cannot be written, by how it was opened."""


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
        self._logged = LoggedEntries(lambda _start, _size: b"")
        # A cancelled caller does not stop the thread that appends for it, so the next append waits for that thread.
        self._appending = Lock()
        self._gate = RLock()
        self.in_doubt = False
        """Whether an append failed, so that its line may or may not be in the log."""
        self.is_unsynced = False
        """Whether the log has lines that ``sync`` has to wait for."""
        self._size = 0
        self._is_torn = False
        self._lost: LogLost | None = None
        self._newer = ""
        self._access: Literal["", "read", "write"] = ""

    def open(
        self, take: Callable[[Entry, View], None] | None = None, *, write: bool = True, given_up: Event | None = None
    ) -> ParsedLog:
        """Take the lease if ``write``, read the log, fold it into the view, and return the parsed log.

        ``take`` is called with each entry and the view before it; the parsed log does not keep them in memory.

        A log that a newer Reverie wrote is only read. With ``given_up``, a caller that no longer waits lets go of the
        lease.
        """
        self._access = "write" if write else "read"
        if write:
            lease = self._storage.lease(self.key, holder=holder_text(self.clock()))
            with self._gate:
                self._lease = lease
                if given_up is not None and given_up.is_set():
                    self.close()
        try:
            loaded = self._load(take)
            if self._newer:
                self.close()
            return loaded
        except BaseException:
            self.close()
            raise

    def _load(self, take: Callable[[Entry, View], None] | None = None) -> ParsedLog:
        scan = LogScan(lambda start, size: self._storage.load(self.key, start, size) or b"")
        before, known = len(self._logged), self.view.last
        ids: list[str] = []
        self._newer = ""
        view = View(scan.entries)
        for number, (place, entry) in enumerate(scan, 1):
            if number == before:
                ids.append(entry.uuid)
            self._newer = self._newer or newer_entry(entry)
            if take is not None:
                take(entry, view)
            view = view.fold(entry, place)
        if before and ids != [known]:
            raise LogLost(f"{self.key} no longer has the entries that this session wrote", path=self.key)
        self.view, self._logged = view, scan.entries
        self._size, self._is_torn = scan.size, scan.is_torn
        return scan.parsed()

    def require_open(self) -> None:
        """Raise ``SessionReadOnly`` if the log was never opened."""
        if not self._access:
            raise SessionReadOnly(f"session {self.session} {_NOT_WRITABLE[self._access]}")

    @property
    def newer_version(self) -> NewerVersion | None:
        """The error of a write to a log that a newer Reverie wrote; None for every other log."""
        if not self._newer:
            return None
        return newer(f"session {self.session} ({self._newer})", self.key, _FORK.format(self.session))

    @property
    def entries(self) -> int:
        """The number of entries in the log."""
        return len(self._logged)

    def refresh(self) -> None:
        """Read the log again and fold it into the view, to see entries that another process appended."""
        self._load()

    def close(self) -> None:
        """Release the lease, if it is held; later appends raise ``SessionReadOnly``."""
        with self._appending, self._gate:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def append(self, kind: str, body: dict[str, Any], *, sync: bool = True) -> Entry:
        """Append one entry and return it, in the view and durable, unless ``sync`` leaves that to a later call.

        Raise ``SessionReadOnly`` without the lease, ``NewerVersion`` if a newer Reverie wrote the log.
        """
        with self._appending:
            if self._lease is None:
                raise self.newer_version or SessionReadOnly(f"session {self.session} {_NOT_WRITABLE[self._access]}")
            self._settle()
            if self._lost is not None:
                self._rescue(self._lost)
            entry = Entry(new_uuid(), self.view.last, iso(self.clock()), self.session, kind, body)
            line = encode_entry(entry)
            storage = self._storage
            later = storage.unsynced(self.key) if not sync and isinstance(storage, FileStorage) else None
            try:
                with later or nullcontext():
                    storage.append(self.key, line, expect=self._size)
            except LogLost as lost:
                self._rescue(lost)
            except StorageError:
                self.in_doubt = True
                raise
            place = self._size + self._is_torn
            self._size = place + len(line) + 1
            self._is_torn, self.is_unsynced = False, later is not None
            if not _is_plain(body):
                entry = decode_entry(line)  # the view must hold the entry as the log has it
            self._logged.places.append(place)
            self.view = self.view.fold(entry, place)
            return entry

    def flush(self) -> None:
        """Begin to make the entries durable, beside later appends; ``sync`` reports a failure."""
        if isinstance(self._storage, FileStorage):
            self._storage.flush(self.key)

    def sync(self) -> None:
        """Return when every entry is durable."""
        with self._appending:
            self._settle()
            if self.is_unsynced and isinstance(self._storage, FileStorage):
                try:
                    self._storage.sync(self.key, expect=self._size)
                except LogLost as lost:
                    self._rescue(lost)
                except StorageError:
                    self.in_doubt = True
                    raise
                self.is_unsynced = False

    def settle(self) -> None:
        """Read the log again if an append failed, because its line may have been written."""
        with self._appending:
            self._settle()

    def _settle(self) -> None:
        if self.in_doubt:
            try:
                self._load()
            except LogLost as lost:
                self._rescue(lost)
            self.in_doubt = False

    def _rescue(self, lost: LogLost) -> NoReturn:
        """Write the conversation to a new session, once, and raise ``LogLost`` that names it."""
        if not lost.session:
            lost = _rescued(self._storage, self.key, lost, self.view)
        self._lost = lost
        raise lost

    def decide(self, decisions: Sequence[Decision], *, sync: bool = True) -> list[Entry]:
        """Append decisions in order and return their entries."""
        return [self.append(DECISION, body_of(decision), sync=sync) for decision in decisions]


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


def _rescued(storage: Storage, key: str, lost: LogLost, view: View) -> LogLost:
    """Write a lost log's conversation to a new session and return the error that names it.

    The bytes of the lost file are copied if they could still be read. Otherwise the messages in memory are written,
    without the decisions about them.
    """
    folder, _, file = key.rpartition("/")
    name = file.removesuffix(".jsonl")
    data = lost.data if lost.data is not None else _messages(view)
    try:
        new = _store(storage, folder, name, data)
    except StorageError as error:
        why = f"{lost}; the conversation could not be written to a new session either: {error}"
        return LogLost(f"{why}; it is in memory, and the next message tries again", path=lost.path, data=lost.data)
    return LogLost(
        f"{lost} while the session was open, so nothing more is written to it; the conversation is in the new session "
        f"{new}: go on there (reverie chat --resume {new})",
        path=lost.path,
        session=new,
    )


def _store(storage: Storage, folder: str, name: str, data: bytes) -> str:
    """Write a log under a name that is free and return the name."""
    for number in range(1, _MAX_NAMES):
        new = f"{name}-rescued" if number == 1 else f"{name}-rescued-{number}"
        try:
            storage.write(f"{folder}/{new}.jsonl", data, create=True)
            return new
        except StorageConflict:
            continue
    raise StorageError(f"{folder} has too many rescued sessions of {name}; delete some", path=folder)


def _messages(view: View) -> bytes:
    """Return a log of all messages of a view, also of those that left it if they can still be read."""
    try:
        said = view.history
    except StorageError:
        said = [_message(item) for item in view.items_in_view()]
    session, time = (said[0].session, said[0].time) if said else ("", "")
    parent: str | None = new_uuid()
    body: dict[str, Any] = {"schema": LOG, "rescued": "messages"}
    lines = [encode_entry(Entry(parent, None, time, session, META, body))]
    for entry in said:
        lines.append(encode_entry(Entry(entry.uuid, parent, entry.time, entry.session, entry.kind, entry.body)))
        parent = entry.uuid
    return b"".join(line + b"\n" for line in lines)


def _message(item: Item) -> Entry:
    """Return an item in view as the entry of a message: a summary, too, whose log is gone."""
    if item.entry.kind != DECISION:
        return item.entry
    return replace(item.entry, uuid=item.uuid, kind=USER, body={"message": item.message})
