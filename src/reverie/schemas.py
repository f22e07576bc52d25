"""The versions of everything that Reverie writes, and the one answer to a file that a newer version wrote.

A version rises when an older Reverie would misread the file. A file without a version has version 1.
"""

from __future__ import annotations

from .errors import NewerVersion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

LOG: Final = 1
JOURNAL: Final = 1
LEDGER: Final = 1
LETTER: Final = 1
JOB: Final = 1
REPORT: Final = 1
INSTALLATION: Final = 1


def is_newer(found: Any, known: int) -> bool:
    """Return whether a version that was read is newer than the known one; anything but a number is not."""
    return isinstance(found, int) and not isinstance(found, bool) and found > known


def newer(thing: str, path: str, advice: str = "upgrade Reverie to change it") -> NewerVersion:
    """Return the error for a change of something that a newer Reverie wrote."""
    return NewerVersion(f"{thing} was written by a newer Reverie and is open for reading only; {advice}", path=path)
