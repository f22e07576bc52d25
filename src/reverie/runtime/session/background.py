"""Background tasks of an open session: they start after a reply and end, or are cancelled, when it closes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from .notes.keeper import NotesKeeper

__all__ = ["BackgroundTasks"]


class BackgroundTasks:
    """Runs the updates of a session's notes beside the conversation."""

    def __init__(self, notes: NotesKeeper) -> None:
        self._notes = notes
        self._stack: AsyncExitStack | None = None
        self._tasks: TaskGroup | None = None

    async def open(self) -> None:
        """Start a task group for updates of the notes; do nothing if no model writes the notes."""
        if self._notes.forks is None:
            return
        async with AsyncExitStack() as stack:
            self._tasks = self._notes.tasks = await stack.enter_async_context(anyio.create_task_group())
            self._stack = stack.pop_all()

    async def close(self, wait_seconds: float) -> None:
        """Wait at most ``wait_seconds`` for an update of the notes, then cancel it and end the task group."""
        stack, self._stack = self._stack, None
        if stack is None or self._tasks is None:
            return
        self._notes.tasks = None
        with anyio.CancelScope(shield=True):
            await self._notes.wait(wait_seconds)
        self._tasks.cancel_scope.cancel()
        await stack.aclose()
