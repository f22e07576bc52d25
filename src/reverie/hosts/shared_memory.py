"""One memory directory for Claude Code and Reverie: whether it is shared, and the memories that the host had before."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

from ..lazy import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Final

    from ..settings import Settings

SETTING: Final = "autoMemoryDirectory"
_MAX_BYTES: Final = 4 * 2**20
_UNSAFE: Final = pattern(r"[^a-zA-Z0-9]")


def is_shared(project: str, directory: str) -> bool:
    """Return whether the settings of Claude Code for a project, or else of its user, name this memory directory."""
    for path in (
        os.path.join(project, ".claude", "settings.local.json"),
        os.path.join(_user_folder(), "settings.json"),
    ):
        try:
            with open(path, "rb", opener=_open_plain) as stream:
                found: Any = json.loads(stream.read(_MAX_BYTES)).get(SETTING)
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(found, str):
            return os.path.realpath(os.path.expanduser(found)) == os.path.realpath(directory)
    return False


def adopt_memories(project: Path, settings: Settings) -> tuple[list[str], list[str]]:
    """Copy the memories that Claude Code had of a project to Reverie's directory.

    Return the names of the copied files, and of those that are too large, cannot be read or are no regular files. A
    file that is there already stays. The files of the host stay too.
    """
    from ..memories.store.names import is_memory
    from ..paths import replace_file
    from ..runtime.memory.memory import Memory

    memory = Memory.open(project, settings=settings)
    folder = os.path.join(_user_folder(), "projects", _UNSAFE.sub("-", str(project)), "memory")
    new = [name for name in sorted(os.listdir(folder)) if is_memory(name)] if os.path.isdir(folder) else []
    new = [name for name in new if not os.path.lexists(memory.path / name)]
    copied: list[str] = []
    try:
        for name in new:
            path = os.path.join(folder, name)
            data: bytes | None = None
            if not os.path.islink(path):
                with suppress(OSError), open(path, "rb", opener=_open_plain) as stream:
                    data = stream.read(_MAX_BYTES + 1)
            if data is not None and len(data) <= _MAX_BYTES:
                replace_file(str(memory.path), name, data)
                copied.append(name)
    finally:
        if copied:
            memory.reindex()
    return copied, [name for name in new if name not in copied]


def _open_plain(path: str, flags: int) -> int:
    """Open a regular file; a pipe in its place, as a repository may hold one, is an error and does not wait."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return descriptor


def _user_folder() -> str:
    return os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
