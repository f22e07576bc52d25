"""The post of an agent: a message to a name, to all, to a socket or over a bridge, by the nearest way there is.

Who sends is known from the start and stamped on every letter; nothing in a message changes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from anyio import to_thread

from ...conversation.entries import new_uuid
from ...errors import InputError, ReverieError
from ...layers.l7_relay import EVERYBODY, Letter, check_name, stamped_letter
from .files import folders_of, in_home
from .local_queues import LetterQueue, Neighbours
from .mailbox import Mailbox
from .sockets import deliver

__all__ = ["AgentPost", "Bridge"]

MAX_CHARS: Final = 100_000
_SOCKET: Final = "uds"
_BRIDGE: Final = "bridge"
_AVOID_SECONDS: Final = 30.0


class Bridge(Protocol):
    """Carries letters to where no mailbox of this user is."""

    async def carry(self, id: str, letter: Letter) -> str:
        """Bring a letter to whoever has that id over there, and say how it went; ``InputError`` where nobody has."""
        ...


class AgentPost:
    """Sends what one agent writes.

    ``mailbox`` signs for it and reaches other processes; ``neighbours`` are the agents of this one. An agent without a
    mailbox reaches its neighbours only.
    """

    def __init__(
        self,
        name: str,
        *,
        mailbox: Mailbox | None = None,
        neighbours: Neighbours | None = None,
        bridge: Bridge | None = None,
        max_chars: int = MAX_CHARS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if mailbox is not None and mailbox.agent != name:
            raise InputError(f"{name} cannot send from the mailbox of {mailbox.agent}")
        self.name = check_name(name)
        self._mailbox = mailbox
        self._neighbours = neighbours or Neighbours()
        self._bridge = bridge
        self._max_chars = max_chars
        self._clock = clock
        self._avoided: dict[tuple[str, ...], float] = {}

    async def send(self, to: str, message: str, *, summary: str = "", control: Mapping[str, Any] | None = None) -> str:
        """Deliver a message and say how it went; an unknown recipient is an ``InputError``."""
        if len(message) > self._max_chars:
            raise InputError(
                f"the message has {len(message):,} characters, and {self._max_chars:,} is the most; send what "
                "matters, or write the rest to a file and name it"
            )
        content = _Content(message, summary, control)
        kind, colon, rest = to.partition(":")
        if to == EVERYBODY:
            return await self._to_all(content)
        if colon and kind == _SOCKET:
            return await self._to_socket(rest, content)
        if colon and kind == _BRIDGE:
            return await self._over_bridge(rest, content)
        if colon:
            raise InputError(f"{to[:80]!a} is no address: use a name, '*', 'uds:<path>' or 'bridge:<id>'")
        there = await self.others()
        if to not in there:
            raise InputError(f"nobody called {to[:80]!a} is here; there are: {', '.join(there) or 'none'}")
        return await self._to_name(to, content)

    async def others(self) -> list[str]:
        """Return who can be written to by name: the agents of this process, then those of the team's others."""
        far = await to_thread.run_sync(self._mailbox.others) if self._mailbox is not None else []
        return [name for name in dict.fromkeys([*self._neighbours.names(), *far]) if name != self.name]

    async def _to_all(self, content: _Content) -> str:
        there = await self.others()
        if not there:
            raise InputError("nobody else is here to write to")
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

    async def _to_name(self, name: str, content: _Content) -> str:
        near = self._neighbours.find(name)
        if near is not None and (near.mailbox is None or self._mailbox is None):
            near.put(self._stamped(near, content))
            return f"Sent to {name}, who reads it before its next step."
        if self._mailbox is None:
            raise InputError(f"{name} left just now; nobody of that name is here")
        if near is not None:
            await self._mailed(self._mailbox, name, None, content, carried=False)
            near.wake()
            return f"Sent to {name}, who reads it before its next step."
        return await self._mailed(self._mailbox, name, None, content)

    async def _to_socket(self, path: str, content: _Content) -> str:
        if self._mailbox is None:
            raise InputError(
                "this agent has no mailbox, so it reaches no other process; write to one of its own by name"
            )
        home = self._mailbox.home
        found = in_home(home, os.path.abspath(os.path.expanduser(path)))
        if found is None:
            raise InputError(f"{path[:200]!a} is not a socket of a mailbox: give {home}/teams/<team>/<agent>/socket")
        team, name = found
        return await self._mailed(self._mailbox, name, team, content)

    async def _over_bridge(self, id: str, content: _Content) -> str:
        if self._bridge is None:
            raise InputError(
                "no bridge is set up here, so 'bridge:' reaches nobody; write to a name, '*' or 'uds:<path>'"
            )
        if not id.strip():
            raise InputError("say who is meant: 'bridge:<id>'")
        team = self._mailbox.team if self._mailbox is not None else "default"
        return await self._bridge.carry(id, content.letter((team, self.name), ("bridge", "bridge"), 1, self._clock()))

    async def _mailed(
        self, mailbox: Mailbox, name: str, team: str | None, content: _Content, *, carried: bool = True
    ) -> str:
        """Send by mailbox, through the reader's socket where somebody listens there."""
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
            return f"Sent to {name}, who reads it before its next step."
        return f"Left in the mailbox of {name}, who reads it before its next step, or when it runs again."

    def _delivered(self, home: str, parts: tuple[str, ...], data: bytes) -> bool:
        """Try a reader's socket; one that failed slowly is left alone for a while."""
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
        return content.letter((team, self.name), (team, near.name), near.next_number(), self._clock())


class _Content:
    """What somebody wants to say, before it is addressed."""

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
