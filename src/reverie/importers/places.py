"""The usual folders of recorded sessions, and the session files in a directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ..values import record

_ENDINGS: Final = (".jsonl", ".json", ".traj", ".jsonl.zst", ".ndjson", "opencode.db")

_HEAD_BYTES: Final = 262_144
_CWD: Final = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


@record
class SessionPlace:
    """A directory in which a program stores sessions, and the glob patterns of their files."""

    format: str
    root: Path
    patterns: tuple[str, ...]

    def sessions(self) -> Iterator[Path]:
        """Yield the session files in the directory, pattern by pattern and sorted by name."""
        for pattern in self.patterns:
            try:
                yield from sorted(path for path in self.root.glob(pattern) if path.is_file())
            except OSError:
                continue


def usual_places(home: Path, env: Mapping[str, str]) -> list[SessionPlace]:
    """Return the session folders of Claude Code and Codex for this user, whether or not they exist."""
    claude = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(env.get("CODEX_HOME") or home / ".codex")
    rollouts = tuple(
        f"{folder}/rollout-*{ending}"
        for folder in ("sessions/*/*/*", "archived_sessions")
        for ending in (".jsonl", ".jsonl.zst")
    )
    return [SessionPlace("claude-code", claude, ("projects/*/*.jsonl",)), SessionPlace("codex", codex, rollouts)]


def files_below(root: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield the files below a directory that end like a recording and pass ``wanted``, sorted by folder and name.

    Links to other directories are not followed.
    """
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = Path(folder) / name
            if name.lower().endswith(_ENDINGS) and wanted(path):
                yield path


def directory_of(session: Path) -> str:
    """Return the project's directory that a file beside the folder of a Gemini chat names; empty if there is none."""
    try:
        return (session.parent.parent / ".project_root").read_text("utf-8").strip()[:4096]
    except (OSError, ValueError):
        return ""


def project_of(session: Path) -> str:
    """Return the working directory that the start of a session file names, else the name of the file's folder."""
    try:
        with session.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return session.parent.name
    found = _CWD.search(head) if not session.name.endswith(".zst") else None
    try:
        return str(json.loads(found[1])) if found else session.parent.name
    except ValueError:
        return session.parent.name
