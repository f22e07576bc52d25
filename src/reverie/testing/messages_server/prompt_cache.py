"""The server's prompt cache: requests as blocks of the simulator, usage as the provider reports it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from ...cache.simulator import CacheSimulator, Mark, messages_key, positions
from ...cache.usage import Usage
from ...conversation.wire.canonical import canonical_block
from ...models.scripted_model import mark_ttl
from ...values import record
from .edits import CLEARED, TokenCounter, blocks_of, deleted_results


@record
class Prompt:
    """A request as a cache sees it: digest, part, position and tokens of each block, and its breakpoints."""

    model: str
    parts: Sequence[str]
    positions: Sequence[int]
    digests: Sequence[bytes]
    tokens: Sequence[int]
    marks: Sequence[Mark]
    options: bytes
    edits: Sequence[int]
    deleted_tokens: int

    @property
    def total(self) -> int:
        """The sum of the input tokens of all blocks."""
        return sum(self.tokens)


def prompt_of(request: dict[str, Any], count: TokenCounter) -> Prompt:
    """Return a valid request as a prompt.

    The digest of the first message block also covers the options whose change invalidates the messages. A result that
    a ``cache_edits`` block deletes keeps its digest and counts as cleared; the block itself counts as 0 tokens.
    """
    deleted = deleted_results(request)
    laid = list(blocks_of(request))
    options = messages_key(request)
    parts, digests, tokens, marks, edits = list[str](), list[bytes](), list[int](), list[Mark](), list[int]()
    saved, salt = 0, options
    for index, (part, block) in enumerate(laid):
        said = canonical_block(block, part)
        if part not in ("tool", "system"):
            said, salt = said + salt, b""
        parts.append(part)
        digests.append(blake2b(said, digest_size=16).digest())
        size = count(block)
        if part == "user" and block["type"] == "cache_edits":
            edits.append(index)
            size = 0
        elif part == "user" and block["type"] == "tool_result" and block["tool_use_id"] in deleted:
            short = count({**block, "content": CLEARED})
            saved += max(0, size - short)
            size = min(size, short)
        tokens.append(size)
        ttl = mark_ttl(block)
        if ttl:
            marks.append(Mark(index, ttl))
    automatic = request.get("cache_control")
    if automatic and laid:
        last = max(
            index
            for index, (part, block) in enumerate(laid)
            if part not in ("reminder", "definition") and "thinking" not in str(block.get("type"))
        )
        marks = [mark for mark in marks if mark.index != last] + [Mark(last, automatic.get("ttl", "5m"))]
    placed = positions(str(block.get("type")) for _, block in laid)
    return Prompt(request["model"], parts, placed, digests, tokens, marks, options, edits, saved)


class Charge:
    """The usage of one request, with a method that makes its cache writes readable for later requests."""

    __slots__ = ("_chain", "_prompt", "_simulator", "deleted_tokens", "usage")

    def __init__(self, simulator: CacheSimulator, prompt: Prompt, chain: list[bytes], usage: Usage) -> None:
        self._simulator = simulator
        self._prompt = prompt
        self._chain = chain
        self.usage = usage
        self.deleted_tokens = 0

    def edit_keys(self) -> list[bytes]:
        """Return the prefix hash at each ``cache_edits`` block, which identifies an edit that counts only once."""
        return [self._chain[index] for index in self._prompt.edits]

    def streaming_began(self, at: float) -> None:
        """Let later requests read the cache writes of this request from the time ``at``."""
        self._simulator.streaming_began(self._chain, self._prompt.marks, model=self._prompt.model, at=at)


def charge(simulator: CacheSimulator, prompt: Prompt, now: float, extra_tokens: int = 0) -> Charge:
    """Charge a prompt and ``extra_tokens``, which are never cached; ``streaming_began`` makes its writes readable."""
    chain = simulator.chain(prompt.digests)
    totals = list(accumulate(prompt.tokens))
    usage = simulator.request_chained(
        chain,
        totals,
        prompt.marks,
        model=prompt.model,
        now=now,
        readable_at=math.inf,
        positions=prompt.positions,
    )
    if extra_tokens:
        usage = Usage(usage.read, usage.write_5m, usage.write_1h, usage.uncached + extra_tokens)
    return Charge(simulator, prompt, chain, usage)


def cache_miss_reason(before: Prompt | None, now: Prompt) -> dict[str, Any] | None:
    """Return the provider's reason (a dict) why not all of an earlier prompt is reused; None where all is."""
    if before is None:
        return {"type": "previous_message_not_found"}
    common = 0
    if before.model == now.model:
        for one, other in zip(before.digests, now.digests, strict=False):
            if one != other:
                break
            common += 1
    missed = {"cache_missed_input_tokens": sum(before.tokens[common:])}
    if before.model != now.model:
        return {"type": "model_changed", **missed}
    if common == len(before.digests):
        return None
    for part, reason in (("tool", "tools_changed"), ("system", "system_changed")):
        if _part(before, part) != _part(now, part):
            return {"type": reason, **missed}
    return {"type": "unavailable"} if before.options != now.options else {"type": "messages_changed", **missed}


def _part(prompt: Prompt, part: str) -> list[bytes]:
    return [digest for name, digest in zip(prompt.parts, prompt.digests, strict=True) if name == part]
