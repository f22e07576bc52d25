"""What the journal vouches for: whose word each version of a file is, whatever the file says of itself.

A file can claim any trust, and whoever writes beside the store could claim the user's. So a claim counts only in a
version that the store wrote. A version that came from outside is an agent's word at best, and no better than the
version before it: neither a person's editor nor a program can be told apart by what it leaves behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

from .trust import Trust, worst

__all__ = ["OUTSIDE_ACTS", "FileTrust", "TrustHistory", "TrustedChange"]

OUTSIDE_ACTS: Final = frozenset({"found", "outside"})


class TrustedChange(Protocol):
    """A change, as far as it matters here."""

    @property
    def file(self) -> str:
        """The file's name."""
        ...

    @property
    def after(self) -> str | None:
        """The hash of the version it left; None where it left none."""
        ...

    @property
    def trust(self) -> Trust | None:
        """Whose word that version is; None in journals of old."""
        ...


class FileTrust(NamedTuple):
    """The last version of a file that the journal knows, and whose word it is."""

    version: str | None
    trust: Trust
    outside: bool
    """Whether somebody else than the store wrote it."""


_new_tuple: Final = tuple[Any, ...].__new__  # a journal holds thousands, and a tuple's own maker takes half the time


class TrustHistory:
    """The standing of every file in a journal."""

    def __init__(self) -> None:
        self._files: dict[str, FileTrust] = {}

    def add(self, act: str, changes: Iterable[TrustedChange]) -> None:
        """Take in the next transaction."""
        outside = act in OUTSIDE_ACTS
        for change in changes:
            if (after := change.after) is not None:
                trust = change.trust or ("agent" if outside else "user")
                self._files[change.file] = _new_tuple(FileTrust, (after, trust, outside))
            elif outside and (before := self._files.get(change.file)):
                # Taken away and put back is no way to be trusted more.
                self._files[change.file] = FileTrust(None, before.trust, True)
            else:
                self._files.pop(change.file, None)

    def get(self, file: str) -> FileTrust | None:
        """Return what is known of a file."""
        return self._files.get(file)

    def trust(self, file: str, version: str, claimed: Trust) -> Trust:
        """Return whose word a version of a file is that claims this much."""
        known = self._files.get(file)
        if known is None:
            return worst((claimed, "agent"))
        own: tuple[Trust, ...] = () if known.version == version else ("agent",)
        return worst((claimed, known.trust, *own))

    def is_outside(self, file: str, version: str) -> bool:
        """Say whether somebody else than the store wrote this version."""
        known = self._files.get(file)
        return known is None or known.outside or known.version != version
