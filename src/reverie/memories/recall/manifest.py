"""The manifest: the newest memories, one line each, from which a model chooses what to recall."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..store.records import MemoryRecord
from .fence import escaped

__all__ = ["MAX_FILES", "manifest", "manifest_line", "manifest_text"]

MAX_FILES: Final = 200
_DESCRIPTION_CHARS: Final = 300


def manifest(memories: Iterable[MemoryRecord], *, max_files: int = MAX_FILES) -> list[MemoryRecord]:
    """Return the newest memories, the newest first."""
    newest = sorted(memories, key=lambda memory: memory.file)
    newest.sort(key=lambda memory: memory.modified, reverse=True)
    return newest[:max_files]


def manifest_line(memory: MemoryRecord) -> str:
    """Return the line of one memory: type, file, time, description; nothing in it can end the line or open a tag."""
    description = " ".join(escaped(memory.description or memory.name).split())
    if len(description) > _DESCRIPTION_CHARS:
        description = description[: _DESCRIPTION_CHARS - 1] + "…"
    when = memory.modified or "time unknown"
    return f"- [{_plain(memory.type or 'unknown')}] {_plain(memory.file)} ({_plain(when)}): {description}"


def manifest_text(memories: Iterable[MemoryRecord]) -> str:
    """Return the lines of memories, one below the other."""
    return "\n".join(map(manifest_line, memories))


def _plain(text: str) -> str:
    return " ".join(escaped(text).split())
