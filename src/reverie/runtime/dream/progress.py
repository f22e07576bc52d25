"""The progress of a dream: a file that grows line by line, and the same changes as events.

The file is only for display: a line that cannot be written is left out, and a dream whose process ended without a final
line counts as killed.
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
from ...memories.store.journal_files import JOURNAL
from ...memories.store.side_files import read_plain
from ...paths import open_file, replace_file
from ...values import field, record, replace
from .lock import DreamLock

State: TypeAlias = Literal["starting", "updating", "completed", "failed", "killed"]

FOLDER: Final = f"{JOURNAL}/dreams"
"""The folder of a memory directory with the progress of the running dream and the reports of the last dreams."""
FILE: Final = f"{FOLDER}/running.jsonl"
_TURNS: Final = 30
_TEXT_CHARS: Final = 2_000
_POLL_SECONDS: Final = 0.1
_ENDS: Final = frozenset({"completed", "failed", "killed"})


@record
class DreamProgress:
    """The progress of the running dream, or of the last one."""

    dream: str
    pid: int
    began: float
    state: State
    text: str = ""
    tools: int = 0
    paths: list[str] = field(default_factory=lambda: [])
    turns: list[str] = field(default_factory=lambda: [])
    """The model's text in the last 30 turns."""

    @property
    def is_over(self) -> bool:
        """Whether the dream has ended."""
        return self.state in _ENDS


class ProgressWriter:
    """Writes the progress of one dream to its file and sends it as events to a listener."""

    def __init__(
        self,
        root: str,
        dream: str,
        *,
        began: float,
        listener: Callable[[DreamChanged], None] | None = None,
        to_file: bool = True,
    ) -> None:
        """Report a dream over the directory ``root``; ``to_file`` also writes its progress file."""
        self.state: State = "starting"
        self.paths: list[str] = []
        self.tools = 0
        self._text = ""
        self._root = root
        self._dream = dream
        self._listener = listener
        self._to_file = to_file
        if to_file:
            head = {"dream": dream, "pid": os.getpid(), "began": began}
            with suppress(StorageError):
                replace_file(root, FILE, json.dumps(head).encode() + b"\n")
        self._write("")

    def on_text(self, text: str) -> None:
        """Report the model's text in a turn, shortened; a text that may contain a secret is left out."""
        plain = " ".join(text.split())[:_TEXT_CHARS]
        self._text = plain if not find_secrets(plain) else "(left out: it may contain a secret)"
        self._write(self._text, turn=True)

    def on_tool(self, tool: str, paths: list[str], *, tools: int) -> None:
        """Report a tool call and the files written so far; the first file changes the state to updating."""
        self.tools, self.paths = tools, paths
        if paths and self.state == "starting":
            self.state = "updating"
        self._write(self._text)

    def change(self, state: State, text: str = "", paths: list[str] | None = None) -> None:
        """Report a new state of the dream, with ``text`` or else the model's last text, and the files it changed."""
        self.state, self.paths = state, self.paths if paths is None else paths
        self._write(text or self._text)

    def _write(self, text: str, *, turn: bool = False) -> None:
        line = {"state": self.state, "text": text, "tools": self.tools, "paths": self.paths, "turn": turn}
        if self._to_file:
            with suppress(OSError, StorageError):
                self._append(json.dumps(line).encode() + b"\n")
        if self._listener is not None:
            self._listener(DreamChanged("", self._dream, self.state, text, self.tools, list(self.paths)))

    def _append(self, line: bytes) -> None:
        descriptor = open_file(self._root, FILE, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def read_progress(root: str) -> DreamProgress | None:
    """Return the progress of the running or last dream over a directory; None if there is none.

    A dream that has not ended and whose process no longer holds the lock was killed.
    """
    found = None
    with suppress(StorageError):
        for _ in range(2):  # one that ends meanwhile writes its end before it frees the lock
            found = _parsed(read_plain(root, FILE) or b"")
            if found is None or found.is_over:
                return found
            holder = DreamLock(root).holder()
            if holder is not None and holder.pid == found.pid:
                return found
    return replace(found, state="killed") if found is not None else None


def _parsed(data: bytes) -> DreamProgress | None:
    head, *lines = data.split(b"\n")
    try:
        said = cast("dict[str, Any]", json.loads(head))
        dream, pid, began = str(said["dream"]), int(said["pid"]), float(said["began"])
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
    paths = [str(path) for path in cast("list[Any]", last.get("paths") or [])]
    state, text, tools = cast(State, str(last["state"])), str(last.get("text", "")), int(last.get("tools", 0))
    return DreamProgress(dream, pid, began, state, text, tools, paths, turns[-_TURNS:])


async def progress_events(root: str, *, session: str = "") -> AsyncIterator[DreamChanged]:
    """Yield the changes of the running dream until it ends; if none is running, the last dream's end, once.

    A dream whose process died counts as ended.
    """
    last: DreamProgress | None = None
    while True:
        now = await to_thread.run_sync(read_progress, root)
        if now is not None and now != last:
            yield DreamChanged(session, now.dream, now.state, now.text, now.tools, now.paths)
        if now is None or now.is_over:
            return
        last = now
        await anyio.sleep(_POLL_SECONDS)
