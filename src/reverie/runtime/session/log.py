"""What a session and its log have in common: appending in order, deciding, and telling whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from anyio import Lock, to_thread

from ...conversation.decisions import Decision
from ...conversation.entries import Entry
from ...conversation.view import View
from ...events import DecisionMade, EntryAppended, Event, Listener
from .writer import LogWriter

__all__ = ["Logged"]

T = TypeVar("T")


class Logged:
    """Something that lives in a log: everything it does is an entry, and everything it shows is the view of them."""

    def __init__(self, name: str, writer: LogWriter, *, inline: bool) -> None:
        self.name = name
        self._writer = writer
        self._inline = inline
        self._lock = Lock(fast_acquire=True)
        self._listeners: list[Listener] = []
        self._registered: list[Decision] = []

    @property
    def view(self) -> View:
        """What the model would be shown now."""
        return self._writer.view

    def listen(self, listener: Listener) -> None:
        """Call this with every event from now on."""
        self._listeners.append(listener)

    def tell(self, event: Event) -> None:
        """Tell whoever listens something that happened around the session."""
        self._emit(event)

    async def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Log one entry; when this returns it is safe."""
        async with self._lock:
            entry = await self._run(lambda: self._writer.append(kind, body))
        self._emit(EntryAppended(self.name, entry.uuid, kind))
        return entry

    async def decide(self, decision: Decision) -> Entry:
        """Log one decision; when this returns it is safe and in the view."""
        async with self._lock:
            entry = (await self._run(lambda: self._writer.decide([decision])))[0]
        self._registered.append(decision)
        self._emit(DecisionMade(self.name, entry.uuid, decision))
        return entry

    async def _apply(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            await self.decide(decision)

    async def _run(self, act: Callable[[], T]) -> T:
        return act() if self._inline else await to_thread.run_sync(act)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            with suppress(Exception):
                listener(event)
