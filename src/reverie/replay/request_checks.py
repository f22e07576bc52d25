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

    def __init__(self, accepted: set[tuple[int, int]] | None = None) -> None:
        """Add the pairs of messages that pass, by identity, to ``accepted``, and check none of them again."""
        self._accepted = set[tuple[int, int]]() if accepted is None else accepted
        self._longest: dict[str, Any] = {"messages": []}
        self._invalid = 0
        self._was_valid = False

    def add(self, request: dict[str, Any], same: int = 0) -> None:
        """Check the next request, whose messages are objects that stay alive; the same object is the same message.

        The first ``same`` of them are those of the request before.
        """
        messages: list[Message] = request["messages"]
        if not messages:
            self._invalid += 1
            return
        if len(messages) >= len(self._longest["messages"]):
            self._longest = request
        begin = same if self._was_valid else 0
        ids = list(map(id, messages[max(0, begin - 1) :]))
        pairs = dict(enumerate(zip(ids if begin else [0, *ids], ids[1:] if begin else ids, strict=False), begin))
        fresh = [at for at, pair in pairs.items() if pair not in self._accepted]
        start, self._was_valid = 0, False
        for at in fresh:
            if at < start:
                continue
            start = _end(messages, at)
            if problems({**request, "messages": _part(messages, at, start)}):
                self._invalid += 1
                return
        self._was_valid = True
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
