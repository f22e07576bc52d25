"""Searches for memories beside the conversation: one for each prompt, and the one of the prompt before if it is late.

A choice that arrives too late for its prompt is taken in a later turn of its query, or with the next prompt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import CancelScope, to_thread
from anyio.abc import TaskGroup

from ...errors import ReverieError
from ...memories.recall.local_choice import local_choice
from ...memories.recall.policy import RecallPolicy
from ...memories.recall.selection import RecallContext, Selection, select
from ...memories.recall.terms import terms
from ...memories.store.records import MemoryRecord
from ...model_facts import facts_of
from ...ports import Connectable, Model, Reply
from .search import MemorySearch

if TYPE_CHECKING:
    from ..session.host import SessionHost

_FOLLOW_UP_TERMS: Final = 3
"""A prompt with fewer terms names no subject of its own, so it continues the one before."""

FoundMemories = tuple[list[MemoryRecord], str]
"""Memories and their chooser: ``model`` or ``search``."""


class _Query:
    """One search for memories, waiting, running or finished."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.scope = CancelScope()
        self.asked = anyio.Event()
        """Set when the chooser begins: the client of a model is open."""
        self.done = anyio.Event()
        self.is_late = False
        self.is_answered = False
        """Whether local search answered while the choice of the model was late."""
        self.selection: Selection | None = None
        self.memories: list[MemoryRecord] = []


class MemoryQueries:
    """Searches memories for the prompts of one session, in the background if it has a task group."""

    def __init__(
        self,
        session: SessionHost,
        search: MemorySearch,
        model: Model | None,
        *,
        policy: RecallPolicy,
        clock: Callable[[], datetime],
        shown: Callable[[], frozenset[str]],
        spent: Callable[[Mapping[str, Any]], Awaitable[None]] | None,
        fell_back: Callable[[str], None],
    ) -> None:
        """Search with a small model or locally; ``shown`` returns the files that the model sees already."""
        self.tasks: TaskGroup | None = None
        self._session, self._search, self._model = session, search, model
        self._policy, self._clock, self._shown = policy, clock, shown
        self._spent, self._fell_back = spent, fell_back
        self._prompt = ""
        self._query: _Query | None = None
        self._late: _Query | None = None
        self._search_lock = anyio.Lock()

    def open_client(self) -> None:
        """Open the client of the small model in the background, so that the first prompt need not wait for it."""
        if self.tasks is not None and isinstance(self._model, Connectable):
            self.tasks.start_soon(self._connect)

    def start(self, prompt: str) -> None:
        """Start a search; a search of the prompt before goes on if its choice was late, else it is cancelled."""
        before, self._query = self._query, None
        if before is not None and before.is_late:
            _cancel(self._late)
            self._late = before
        else:
            _cancel(before)
        self._prompt = prompt
        if not prompt.strip():
            return
        self._query = _Query(prompt)
        if self.tasks is not None:
            self.tasks.start_soon(self._run, self._query)

    def cancel(self) -> None:
        """Cancel all searches and drop their results."""
        _cancel(self._query)
        _cancel(self._late)
        self._query = self._late = None

    async def take(self) -> FoundMemories | None:
        """Return the memories of the finished searches once; None if there are none.

        The first call for a prompt waits a moment for the choice, from when the client of the model is open. If it is
        late, local search answers meanwhile, and the choice comes later.
        """
        query = self._query
        local: list[MemoryRecord] = []
        if query is not None:
            await self._wait(query)
            local = await self._meanwhile(query)
        taken: list[_Query] = []
        if query is not None and query.done.is_set() and self._query is query:
            self._query = None
            taken.append(query)
        late = self._late
        if late is not None and late.done.is_set():
            self._late = None
            late.memories = await self._still_useful(late.memories)
            taken.append(late)
        memories = {memory.file: memory for some in [*(one.memories for one in taken), local] for memory in some}
        choosers = [one.selection.by for one in taken if one.selection is not None and one.memories]
        choosers += ["search"] if local else []
        return (list(memories.values()), choosers[0]) if memories else None

    async def _wait(self, query: _Query) -> None:
        if self.tasks is None:
            await self._run(query)
        if query.is_late:
            return  # the turns of a query do not wait for the same choice again
        with anyio.move_on_after(self._policy.model_seconds):
            await query.asked.wait()
        with anyio.move_on_after(self._policy.wait_seconds):
            await query.done.wait()
        query.is_late = not query.done.is_set()

    async def _meanwhile(self, query: _Query) -> list[MemoryRecord]:
        """Return the memories that local search finds, once, while the choice of the model is late."""
        if query.done.is_set() or query.is_answered:
            return []
        query.is_answered = True
        search = self._search
        async with self._search_lock:
            files = local_choice(query.prompt, search.memories, search, context=self._context(), policy=self._policy)
        return [memory for file in files if (memory := search.get(file)) is not None]

    def _context(self) -> RecallContext:
        return RecallContext(self._shown(), self._session.log.view.tool_names(), self._clock())

    async def _still_useful(self, memories: list[MemoryRecord]) -> list[MemoryRecord]:
        """Return the memories that share a word with the newest prompt, all of them if it names no subject."""
        if len(set(terms(self._prompt))) < _FOLLOW_UP_TERMS:
            return memories
        async with self._search_lock:
            matches = self._search.search(self._prompt, limit=len(self._search.memories))
        matching = {match.file for match in matches}
        return [memory for memory in memories if memory.file in matching]

    async def _run(self, query: _Query) -> None:
        """Run a search and set its events in any case; a failure becomes an event, never an exception."""
        try:
            with query.scope:
                async with self._search_lock:
                    problem = await to_thread.run_sync(self._search.prepare, query.prompt)
                if problem:
                    self._fell_back(problem)
                if self._model is not None:
                    await self._connect()
                query.asked.set()
                async with self._search_lock:
                    await self._choose(query)
        except (ReverieError, OSError) as error:
            self._fell_back(f"nothing was recalled: {error}")
        finally:
            query.asked.set()
            query.done.set()

    async def _choose(self, query: _Query) -> None:
        model = self._model
        selection = await select(
            query.prompt,
            self._search.memories,
            self._search,
            model=model,
            context=self._context(),
            policy=self._policy,
            complete=self._complete,
            facts=facts_of(model.model_id, self._session.policy.settings.models) if model is not None else None,
        )
        if selection.fell_back:
            self._fell_back(selection.fell_back)
        found = (self._search.get(file) for file in selection.files)
        query.memories = [memory for memory in found if memory is not None]
        query.selection = selection

    async def _complete(self, model: Model, request: Mapping[str, Any]) -> Reply:
        """Ask the model; the search is free for another prompt meanwhile."""
        self._search_lock.release()
        try:
            await self._session.log.sync()
            with anyio.fail_after(self._policy.model_seconds):
                reply = await model.complete(request)
        finally:
            with CancelScope(shield=True):
                await self._search_lock.acquire()
        if self._spent is not None:
            await self._spent(reply.body)
        return reply

    async def _connect(self) -> None:
        if isinstance(self._model, Connectable):
            with suppress(ReverieError):  # the request fails with the same reason, and search replaces it
                await self._model.connect()


def _cancel(query: _Query | None) -> None:
    if query is not None:
        query.scope.cancel()
