"""The answers that ``Agent.ask`` returns, one at a time, which a caller may leave; and the events of one agent."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

import anyio
from anyio import CancelScope, create_memory_object_stream, move_on_after
from anyio.streams.memory import MemoryObjectSendStream

from ...errors import SessionError
from ...events import Event, Listener
from .status import Meter

T = TypeVar("T")
_CLOSE_SECONDS: Final = 5.0


class Answer:
    """One call of ``Agent.ask``: its events, and the count of interrupts before it."""

    def __init__(self, interrupts: int) -> None:
        self.interrupts = interrupts
        self.events: Callable[[], AsyncGenerator[object, None] | None] = lambda: None
        """Returns the iterator, or None once its caller has dropped it."""
        self.ended: anyio.Event | None = None

    def follow(self, events: AsyncGenerator[object, None]) -> None:
        """Remember the iterator without keeping it alive."""
        self.events = weakref.ref(events)


class AnswerTurns:
    """Lets one answer run at a time; one whose caller left the loop ends before the next begins.

    Python closes a dropped iterator in another task, after the statement that dropped it.
    """

    def __init__(self) -> None:
        self._answer: Answer | None = None

    async def begin(self, answer: Answer) -> None:
        """Wait for the end of an answer that was left; raise ``SessionError`` while another one is being read."""
        while (earlier := self._answer) is not None and earlier.ended is not None:
            if earlier.events() is not None:
                raise SessionError(
                    "this agent is answering already: wait for QueryEnded, interrupt() it, or aclose() its iterator"
                )
            await earlier.ended.wait()
        answer.ended = anyio.Event()
        self._answer = answer

    def end(self, answer: Answer) -> None:
        """Let the next answer begin."""
        if self._answer is answer:
            self._answer = None
        if answer.ended is not None:
            answer.ended.set()

    async def close(self) -> None:
        """End an answer that its caller left before its last event, so that its log is complete."""
        answer = self._answer
        if answer is None or answer.ended is None:
            return
        events = answer.events()
        with move_on_after(_CLOSE_SECONDS, shield=True):
            if events is None:
                await answer.ended.wait()
                return
            with suppress(RuntimeError):  # another task is reading it
                await events.aclose()


async def in_own_task(source: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Iterate a generator in a task of its own and yield its items; leaving early cancels that task.

    A generator must not enter a cancel scope around a ``yield``: a caller that leaves its loop would be cancelled.
    """
    sender, receiver = create_memory_object_stream[T](0)
    task = asyncio.create_task(_send_all(source, sender))
    with receiver:
        try:
            async for item in receiver:
                yield item
        finally:
            if not task.done() and receiver.statistics().open_send_streams:
                task.cancel()
            with CancelScope(shield=True):
                await asyncio.wait([task])
    task.result()


async def _send_all(source: Callable[[], AsyncGenerator[T, None]], sender: MemoryObjectSendStream[T]) -> None:
    with sender:
        async with aclosing(source()) as items:
            async for item in items:
                await sender.send(item)


class EventFeed:
    """Passes each event to the meter and to every listener, and queues it while a query runs."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.listeners: list[Listener] = []
        self._queue: deque[Event] = deque()
        self.has_query = False
        """Whether a query runs, whose events are queued."""

    def emit(self, event: Event) -> None:
        """Count an event, queue it if a query runs, and call every listener; ignore exceptions of listeners."""
        self.meter.on_event(event)
        if self.has_query:
            self._queue.append(event)
        for listener in self.listeners:
            with suppress(Exception):
                listener(event)

    def start_queue(self) -> None:
        """Empty the queue and queue every event from now on."""
        self._queue.clear()
        self.has_query = True

    def stop_queue(self) -> None:
        """Queue no further events; those in the queue stay."""
        self.has_query = False

    def new_events(self) -> list[Event]:
        """Return the queued events as a list, oldest first, and empty the queue."""
        events = list(self._queue)
        self._queue.clear()
        return events
