"""Decide without a model and without knowing a language whether new messages are worth a model's look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from ...conversation.entries import Entry
from ...text.directives import is_question, typed_sentences
from ...text.words import words
from .sayings import typed_words, word_count

_LEAST_WORDS: Final = 3
"""Fewer words carry no rule and no fact, only an answer or a command such as "go on"."""
_LOOK_BACK: Final = 200


def has_new_prose(entries: Sequence[Entry], before: Iterable[Entry] = ()) -> bool:
    """Say whether a person typed a message in these entries that may hold a rule or a fact, and not said it before.

    It has enough words, and not only questions, which are known by their marks. ``before`` are the earlier entries of
    the session, newest first; the last two hundred are compared.
    """
    typed = [text for entry in entries if (text := typed_words(entry)) and word_count(text) >= _LEAST_WORDS]
    typed = [text for text in typed if not all(map(is_question, typed_sentences(text)))]
    if not typed:
        return False
    said = {words(typed_words(entry)) for entry in islice(before, _LOOK_BACK)}
    return any(words(text) not in said for text in typed)
