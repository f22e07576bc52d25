"""The files that an agent's tools have read or written, as far as this process knows them."""

from __future__ import annotations

from ...conversation.file_reads import FileRead, FileReads
from ...digests import hex_of as version_of

__all__ = ["FileRead", "ReadState", "version_of"]


class ReadState:
    """The last read or write of each file; a session's log names the same ones, so that a resume continues here."""

    def __init__(self, known: FileReads | None = None) -> None:
        self.known = known or FileReads()

    def note(self, read: FileRead) -> None:
        """Remember a read or write of a file; join it with an earlier read of the same version."""
        self.known = self.known.after([read])

    def get(self, path: str) -> FileRead | None:
        """Return the last read or write of a file; None if there is none."""
        return self.known.get(path)

    def copy(self) -> ReadState:
        """Return an independent copy."""
        return ReadState(self.known)
