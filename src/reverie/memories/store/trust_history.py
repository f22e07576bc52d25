"""The trust of each version of a file according to the journal, regardless of the file's own claim.

A file can claim any trust, and a program that writes it directly could claim the user's. So a claim counts only in a
version that the store wrote. A version from outside has agent trust at best, and no more than the version before it: a
person's editor and a program cannot be distinguished by their files.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

from .trust import worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, NamedTuple, Protocol

    from .trust import Trust

    class TrustedChange(Protocol):
        """The fields of a journaled change that trust depends on."""

        @property
        def file(self) -> str:
            """The path of the file beneath the memory directory."""
            ...

        @property
        def after(self) -> str | None:
            """The hash of the new version; None if the file was removed."""
            ...

        @property
        def trust(self) -> Trust | None:
            """The trust of the new version; None in old journals and for removals."""
            ...

    class FileTrust(NamedTuple):
        """The last journaled version of a file, and its trust."""

        version: str | None
        trust: Trust
        outside: bool
        """Whether that version was written outside the store."""

else:
    FileTrust = namedtuple("FileTrust", "version trust outside")  # hooks do without typing, which loads slowly

__all__ = ["OUTSIDE_ACTS", "FileTrust", "TrustHistory"]

OUTSIDE_ACTS: Final = frozenset({"found", "outside"})
_new_tuple: Final = tuple["Any", ...].__new__  # the own constructor takes twice the time, and a journal holds thousands


class TrustHistory:
    """The last version and trust of every file in a journal."""

    def __init__(self) -> None:
        self._files: dict[str, FileTrust] = {}

    def add(self, act: str, changes: Iterable[TrustedChange]) -> None:
        """Add the changes of the journal's next entry, whose kind is ``act``."""
        outside = act in OUTSIDE_ACTS
        for change in changes:
            if (after := change.after) is not None:
                trust = change.trust or ("agent" if outside else "user")
                self._files[change.file] = _new_tuple(FileTrust, (after, trust, outside))
            elif outside and (before := self._files.get(change.file)):
                # Removing a file and putting it back must not raise its trust.
                self._files[change.file] = FileTrust(None, before.trust, True)
            else:
                self._files.pop(change.file, None)

    def get(self, file: str) -> FileTrust | None:
        """Return the last journaled version and trust of a file; None if it has none."""
        return self._files.get(file)

    def trust(self, file: str, version: str, claimed: Trust) -> Trust:
        """Return the trust of a version (hash) of a file that claims this trust, by claim and journal."""
        known = self._files.get(file)
        if known is None:
            return worst((claimed, "agent"))
        own: tuple[Trust, ...] = () if known.version == version else ("agent",)
        return worst((claimed, known.trust, *own))

    def is_outside(self, file: str, version: str) -> bool:
        """Say whether this version (hash) of a file was written outside the store or is unknown to the journal."""
        known = self._files.get(file)
        return known is None or known.outside or known.version != version
