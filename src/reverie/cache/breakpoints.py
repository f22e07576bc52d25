"""Where a request asks the provider to keep its prefix, and for how long.

Four breakpoints at most. The end of the request is always one. Another stands where the last request ended, or, after
a decision changed something, just before the first change, so that what did not change is found within the provider's
look-back. The settled part of the conversation ends in one of its own, which may live longer than the tail; what is
left goes to the system prompt and the last tool. Breakpoints are no part of what is compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..conversation.blocks import Block, as_blocks
from ..conversation.entries import Message
from ..values import record

__all__ = ["LIFETIMES", "MAX_MARKS", "Place", "Placed", "Planned", "last_markable", "plan_marks", "with_marks"]

MAX_MARKS: Final = 4
LOOK_BACK: Final = 20  # positions a breakpoint looks at, its own counted as the first
LIFETIMES: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0}
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking", "cache_edits"})


@record
class Place:
    """A block of a message, by position; positions hold while the view only grows."""

    message: int
    block: int


@record
class Placed:
    """What the last request left in the provider's cache, as far as we know."""

    ttl: str
    settled: Place | None
    end: Place | None
    at: float

    def life(self, now: float) -> str:
        """Say what of it is still there."""
        idle = now - self.at
        if idle < LIFETIMES["5m"]:
            return "live"
        return "tail dead" if self.ttl == "1h" and self.settled is not None and idle < LIFETIMES["1h"] else "cold"


@record
class Planned:
    """Breakpoints for one request, in order, and what will be known of the cache after it."""

    marks: tuple[tuple[Place, str], ...]
    prefix_ttl: str
    marks_system: bool
    marks_tools: bool
    after: Placed


def last_markable(messages: Sequence[Message], upto: int) -> Place | None:
    """Return the last block that may carry a breakpoint in the first so many messages."""
    for at in range(min(upto, len(messages)) - 1, -1, -1):
        content = messages[at]["content"]
        if isinstance(content, str):
            return Place(at, 0)
        blocks = cast("list[Block]", content)
        for number in range(len(blocks) - 1, -1, -1):
            if blocks[number]["type"] not in _UNMARKABLE:
                return Place(at, number)
    return None


def plan_marks(
    messages: Sequence[Message],
    *,
    now: float,
    ttl: str,
    before: Placed | None,
    changed: int | None = None,
    settled: int | None = None,
    room: int = 2,
) -> Planned:
    """Place the breakpoints of one request.

    ``changed`` is the first message that is not as it was sent last; ``settled`` the number of messages that are not
    expected to change; ``room`` how many breakpoints system prompt and tools could use.
    """
    end = last_markable(messages, len(messages))
    life = before.life(now) if before is not None else "cold"
    kept = before.settled if before is not None and life != "cold" else None
    if kept is not None and changed is not None and kept.message >= changed:
        kept = None
    lasting = _settled(messages, kept, ttl, changed, settled, life)
    wanted: list[tuple[Place, str]] = []
    if end is not None:
        wanted.append((end, "5m" if ttl == "1h" and lasting is not None and lasting != end else ttl))
    if lasting is not None and lasting != end:
        wanted.append((lasting, ttl))
    found = _where_found(messages, before, changed, kept, life)
    if found is not None and found not in (end, lasting):
        lives = ttl if lasting is None or _precedes(found, lasting) else "5m"
        wanted.append((found, lives))
    marks = sorted(wanted, key=lambda one: (one[0].message, one[0].block))
    free = MAX_MARKS - len(marks)
    marks_system, marks_tools = room > 0 and free > 0, room > 1 and free > 1
    return Planned(tuple(marks), ttl, marks_system, marks_tools, Placed(ttl, lasting, end, now))


def _settled(
    messages: Sequence[Message], kept: Place | None, ttl: str, changed: int | None, settled: int | None, life: str
) -> Place | None:
    """Choose where the long-lived part ends: where it did, unless it is being written anew anyway."""
    if ttl != "1h":
        return None
    if kept is not None and changed is None:
        return kept
    fresh = last_markable(messages, settled if settled is not None else len(messages))
    if fresh is None or (kept is not None and _precedes(fresh, kept)):
        return kept
    return fresh


def _where_found(
    messages: Sequence[Message], before: Placed | None, changed: int | None, kept: Place | None, life: str
) -> Place | None:
    """Return where a breakpoint finds what the cache still holds."""
    if before is None or life == "cold":
        return None
    if life == "tail dead" and kept is not None:
        return kept
    if changed is not None:
        return _last_end(messages, changed)
    if life == "tail dead":
        return None
    return before.end if before.end is not None and before.end.message < len(messages) else None


def _last_end(messages: Sequence[Message], upto: int) -> Place | None:
    """Return where a breakpoint finds the longest entry that holds only the first so many messages.

    Entries end where a request or its settled part did: at the end of a message, or of the user's before a reply. The
    first place serves for both, unless the reply has more blocks than a breakpoint looks back.
    """
    end = last_markable(messages, upto)
    if end is None or messages[end.message]["role"] == "user" or end.block + 1 < LOOK_BACK:
        return end
    return last_markable(messages, end.message)


def _precedes(one: Place, other: Place) -> bool:
    return (one.message, one.block) <= (other.message, other.block)


def with_marks(request: dict[str, Any], planned: Planned, *, own: bool = False) -> dict[str, Any]:
    """Return the request with its breakpoints; messages without one are the same objects.

    ``own`` says that nobody else holds the request's list of messages, which is then not copied.
    """
    given = cast("list[Message]", request["messages"])
    messages = given if own else given.copy()
    for place, ttl in planned.marks:
        if place.message < len(messages):
            messages[place.message] = _marked(messages[place.message], place.block, ttl)
    out = {**request, "messages": messages}
    if planned.marks_system and "system" in request:
        out["system"] = _marked({"content": request["system"]}, -1, planned.prefix_ttl)["content"]
    if planned.marks_tools and request.get("tools"):
        tools = list(cast("list[Block]", request["tools"]))
        tools[-1] = {**tools[-1], "cache_control": _control(planned.prefix_ttl)}
        out["tools"] = tools
    return out


def _marked(message: Message, number: int, ttl: str) -> Message:
    blocks = list(as_blocks(message))
    blocks[number] = {**blocks[number], "cache_control": _control(ttl)}
    return {**message, "content": blocks}


def _control(ttl: str) -> dict[str, str]:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
