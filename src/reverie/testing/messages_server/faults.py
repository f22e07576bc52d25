"""Faults on demand: refusals, streams that break off, streams that wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

from ...values import record

T = TypeVar("T")

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@record
class InjectedFailure:
    """An error reply that a test asked for; with ``after_events``, a stream gets it after so many events."""

    status: int
    message: str
    retry_after: float | None = None
    after_events: int | None = None
    code: str = ""

    @property
    def kind(self) -> str:
        """The provider's name for the error type."""
        return KINDS.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")


class StreamGate:
    """A gate that holds a stream after the given number of events until the test calls ``open``."""

    def __init__(self, after_events: int) -> None:
        self.after_events = after_events
        self.reached = threading.Event()
        self._open = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether the stream may continue."""
        return self._open.is_set()

    def open(self) -> None:
        """Let the stream continue."""
        self._open.set()


class Faults:
    """The failures, broken connections and gates for the next requests; a deque may be used from several threads."""

    def __init__(self) -> None:
        self.failures: deque[InjectedFailure] = deque()
        self.cuts: deque[int] = deque()
        """The numbers of bytes of a body after which its connection breaks."""
        self.gates: deque[StreamGate] = deque()
        self.all_gates: list[StreamGate] = []
        """Every gate that was queued, so that all can be opened at the end."""


def first_of(queue: deque[T]) -> T | None:
    """Remove and return the first item of a queue; None where it is empty."""
    try:
        return queue.popleft()
    except IndexError:
        return None
