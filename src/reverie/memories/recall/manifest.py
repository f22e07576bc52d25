"""The manifest: one line per memory, newest first, from which a model chooses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..store.records import MemoryRecord
from .fence import escaped

MAX_FILES: Final = 200
_DESCRIPTION_CHARS: Final = 300


def manifest(memories: Iterable[MemoryRecord], *, max_files: int = MAX_FILES) -> list[MemoryRecord]:
    """Return the ``max_files`` last modified memories that are in use, newest first."""
    newest = sorted((one for one in memories if one.is_in_use), key=lambda memory: memory.file)
    newest.sort(key=lambda memory: memory.modified, reverse=True)
    return newest[:max_files]


def manifest_line(memory: MemoryRecord) -> str:
    """Return one line about a memory, without tags: type, file, time and description."""
    description = " ".join(escaped(memory.description or memory.name).split())
    if len(description) > _DESCRIPTION_CHARS:
        description = description[: _DESCRIPTION_CHARS - 1] + "…"
    when = memory.modified or "time unknown"
    return f"- [{_plain(memory.type or 'unknown')}] {_plain(memory.file)} ({_plain(when)}): {description}"


def manifest_text(memories: Iterable[MemoryRecord]) -> str:
    """Return one manifest line per memory, joined by newlines."""
    return "\n".join(map(manifest_line, memories))


def _plain(text: str) -> str:
    return " ".join(escaped(text).split())
