"""Every error that Reverie raises on purpose.

ReverieError
├── InputError              the input cannot be used; the message says which input can
├── SettingsError           a settings file, environment variable or argument is wrong
├── SandboxUnavailable      the sandbox cannot confine a command on this machine, so the command does not run
├── StorageError            the store failed; ``path`` names the file
│   ├── StorageConflict     another writer changed the document first
│   ├── LogLost             a session's log was removed, replaced or cut while the session was open
│   ├── NewerVersion        a newer Reverie wrote the file, so this one only reads it
│   └── UnsafePath          the path leaves the store's root or is not a plain file
├── SessionError            the session cannot do this now
│   ├── SessionNotFound     no session has this name
│   ├── SessionBusy         another process holds the session's lease
│   ├── SessionReadOnly     the session was opened for reading only
│   ├── WindowFull          the next request does not fit the context window and nothing more can be removed
│   └── CompactionError     the compaction failed; the conversation is unchanged
└── ModelError              the model did not answer
    ├── ModelUnknown        no model has this name here; the message says how to get one
    ├── ModelUnauthorized   the provider rejected the API key
    ├── ModelRefused        the provider rejected the request; the same request will fail again
    │   ├── PromptTooLong   the prompt does not fit the context window
    │   ├── ThinkingRefused the provider refused a thinking block, because content before it has changed
    │   └── ImageRefused    the provider refused one image
    ├── ModelUnavailable    overloaded, rate limited or unreachable; a retry may succeed
    └── ReplyBroken         the reply stopped before its end and is discarded
"""

from __future__ import annotations

__all__ = [
    "CompactionError",
    "ImageRefused",
    "InputError",
    "LogLost",
    "ModelError",
    "ModelRefused",
    "ModelUnauthorized",
    "ModelUnavailable",
    "ModelUnknown",
    "NewerVersion",
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
    "ThinkingRefused",
    "UnsafePath",
    "WindowFull",
]


class ReverieError(Exception):
    """The root of every error that Reverie raises on purpose."""


class InputError(ReverieError):
    """The input cannot be used; the message says which input can."""


class SettingsError(ReverieError):
    """A settings file, environment variable or argument is wrong."""


class SandboxUnavailable(ReverieError):
    """The sandbox cannot confine a command on this machine, so the command does not run."""


class StorageError(ReverieError):
    """The store failed; ``path`` names the file and ``errno`` the operating system's error, if there was one."""

    def __init__(self, message: str, *, path: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.errno = errno


class StorageConflict(StorageError):
    """Another writer changed or created the document first."""


class LogLost(StorageError):
    """A session's log was removed, replaced or cut while the session was open.

    ``session`` is the new session with the conversation, empty if it could not be written; ``data`` has the bytes of
    the lost log if they could still be read.
    """

    def __init__(self, message: str, *, path: str, session: str = "", data: bytes | None = None) -> None:
        super().__init__(message, path=path)
        self.session = session
        self.data = data


class NewerVersion(StorageError):
    """A newer Reverie wrote the file, so this one only reads it."""


class UnsafePath(StorageError):
    """The path leaves the store's root or is not a plain file."""


class SessionError(ReverieError):
    """The session cannot do the requested action now."""


class SessionNotFound(SessionError):
    """No session has this name."""


class SessionBusy(SessionError):
    """Another process holds the session's lease; ``holder`` names it, if known."""

    def __init__(self, message: str, *, holder: str | None = None) -> None:
        super().__init__(message)
        self.holder = holder


class SessionReadOnly(SessionError):
    """The session was opened for reading only."""


class WindowFull(SessionError):
    """The next request does not fit the context window: its count ``tokens`` reached the threshold ``limit``."""

    def __init__(self, message: str, *, tokens: int, limit: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class CompactionError(SessionError):
    """The compaction failed after ``calls`` model calls; the conversation is unchanged."""

    def __init__(self, message: str, *, calls: int = 0) -> None:
        super().__init__(message)
        self.calls = calls


class ModelError(ReverieError):
    """The model did not answer; ``error_code`` is the provider's own code, empty if it named none."""

    error_code: str = ""


class ModelUnknown(ModelError):
    """No model has this name here."""


class ModelUnauthorized(ModelError):
    """The provider rejected the API key."""


class ModelRefused(ModelError):
    """The provider rejected the request; the same request will fail again."""


class PromptTooLong(ModelRefused):
    """The prompt does not fit the context window; the counts are None if the provider did not report them.

    ``limit`` is the longest prompt; ``window`` is the whole window, larger where the reply must fit too. With
    ``by_bytes`` the body has too many bytes, which says nothing about the window.
    """

    def __init__(
        self,
        message: str,
        *,
        tokens: int | None = None,
        limit: int | None = None,
        window: int | None = None,
        by_bytes: bool = False,
    ) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit
        self.window = limit if window is None else window
        self.by_bytes = by_bytes


class ThinkingRefused(ModelRefused):
    """The provider refused a thinking block, because content before it has changed; the indexes name the block."""

    def __init__(self, message: str, *, message_index: int, block_index: int) -> None:
        super().__init__(message)
        self.message_index = message_index
        self.block_index = block_index


class ImageRefused(ModelRefused):
    """The provider refused one image; ``part_index`` is its place inside a tool result, None outside of one."""

    def __init__(self, message: str, *, message_index: int, block_index: int, part_index: int | None = None) -> None:
        super().__init__(message)
        self.message_index = message_index
        self.block_index = block_index
        self.part_index = part_index


class ModelUnavailable(ModelError):
    """The provider is overloaded, rate limited or unreachable; ``retry_after`` is its advice in seconds, if any.

    With ``no_server`` nothing listens at its address.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, no_server: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.no_server = no_server


class ReplyBroken(ModelError):
    """The reply stopped before its end and is discarded."""
