"""The messages that a person typed in earlier sessions of a project, to find wishes that are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ....conversation.entries import USER, Entry, decode_entry
from ....errors import StorageError
from ....layers.l5_extract import Embed, PastSayings, sayings_of
from ....ports import Storage

_MOST_SESSIONS: Final = 50
_MOST_BYTES: Final = 64_000_000
_HEAD_BYTES: Final = 2_000
_ENDING: Final = ".jsonl"
_USER: Final = f'"kind":"{USER}"'.encode()


class PastSessions:
    """The newest sessions of a project, read once, when they are first needed."""

    def __init__(self, storage: Storage, project: str, *, without: str = "", embed: Embed | None = None) -> None:
        """Read the logs of a project except that of the session ``without``; ``embed`` compares by vectors too."""
        self._storage, self._project, self._without, self._embed = storage, project, without, embed
        self._past: PastSayings | None = None

    def sayings(self) -> PastSayings:
        """Return an index of the messages typed in these sessions; may block."""
        if self._past is None:
            past = PastSayings(embed=self._embed)
            for name in self._newest():
                past.add(sayings_of(name, self._messages(name)))
            self._past = past
        return self._past

    def _newest(self) -> list[str]:
        """Return the names of the sessions that began last, the oldest first."""
        folder = f"projects/{self._project}/"
        with suppress(StorageError):
            keys = (key.removeprefix(folder) for key in self._storage.list(folder))
            names = [key.removesuffix(_ENDING) for key in keys if key.endswith(_ENDING) and "/" not in key]
            others = [name for name in names if name != self._without]
            return sorted(others, key=self._start)[-_MOST_SESSIONS:]
        return []

    def _start(self, name: str) -> str:
        """Return the time in the first line of a log; empty if it is unknown."""
        head = self._load(name, _HEAD_BYTES).partition(b'"time":"')[2]
        return head.partition(b'"')[0].decode("utf-8", "replace")

    def _messages(self, name: str) -> Iterator[Entry]:
        """Yield the first entry of a log and its user messages; other lines are not parsed."""
        for number, line in enumerate(self._load(name, _MOST_BYTES).split(b"\n")):
            if number == 0 or _USER in line:
                with suppress(ValueError):
                    yield decode_entry(line)

    def _load(self, name: str, size: int) -> bytes:
        with suppress(StorageError):
            return self._storage.load(f"projects/{self._project}/{name}{_ENDING}", 0, size) or b""
        return b""
