"""Count the requests of a session that a provider would refuse, without checking each message again and again."""

from __future__ import annotations

from typing import Any

from ..conversation.entries import ASSISTANT, USER, Message
from ..conversation.wire.validate import problems

_OPENING: Message = {"role": USER, "content": "."}


class RequestChecks:
    """Checks the messages of each request that are new or have a new neighbour, and the longest request as a whole.

    Most rules look at a message and the one before it. Those that look further are checked in the longest request
    alone: unique ids of calls, thinking at the start of a tool round, totals.
    """

    def __init__(self) -> None:
        self._accepted: set[tuple[int, int]] = set()
        self._longest: dict[str, Any] = {"messages": []}
        self._invalid = 0

    def add(self, request: dict[str, Any]) -> None:
        """Check the next request, whose messages are objects that stay alive; the same object is the same message."""
        messages: list[Message] = request["messages"]
        if not messages:
            self._invalid += 1
            return
        if len(messages) >= len(self._longest["messages"]):
            self._longest = request
        ids = list(map(id, messages))
        pairs = list(zip([0, *ids], ids, strict=False))
        fresh = [at for at, pair in enumerate(pairs) if pair not in self._accepted]
        start = 0
        for at in fresh:
            if at < start:
                continue
            start = _end(messages, at)
            if problems({**request, "messages": _part(messages, at, start)}):
                self._invalid += 1
                return
        self._accepted.update(pairs[at] for at in fresh)

    def invalid(self) -> int:
        """Return the number of requests that a provider would refuse; one beyond a limit counts once."""
        return self._invalid or int(bool(self._longest["messages"] and problems(self._longest)))


def _part(messages: list[Message], start: int, end: int) -> list[Message]:
    """Return some messages as the messages of a request: results keep their calls, and the first is a user's."""
    start = max(0, start - 1)
    if start and messages[start]["role"] != ASSISTANT:
        start -= 1
    return [*([_OPENING] if start else []), *messages[start:end]]


def _end(messages: list[Message], at: int) -> int:
    """Return the end of the shortest part with this message that ends where a request may end."""
    end = at + 1
    while end < len(messages) and messages[end - 1]["role"] == ASSISTANT:
        end += 1
    return end
