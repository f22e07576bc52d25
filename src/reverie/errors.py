"""Everything Reverie raises on purpose.

ReverieError
├── InputError              what was given cannot be used; the message says what would be
├── SettingsError           a settings file, variable or argument is wrong
├── StorageError            the store could not do it; ``path`` names where
│   ├── StorageConflict     somebody else changed the document first
│   └── UnsafePath          a name that would leave the store's root
└── SessionError            the session cannot do that now
    ├── SessionNotFound     no session answers to that name
    ├── SessionBusy         another process holds the session's lease
    └── SessionReadOnly     opened for reading; nothing can be appended
"""

from __future__ import annotations

__all__ = [
    "InputError",
    "ReverieError",
    "SessionBusy",
    "SessionError",
    "SessionNotFound",
    "SessionReadOnly",
    "SettingsError",
    "StorageConflict",
    "StorageError",
    "UnsafePath",
]


class ReverieError(Exception):
    """The root of everything raised on purpose."""


class InputError(ReverieError):
    """What was given cannot be used."""


class SettingsError(ReverieError):
    """A settings file, variable or argument is wrong."""


class StorageError(ReverieError):
    """The store could not do what was asked."""

    def __init__(self, message: str, *, path: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.errno = errno


class StorageConflict(StorageError):
    """The document is not in the version the caller expected."""


class UnsafePath(StorageError):
    """A name that would leave the store's root, or is not a plain file there."""


class SessionError(ReverieError):
    """The session cannot do that now."""


class SessionNotFound(SessionError):
    """No session answers to that name."""


class SessionBusy(SessionError):
    """Another process holds the session's lease."""

    def __init__(self, message: str, *, holder: str | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class SessionReadOnly(SessionError):
    """The session was opened for reading."""
