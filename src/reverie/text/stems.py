"""Stems of words, by Snowball's stemmer for English."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterable
from functools import lru_cache

import Stemmer

from ..values import cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_ENGLISH: Final[Any] = cast("Any", Stemmer).Stemmer("english", 0)
_LOCK: Final = allocate_lock()  # a stemmer is not thread-safe


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the English stem of a lower-case word; words of other scripts stay as they are."""
    with _LOCK:
        return _ENGLISH.stemWord(word) or word


def stems(words: Iterable[str]) -> list[str]:
    """Return the English stem of each lower-case word, in order."""
    return [stem(word) for word in words]
