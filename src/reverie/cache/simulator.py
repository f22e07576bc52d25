"""Simulation of a provider's prompt cache by its documented rules, for tests and for replaying recorded sessions.

- A prefix is identified by all its blocks: a chain of hashes, one chain per model.
- Entries are written only at breakpoints, one each, and only where the prefix reaches the model's minimum.
- A breakpoint finds the nearest live entry among the last 20 positions, itself counted as the first. A run of calls
  is one position, and so is a run of results. The longest prefix any breakpoint finds is read.
- An entry lives for its own lifetime after it was written or last read; at exactly that age it is gone. A read
  keeps alive the entry it hits and every live entry within that prefix.
- Tokens from the hit to the last breakpoint are written, at the 1-hour price up to the last 1-hour breakpoint and
  at the 5-minute price after it. The rest is uncached. A hit writes nothing where it hits.
- An entry can be read from the moment the reply that wrote it starts to stream.
- Effort, thinking, tool choice and the presence of images belong to the messages: see ``messages_key``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final

import msgspec

from ..errors import InputError
from ..model_facts import facts_of
from ..values import field, object_of, record, rows_of
from .usage import Usage

_RUNS: Final = frozenset({"tool_use", "tool_result"})
_LIFETIMES: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0}
_PRUNE_ABOVE: Final = 4096
_MAX_LINKS: Final = 1_000_000


@record
class CacheRules:
    """The limits of a provider's cache: minimum prefix, look-back, breakpoints per request and lifetimes."""

    minimum_tokens: int | None = None
    """The shortest prefix that is cached, in tokens, for every model; None: by the model facts."""
    look_back_positions: int = 20
    max_breakpoints: int = 4
    ttl_seconds: Mapping[str, float] = field(default_factory=lambda: _LIFETIMES)

    def minimum_for(self, model: str) -> int:
        """Return the shortest prefix, in tokens, that the model caches."""
        return facts_of(model).least_cached_tokens if self.minimum_tokens is None else self.minimum_tokens


@record
class SimBlock:
    """A block of a request: its digest, its tokens and its type."""

    digest: bytes
    tokens: int
    type: str = ""


@record
class Mark:
    """A breakpoint after the block at an index, with the lifetime it asks for."""

    index: int
    ttl: str = "5m"


class _Entry:
    __slots__ = ("expires_at", "readable_at", "ttl_seconds")

    def __init__(self, expires_at: float, readable_at: float, ttl_seconds: float) -> None:
        self.expires_at = expires_at
        self.readable_at = readable_at
        self.ttl_seconds = ttl_seconds


