"""Existing memories, to save nothing twice and to update an old memory if only a value changed.

Texts are compared by the stems of their words in order. A text replaces another only if they differ in nothing but
numbers, dates or addresses: losing one of two rules is worse than keeping both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ...memories.recall.terms import tokens
from ...memories.rules.taxonomy import claim_of
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import TRUSTS, Trust
from ...values import record

_URL: Final = re.compile(r"https?://[^\s<>\"')\]]+", re.IGNORECASE)
_ENDS: Final = re.compile(r"(?<=[.!?…])\s+|\n+")


@record
class _Text:
    """The words of a text in order, with a mark for each value (number or address), and the values."""

    words: tuple[str, ...]
    values: tuple[str, ...]


def _read(text: str) -> _Text:
    urls = [url.rstrip(".,;:").casefold() for url in _URL.findall(text)]
    words = tokens(_URL.sub(" 0 ", text))
    values = [word for word in words if word.isdigit()]
    return _Text(tuple("0" if word.isdigit() else word for word in words), (*urls, *values))


class ExistingMemories:
    """An index of existing memories by the words of their texts, to find repeated and updated ones."""

    def __init__(self, existing: Iterable[MemoryRecord] = ()) -> None:
        self._said: set[_Text] = set()
        self._files: dict[tuple[str, tuple[str, ...]], tuple[str, Trust]] = {}
        for memory in existing:
            if not memory.problem:
                for text in filter(None, (memory.body, memory.description)):
                    self.add(memory.type, text, file=memory.file, trust=memory.trust)

    def add(self, type_name: str, text: str, *, file: str, trust: Trust = "user") -> None:
        """Add the text of an existing memory; if ``file`` is empty, no later text can update it."""
        rule = claim_of(text)
        whole = _read(rule)
        self._said |= {whole, *map(_read, _ENDS.split(rule))}
        if file:
            self._files[type_name, whole.words] = (file, trust)

    def place(self, type_name: str, text: str, trust: Trust) -> str | None:
        """Return the file that a text of this trust updates, "" if it updates none, None if the text exists."""
        new = _read(text)
        if new in self._said:
            return None
        file, vouched = self._files.get((type_name, new.words), ("", trust))
        # A text of lower trust is saved beside a more trusted one and never replaces it.
        return file if TRUSTS.index(vouched) >= TRUSTS.index(trust) else ""
