"""Context and memory for LLM agents.

The front door. Names load on first use; importing this package touches nothing and costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .conversation.entries import Entry
    from .conversation.request import build_request
    from .conversation.view import View
    from .errors import InputError, ReverieError, SessionBusy, SessionError, SessionNotFound, StorageError
    from .importers import read_session
    from .runtime.agent import Agent
    from .runtime.library import Library
    from .runtime.memory import Memory
    from .runtime.session import Session
    from .settings import Settings, load_settings
    from .storage.files import FileStorage
    from .storage.in_memory import InMemoryStorage

__all__ = [
    "Agent",
    "Entry",
    "FileStorage",
    "InMemoryStorage",
    "InputError",
    "Library",
    "Memory",
    "ReverieError",
    "Session",
    "SessionBusy",
    "SessionError",
    "SessionNotFound",
    "Settings",
    "StorageError",
    "View",
    "build_request",
    "load_settings",
    "read_session",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "Agent": "runtime.agent",
    "Entry": "conversation.entries",
    "FileStorage": "storage.files",
    "InMemoryStorage": "storage.in_memory",
    "InputError": "errors",
    "Library": "runtime.library",
    "Memory": "runtime.memory",
    "ReverieError": "errors",
    "Session": "runtime.session",
    "SessionBusy": "errors",
    "SessionError": "errors",
    "SessionNotFound": "errors",
    "Settings": "settings",
    "StorageError": "errors",
    "View": "conversation.view",
    "build_request": "conversation.request",
    "load_settings": "settings",
    "read_session": "importers",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'reverie' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
