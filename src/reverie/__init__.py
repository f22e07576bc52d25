"""Context and memory for LLM agents: the public API.

Names are imported on first use, so importing this package is fast and has no side effects.
"""

from __future__ import annotations

from .lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .conversation.entries import Entry
    from .conversation.view import View
    from .conversation.wire.request import build_request
    from .errors import InputError, ReverieError, SessionBusy, SessionError, SessionNotFound, StorageError
    from .importers import read_session
    from .integrations.sync_session import SyncSession
    from .runtime.agent.agent import Agent
    from .runtime.library import Library
    from .runtime.mail.mailbox import Mailbox
    from .runtime.memory.memory import Memory
    from .runtime.memory.session import Session
    from .settings import Settings, load_settings
    from .storage.files import FileStorage
    from .storage.in_memory import InMemoryStorage
    from .tools.function_tool import tool

__all__ = [
    "Agent",
    "Entry",
    "FileStorage",
    "InMemoryStorage",
    "InputError",
    "Library",
    "Mailbox",
    "Memory",
    "ReverieError",
    "Session",
    "SessionBusy",
    "SessionError",
    "SessionNotFound",
    "Settings",
    "StorageError",
    "SyncSession",
    "View",
    "build_request",
    "load_settings",
    "read_session",
    "tool",
]

__version__ = "0.1.0"

__getattr__ = lazily(
    __name__,
    {
        "runtime.agent.agent": ("Agent",),
        "conversation.entries": ("Entry",),
        "storage.files": ("FileStorage",),
        "storage.in_memory": ("InMemoryStorage",),
        "errors": ("InputError", "ReverieError", "SessionBusy", "SessionError", "SessionNotFound", "StorageError"),
        "runtime.library": ("Library",),
        "runtime.mail.mailbox": ("Mailbox",),
        "runtime.memory.memory": ("Memory",),
        "runtime.memory.session": ("Session",),
        "settings": ("Settings", "load_settings"),
        "conversation.view": ("View",),
        "conversation.wire.request": ("build_request",),
        "importers": ("read_session",),
        "integrations.sync_session": ("SyncSession",),
        "tools.function_tool": ("tool",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
