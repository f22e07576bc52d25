"""The session's activity, gathered once for notes and compaction."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from ....conversation.view import View
from ....layers.l3_notes import Activity

T = TypeVar("T")


class SessionActivity:
    """The activity gathered from a session's growing view; a lock makes threads read it one after another."""

    def __init__(self) -> None:
        self._gathered = Activity()
        self._lock = Lock()

    def read(self, view: View, act: Callable[[Activity], T]) -> T:
        """Return ``act`` of the requests, files, commands and errors up to this view; wait for other threads' reads."""
        with self._lock:
            return act(self._gathered.follow(view))
