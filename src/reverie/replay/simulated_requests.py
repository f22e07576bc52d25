"""Requests as the simulator sees them: blocks with digests and sizes, breakpoints by position."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from operator import is_
from typing import Final

from ..cache.breakpoints import BreakpointPlan
from ..cache.simulator import CacheSimulator, Mark, SimBlock, is_same_position
from ..cache.usage import Usage
from ..conversation.entries import Message
from ..conversation.wire.blocks import as_blocks
from ..conversation.wire.canonical import canonical_block
from .recording import Recording

_DIGEST: Final = 12


def prefix_blocks(recording: Recording) -> tuple[list[SimBlock], int]:
    """Return the blocks before the messages that all requests share, and the tokens of the other prefix content.

    The last piece, where the recording shows several, is context that a client sends again after a compaction.
    """
    pieces = recording.prefix
    shared = pieces[:-1] or pieces
    blocks = [SimBlock(b"prefix %d" % number, tokens) for number, tokens in enumerate(shared)]
    return blocks, sum(pieces[len(shared) :])


class RequestSimulator:
    """Sends requests to a simulated cache; only the messages that a request adds or changes are looked at.

    Messages are objects that stay alive; the same object is the same message.
    """

    def __init__(self, recording: Recording, model: str) -> None:
        self._recording = recording
        self._model = model
        self._cache = CacheSimulator()
        self.prefix, self._context = prefix_blocks(recording)
        self.epoch = 0
        self._shown_epoch = -1
        self._messages: list[Message] = []
        self._starts: list[int] = []
        self._chain: list[bytes] = []
        self._totals: list[int] = []
        self._types: list[str] = []
        self._positions: list[int] = []
        self._marks: list[Mark] = []

    def send(
        self, messages: list[Message], planned: BreakpointPlan | None, now: float, same: int = 0, billed_read: int = 0
    ) -> Usage:
        """Send a request and return its usage; without breakpoints nothing is cached.

        The first ``same`` messages are those of the request before. ``billed_read`` are the tokens that the recorded
        request read from the cache.
        """
        self._take(messages, same)
        if planned is None:
            return Usage(uncached=self._totals[-1])
        self._warm(billed_read, planned.prefix_ttl, now - 0.5)
        self._marks = self.marks(planned)
        return self.again(now)

    def again(self, now: float) -> Usage:
        """Send the last request as it was."""
        return self._cache.request_chained(
            self._chain, self._totals, self._marks, model=self._model, now=now, positions=self._positions
        )

    def held(self, now: float) -> int:
        """Return the tokens of the last request that are still in the cache."""
        blocks = self._cache.readable(self._chain, self._marks, model=self._model, now=now, positions=self._positions)
        return self._totals[blocks - 1] if blocks else 0

    def _warm(self, billed_read: int, ttl: str, at: float) -> None:
        """Put the part of a request into the cache that was there before, if the bill shows its size.

        That is a part of the prefix, from another session, or at first the lost past of the recording.
        """
        is_first = not self._marks
        totals = self._totals if is_first else self._totals[: len(self.prefix)]
        end = bisect_right(totals, billed_read)
        if billed_read and end and (is_first or totals[end - 1] == billed_read):
            mark = Mark(end - 1, ttl)
            self._cache.request_chained(
                self._chain[:end], totals[:end], [mark], model=self._model, now=at, positions=self._positions
            )

    def _take(self, messages: list[Message], same: int) -> None:
        """Make the lists of blocks those of a request: keep the part that it has in common with the last one."""
        if self.epoch != self._shown_epoch:
            self._shown_epoch, self._messages = self.epoch, []
            self._cut(0)
            context = [SimBlock(b"context %d" % self.epoch, self._context)] if self._context else []
            self._extend([*self.prefix, *context])
        before = self._messages
        common = min(same, len(before))
        common += [*map(is_, messages[common:], before[common:]), False].index(False)
        if common < len(before):
            self._cut(self._starts[common])
            del self._starts[common:]
        for message in messages[common:]:
            self._starts.append(len(self._chain))
            self._extend(self._blocks(message))
        self._messages = messages

    def _cut(self, size: int) -> None:
        for kept in (self._chain, self._totals, self._types, self._positions):
            del kept[size:]
        if not size:
            self._starts = []

    def _extend(self, blocks: list[SimBlock]) -> None:
        after = self._chain[-1] if self._chain else b""
        self._chain += self._cache.chain((block.digest for block in blocks), after)
        for block in blocks:
            self._totals.append(block.tokens + (self._totals[-1] if self._totals else 0))
            is_run = bool(self._types) and is_same_position(self._types[-1], block.type)
            self._positions.append((self._positions[-1] if self._positions else -1) + (not is_run))
            self._types.append(block.type)

    def _blocks(self, message: Message) -> list[SimBlock]:
        known = self._recording.shared.blocks.get(id(message))
        if known is not None:
            return known[1]
        role: str = message["role"]
        made = [
            SimBlock(
                blake2b(canonical_block(block, role), digest_size=_DIGEST).digest(),
                self._recording.sizes.of(block),
                str(block["type"]),
            )
            for block in as_blocks(message)
        ]
        self._recording.shared.blocks[id(message)] = message, made
        return made

    def marks(self, planned: BreakpointPlan) -> list[Mark]:
        """Return the breakpoints planned for the last request by the index of their block, in order."""
        prefix = {len(self.prefix) - 1: planned.prefix_ttl} if planned.marks_system else {}
        for place, ttl in planned.marks:
            prefix[min(self._starts[place.message] + place.block, len(self._chain) - 1)] = ttl
        return [Mark(at, ttl) for at, ttl in sorted(prefix.items())]