class CacheSimulator:
    """A simulated cache of a provider, which keeps the entries that earlier requests wrote."""

    def __init__(self, rules: CacheRules | None = None) -> None:
        self.rules = rules or CacheRules()
        self._entries: dict[str, dict[bytes, _Entry]] = {}
        self._links: dict[tuple[bytes, bytes], bytes] = {}
        self._prune_above = _PRUNE_ABOVE

    def request(
        self,
        blocks: Sequence[SimBlock],
        marks: Sequence[Mark],
        *,
        model: str,
        now: float,
        readable_at: float | None = None,
    ) -> Usage:
        """Simulate a request, keep the entries it writes, and return its billed usage.

        ``readable_at`` is the time its reply starts to stream. Raise ``InputError`` if a breakpoint is invalid.
        """
        chain = self.chain(block.digest for block in blocks)
        totals = list(accumulate(block.tokens for block in blocks))
        placed = positions(block.type for block in blocks)
        return self.request_chained(
            chain, totals, marks, model=model, now=now, readable_at=readable_at, positions=placed
        )

    def chain(self, digests: Iterable[bytes], after: bytes = b"") -> list[bytes]:
        """Return a list with the digest of every prefix; ``after`` is the digest of a prefix that comes first."""
        links, chained, last = self._links, list[bytes](), after
        if len(links) > _MAX_LINKS:
            links.clear()
        for digest in digests:
            link = links.get((last, digest))
            if link is None:
                link = links[last, digest] = blake2b(digest, digest_size=16, key=last).digest()
            chained.append(link)
            last = link
        return chained

    def request_chained(
        self,
        chain: Sequence[bytes],
        totals: Sequence[int],
        marks: Sequence[Mark],
        *,
        model: str,
        now: float,
        readable_at: float | None = None,
        positions: Sequence[int] | None = None,
    ) -> Usage:
        """Simulate a request as ``request`` does, given as prefix digests (see ``chain``) and running totals.

        ``positions`` counts the look-back (see the function of that name); by default each block is a position.
        """
        ordered = self._checked(marks, len(chain))
        entries = self._entries.setdefault(model, {})
        total = totals[-1] if totals else 0
        hit = self._hit(entries, chain, ordered, now, positions or range(len(chain)))
        if hit >= 0:
            _refresh(entries, chain, hit, now)
        read = totals[hit] if hit >= 0 else 0
        minimum = self.rules.minimum_for(model)
        long_end = end = read
        start = now if readable_at is None else readable_at
        for mark in ordered:
            if mark.index <= hit or totals[mark.index] < minimum:
                continue
            self._write(entries, chain[mark.index], mark.ttl, now, start)
            end = totals[mark.index]
            long_end = end if mark.ttl == "1h" else long_end
        if len(entries) > self._prune_above:
            self._prune(now)
        return Usage(read=read, write_5m=end - long_end, write_1h=long_end - read, uncached=total - end)

    def readable(
        self, chain: Sequence[bytes], marks: Sequence[Mark], *, model: str, now: float, positions: Sequence[int]
    ) -> int:
        """Return how many blocks of a request would be read from the cache, without sending it."""
        return self._hit(self._entries.get(model, {}), chain, marks, now, positions) + 1

    def streaming_began(self, chain: Sequence[bytes], marks: Sequence[Mark], *, model: str, at: float) -> None:
        """Make the entries of a request that was sent with a later ``readable_at`` readable from this time on."""
        entries = self._entries.get(model, {})
        for mark in marks:
            entry = entries.get(chain[mark.index])
            if entry is not None:
                entry.readable_at = min(entry.readable_at, at)

    def _checked(self, marks: Sequence[Mark], size: int) -> list[Mark]:
        rules = self.rules
        ordered = sorted(marks, key=lambda mark: mark.index)
        if len(ordered) > rules.max_breakpoints:
            raise InputError(f"{len(ordered)} breakpoints: use at most {rules.max_breakpoints} per request")
        short = False
        for mark in ordered:
            if not 0 <= mark.index < size:
                raise InputError(f"a breakpoint at block {mark.index} of {size}; count blocks from 0")
            if mark.ttl not in rules.ttl_seconds:
                raise InputError(f"a lifetime of {mark.ttl!r}; use {' or '.join(rules.ttl_seconds)}")
            if mark.ttl == "1h" and short:
                raise InputError("a 1-hour breakpoint after a 5-minute one; put the longer lifetimes first")
            short = short or mark.ttl == "5m"
        return ordered

    def _hit(
        self,
        entries: dict[bytes, _Entry],
        chain: Sequence[bytes],
        marks: Sequence[Mark],
        now: float,
        positions: Sequence[int],
    ) -> int:
        """Return the index of the last block of the longest readable prefix, or -1 if there is none."""
        checked_to = len(chain)
        for mark in reversed(marks):
            last = positions[mark.index] - self.rules.look_back_positions
            at = min(mark.index, checked_to - 1)
            while at >= 0 and positions[at] > last:
                entry = entries.get(chain[at])
                if entry is not None and entry.readable_at <= now < entry.expires_at:
                    return at
                at -= 1
            checked_to = min(checked_to, at + 1)
        return -1

    def _write(self, entries: dict[bytes, _Entry], key: bytes, ttl: str, now: float, readable_at: float) -> None:
        seconds = self.rules.ttl_seconds[ttl]
        there = entries.get(key)
        if there is None or now >= there.expires_at:
            entries[key] = _Entry(now + seconds, readable_at, seconds)
            return
        # Two requests write the same prefix: keep the longer lifetime and the earlier start.
        there.ttl_seconds = max(there.ttl_seconds, seconds)
        there.expires_at = max(there.expires_at, now + seconds)
        there.readable_at = min(there.readable_at, readable_at)

    def _prune(self, now: float) -> None:
        for entries in self._entries.values():
            for key in [key for key, entry in entries.items() if now >= entry.expires_at]:
                del entries[key]
        self._prune_above = max(_PRUNE_ABOVE, 2 * max(len(entries) for entries in self._entries.values()))


def _refresh(entries: dict[bytes, _Entry], chain: Sequence[bytes], hit: int, now: float) -> None:
    """Renew the lifetime of every live entry within the prefix that was read."""
    for key in entries.keys() & chain[: hit + 1]:
        entry = entries[key]
        if entry.readable_at <= now < entry.expires_at:
            entry.expires_at = max(entry.expires_at, now + entry.ttl_seconds)


def positions(types: Iterable[str]) -> list[int]:
    """Return the position of each block for the look-back: a run of calls is one, and so is a run of results."""
    found: list[int] = []
    at, before = -1, ""
    for kind in types:
        at += not is_same_position(before, kind)
        found.append(at)
        before = kind
    return found


def is_same_position(before: str, kind: str) -> bool:
    """Say whether a block of this type belongs to the position of the block before it."""
    return kind == before and kind in _RUNS


def messages_key(request: Mapping[str, Any]) -> bytes:
    """Return the options of a request whose change loses the cached messages; an explicit default is no change."""
    facts = facts_of(str(request.get("model", "")))
    thinking = object_of(request.get("thinking")) or {"type": "adaptive" if facts.thinking_by_default else "disabled"}
    choice = object_of(request.get("tool_choice")) or {"type": "auto"}
    effort = object_of(request.get("output_config")).get("effort") or facts.default_effort
    seen = [message for message in request.get("messages", ()) if _has_image(message.get("content"))]
    key = (thinking.get("type"), thinking.get("budget_tokens"), effort, sorted(choice.items()), bool(seen))
    return msgspec.json.encode(key)


def _has_image(content: object) -> bool:
    return any(block.get("type") == "image" or _has_image(block.get("content")) for block in rows_of(content))
