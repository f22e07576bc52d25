"""Letter queues between agents of one process; each agent drains its queue between two requests.

A queue lives as long as its process. An agent whose session can be resumed later has a mailbox too, and its letters
go there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ...errors import InputError
from ...layers.l7_relay import Letter, check_name
from .mailbox import Mailbox

MAX_WAITING: Final = 1_000


class LetterQueue:
    """The letters that wait for one agent of this process."""

    def __init__(self, name: str, mailbox: Mailbox | None, wake: Callable[[], None] | None) -> None:
        self.name = name
        self.mailbox = mailbox
        self._wake = wake
        self._letters: OrderedDict[str, Letter] = OrderedDict()
        self._sent = 0

    def put(self, letter: Letter) -> None:
        """Add a letter unless its id is there, and wake the agent; raise ``InputError`` if the queue is full."""
        if len(self._letters) >= MAX_WAITING:
            raise InputError(f"{self.name} has {MAX_WAITING:,} unread messages; write again when it has read some")
        self._letters.setdefault(letter.id, letter)
        self.wake()

    def wake(self) -> None:
        """Call the agent's wake function, if it has one."""
        if self._wake is not None:
            self._wake()

    def next_number(self) -> int:
        """Count and return the number for the next letter to this agent, from 1 on."""
        self._sent += 1
        return self._sent

    def poll(self, limit: int) -> list[Letter]:
        """Return at most ``limit`` letters that have waited longest, without removing them."""
        return list(self._letters.values())[:limit]

    def mark_read(self, letter: Letter) -> None:
        """Remove a letter; call this only after it is in its reader's log."""
        self._letters.pop(letter.id, None)


class LocalQueues:
    """The letter queues of the agents of one process, by name."""

    def __init__(self) -> None:
        self._queues: dict[str, LetterQueue] = {}

    def join(self, name: str, *, mailbox: Mailbox | None = None, wake: Callable[[], None] | None = None) -> LetterQueue:
        """Add an agent and return its new queue; raise ``InputError`` if the name is invalid or taken."""
        check_name(name)
        if name in self._queues:
            raise InputError(f"an agent named {name} runs in this process already; choose another name")
        queue = self._queues[name] = LetterQueue(name, mailbox, wake)
        return queue

    def leave(self, name: str) -> None:
        """Remove an agent with its queue; an unknown name is ignored."""
        self._queues.pop(name, None)

    def find(self, name: str) -> LetterQueue | None:
        """Return an agent's queue; None if no agent of this process has that name."""
        return self._queues.get(name)

    def names(self) -> list[str]:
        """Return the names of the agents in the order they joined."""
        return list(self._queues)
