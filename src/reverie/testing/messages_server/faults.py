"""Faults on demand: refusals, streams that break off, streams that wait."""

from __future__ import annotations

import threading
from collections import deque

from ...values import record

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


@record
class ConnectionCut:
    """A reply whose connection breaks after the given number of bytes of its body."""

    after_bytes: int


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
    """The queues of failures, broken connections and gates for the next requests, each first in, first out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: deque[InjectedFailure] = deque()
        self._cuts: deque[ConnectionCut] = deque()
        self._gates: deque[StreamGate] = deque()
        self._all_gates: list[StreamGate] = []

    def add_failures(self, failure: InjectedFailure, times: int) -> None:
        """Queue a failure for the next ``times`` requests."""
        with self._lock:
            self._failures.extend([failure] * times)

    def add_cuts(self, cut: ConnectionCut, times: int) -> None:
        """Queue a broken connection for the next ``times`` replies."""
        with self._lock:
            self._cuts.extend([cut] * times)

    def add_gate(self, gate: StreamGate) -> None:
        """Queue a gate for the next stream."""
        with self._lock:
            self._gates.append(gate)
            self._all_gates.append(gate)

    def next_failure(self) -> InjectedFailure | None:
        """Remove and return the next failure; None where the queue is empty."""
        with self._lock:
            return self._failures.popleft() if self._failures else None

    def next_cut(self) -> ConnectionCut | None:
        """Remove and return the next broken connection; None where the queue is empty."""
        with self._lock:
            return self._cuts.popleft() if self._cuts else None

    def next_gate(self) -> StreamGate | None:
        """Remove and return the next gate; None where the queue is empty."""
        with self._lock:
            return self._gates.popleft() if self._gates else None

    def open_all(self) -> None:
        """Open every gate that was queued, so that all held and later streams continue."""
        with self._lock:
            for gate in self._all_gates:
                gate.open()
