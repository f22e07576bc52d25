"""Recall in a session: search memories while the model works, and show the result once per turn.

A shown memory is an item of standing context: it counts against the limit of a session while the view shows it, and can
be recalled again after it left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread
from anyio.abc import TaskGroup

from ...conversation.decisions import MemoriesSurfaced
from ...conversation.view import View
from ...errors import ReverieError
from ...events import FellBack
from ...memories.recall.policy import RecallPolicy
from ...memories.recall.presentation import shown_memories
from ...memories.recall.selection import surfaced
from ...memories.store.store import utc_now
from ...ports import Model
from ...values import record
from ..search.vectors import settings_embedder
from .queries import MemoryQueries
from .search import MemorySearch
from .standing_memories import RecalledMemories, recalled_rows

if TYPE_CHECKING:
    from ..session.host import SessionHost

_TAG_BYTES: Final = 8
_LEAST_BYTES: Final = 1_000
"""In less room than this no memory can be shown, with its fence and a note about the cut."""


@record
class SurfacedMemories:
    """The files of recalled memories that the view shows, and the size of their texts in bytes."""

    files: frozenset[str] = frozenset()
    bytes: int = 0


def surfaced_in(view: View) -> SurfacedMemories:
    """Return the recalled memories that the view shows; those that a cut removed or only named are none of them."""
    fallen = view.facts.fallen
    shown = {
        file: row.item.text
        for file, row in recalled_rows(view).items()
        if row.item.state == "said" and row.item.key not in fallen
    }
    return SurfacedMemories(frozenset(shown), sum(len(text.encode("utf-8", "replace")) for text in shown.values()))


class SessionRecall:
    """Searches memories for one session in the background, and shows each found memory once."""

    def __init__(
        self,
        session: SessionHost,
        memories: MemorySearch | str | os.PathLike[str],
        model: Model | None = None,
        *,
        tasks: TaskGroup | None = None,
        policy: RecallPolicy | None = None,
        clock: Callable[[], datetime] = utc_now,
        spent: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        """Recall for a session from a directory, or with a search over it.

        ``spent`` receives each reply of the small model, to record its cost.
        """
        self._session = session
        if not isinstance(memories, MemorySearch):
            memories = MemorySearch(memories, embedder=settings_embedder(session.policy.settings))
        self._search = memories
        self._policy = policy or RecallPolicy()
        self._clock = clock
        self._queries = MemoryQueries(
            session,
            self._search,
            model,
            policy=self._policy,
            clock=clock,
            shown=lambda: surfaced_in(session.log.view).files,
            spent=spent,
            fell_back=self._fell_back,
        )
        self._queries.tasks = tasks
        self._is_full = False
        self.source = RecalledMemories(self._search.read, policy=self._policy, clock=clock)
        """The source of standing context for the memories that were recalled in this session."""

    @property
    def allowed(self) -> bool:
        """Whether the settings allow recall."""
        switches = self._session.policy.settings.switches
        return switches.recall and switches.memory

    def open_client(self) -> None:
        """Open the client of the small model in the background, if recall is on."""
        if self.allowed:
            self._queries.open_client()

    def start(self, query: str) -> None:
        """Start to search memories for a query; an earlier search goes on only if its choice was late.

        Without a task group, ``take`` runs the search. Nothing happens if recall is off or the query is empty.
        """
        room = self._policy.session_bytes - surfaced_in(self._session.log.view).bytes
        self._is_full = self.allowed and room < _LEAST_BYTES
        if self.allowed and not self._is_full:
            self._queries.start(query)
        else:
            self._queries.cancel()

    def cancel(self) -> None:
        """Cancel and drop searches whose result was not taken, for example when the turn is cancelled."""
        self._queries.cancel()

    async def take(self) -> MemoriesSurfaced | None:
        """Return the found memories once, as a decision to log; None without any, or while the search is running.

        The result of a search that is late can be taken in a later turn, or with the next prompt if it still helps.
        """
        if self._is_full:
            self._is_full = False
            self._fell_back(f"nothing is recalled until memories leave the view: {self._limit_words()} is used up")
        found = await self._queries.take() if self.allowed else None
        if found is None:
            return None
        memories, by = found
        before, policy = surfaced_in(self._session.log.view), self._policy
        fresh = [memory for memory in memories if memory.file not in before.files]
        tag, used = os.urandom(_TAG_BYTES).hex(), before.bytes
        shown = shown_memories(fresh, tag=tag, now=self._clock(), used_bytes=used, policy=policy)
        if shown.left_out:
            self._fell_back(f"{', '.join(shown.left_out)} left out: {self._limit_words()} has no room for it")
        return surfaced(shown, fresh, by=by)

    def _limit_words(self) -> str:
        return f"the limit of {self._policy.session_bytes:,} bytes for memories in view (recall.session_bytes)"

    async def surface(self) -> MemoriesSurfaced | None:
        """Take the found memories, log them so that the model sees them, and return the decision; None if none."""
        decision = await self.take()
        if decision is None:
            return None
        await self._session.log.decide(decision)
        try:
            await to_thread.run_sync(self._search.note_surfaced, decision.names, self._session.log.name)
        except ReverieError as error:
            self._fell_back(f"the memories were shown, but this could not be recorded in the journal: {error}")
        return decision

    def _fell_back(self, why: str) -> None:
        self._session.log.emit(FellBack(self._session.log.name, "recall", why))
