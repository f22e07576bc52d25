"""Background tasks of an open session: they start beside the conversation and end, or are cancelled, when it closes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from ...events import FellBack
from .compact.background import BackgroundCompaction
from .host import SessionHost
from .notes.keeper import NotesKeeper
from .patience import LEFT


class BackgroundTasks:
    """Runs the updates of a session's notes and its compactions beside the conversation."""

    def __init__(self, notes: NotesKeeper, compaction: BackgroundCompaction, session: SessionHost) -> None:
        self._session = session
        self._notes = notes
        self._compaction = compaction
        self._stack: AsyncExitStack | None = None
        self._tasks: TaskGroup | None = None

    async def open(self) -> None:
        """Start a task group; do nothing if no model writes notes and summaries."""
        if self._notes.forks is None:
            return
        async with AsyncExitStack() as stack:
            self._tasks = self._notes.tasks = await stack.enter_async_context(anyio.create_task_group())
            self._compaction.tasks = self._tasks
            self._stack = stack.pop_all()

    async def close(self, wait_seconds: float) -> None:
        """Wait at most ``wait_seconds`` for running tasks, so that paid work is logged; cancel the rest."""
        stack, self._stack = self._stack, None
        if stack is None or self._tasks is None:
            return
        self._notes.tasks = self._compaction.tasks = None
        with anyio.CancelScope(shield=True):
            is_noted = await self._session.patience.wait(self._notes.wait, wait_seconds)
            is_compacted = await self._session.patience.wait(self._compaction.wait, wait_seconds)
            for is_done, task in ((is_noted, "notes"), (is_compacted, "compaction")):
                if not is_done and wait_seconds:
                    self._session.emit(FellBack(self._session.name, task, LEFT))
        self._tasks.cancel_scope.cancel()
        await stack.aclose()
