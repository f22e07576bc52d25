"""Recall in a session: search memories while the model works, and show the result once per turn.

The log records which memories were shown and their size; this module keeps no other state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import anyio
from anyio import CancelScope, to_thread
from anyio.abc import TaskGroup

from ...conversation.decisions import MemoriesSurfaced, decision_of
from ...conversation.entries import DECISION
from ...conversation.view import View
from ...errors import ReverieError
from ...events import FellBack
from ...memories.recall.selection import RecallContext, RecallPolicy, Selection, select, surfaced
from ...memories.store.records import MemoryRecord
from ...memories.store.store import utc_now
from ...model_facts import facts_of
from ...ports import Model, Reply
from ...values import record
from ..session.port import SessionPort
from .search import MemorySearch

__all__ = ["SessionRecall", "SurfacedMemories", "surfaced_in"]

_TAG_BYTES: Final = 8


@record
class SurfacedMemories:
    """The memory files a session was shown, and the size of their texts in bytes."""

    files: frozenset[str] = frozenset()
    bytes: int = 0


def surfaced_in(view: View) -> SurfacedMemories:
    """Return the memories the log records as shown, including those that were cut from the view since."""
    files: set[str] = set()
    size = 0
    for entry in view.history:
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, MemoriesSurfaced):
            files.update(decision.names)
            size += len(decision.text.encode("utf-8", "replace"))
    return SurfacedMemories(frozenset(files), size)


class _Prefetch:
    """One search for memories, waiting, running or finished."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.scope = CancelScope()
        self.done = anyio.Event()
        self.selection: Selection | None = None
        self.memories: list[MemoryRecord] = []


class SessionRecall:
    """Searches memories for one session in the background, and shows each found memory once."""

    def __init__(
        self,
        session: SessionPort,
        memory_dir: str | os.PathLike[str],
        model: Model | None = None,
        *,
        team: str | os.PathLike[str] | None = None,
        tasks: TaskGroup | None = None,
        policy: RecallPolicy | None = None,
        clock: Callable[[], datetime] = utc_now,
        spent: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        """Recall for a session; ``spent`` receives each reply of the small model, to record its cost."""
        self.tasks = tasks
        """The task group of background searches; without one, ``take`` runs the search."""
        self._session = session
        self._model = model
        self._search = MemorySearch(memory_dir, team=team)
        self._policy = policy or RecallPolicy()
        self._clock = clock
        self._spent = spent
        self._prefetch: _Prefetch | None = None
        self._busy = anyio.Lock()

    @property
    def allowed(self) -> bool:
        """Whether the settings allow recall."""
        switches = self._session.settings.switches
        return switches.recall and switches.memory

    def start(self, query: str) -> None:
        """Start to search memories for a query; cancel an earlier search whose result was not taken.

        Without a task group, ``take`` runs the search. Nothing happens if recall is off or the query is empty.
        """
        self.cancel()
        if not self.allowed or not query.strip():
            return
        self._prefetch = _Prefetch(query)
        if self.tasks is not None:
            self.tasks.start_soon(self._run, self._prefetch)

    def cancel(self) -> None:
        """Cancel and drop the search whose result was not taken, for example when the turn is cancelled."""
        prefetch, self._prefetch = self._prefetch, None
        if prefetch is not None:
            prefetch.scope.cancel()

    async def take(self) -> MemoriesSurfaced | None:
        """Return the found memories once, as a decision to log; None without any, or while the search is running.

        The result of a search that is late can be taken later in the turn.
        """
        prefetch = self._prefetch
        if prefetch is None or not self.allowed:
            return None
        if self.tasks is None:
            await self._run(prefetch)
        with anyio.move_on_after(self._policy.wait_seconds):
            await prefetch.done.wait()
        if not prefetch.done.is_set() or self._prefetch is not prefetch:
            return None
        self._prefetch = None
        return self._shown(prefetch)

    async def surface(self) -> MemoriesSurfaced | None:
        """Take the found memories, log them so that the model sees them, and return the decision; None if none."""
        decision = await self.take()
        if decision is None:
            return None
        await self._session.decide(decision)
        try:
            await to_thread.run_sync(self._search.note_surfaced, decision.names, self._session.name)
        except ReverieError as error:
            self._fell_back(f"the memories were shown, but this could not be recorded in the journal: {error}")
        return decision

    def _shown(self, prefetch: _Prefetch) -> MemoriesSurfaced | None:
        selection, before = prefetch.selection, surfaced_in(self._session.view)
        fresh = [memory for memory in prefetch.memories if memory.file not in before.files]
        if selection is None or not fresh:
            return None
        return surfaced(
            fresh,
            tag=os.urandom(_TAG_BYTES).hex(),
            now=self._clock(),
            by=selection.by,
            used_bytes=before.bytes,
            policy=self._policy,
        )

    async def _run(self, prefetch: _Prefetch) -> None:
        """Run a search and set its event in any case; a failure becomes an event, never an exception."""
        try:
            with prefetch.scope:
                async with self._busy:
                    await self._look(prefetch)
        except (ReverieError, OSError) as error:
            self._fell_back(f"nothing was recalled: {error}")
        finally:
            prefetch.done.set()

    async def _look(self, prefetch: _Prefetch) -> None:
        before = surfaced_in(self._session.view)
        if before.bytes >= self._policy.session_bytes:
            return
        await to_thread.run_sync(self._search.refresh)
        model = self._model
        selection = await select(
            prefetch.query,
            self._search.memories,
            self._search,
            model=model,
            context=RecallContext(before.files, self._session.view.tool_names(), self._clock()),
            policy=self._policy,
            complete=self._complete,
            facts=facts_of(model.model_id, self._session.settings.models) if model is not None else None,
        )
        if selection.fell_back:
            self._fell_back(selection.fell_back)
        found = (self._search.get(file) for file in selection.files)
        prefetch.memories = [memory for memory in found if memory is not None]
        prefetch.selection = selection

    async def _complete(self, model: Model, request: Mapping[str, Any]) -> Reply:
        with anyio.fail_after(self._policy.model_seconds):
            reply = await model.complete(request)
        if self._spent is not None:
            await self._spent(reply.body)
        return reply

    def _fell_back(self, why: str) -> None:
        self._session.emit(FellBack(self._session.name, "recall", why))
