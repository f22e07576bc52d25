"""Storage in this process, with the behaviour of files, for tests and for sessions that need not be kept."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ..digests import hex_of
from ..errors import LogLost, SessionBusy, StorageConflict, StorageError, UnsafePath
from ..keys import check_key
from ..ports import Document, Stamp

_NEWLINE: Final = b"\n"


class InMemoryLease:
    """A lease on a name in an ``InMemoryStorage``, held until it is released."""

    def __init__(self, name: str, holder: str, leases: dict[str, InMemoryLease]) -> None:
        self.name = name
        self.holder = holder
        self._leases = leases

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        if self._leases.get(self.name) is self:
            del self._leases[self.name]


class InMemoryStorage:
    """A store of documents, logs and leases in this process's memory, for one process only."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._changes: dict[str, int] = {}
        self._change = 0
        self._folders: Counter[str] = Counter()
        self._leases: dict[str, InMemoryLease] = {}
        self._lock = threading.RLock()

    def read(self, key: str) -> Document | None:
        """Return the document, or None if it does not exist."""
        data = self.load(key)
        return None if data is None else Document(data, hex_of(data))

    def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes of a log or document, all or a part, or None if it does not exist."""
        check_key(key)
        with self._lock:
            data = self._files.get(key)
            if data is None:
                self._refuse_folder(key)
                return None
            return bytes(data[start:] if size < 0 else data[start : start + size])

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Create or replace the document and return its new version.

        Raise ``StorageConflict`` if the current version is not ``expect``, or if ``create`` is set and it exists.
        """
        with self._lock:
            found = self.read(key)
            if create and found is not None:
                raise StorageConflict(f"cannot write {key}: it exists already; read it again, then retry", path=key)
            if expect is not None and (found is None or found.version != expect):
                raise StorageConflict(
                    f"cannot write {key}: another writer changed it first; read it again, then retry", path=key
                )
            self._place(key)[:] = data
        return hex_of(data)

    def delete(self, key: str) -> bool:
        """Delete a document or log, and say whether it existed."""
        check_key(key)
        with self._lock:
            if self._files.pop(key, None) is None:
                self._refuse_folder(key)
                return False
            for folder in _folders_of(key):
                self._folders[folder] -= 1
            self._folders = +self._folders
            return True

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a folder prefix, sorted."""
        folder = prefix.rstrip("/")
        below = "/".join((*check_key(folder), "")) if folder else ""
        with self._lock:
            found = sorted(key for key in self._files if key.startswith(below))
        yield from found

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """Yield the stamps of the documents and logs under a folder prefix, sorted by key; changes are numbered."""
        for key in self.list(prefix):
            if (data := self._files.get(key)) is not None:
                yield Stamp(key, len(data), self._changes[key], id(data))

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        """Append one line, given without a newline, to a log; create the log if it does not exist.

        Raise ``LogLost`` if the size of the log in bytes is not ``expect``.
        """
        if _NEWLINE in line:
            raise ValueError("a log line must not contain a newline; append one line at a time")
        with self._lock:
            size = len(self._files.get(key, b""))
            if expect is not None and expect != size:
                raise LogLost(f"{key} has {size} bytes instead of {expect}", path=key)
            data = self._place(key)
            if data and not data.endswith(_NEWLINE):
                data += _NEWLINE
            data += line + _NEWLINE

    def lease(self, name: str, *, holder: str = "") -> InMemoryLease:
        """Take the lease on a name for ``holder``, or raise ``SessionBusy`` that names the present holder."""
        check_key(name)
        with self._lock:
            held = self._leases.get(name)
            if held is not None:
                raise SessionBusy(
                    f"{name} is in use by {held.holder}; close it there, or open it read-only", holder=held.holder
                )
            lease = InMemoryLease(name, holder or f"process {os.getpid()}", self._leases)
            self._leases[name] = lease
            return lease

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        check_key(name)
        held = self._leases.get(name)
        return None if held is None else held.holder

    def close(self) -> None:
        """Release every lease; the stored data stays as long as this object exists."""
        self._leases.clear()

    def _place(self, key: str) -> bytearray:
        """Return the key's bytes, adding a new key if needed; raise where a directory would forbid it."""
        if key not in self._files:
            check_key(key)
            self._refuse_folder(key)
            for folder in _folders_of(key):
                if folder in self._files:
                    raise StorageError(
                        f"cannot write {key}: {folder} is a file, not a directory; use another name", path=key
                    )
            self._folders.update(_folders_of(key))
            self._files[key] = bytearray()
        self._change += 1
        self._changes[key] = self._change
        return self._files[key]

    def _refuse_folder(self, key: str) -> None:
        if key in self._folders:
            raise UnsafePath(f"cannot use {key}: it is a directory; name a file", path=key)


def _folders_of(key: str) -> list[str]:
    parts = key.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]
