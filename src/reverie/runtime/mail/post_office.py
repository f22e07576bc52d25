"""Send an agent's messages: to a name, to all, to a socket or over a bridge, by the shortest way.

The sender's name is fixed at the start and set on every letter; a message cannot change it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from anyio import to_thread

from ...conversation.entries import new_uuid
from ...errors import InputError, ReverieError
from ...layers.l7_relay import (
    EVERYBODY,
    USER,
    Letter,
    ShutdownResponse,
    check_name,
    read_control,
    stamped_letter,
)
from .files import folders_of, socket_owner
from .local_queues import LetterQueue, LocalQueues
from .mailbox import Mailbox
from .sockets import deliver

MAX_CHARS: Final = 100_000
_SOCKET: Final = "uds"
_BRIDGE: Final = "bridge"
_AVOID_SECONDS: Final = 30.0


class Bridge(Protocol):
    """Carries letters to agents outside the mailboxes of this user."""

    async def carry(self, id: str, letter: Letter) -> str:
        """Deliver a letter to the agent with this id, return a sentence; raise ``InputError`` if the id is unknown."""
        ...


def check_length(message: str, max_chars: int) -> None:
    """Raise ``InputError`` if a message is too long."""
    if len(message) > max_chars:
        raise InputError(
            f"the message has {len(message):,} characters, the limit is {max_chars:,}; send the important "
            "part, or write the rest to a file and name the file"
        )


class PostOffice:
    """Sends the messages of one agent.

    ``mailbox`` signs the letters and reaches other processes; ``queues`` reach the agents of this process. An agent
    without a mailbox reaches only agents of this process.
    """

    def __init__(
        self,
        name: str,
        *,
        mailbox: Mailbox | None = None,
        queues: LocalQueues | None = None,
        bridge: Bridge | None = None,
        max_chars: int = MAX_CHARS,
        on_user: Callable[[Letter], None] | None = None,
        on_shutdown: Callable[[str], None] | None = None,
    ) -> None:
        """Send as ``name``; ``on_user`` shows a letter to the user.

        ``on_shutdown`` is called with the address of an agent whose request to end was approved.
        """
        if mailbox is not None and mailbox.agent != name:
            raise InputError(f"{name} cannot send from the mailbox of {mailbox.agent}")
        self.name = check_name(name)
        self._mailbox = mailbox
        self._queues = queues or LocalQueues()
        self._bridge = bridge
        self._max_chars = max_chars
        self._on_user = on_user
        self._on_shutdown = on_shutdown
        self._avoided: dict[tuple[str, ...], float] = {}

    async def send(self, to: str, message: str, *, summary: str = "", control: Mapping[str, Any] | None = None) -> str:
        """Deliver a message and return a sentence about it; raise ``InputError`` if it cannot be addressed.

        ``to`` is a name, ``user``, ``*`` for all agents, ``uds:<path>`` or ``bridge:<id>``. A message that is too long
        is refused too.
        """
        check_length(message, self._max_chars)
        content = _Content(message, summary, control)
        said = await self._delivered_to(to, content)
        answer = read_control(control) if control is not None else None
        if self._on_shutdown is None or not isinstance(answer, ShutdownResponse) or not answer.approve:
            return said
        self._on_shutdown(to)
        return f"{said} You end now, as you approved."

    async def _delivered_to(self, to: str, content: _Content) -> str:
        """Deliver a message to an address, and return a sentence about it."""
        kind, colon, rest = to.partition(":")
        if to == EVERYBODY:
            return await self._to_all(content)
        if to == USER and self._on_user is not None:
            return await self._to_user(content, self._on_user)
        if colon and kind == _SOCKET:
            return await self._to_socket(rest, content)
        if colon and kind == _BRIDGE:
            return await self._over_bridge(rest, content)
        if colon:
            raise InputError(f"{to[:80]!a} is not an address: use a name, 'user', '*', 'uds:<path>' or 'bridge:<id>'")
        there = await self.others()
        if to not in there:
            raise InputError(f"there is no agent named {to[:80]!a}; there are: {', '.join(there) or 'none'}")
        return await self._to_name(to, content)

    async def others(self) -> list[str]:
        """Return the names of all reachable agents: those of this process, then the others of the team."""
        far = await to_thread.run_sync(self._mailbox.others) if self._mailbox is not None else []
        return [name for name in dict.fromkeys([*self._queues.names(), *far]) if name != self.name]

    async def _to_all(self, content: _Content) -> str:
        there = await self.others()
        if not there:
            raise InputError("there is no other agent to write to")
        failed: dict[str, ReverieError] = {}
        for name in there:
            try:
                await self._to_name(name, content)
            except ReverieError as error:
                failed[name] = error
        if len(failed) == len(there):
            raise next(iter(failed.values()))
        sent = ", ".join(name for name in there if name not in failed)
        return f"Sent to {sent}." + "".join(f" Not to {name}: {error}." for name, error in failed.items())

    async def _to_user(self, content: _Content, show: Callable[[Letter], None]) -> str:
        """Show a message to the user, and leave it in the user's mailbox if there is one."""
        team = self._mailbox.team if self._mailbox is not None else "default"
        show(content.letter((team, self.name), (team, USER), 1, time.time()))
        if self._mailbox is None or USER not in await to_thread.run_sync(self._mailbox.others):
            return "Shown to the user."
        await self._mailed(self._mailbox, USER, None, content)
        return "Shown to the user, and left in the user's mailbox."

    async def _to_name(self, name: str, content: _Content) -> str:
        near = self._queues.find(name)
        if near is not None and (near.mailbox is None or self._mailbox is None):
            near.put(self._stamped(near, content))
            return f"Sent to {name}; {name} reads it before its next step."
        if self._mailbox is None:
            raise InputError(f"{name} has just ended and cannot be reached")
        if near is not None:
            await self._mailed(self._mailbox, name, None, content, carried=False)
            near.wake()
            return f"Sent to {name}; {name} reads it before its next step."
        return await self._mailed(self._mailbox, name, None, content)

    async def _to_socket(self, path: str, content: _Content) -> str:
        if self._mailbox is None:
            raise InputError(
                "this agent has no mailbox, so it cannot reach other processes; write to an agent of its own process"
            )
        if not self._mailbox.has_sockets:
            raise InputError("with a database there are no sockets: write to a name of the team")
        home = self._mailbox.home
        found = socket_owner(home, os.path.abspath(os.path.expanduser(path)))
        if found is None:
            raise InputError(f"{path[:200]!a} is not the socket of a mailbox: use {home}/teams/<team>/<agent>/socket")
        team, name = found
        return await self._mailed(self._mailbox, name, team, content)

    async def _over_bridge(self, id: str, content: _Content) -> str:
        if self._bridge is None:
            raise InputError(
                "no bridge is set up, so 'bridge:' addresses cannot be used; write to a name, '*' or 'uds:<path>'"
            )
        if not id.strip():
            raise InputError("the address has no id: use 'bridge:<id>'")
        team = self._mailbox.team if self._mailbox is not None else "default"
        return await self._bridge.carry(id, content.letter((team, self.name), ("bridge", "bridge"), 1, time.time()))

    async def _mailed(
        self, mailbox: Mailbox, name: str, team: str | None, content: _Content, *, carried: bool = True
    ) -> str:
        """Send by mailbox, through the reader's socket if one is open, and return a sentence about it."""
        parts = folders_of(team or mailbox.team, name)
        by_socket = False

        def carry(letter: Letter, data: bytes) -> bool:
            nonlocal by_socket
            by_socket = carried and self._delivered(mailbox.home, parts, data)
            return by_socket

        await to_thread.run_sync(
            lambda: mailbox.send(
                name, content.text, summary=content.summary, control=content.control, team=team, carry=carry
            )
        )
        if by_socket:
            return f"Sent to {name}; {name} reads it before its next step."
        return f"Left in the mailbox of {name}; {name} reads it before its next step, or when it runs again."

    def _delivered(self, home: str, parts: tuple[str, ...], data: bytes) -> bool:
        """Try a reader's socket and return whether it took the letter; avoid for 30 s one that failed slowly."""
        began = time.monotonic()
        if self._avoided.get(parts, 0.0) > began:
            return False
        if deliver(home, parts, data):
            return True
        if time.monotonic() - began > 0.1:
            self._avoided[parts] = time.monotonic() + _AVOID_SECONDS
        return False

    def _stamped(self, near: LetterQueue, content: _Content) -> Letter:
        team = self._mailbox.team if self._mailbox is not None else near.mailbox.team if near.mailbox else "default"
        return content.letter((team, self.name), (team, near.name), near.next_number(), time.time())


class _Content:
    """The content of a message before it is addressed."""

    def __init__(self, text: str, summary: str, control: Mapping[str, Any] | None) -> None:
        self.text = text
        self.summary = summary
        self.control = control

    def letter(self, sender: tuple[str, str], to: tuple[str, str], number: int, now: float) -> Letter:
        return stamped_letter(
            new_uuid(),
            self.text,
            sender=sender,
            to=to,
            sequence=number,
            time_ns=int(now * 1e9),
            summary=self.summary,
            control=self.control,
        )
