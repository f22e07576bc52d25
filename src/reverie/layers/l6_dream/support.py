"""Determine the trust of a text that a model wrote in a dream, by the memories its sentences come from. Pure.

A sentence from a memory keeps that memory's trust. The model's own words get agent trust at best, and only if they come
from trusted memories; otherwise the memory waits for confirmation. A text never gets more trust than the text it
replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...memories.recall.terms import tokens, without_noise
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import TRUSTS, Trust, worst
from ...text.words import sentences

_SUPPORTED: Final = 0.7
_MOST_CHARS: Final = 4_000_000


class Support:
    """The sentences of the memories with their trust, and the words of trusted text, to judge a model's text."""

    def __init__(self, memories: Mapping[str, MemoryRecord]) -> None:
        """Index these memories, as they were before the dream."""
        self._trust: dict[tuple[str, ...], Trust] = {}
        self._vouched: set[str] = set()
        self._left = _MOST_CHARS
        for memory in memories.values():
            text = f"{memory.name}\n\n{memory.description}\n\n{memory.body}"
            for sentence in sentences(text):
                known: Trust = self._trust.get(sentence, "unconfirmed")
                self._trust[sentence] = memory.trust if _is_better(memory.trust, known) else known
            if memory.trust != "unconfirmed":
                self.vouch(text)

    def vouch(self, text: str) -> None:
        """Add the words of a text that deserves agent trust, such as a line of a daily log."""
        self._vouched.update(without_noise(tokens(text[: self._left])))
        self._left = max(0, self._left - len(text))

    def trust(self, text: str, *, over: MemoryRecord | None = None) -> Trust:
        """Return the trust of a model's text: the lowest of its sentences, and of ``over``, which it replaces.

        A new text, or one that leaves out a sentence of ``over``, gets agent trust at best.
        """
        said = sentences(text)
        own = [one for one in said if one not in self._trust]
        found: list[Trust] = [self._trust[one] for one in said if one in self._trust]
        if own:
            found.append(self._supported("\n".join(map(" ".join, own))))
        if over is not None:
            found.append(over.trust)
        if over is None or any(one not in said for one in sentences(over.body)):
            found.append("agent")  # leaving a sentence out can reverse the meaning of the rest
        return worst(found)

    def _supported(self, text: str) -> Trust:
        words = set(without_noise(tokens(text)))
        if not words or len(words & self._vouched) < _SUPPORTED * len(words):
            return "unconfirmed"
        return "agent"


def _is_better(one: Trust, other: Trust) -> bool:
    return TRUSTS.index(one) < TRUSTS.index(other)
