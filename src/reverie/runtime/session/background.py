"""Work behind a conversation: it begins after a reply and has ended, or is given up, when the session is closed."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from anyio.abc import TaskGroup

from .notes.keeper import Noting

__all__ = ["Behind"]


class Behind:
    """The tasks of one open session."""

    def __init__(self, noting: Noting) -> None:
        self._noting = noting
        self._stack: AsyncExitStack | None = None
        self._tasks: TaskGroup | None = None

    async def open(self) -> None:
        """Let notes be written beside the conversation, where a model writes them."""
        if self._noting.asks is None:
            return
        async with AsyncExitStack() as stack:
            self._tasks = self._noting.tasks = await stack.enter_async_context(anyio.create_task_group())
            self._stack = stack.pop_all()

    async def close(self, wait_seconds: float) -> None:
        """Wait so long for what still runs, then give it up."""
        stack, self._stack = self._stack, None
        if stack is None or self._tasks is None:
            return
        self._noting.tasks = None
        with anyio.CancelScope(shield=True):
            await self._noting.wait(wait_seconds)
        self._tasks.cancel_scope.cancel()
        await stack.aclose()
