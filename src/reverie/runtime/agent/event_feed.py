"""The events of one agent: counted, passed to listeners, and queued for the query that is running."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from ...events import Event, Listener
from .status import Meter


class EventFeed:
    """Passes each event to the meter and to every listener, and queues it while a query runs."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.listeners: list[Listener] = []
        self._queue: deque[Event] = deque()
        self._is_queueing = False

    def emit(self, event: Event) -> None:
        """Count an event, queue it if a query runs, and call every listener; ignore exceptions of listeners."""
        self.meter.on_event(event)
        if self._is_queueing:
            self._queue.append(event)
        for listener in self.listeners:
            with suppress(Exception):
                listener(event)

    def start_queue(self) -> None:
        """Empty the queue and queue every event from now on."""
        self._queue.clear()
        self._is_queueing = True

    def stop_queue(self) -> None:
        """Queue no further events; those in the queue stay."""
        self._is_queueing = False

    def new_events(self) -> list[Event]:
        """Return the queued events as a list, oldest first, and empty the queue."""
        events = list(self._queue)
        self._queue.clear()
        return events
