"""The sockets: what the house needs from outside, few methods each.

Ports are synchronous and may block; the async runtime calls them from a worker thread where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .values import record

__all__ = ["Document", "Lease", "Storage"]


@record
class Document:
    """A stored document and the version to name when replacing it."""

    data: bytes
    version: str


class Lease(Protocol):
    """The right to be the only writer of something, until released or the process dies."""

    name: str

    def release(self) -> None:
        """Give the right back; doing it twice is harmless."""
        ...


class Storage(Protocol):
    """Where sessions rest: documents, append-only logs, leases, listing.

    Keys are relative POSIX paths such as ``projects/app-1a2b/abc.jsonl``.
    Every failure is a ``StorageError`` that names the path.
    """

    def read(self, key: str) -> Document | None:
        """Return the document, or None where there is none."""
        ...

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Replace the document atomically and durably and return its new version.

        With ``expect``, only if it still has that version; with ``create``, only if there is none.
        Otherwise ``StorageConflict``.
        """
        ...

    def delete(self, key: str) -> bool:
        """Remove a document or log; say whether there was one."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that lie under a folder prefix, sorted."""
        ...

    def append(self, key: str, line: bytes) -> None:
        """Append one whole line (no newline inside, none at the end) and acknowledge only when it is safe."""
        ...

    def load(self, key: str) -> bytes | None:
        """Return every byte of a log, damage and all, or None where there is none."""
        ...

    def lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease or raise ``SessionBusy`` naming who holds it."""
        ...

    def holder(self, name: str) -> str | None:
        """Say who holds the lease, or None where it is free."""
        ...

    def close(self) -> None:
        """Flush and let go of everything."""
        ...
