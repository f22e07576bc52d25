"""The state of a host's session between hooks: prompts, replies and shown memories, as lines of a file per session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

from ..lazy import pattern
from ..paths import append_line, explained, open_file, open_no_follow
from ..values import cast
from .events import HookEvent
from .queue import FOLDER, session_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_MAX_BYTES: Final = 4_000_000
_TAIL_BYTES: Final = 262_144
_TOKENS: Final = pattern(r'"tokens":\{"input":(\d{1,12})')
_KEPT_CHARS: Final = 20_000
"""The stored length of a prompt or reply."""


class MemoriesInView:
    """The memories that a host's model sees: files, size in bytes, whether the user got a message about the limit."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.bytes = 0
        self.told_limit = False


class SessionState:
    """The stored prompts, replies and shown memories of one session; every method may block."""

    def __init__(self, home: str | os.PathLike[str], event: HookEvent) -> None:
        self._home = os.fspath(home)
        self._name = _file(event.host, event.session)

    def add_prompt(self, words: str) -> None:
        """Append the words of a prompt, cut to a limit."""
        self._append({"user": words[:_KEPT_CHARS]})

    def add_reply(self, words: str) -> None:
        """Append the words of a reply, cut to a limit."""
        self._append({"assistant": words[:_KEPT_CHARS]})

    def add_shown(self, files: Sequence[str], size: int) -> None:
        """Append that the session was shown these memories, and how many bytes their text took."""
        self._append({"shown": list(files), "bytes": size})

    def defer_text(self, text: str) -> None:
        """Store a text for the next event at which the host takes one; it replaces a text stored before."""
        self._append({"later": text})

    def take_deferred_text(self) -> str:
        """Return the text that ``defer_text`` stored and clear it; an empty string if there is none."""
        text = ""
        for line in self._lines():
            later = line.get("later")
            text = later if isinstance(later, str) else text
        if text:
            self._append({"later": ""})
        return text

    def forget_shown(self) -> None:
        """Append that the host's model no longer sees the memories shown so far; nothing if none were shown."""
        shown = self.shown_memories()
        if shown.files or shown.told_limit:
            self._append({"forgotten": True})

    def add_limit_told(self) -> None:
        """Append that the user got a message about the limit that stops recall."""
        self._append({"limit_told": True})

    def add_index(self, digest: str) -> None:
        """Append that the session was shown the index with this digest."""
        self._append({"index": digest})

    def index_digest(self) -> str:
        """Return the digest of the index that the session was shown last; empty if it was shown none."""
        return next((str(line["index"]) for line in reversed(list(self._lines())) if "index" in line), "")

    def follow_window(self, transcript: str) -> None:
        """Forget the shown memories if Gemini CLI's last prompt shrank: that host does not report a compaction."""
        before = next((int(line["window"]) for line in reversed(list(self._lines())) if "window" in line), 0)
        now = _prompt_tokens(transcript)
        if 0 < now < before:
            self.forget_shown()
        if now not in (0, before):
            self._append({"window": now})

    def shown_memories(self) -> MemoriesInView:
        """Return the memories that were shown since the host's last compaction."""
        shown = MemoriesInView()
        for line in self._lines():
            if line.get("forgotten"):
                shown = MemoriesInView()
            shown.told_limit = shown.told_limit or bool(line.get("limit_told"))
            files = line.get("shown")
            if isinstance(files, list):
                shown.files.update(str(one) for one in cast("list[Any]", files))
                shown.bytes += int(line.get("bytes") or 0)
        return shown

    def _lines(self) -> Iterator[dict[str, Any]]:
        return _lines(self._home, self._name)

    def _append(self, body: dict[str, Any]) -> None:
        path = os.path.join(self._home, FOLDER, self._name)
        with explained("write", path):
            descriptor = open_file(self._home, f"{FOLDER}/{self._name}", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            append_line(descriptor, json.dumps(body).encode(), path=path, durable=False)
        finally:
            os.close(descriptor)


def overheard_messages(home: str | os.PathLike[str], host: str, session: str) -> list[tuple[str, str]]:
    """Return a list of the messages that hooks stored, each as a role, ``user`` or ``assistant``, and words."""
    found: list[tuple[str, str]] = []
    for line in _lines(home, _file(host, session)):
        for role in ("user", "assistant"):
            words = line.get(role)
            if isinstance(words, str) and words.strip():
                found.append((role, words))
    return found


def _prompt_tokens(chat: str) -> int:
    """Return the number of tokens of the last prompt in a chat of Gemini CLI; 0 if it is unknown."""
    try:
        with open(chat, "rb", opener=open_no_follow) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            found: list[str] = _TOKENS.findall(stream.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        return 0
    return int(found[-1]) if found else 0


def _file(host: str, session: str) -> str:
    return f"seen-{session_digest(host, session)}.jsonl"


def _lines(home: str | os.PathLike[str], name: str) -> Iterator[dict[str, Any]]:
    try:
        with open(os.path.join(home, FOLDER, name), "rb", opener=open_no_follow) as stream:
            data = stream.read(_MAX_BYTES)
    except OSError:
        return
    for line in data.splitlines():
        try:
            found: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield cast("dict[str, Any]", found)
