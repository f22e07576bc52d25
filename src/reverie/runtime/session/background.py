"""Background tasks of an open session: they start beside the conversation and end, or are cancelled, when it closes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType

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
            self._tasks = self._notes.tasks = await stack.enter_async_context(IndependentTaskGroup())
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
                    self._session.log.emit(FellBack(self._session.log.name, task, LEFT))
        self._tasks.cancel_scope.cancel()
        await stack.aclose()


class IndependentTaskGroup:
    """A task group in a task of its own: groups of one task must end in the reverse order of their begin."""

    def __init__(self) -> None:
        self._begun, self._ended = anyio.Event(), anyio.Event()
        self._group: TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TaskGroup:
        """Begin the group and return it."""
        self._task = asyncio.create_task(self._hold())
        try:
            await self._begun.wait()
        except BaseException:  # also a cancelled begin leaves no task behind
            self._ended.set()
            raise
        assert self._group is not None
        return self._group

    async def __aexit__(
        self, type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the tasks of the group, or cancel them after an error."""
        if error is not None and self._group is not None:
            self._group.cancel_scope.cancel()
        self._ended.set()
        if self._task is not None:
            await self._task

    async def _hold(self) -> None:
        async with anyio.create_task_group() as self._group:
            self._begun.set()
            await self._ended.wait()
