"""Requests as the simulator sees them: blocks with digests and sizes, breakpoints by position."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from ..cache.breakpoints import BreakpointPlan
from ..cache.simulator import Mark, SimBlock
from ..conversation.entries import Message
from ..conversation.wire.blocks import as_blocks
from ..conversation.wire.canonical import canonical_block
from .recording import RecordedRequest, Recording

__all__ = ["RequestSimulator", "prefix_blocks"]

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
    """Turns requests into simulated blocks; the blocks of a message are made once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[tuple[int, bytes], tuple[Message, list[SimBlock]]] = {}
        self.prefix, self._context = prefix_blocks(recording)
        self.salt = b""
        self.epoch = 0

    def blocks(self, messages: list[Message]) -> tuple[list[SimBlock], list[int]]:
        """Return the blocks of a whole request, and the index of each message's first block."""
        out = list(self.prefix)
        if self._context:
            out.append(SimBlock(b"context %d" % self.epoch, self._context))
        starts: list[int] = []
        for message in messages:
            starts.append(len(out))
            out += self._message(message)
        return out, starts

    def _message(self, message: Message) -> list[SimBlock]:
        key = (id(message), self.salt)
        found = self._known.get(key)
        if found is None:
            role: str = message["role"]
            made = [
                SimBlock(
                    blake2b(self.salt + canonical_block(block, role), digest_size=_DIGEST).digest(),
                    self._recording.sizes.of(block),
                    str(block["type"]),
                )
                for block in as_blocks(message)
            ]
            found = self._known[key] = (message, made)
        return found[1]

    def marks(self, planned: BreakpointPlan, starts: list[int], size: int) -> list[Mark]:
        """Return planned breakpoints by the index of their block, in order; ``size`` counts all blocks."""
        prefix = {len(self.prefix) - 1: planned.prefix_ttl} if planned.marks_system else {}
        for place, ttl in planned.marks:
            prefix[min(starts[place.message] + place.block, size - 1)] = ttl
        return [Mark(at, ttl) for at, ttl in sorted(prefix.items())]

    def warmed(self, step: RecordedRequest) -> int | None:
        """Return how many prefix blocks a request read by its bill; None if its read tokens match no number."""
        read = step.billed.read if step.billed is not None else 0
        total = 0
        for number, block in enumerate(self.prefix):
            total += block.tokens
            if total == read:
                return number + 1
        return None
