"""Interrupt a running query from outside, with one cancel scope per step; leave a step that does not end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

from anyio import CancelScope, move_on_after, sleep
from anyio.abc import TaskGroup

from ...events import Event, InboxDrained
from ..session.session import Session

T = TypeVar("T")

GRACE_SECONDS: Final = 1.5
"""How long a cancelled tool may take to clean up before the query goes on without it."""
_INBOX_SECONDS: Final = 1.0
_running: Final = set["asyncio.Task[Any]"]()
"""The tasks that run or were left; asyncio itself would let them be collected."""


class QueryInterrupted(Exception):
    """Raised when the user stopped the query; the runtime catches it itself."""


class Interrupt:
    """Cancels the step that a running query is waiting for.

    A query is an async generator, and a cancel scope must not stay open while a generator is suspended. Each step
    that may take long therefore runs in a scope of its own.
    """

    def __init__(self) -> None:
        self.requests = 0
        """How often an interrupt was requested so far."""
        self._earlier = 0
        self._scope: CancelScope | None = None

    @property
    def is_requested(self) -> bool:
        """Whether an interrupt was requested since the query was asked for."""
        return self.requests > self._earlier

    def request(self) -> None:
        """Cancel the guarded step that runs now and every later one of the query."""
        self.requests += 1
        if self._scope is not None:
            self._scope.cancel()

    def on_event(self, event: Event) -> None:
        """Request an interrupt if a command in the session's inbox asked for it before a request."""
        if isinstance(event, InboxDrained) and event.stop:
            self.request()

    def begin(self, earlier: int) -> None:
        """Begin a query that was asked for after this many requests; only later ones stop it."""
        self._earlier = earlier

    async def guard(self, step: Awaitable[T]) -> T:
        """Await a step and return its result; on an interrupt request cancel it and raise ``QueryInterrupted``."""
        with CancelScope() as scope:
            self._scope = scope
            if self.is_requested:
                scope.cancel()
            try:
                return await step
            finally:
                self._scope = None
        raise QueryInterrupted


@asynccontextmanager
async def heeding_stops(session: Session, tasks: TaskGroup, interrupt: Interrupt) -> AsyncGenerator[None]:
    """Interrupt the query inside this block when another process asks for that, also while a tool takes long.

    Requests from before the block meant an earlier query.
    """
    await session.parts.inbox.take_stops(session.log)
    scope = CancelScope()

    async def watch() -> None:
        with scope:
            while True:
                await sleep(_INBOX_SECONDS)
                if await session.parts.inbox.take_stops(session.log):
                    interrupt.request()

    tasks.start_soon(watch)
    try:
        yield
    finally:
        scope.cancel()


async def left_on_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Await work; if this is cancelled, cancel the work, wait a moment for its end, and leave it running after that.

    A tool that waits for a thread, or that ignores its cancellation, cannot hold up the interruption of a query.
    """
    scope = CancelScope()

    async def scoped() -> T | None:
        with scope:
            return await work
        return None

    task = asyncio.ensure_future(scoped())
    _running.add(task)
    task.add_done_callback(_forget)
    try:
        await asyncio.wait([task])
    except BaseException:
        scope.cancel()
        with move_on_after(GRACE_SECONDS, shield=True):
            await asyncio.wait([task])
        raise
    return cast(T, task.result())  # only a cancelled scope returns None


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # asyncio reports an error that is never retrieved
