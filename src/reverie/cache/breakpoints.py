"""Cache breakpoints: the positions at which a request asks the provider to store its prefix, and for how long.

A request has at most four. The end of the request is always one. The second is the end of the last request or, after a
decision changed something, the end of an earlier request before the first change: the provider stores entries only at
breakpoints, so the plan remembers them and finds the longest unchanged prefix however old it is. The end of the newest
entry with the long lifetime is one as well, so that a request after a pause finds it. Free breakpoints go to the system
prompt and the last tool. Comparisons of requests ignore breakpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from ..conversation.entries import Message
from ..conversation.wire.blocks import Block, as_blocks
from ..values import record

MAX_MARKS: Final = 4
LIFETIMES: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0}
_UNMARKABLE: Final = frozenset({"thinking", "redacted_thinking", "cache_edits"})


@record
class BlockPosition:
    """The position of a block: message and block index; it stays valid while the view only grows."""

    message: int
    block: int


class CacheEntry:
    """An entry of the provider's cache: its end, its lifetime, and the shorter entry before it.

    Entries form a linked list, newest first, so a request adds one without copying the entries of a long session.
    """

    __slots__ = ("_longer", "before", "place", "ttl")

    def __init__(self, place: BlockPosition, ttl: str, before: CacheEntry | None = None) -> None:
        self.place = place
        self.ttl = ttl
        self.before = before
        self._longer = before.lasting if before is not None else None

    def __iter__(self) -> Iterator[CacheEntry]:
        one: CacheEntry | None = self
        while one is not None:
            yield one
            one = one.before

    @property
    def lasting(self) -> CacheEntry | None:
        """The newest entry with a lifetime of one hour: this entry or a shorter one; None if there is none."""
        return self if self.ttl == "1h" else self._longer

    def upto(self, changed: BlockPosition) -> CacheEntry | None:
        """Return the newest entry that ends before the changed block, or None if there is none."""
        return next((one for one in self if not _precedes(changed, one.place)), None)


@record
class CacheState:
    """The assumed state of the provider's cache after the request sent at ``at``; ``held`` is its newest entry."""

    ttl: str
    end: BlockPosition | None
    at: float
    held: CacheEntry | None = None
    prefix: str = "5m"
    """The lifetime of the entry at the end of tools and system prompt; empty if there is none."""

    def life(self, now: float) -> str:
        """Return ``live``, ``tail dead`` (only one-hour entries remain) or ``cold``."""
        idle = now - self.at
        if idle < LIFETIMES["5m"]:
            return "live"
        return "tail dead" if self.ttl == "1h" and idle < LIFETIMES["1h"] else "cold"

    def prefix_held(self, now: float) -> str:
        """Return the lifetime of the prefix's entry if it can still be read at ``now``, else an empty string.

        It is written with the whole prompt only: a request that reads a longer entry writes nothing before its end.
        """
        life = self.life(now)
        return self.prefix if life == "live" or (life == "tail dead" and self.prefix == "1h") else ""

    def still_held(self, now: float, changed: BlockPosition | None) -> CacheEntry | None:
        """Return the newest entry that a request whose first changed block is ``changed`` can still read, or None.

        Reading a longer prefix also renews the shorter ones within it, so entries of one lifetime expire together.
        """
        life = self.life(now)
        held = self.held if life != "cold" else None
        if held is not None and changed is not None:
            held = held.upto(changed)
        return _only_lasting(held) if life == "tail dead" else held

    def older_than(self, oldest: CacheEntry, now: float) -> CacheEntry | None:
        """Return the entries before this one that are still held at ``now``; None if there are none."""
        found = next((one for one in self.held or () if (one.place, one.ttl) == (oldest.place, oldest.ttl)), None)
        older = found.before if found is not None else None
        return _only_lasting(older) if self.life(now) == "tail dead" else older


@record
class BreakpointPlan:
    """The breakpoints of one request, in order, and the assumed state of the cache after it."""

    marks: tuple[tuple[BlockPosition, str], ...]
    prefix_ttl: str
    marks_system: bool
    marks_tools: bool
    after: CacheState


