"""Agents of one process: they reach each other through queues, each drained at its reader's next round boundary.

A queue lives as long as its process. An agent that outlives it, because its session can be resumed, has a mailbox too,
and what is written to it goes there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ...errors import InputError
from ...layers.l7_relay import Letter, check_name
from .mailbox import Mailbox

__all__ = ["LetterQueue", "Neighbours"]

MAX_WAITING: Final = 1_000


class LetterQueue:
    """Letters that wait for one agent of this process."""

    def __init__(self, name: str, mailbox: Mailbox | None, wake: Callable[[], None] | None) -> None:
        self.name = name
        self.mailbox = mailbox
        self._wake = wake
        self._letters: OrderedDict[str, Letter] = OrderedDict()
        self._sent = 0

    def put(self, letter: Letter) -> None:
        """Let a letter wait; the same id waits once."""
        if len(self._letters) >= MAX_WAITING:
            raise InputError(f"{self.name} has {MAX_WAITING:,} messages it has not read yet; write when it has")
        self._letters.setdefault(letter.id, letter)
        self.wake()

    def wake(self) -> None:
        """Tell the agent that there is something to read."""
        if self._wake is not None:
            self._wake()

    def next_number(self) -> int:
        """Return the number of the next letter that is put here."""
        self._sent += 1
        return self._sent

    def poll(self, limit: int) -> list[Letter]:
        """Return the letters that have waited longest, without taking them."""
        return list(self._letters.values())[:limit]

    def taken(self, letter: Letter) -> None:
        """Put a letter away; only after it is in its reader's log."""
        self._letters.pop(letter.id, None)


class Neighbours:
    """The agents of one process, by name."""

    def __init__(self) -> None:
        self._queues: dict[str, LetterQueue] = {}

    def join(self, name: str, *, mailbox: Mailbox | None = None, wake: Callable[[], None] | None = None) -> LetterQueue:
        """Let an agent be written to, and return the queue that it drains."""
        check_name(name)
        if name in self._queues:
            raise InputError(f"an agent called {name} runs in this process already; choose another name")
        queue = self._queues[name] = LetterQueue(name, mailbox, wake)
        return queue

    def leave(self, name: str) -> None:
        """Let an agent be written to no more; doing it twice is harmless."""
        self._queues.pop(name, None)

    def find(self, name: str) -> LetterQueue | None:
        """Return an agent's queue; None where no agent of this process has that name."""
        return self._queues.get(name)

    def names(self) -> list[str]:
        """Return who is here, in the order they came."""
        return list(self._queues)
