"""The usual folders of recorded sessions, and the session files in a directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ..values import record

PLACES: Final = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "KIMI_CODE_HOME", "XDG_DATA_HOME")
"""The variables that move an agent's sessions."""
_ENDINGS: Final = (".jsonl", ".json", ".traj", ".jsonl.zst", ".ndjson", "opencode.db")

_HEAD_BYTES: Final = 262_144
_ASIDE: Final = frozenset({"snapshot", "tool-output", "repos", "log", "storage", "bin"})
_CWD: Final = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


@record
class SessionPlace:
    """A directory in which a program stores sessions, and how to tell their files.

    ``within`` names the folders that hold the files, if others lie beside them; ``without`` are folders without a
    session. ``history`` is a file with the prompts of all sessions.
    """

    format: str
    title: str
    root: Path
    folders: tuple[str, ...]
    endings: tuple[str, ...]
    within: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    history: str = ""
    prefix: str = ""

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path and the status of each session file, also of sub-agents; links are not followed."""
        for folder in self.folders:
            yield from self._below(os.path.join(self.root, folder), not self.within)

    def sessions(self) -> Iterator[Path]:
        """Yield the session files without those of sub-agents, sorted by name."""
        yield from sorted(Path(path) for path, _ in self.files() if "/subagents/" not in path)

    def _below(self, folder: str, wanted: bool) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError:
            return
        for entry in entries:
            name = entry.name
            if name.endswith(self.endings):
                if wanted and name.startswith(self.prefix) and entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False)
            elif name not in self.without and entry.is_dir(follow_symlinks=False):
                yield from self._below(entry.path, wanted or name in self.within)


def usual_places(home: Path, env: Mapping[str, str]) -> list[SessionPlace]:
    """Return the session folders of all known agents for this user, whether or not they exist."""
    claude = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(env.get("CODEX_HOME") or home / ".codex")
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    kimi = Path(env.get("KIMI_CODE_HOME") or home / ".kimi-code")
    lines, rollouts = (".jsonl",), (".jsonl", ".jsonl.zst")
    aside = frozenset({"tool-results", "memory"})
    return [
        SessionPlace(
            "claude-code", "Claude Code", claude, ("projects",), lines, without=aside, history="history.jsonl"
        ),
        SessionPlace(
            "codex",
            "Codex",
            codex,
            ("sessions", "archived_sessions"),
            rollouts,
            history="history.jsonl",
            prefix="rollout-",
        ),
        SessionPlace("gemini", "Gemini CLI", home / ".gemini", ("tmp",), (".jsonl", ".json"), within=("chats",)),
        SessionPlace("qwen", "Qwen Code", home / ".qwen", ("projects",), lines, within=("chats", "subagents")),
        SessionPlace("opencode", "opencode", data / "opencode", ("",), ("opencode.db",), without=_ASIDE),
        SessionPlace("copilot", "Copilot CLI", home / ".copilot", ("session-state",), ("events.jsonl",)),
        SessionPlace("kimi", "Kimi Code", kimi, ("sessions",), ("wire.jsonl",)),
        SessionPlace("pi", "pi", home / ".pi" / "agent", ("sessions",), lines),
    ]


def files_below(root: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield the files below a directory that end like a recording and pass ``wanted``, sorted; follow no links."""
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