def last_markable(messages: Sequence[Message], upto: int) -> BlockPosition | None:
    """Return the position of the last block of the first ``upto`` messages that may have a breakpoint, or None."""
    for at in range(min(upto, len(messages)) - 1, -1, -1):
        content = messages[at]["content"]
        if messages[at]["role"] == "system":  # it may be shown for one turn only
            continue
        if isinstance(content, str):
            return BlockPosition(at, 0)
        blocks = cast("list[Block]", content)
        for number in range(len(blocks) - 1, -1, -1):
            if blocks[number]["type"] not in _UNMARKABLE:
                return BlockPosition(at, number)
    return None


def _is_markable(messages: Sequence[Message], place: BlockPosition) -> bool:
    """Say whether a block may have a breakpoint; the messages may be others than those it was found in."""
    if place.message >= len(messages) or messages[place.message]["role"] == "system":
        return False
    blocks = as_blocks(messages[place.message])
    return place.block < len(blocks) and blocks[place.block]["type"] not in _UNMARKABLE


def plan_marks(
    messages: Sequence[Message],
    *,
    now: float,
    ttl: str,
    before: CacheState | None,
    changed: BlockPosition | None = None,
    cleared: int | None = None,
) -> BreakpointPlan:
    """Return the breakpoints of one request, and the assumed state of the cache after it.

    ``before`` is the cache state after the last request, ``changed`` the first block that differs from that one, and
    ``ttl`` the lifetime of the breakpoint at the end. ``cleared`` is the number of messages up to the last result that
    the provider leaves out for the first time: its next clearing begins behind them, so a breakpoint follows them.
    """
    end = last_markable(messages, len(messages))
    held = before.still_held(now, changed) if before is not None else None
    while held is not None and not _is_markable(messages, held.place):
        held = held.before
    found = held.place if held is not None else None
    kept = held.lasting if held is not None else None
    lasting = end if ttl == "1h" else kept.place if kept is not None else None
    wanted: list[tuple[BlockPosition, str]] = []
    if end is not None:
        wanted.append((end, "5m" if lasting != end else ttl))
    if lasting is not None and lasting != end:
        wanted.append((lasting, "1h"))
    if found is not None and found not in (end, lasting):
        wanted.append((found, "1h" if lasting is not None and _precedes(found, lasting) else "5m"))
    stable = last_markable(messages, cleared) if cleared is not None else None
    if stable is not None and stable not in (end, lasting, found):
        wanted.append((stable, "1h" if lasting is not None and _precedes(stable, lasting) else "5m"))
    marks = sorted(wanted, key=lambda one: (one[0].message, one[0].block))
    free = MAX_MARKS - len(marks)
    for place, lives in marks:
        if found is None or not _precedes(place, found):  # a breakpoint within the found prefix writes nothing
            held = CacheEntry(place, lives, held)
    longest = "5m" if lasting is None else "1h"
    prefix = before.prefix_held(now) if before is not None else ""
    if not prefix and found is None and free > 0:
        prefix = longest
    return BreakpointPlan(tuple(marks), longest, free > 0, free > 1, CacheState(longest, end, now, held, prefix))


def _only_lasting(held: CacheEntry | None) -> CacheEntry | None:
    """Return a new chain of only the one-hour entries, or None if there are none."""
    left: CacheEntry | None = None
    for one in reversed([one for one in held if one.ttl == "1h"] if held is not None else []):
        left = CacheEntry(one.place, one.ttl, left)
    return left


def _precedes(one: BlockPosition, other: BlockPosition) -> bool:
    return (one.message, one.block) <= (other.message, other.block)


def with_marks(request: dict[str, Any], planned: BreakpointPlan, *, own: bool = False) -> dict[str, Any]:
    """Return the request with its breakpoints; with ``own``, its list of messages is changed in place."""
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
        # A tool with deferred loading is not part of the prefix and may not carry a breakpoint.
        at = next((at for at in range(len(tools) - 1, -1, -1) if not tools[at].get("defer_loading")), None)
        if at is not None:
            tools[at] = {**tools[at], "cache_control": _control(planned.prefix_ttl)}
        out["tools"] = tools
    return out


def _marked(message: Message, number: int, ttl: str) -> Message:
    blocks = list(as_blocks(message))
    blocks[number] = {**blocks[number], "cache_control": _control(ttl)}
    return {**message, "content": blocks}


def _control(ttl: str) -> dict[str, str]:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
