"""The prefix of a request as a chain of hashes, so that the next request hashes only its new part.

A Prefix never changes. ``prefix.next(request)`` returns the prefix of the next request. Messages, tools and system
blocks that are the same objects as last time are not hashed again, so callers must not change them in place (views
never do). Consecutive prefixes share their finished part, and only the newest may append to it. If the caller passes
the append-only list that holds the first messages (``settled``), those messages are not even compared; the list must
hold the very message objects of the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain as chained
from operator import is_
from typing import Any, Final, TypeAlias, cast

from ..conversation.wire.canonical import canonical_block
from ..values import record

SettledMessages: TypeAlias = tuple[list[dict[str, Any]], int]
"""A list that only grows, and how many of its messages begin the request."""

_OPEN: Final = 2  # messages at the end that may still change in the next request
_NOT_OPTIONS: Final = frozenset({"model", "tools", "system", "messages"})


@record
class Part:
    """A piece of a request and the digest of its canonical bytes."""

    value: Any
    digest: bytes


class _Trunk:
    """The finished messages: objects, where each ends, the digest of every block and of every prefix."""

    __slots__ = ("digests", "ends", "links", "messages")

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ends: list[int] = []
        self.digests: list[bytes] = []
        self.links: list[bytes] = []

    def copied(self, messages: int) -> _Trunk:
        new = _Trunk()
        blocks = self.ends[messages - 1] if messages else 0
        new.messages, new.ends = self.messages[:messages], self.ends[:messages]
        new.digests, new.links = self.digests[:blocks], self.links[:blocks]
        return new

    def append(self, message: Any, digests: Sequence[bytes], opening: bytes) -> None:
        self.messages.append(message)
        self.digests += digests
        self.ends.append(len(self.digests))
        self.links += _links(digests, self.links[-1] if self.links else opening)


class Prefix:
    """A request as hashes: of model and options, of each tool, system block and message block, and chained."""

    __slots__ = ("_blocks", "_length", "_opening", "_settled", "_tail", "_trunk", "model", "options", "system", "tools")

    def __init__(self) -> None:
        self.model = ""
        self.options: Mapping[str, Part] = {}
        self.tools: tuple[Part, ...] = ()
        self.system: tuple[Part, ...] = ()
        self._opening: tuple[bytes, ...] = ()
        self._trunk = _Trunk()
        self._length = self._blocks = 0  # how much of the trunk is ours, in messages and in their blocks
        self._tail: tuple[tuple[Any, tuple[bytes, ...]], ...] = ()
        self._settled: SettledMessages | None = None

    # -- reading

    @property
    def blocks(self) -> int:
        """The number of blocks: tools, system blocks and the blocks of all messages."""
        return len(self._opening) + self._blocks + sum(len(digests) for _, digests in self._tail)

    @property
    def has_messages(self) -> bool:
        """Whether the request held any message; one folded from a recording holds none."""
        return self.blocks > len(self._opening)

    def chain(self) -> list[bytes]:
        """Return a list with the digest of every prefix, shortest first, as ``CacheSimulator.chain`` would."""
        links = [*self._opening, *self._trunk.links[: self._blocks]]
        return links + _links(self._open_digests(), links[-1] if links else b"")

    @property
    def digest(self) -> bytes:
        """The digest of all blocks together; the model and the options do not count."""
        last = self._trunk.links[self._blocks - 1] if self._blocks else self._opening[-1] if self._opening else b""
        for digest in self._open_digests():
            last = link(last, digest)
        return last

    def digests(self) -> list[bytes]:
        """Return a list with the digest of every block, first to last."""
        return [*self._opening_digests(), *self._message_digests()]

    def difference(self, earlier: Prefix) -> int | None:
        """Return the index of the first block that differs from an earlier prefix; None if this one extends it."""
        if self._opening != earlier._opening:
            return _first(earlier.digests(), self.digests())
        said = self.message_difference(earlier)
        return None if said is None else len(self._opening) + said

    def message_difference(self, earlier: Prefix) -> int | None:
        """Return the same as ``difference``, but compare and count only the blocks of messages."""
        if self._trunk is not earlier._trunk:
            return _first(earlier._message_digests(), self._message_digests())
        common = min(self._length, earlier._length)
        start = self._trunk.ends[common - 1] if common else 0
        found = _first(earlier._message_digests(start), self._message_digests(start))
        return None if found is None else start + found

    def message_at(self, position: int) -> tuple[int, int]:
        """Return the index of the message and of the block in it, for an index among the blocks of messages."""
        if position < self._blocks:
            message = bisect_right(self._trunk.ends, position, 0, self._length)
            return message, position - (self._trunk.ends[message - 1] if message else 0)
        rest = position - self._blocks
        for number, (_, digests) in enumerate(self._tail, self._length):
            if rest < len(digests):
                return number, rest
            rest -= len(digests)
        return self._length + len(self._tail), 0

    # -- the next request

    def next(self, request: Mapping[str, Any], *, settled: SettledMessages | None = None) -> Prefix:
        """Return the prefix of the next request, hashing only its new blocks; this prefix stays the same.

        If given, ``settled`` is the list that holds the request's first messages, which are then not compared.
        """
        new = type(self)()
        new.model = str(request.get("model") or "")
        new.options = _options(request, self.options)
        new.tools = _parts(_items(request.get("tools")), self.tools, "tool")
        system: Any = request.get("system")
        new.system = _parts((system,) if isinstance(system, str) else _items(system), self.system, "system")
        unchanged = new.tools is self.tools and new.system is self.system
        new._opening = self._opening if unchanged else tuple(_links(new._opening_digests()))
        same_opening = new._opening == self._opening
        messages = _items(request.get("messages"))
        kept = self._kept(messages, settled)
        if same_opening and kept == self._length:
            new._grow(self, messages)
        else:
            new._regrow(self, messages, kept if same_opening else 0)
        new._settled = settled
        return new

    def _kept(self, messages: Sequence[Any], settled: SettledMessages | None) -> int:
        """Return how many of the first finished messages are still the same objects in the request."""
        mine, start = self._trunk.messages, 0
        if settled is not None and self._settled is not None and settled[0] is self._settled[0]:
            start = min(settled[1], self._settled[1], self._length, len(messages))
            if start and not (messages[0] is mine[0] and messages[start - 1] is mine[start - 1]):
                start = 0
        end = min(self._length, len(messages))
        if start == end or all(map(is_, messages[start:end] if start else messages, mine[start:end])):
            return end
        return next(at for at in range(start, end) if messages[at] is not mine[at])

    def _grow(self, last: Prefix, messages: Sequence[Any]) -> None:
        """Share the finished part of the last prefix, and finish messages now too far from the end to change."""
        known = {id(message): digests for message, digests in last._tail}
        rest = [(message, known.get(id(message)) or _hashed(message)) for message in messages[last._length :]]
        self._trunk, self._length, self._blocks = last._trunk, last._length, last._blocks
        self._finish(rest)

    def _regrow(self, last: Prefix, messages: Sequence[Any], kept: int) -> None:
        """Start again at the first changed message; messages that only moved are not hashed again."""
        trunk = last._trunk
        known = {id(message): digests for message, digests in last._tail}
        for at in range(kept, last._length):
            start = trunk.ends[at - 1] if at else 0
            known[id(trunk.messages[at])] = tuple(trunk.digests[start : trunk.ends[at]])
        self._trunk, self._length = trunk.copied(kept), kept
        self._blocks = len(self._trunk.digests)
        self._finish([(message, known.get(id(message)) or _hashed(message)) for message in messages[kept:]])

    def _finish(self, rest: list[tuple[Any, tuple[bytes, ...]]]) -> None:
        finished = rest[:-_OPEN]
        if finished and len(self._trunk.messages) != self._length:
            self._trunk = self._trunk.copied(self._length)  # another prefix has grown it since
        for message, digests in finished:
            self._trunk.append(message, digests, self._opening[-1] if self._opening else b"")
        self._length += len(finished)
        self._blocks = self._trunk.ends[self._length - 1] if self._length else 0
        self._tail = tuple(rest[-_OPEN:])

    def _opening_digests(self) -> list[bytes]:
        return [part.digest for part in (*self.tools, *self.system)]

    def _open_digests(self) -> Iterable[bytes]:
        return chained.from_iterable(digests for _, digests in self._tail)

    def _message_digests(self, start: int = 0) -> list[bytes]:
        return [*self._trunk.digests[start : self._blocks], *self._open_digests()]


def link(last: bytes, digest: bytes) -> bytes:
    """Return the digest of a prefix that is longer by one block; ``last`` is the shorter prefix's digest."""
    return blake2b(digest, digest_size=16, key=last).digest()


