"""Prompt caching of the provider: by whole prefixes on earlier models, at breakpoints on later ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ...values import record, rows_of
from .refusals import Body

_LEAST_TOKENS: Final = 1_024
_STEP_TOKENS: Final = 128
_IDLE_SECONDS: Final = 600.0
_LIFE_SECONDS: Final = 1_800.0
_BYTES_PER_TOKEN: Final = 4
_MAX_WRITES: Final = 4
_FIRST_MARKS, _LATEST_MARKS, _EARLIER_ENDS = 2, 50, 20
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


@record
class PromptUnit:
    """A piece of a prompt: one content part or a whole item.

    ``marked`` means an explicit breakpoint, ``end`` that an eligible message ends here.
    """

    value: Any
    marked: bool = False
    end: bool = False


def prompt_units(items: Sequence[Body]) -> Iterator[PromptUnit]:
    """Yield the pieces of the items of a response, or of the messages of a chat completion."""
    opening = True
    for at, item in enumerate(items):
        role = _author(item)
        following = _author(items[at + 1]) if at + 1 < len(items) else ""
        end = role == "user" or (role == "tool" and following != "tool")
        end = end or (role == "developer" and opening and following != "developer")
        opening = opening and role == "developer"
        parts = rows_of(item.get("output") if role == "tool" and "output" in item else item.get("content"))
        parts = parts if role != "assistant" else []
        if not parts:
            yield PromptUnit(_bare(item), end=end)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            yield PromptUnit([role, _bare(part)], "prompt_cache_breakpoint" in part, end and last)


def _author(item: Mapping[str, Any]) -> str:
    """Return the author of an item; tool outputs are a ``tool``'s and other items of the model an assistant's."""
    if item.get("type") == "function_call_output":
        return "tool"
    role = str(item.get("role") or "assistant")
    return "developer" if role == "system" else role


def _bare(item: Mapping[str, Any]) -> Body:
    """Return an item or a part as it is cached: without its id, its status and its breakpoint."""
    unseen = ("id", "status", "prompt_cache_breakpoint")
    return {key: value for key, value in item.items() if key not in unseen and value is not None}


class BreakpointCache:
    """The cached prefixes of later models: written and read only at breakpoints, kept for 30 minutes."""

    def __init__(self) -> None:
        self._entries: dict[bytes, float] = {}

    def charge(
        self, key: Any, units: Iterable[PromptUnit], now: float, *, explicit: bool = False
    ) -> tuple[int, int, int]:
        """Return the tokens of a prompt, and how many of them were read and written.

        ``key`` holds every field that moves the cache; ``explicit`` switches the provider's own breakpoint off.
        """
        chain, total = blake2b(_encode(key), digest_size=16).digest(), count_tokens(key)
        marks: list[tuple[bytes, int]] = []
        ends: list[tuple[bytes, int]] = []
        for unit in units:
            chain = blake2b(chain + _encode(unit.value), digest_size=16).digest()
            total += count_tokens(unit.value)
            marks += [(chain, total)] if unit.marked else []
            ends += [(chain, total)] if unit.end else []
        looked = [*marks[:_FIRST_MARKS], *marks[-_LATEST_MARKS:]]
        writes = marks[-_MAX_WRITES:] if explicit else [*marks[1 - _MAX_WRITES :], *ends[-1:]]
        if not explicit:
            looked += [*ends[:1], *ends[-_EARLIER_ENDS - 1 :]]
        read = max((size for name, size in looked if self._is_live(name, now)), default=0)
        written = [(name, size) for name, size in writes if size >= _LEAST_TOKENS]
        last = max((size for _, size in written), default=0)
        renewed = [name for name, size in looked if size <= read and self._is_live(name, now)]
        self._entries.update(dict.fromkeys([*renewed, *(name for name, _ in written)], now))
        return total, read, max(0, last - read)

    def _is_live(self, name: bytes, now: float) -> bool:
        return name in self._entries and now - self._entries[name] < _LIFE_SECONDS
