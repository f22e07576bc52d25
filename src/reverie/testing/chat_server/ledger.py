"""Automatic prefix caching without marks: a prompt reads the cached start of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

__all__ = ["PrefixCache", "count_tokens"]

_LEAST_TOKENS: Final = 1_024
_STEP_TOKENS: Final = 128
_IDLE_SECONDS: Final = 600.0
_BYTES_PER_TOKEN: Final = 4
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def count_tokens(part: Any) -> int:
    """Return the tokens of a part of a prompt: one per 4 bytes of JSON, at least 1."""
    return max(1, len(_encode(part)) // _BYTES_PER_TOKEN)


class PrefixCache:
    """The cached prefixes of prompts: whole parts, kept for 10 minutes, read from 1,024 tokens in steps of 128."""

    def __init__(self) -> None:
        self._seen: dict[bytes, float] = {}

    def charge(self, model: str, parts: Sequence[Any], now: float) -> tuple[int, int]:
        """Return the tokens of a prompt and how many of them were cached; then cache its prefixes."""
        chain = blake2b(model.encode(), digest_size=16).digest()
        total = cached = 0
        reading = True
        keys: list[bytes] = []
        for part in parts:
            chain = blake2b(chain + _encode(part), digest_size=16).digest()
            keys.append(chain)
            total += count_tokens(part)
            reading = reading and now - self._seen.get(chain, -_IDLE_SECONDS) < _IDLE_SECONDS
            if reading:
                cached = total
        self._seen.update(dict.fromkeys(keys, now))
        return total, cached // _STEP_TOKENS * _STEP_TOKENS if cached >= _LEAST_TOKENS else 0
