"""Everything Reverie raises on purpose.

ReverieError
├── InputError              what was given cannot be used; the message says what would be
├── SettingsError           a settings file, variable or argument is wrong
├── SandboxUnavailable      a command cannot be confined here, so it is not run
├── StorageError            the store could not do it; ``path`` names where
│   ├── StorageConflict     somebody else changed the document first
│   └── UnsafePath          a name that would leave the store's root
├── SessionError            the session cannot do that now
│   ├── SessionNotFound     no session answers to that name
│   ├── SessionBusy         another process holds the session's lease
│   ├── SessionReadOnly     opened for reading; nothing can be appended
│   ├── WindowFull          the next request would not fit and nothing more can be cut away
│   └── CompactionError     the past could not become a summary; nothing was changed
└── ModelError              a model did not answer
    ├── ModelUnknown        no model of that name can be had here; the message says how to get one
    ├── ModelUnauthorized   the provider does not know the key
    ├── ModelRefused        the provider refused the request as it stands; sending it again is no use
    │   └── PromptTooLong   the prompt does not fit the window
    ├── ModelUnavailable    overloaded, rate limited or out of reach; another try may work
    └── ReplyBroken         the reply stopped in the middle; nothing of it counts
"""

from __future__ import annotations

__all__ = [
    "CompactionError",
    "InputError",
    "ModelError",
    "ModelRefused",
    "ModelUnauthorized",
    "ModelUnavailable",
    "ModelUnknown",
    "PromptTooLong",
    "ReplyBroken",
    "ReverieError",
    "SandboxUnavailable",
    "SessionBusy",
    "SessionError",
    "SessionNotFound",
    "SessionReadOnly",
    "SettingsError",
    "StorageConflict",
    "StorageError",
    "UnsafePath",
    "WindowFull",
]


class ReverieError(Exception):
    """The root of everything raised on purpose."""


class InputError(ReverieError):
    """What was given cannot be used."""


class SettingsError(ReverieError):
    """A settings file, variable or argument is wrong."""


class SandboxUnavailable(ReverieError):
    """A command cannot be confined on this machine."""


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


class WindowFull(SessionError):
    """The next request would not fit the window; ``tokens`` is the count and ``limit`` the line it reached."""

    def __init__(self, message: str, *, tokens: int, limit: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class CompactionError(SessionError):
    """The past could not become a summary; nothing was changed. ``calls`` is how many model calls it took."""

    def __init__(self, message: str, *, calls: int = 0) -> None:
        super().__init__(message)
        self.calls = calls


class ModelError(ReverieError):
    """A model did not answer."""


class ModelUnknown(ModelError):
    """No model of that name can be had here."""


class ModelUnauthorized(ModelError):
    """The provider does not know the key."""


class ModelRefused(ModelError):
    """The provider refused the request as it stands."""


class PromptTooLong(ModelRefused):
    """The prompt does not fit the window; the counts are None where the provider did not say."""

    def __init__(self, message: str, *, tokens: int | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class ModelUnavailable(ModelError):
    """Overloaded, rate limited or out of reach; ``retry_after`` is in seconds where the provider said."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ReplyBroken(ModelError):
    """The reply stopped in the middle; nothing of it counts."""
