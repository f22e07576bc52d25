"""What a host has said and heard so far, as it stands in a session's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..conversation.cuts import Item
from ..conversation.decisions import Snipped
from ..conversation.entries import ASSISTANT, USER
from ..conversation.rounds import reply_id
from ..conversation.view import View
from .history_pieces import content_key, message_key, reply_key

__all__ = ["OWN", "LoggedResult", "LoggedTurn", "kept_positions", "logged_turns"]

OWN: Final = "items"
"""The field of a logged message, and of a logged reply, that holds it in the host's own form."""


class LoggedResult:
    """The result of one call as it is known: its entry, and every content the host may show for it."""

    def __init__(self, uuid: str, contents: Iterable[bytes] = ()) -> None:
        self.uuid = uuid
        self.contents = set(contents)


class LoggedTurn:
    """Something said, or a reply with the results of its calls."""

    def __init__(self, key: bytes, uuids: list[str]) -> None:
        self.key = key
        self.uuids = uuids
        self.results: dict[str, LoggedResult] = {}

    def entries(self) -> list[str]:
        """Return every entry this is made of."""
        return [*self.uuids, *(heard.uuid for heard in self.results.values())]


def kept_positions(known: Sequence[bytes], host: Sequence[bytes]) -> list[int]:
    """Return which of what is known the host's history begins with, in order; what it goes on with is new.

    What the host left out is skipped where it goes on with something that is known, so that a history whose past was
    dropped is not taken for a new one.
    """
    kept: list[int] = []
    at = 0
    for number, key in enumerate(host):
        if at < len(known) and known[at] == key:
            found = at
        else:
            candidates = [later for later in range(at, len(known)) if known[later] == key]
            if not candidates:
                break
            found = max(candidates, key=lambda later: (_run(known, later, host, number), -later))
        kept.append(found)
        at = found + 1
    return kept


def _run(known: Sequence[bytes], at: int, host: Sequence[bytes], number: int) -> int:
    length = 0
    for one, other in zip(known[at:], host[number:], strict=False):
        if one != other:
            break
        length += 1
    return length


def logged_turns(view: View, first: LoggedTurn) -> list[LoggedTurn]:
    """Return what the host has said by the log, for a host that comes back."""
    spoken: list[LoggedTurn] = []
    replies: dict[str, LoggedTurn] = {}
    blocks: dict[str, list[Any]] = {}
    gone: set[str] = set()
    for one in view.history_from(0):
        if not isinstance(one, Item):
            if isinstance(one.cut, Snipped):
                gone.update(one.cut.messages)
            continue
        if one.entry.kind == ASSISTANT:
            name = reply_id(one.entry)
            blocks.setdefault(name, []).extend(_list(one.message["content"]))
            if name not in replies:
                replies[name] = LoggedTurn(b"", [])
                spoken.append(replies[name])
            replies[name].uuids.append(one.uuid)
            replies[name].key = reply_key(blocks[name])
        elif one.entry.kind == USER or OWN in one.entry.body:
            _recover_said(one, view, spoken, first)
    return [one for one in spoken if not gone.issuperset(one.uuids)]


def _recover_said(item: Item, view: View, spoken: list[LoggedTurn], first: LoggedTurn) -> None:
    said: list[Any] = []
    for block in _list(item.message["content"]):
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        called = str(block.get("tool_use_id"))
        whole = view.offloaded(called) is None
        owner = spoken[-1] if spoken else first
        owner.results[called] = LoggedResult(item.uuid, [content_key(block.get("content"))] if whole else [])
    if said:
        spoken.append(LoggedTurn(message_key(said), [item.uuid]))


def _list(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
