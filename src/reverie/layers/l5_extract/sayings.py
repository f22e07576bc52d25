"""The messages that a person typed, as layer 5 compares them across sessions; it knows no language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Final

from ...conversation.authorship import own_words
from ...conversation.entries import USER, Entry
from ...text.sentences import without_pasted
from ...values import record

_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_WORD: Final = re.compile(r"\w+(?:[-'’]\w+)*")
_BRACKETED: Final = re.compile(r"\[[^\[\]]*\]|<[^<>]*>")
_DOCUMENT_CHARS: Final = 1_500
_DOCUMENT_LINES: Final = 14


@record
class TypedMessage:
    """The words that a person typed in one message of a session."""

    session: str
    message: str
    """The uuid of the message."""
    text: str
    at: float = 0.0
    opens: bool = False
    """Whether it is the first one of its session."""

    @property
    def day(self) -> date | None:
        """The day in UTC on which it was typed; None if its time is unknown."""
        try:
            return datetime.fromtimestamp(self.at, UTC).date() if self.at > 0 else None
        except (ValueError, OverflowError, OSError):
            return None


def typed_words(entry: Entry) -> str:
    """Return the words that a person typed in a message; empty for a document, for program text and for no message.

    A message too long to have been typed is a document: a pasted text or a template.
    """
    words = own_words(entry).strip() if entry.kind == USER else ""
    lines = sum(1 for line in words.split("\n") if line.strip())
    if len(words) > _DOCUMENT_CHARS or lines > _DOCUMENT_LINES or _BRACKETED.fullmatch(words):
        return ""
    return without_pasted(words).strip()


def sayings_of(session: str, entries: Iterable[Entry]) -> Iterator[TypedMessage]:
    """Yield the messages that a person typed in these entries, in order; those without a parent begin a session."""
    opens: bool | None = None
    for entry in entries:
        opens = entry.parent is None if opens is None else opens
        if text := typed_words(entry):
            yield TypedMessage(session, entry.uuid, text, entry.at, opens)
            opens = False


def word_count(text: str) -> int:
    """Return the number of distinct words in a text; two characters of a script without spaces count as one."""
    unspaced = len(_UNSPACED.findall(text))
    return len({word.casefold() for word in _WORD.findall(_UNSPACED.sub(" ", text))}) + unspaced // 2
