"""How a dream is going, for whoever wants to see it: a file that grows line by line, and the events that tell the same.

The file is a display, not state: what cannot be written to it is left out, and a dream whose process is gone before its
last line was killed, whatever the last line says.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
from anyio import to_thread

from ...errors import StorageError
from ...events import DreamChanged
from ...memories.rules.secrets import find_secrets
from ...memories.store.journal_files import JOURNAL, read_plain
from ...paths import open_file, replace_file
from ...values import field, record
from ..places.processes import ProcessIdentity, is_alive, own_identity

__all__ = ["FOLDER", "Progress", "Running", "State", "followed", "read_progress"]

State: TypeAlias = Literal["starting", "updating", "completed", "failed", "killed"]

FOLDER: Final = f"{JOURNAL}/dreams"
"""Where a memory directory keeps its dreams: the one that runs, and the reports of the last ones."""
FILE: Final = f"{FOLDER}/running.jsonl"
_TURNS: Final = 30
_TEXT_CHARS: Final = 2_000
_POLL_SECONDS: Final = 0.1
_ENDS: Final = frozenset({"completed", "failed", "killed"})


@record
class Running:
    """A dream as far as its progress tells: the one that runs, or the last one that did."""

    dream: str
    pid: int
    began: float
    state: State
    text: str = ""
    tools: int = 0
    paths: list[str] = field(default_factory=lambda: [])
    turns: list[str] = field(default_factory=lambda: [])
    """What was said in the last 30 turns."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in _ENDS


class Progress:
    """Tells of one dream."""

    def __init__(
        self,
        root: str,
        dream: str,
        *,
        began: float,
        session: str = "",
        tell: Callable[[DreamChanged], None] | None = None,
        written: bool = True,
    ) -> None:
        """Tell of a dream over a directory; with ``written`` also to the file."""
        self.state: State = "starting"
        self.paths: list[str] = []
        self.tools = 0
        self._text = ""
        self._root = root
        self._dream = dream
        self._session = session
        self._tell = tell
        self._written = written
        who = own_identity()
        head = {
            "dream": dream,
            "pid": who.pid,
            "started": who.started,
            "boot": who.boot,
            "space": who.space,
            "began": began,
        }
        if written:
            with suppress(StorageError):
                replace_file(root, FILE, json.dumps(head).encode() + b"\n")
        self._say("")

    def said(self, text: str) -> None:
        """Tell what was said in a turn."""
        plain = " ".join(text.split())[:_TEXT_CHARS]
        self._text = plain if not find_secrets(plain) else "(left out: it looks like it holds a secret)"
        self._say(self._text, turn=True)

    def did(self, tool: str, paths: list[str], *, tools: int) -> None:
        """Tell that a tool was used; the first write makes it updating."""
        self.tools, self.paths = tools, paths
        if paths and self.state == "starting":
            self.state = "updating"
        self._say(self._text)

    def change(self, state: State, text: str = "") -> None:
        """Tell that it moved on, or ended."""
        self.state = state
        self._say(text or self._text)

    def _say(self, text: str, *, turn: bool = False) -> None:
        line = {"state": self.state, "text": text, "tools": self.tools, "paths": self.paths, "turn": turn}
        if self._written:
            with suppress(OSError, StorageError):
                self._append(json.dumps(line).encode() + b"\n")
        if self._tell is not None:
            self._tell(DreamChanged(self._session, self._dream, self.state, text, self.tools, list(self.paths)))

    def _append(self, line: bytes) -> None:
        descriptor = open_file(self._root, FILE, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def read_progress(root: str) -> Running | None:
    """Return how the last dream over a directory is going or went; None where none was told of."""
    data = None
    with suppress(StorageError):
        data = read_plain(root, FILE)
    return _running(data) if data else None


def _running(data: bytes) -> Running | None:
    head, *lines = data.split(b"\n")
    try:
        said = cast("dict[str, Any]", json.loads(head))
        who = ProcessIdentity(int(said["pid"]), str(said["started"]), str(said["boot"]), str(said["space"]))
        dream, began = str(said["dream"]), float(said["began"])
    except (ValueError, KeyError, TypeError):
        return None
    last: dict[str, Any] = {"state": "starting", "text": "", "tools": 0, "paths": []}
    turns: list[str] = []
    for line in lines:
        with suppress(ValueError, TypeError):
            found: Any = json.loads(line)
            if isinstance(found, dict) and "state" in found:
                last = cast("dict[str, Any]", found)
                turns += [str(last.get("text", ""))] if last.get("turn") else []
    state = cast(State, str(last["state"]))
    if state not in _ENDS and is_alive(who) is False:
        state = "killed"
    paths = [str(path) for path in cast("list[Any]", last.get("paths") or [])]
    return Running(
        dream, who.pid, began, state, str(last.get("text", "")), int(last.get("tools", 0)), paths, turns[-_TURNS:]
    )


async def followed(root: str, *, session: str = "") -> AsyncIterator[DreamChanged]:
    """Yield every change of the dream that runs, until it ends; its end too where its process is gone."""
    told: Running | None = None
    while True:
        now = await to_thread.run_sync(read_progress, root)
        if now is not None and now != told:
            yield DreamChanged(session, now.dream, now.state, now.text, now.tools, now.paths)
        if now is None or now.is_over:
            return
        told = now
        await anyio.sleep(_POLL_SECONDS)
