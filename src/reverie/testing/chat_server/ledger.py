"""Automatic prefix caching: nobody marks anything, and what an earlier prompt began with is read from the cache."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

__all__ = ["PrefixCache", "count_tokens"]

_LEAST_TOKENS: Final = 1_024
_STEP_TOKENS: Final = 128
_IDLE_SECONDS: Final = 600.0
_BYTES_A_TOKEN: Final = 4
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def count_tokens(part: Any) -> int:
    """Count a part of a prompt: 4 bytes of its JSON a token, at least 1."""
    return max(1, len(_encode(part)) // _BYTES_A_TOKEN)


class PrefixCache:
    """What a provider that caches by itself still holds: whole parts from the start, in steps of 128 tokens."""

    def __init__(self) -> None:
        self._seen: dict[bytes, float] = {}

    def charge(self, model: str, parts: Sequence[Any], now: float) -> tuple[int, int]:
        """Return all tokens of a prompt and how many of them were cached; from now on its prefixes are."""
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