def _links(digests: Iterable[bytes], after: bytes = b"") -> list[bytes]:
    links: list[bytes] = []
    for digest in digests:
        after = link(after, digest)
        links.append(after)
    return links


def _digest(block: Any, role: str) -> bytes:
    return blake2b(canonical_block(block, role), digest_size=16).digest()


def _hashed(message: Any) -> tuple[bytes, ...]:
    if not isinstance(message, Mapping):
        return ()
    fields = cast(Mapping[str, Any], message)
    role, content = str(fields.get("role")), fields.get("content")
    if isinstance(content, str):
        return (_digest({"type": "text", "text": content}, role),)
    return tuple(_digest(block, role) for block in _items(content))


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def _parts(values: Sequence[Any], before: tuple[Part, ...], role: str) -> tuple[Part, ...]:
    """Return the values with their digests, hashing only new objects; the old tuple if no object is new."""
    if len(values) == len(before) and all(part.value is value for part, value in zip(before, values, strict=True)):
        return before
    known = {id(part.value): part for part in before}
    return tuple(known.get(id(value)) or _part(value, role) for value in values)


def _part(value: Any, role: str) -> Part:
    block: Any = {"type": "text", "text": value} if isinstance(value, str) and role == "system" else value
    return Part(value, _digest(block, role))


def _options(request: Mapping[str, Any], before: Mapping[str, Part]) -> Mapping[str, Part]:
    found: dict[str, Part] = {}
    for name, value in request.items():
        if name not in _NOT_OPTIONS and value is not None:
            known = before.get(name)
            found[name] = known if known is not None and known.value is value else _part(value, "option")
    return found


def _first(earlier: list[bytes], later: list[bytes]) -> int | None:
    """Return the first index at which the later list differs; None if it begins with the whole earlier list."""
    if later[: len(earlier)] == earlier:
        return None
    both = enumerate(zip(earlier, later, strict=False))
    return next((at for at, (one, other) in both if one != other), min(len(earlier), len(later)))
