"""The logs of a database that a search ranks: those with the rarest words of the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ...memories.recall.terms import terms, tokens
from ...ports import Stamp, Storage
from .log_text import messages_in, whole_lines

if TYPE_CHECKING:
    from ...storage.postgres.search import LogBehind, SharedWords

MAX_LOGS: Final = 64
"""The most logs that are ranked message by message."""
_MIN_CHARS: Final = 5
_BEGINNING_CHARS: Final = 3


def words_of(storage: Storage) -> SharedWords | None:
    """Return the index of words that a storage shares; None for files, and where contents are encrypted."""
    return cast("SharedWords | None", getattr(storage, "words", None))


def found_logs(storage: Storage, words: SharedWords, query: str, project: str | None) -> list[Stamp]:
    """Return the logs to rank for a query, after adding the words of all lines that are new."""
    index_logs(storage, words)
    asked = terms(query)
    found = words.candidates(asked, project=project, most=MAX_LOGS)
    if len(found) < MAX_LOGS:  # a misspelled word is found by its beginning, and compared by the ranking
        starts = [f"{word[:_BEGINNING_CHARS]}*" for word in asked if len(word) >= _MIN_CHARS and word.isalpha()]
        known = {one.key for one in found}
        found += [one for one in words.candidates(starts, project=project, most=MAX_LOGS) if one.key not in known]
    return found[:MAX_LOGS]


def index_logs(storage: Storage, words: SharedWords, *, at_all: bool = False) -> int:
    """Add the words of new lines, and return the number of logs that had some; ``at_all`` looks at every log."""
    behind = words.behind(at_all=at_all)
    words.settle([(log, _send(storage, words, log)) for log in behind])
    return sum(log.size > log.start for log in behind)


def _send(storage: Storage, words: SharedWords, log: LogBehind) -> int:
    """Add the words of a log's new lines and return the offset up to which it is indexed."""

    def read(start: int, size: int) -> bytes:
        return storage.load(log.key, start, size) or b""

    offset, found = log.start, set[str]()
    while offset < log.size and (data := whole_lines(read, offset, log.size)):
        for message in messages_in(data, offset):
            found.update(tokens(message.text), tokens(message.header))
        offset += len(data)
    if offset > log.start:
        words.add(log, offset, found)
    return offset
