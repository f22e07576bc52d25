"""A cache of the words of memories between hooks, so that a hook reads only the files that changed.

It holds nothing that the memory files do not hold and may be deleted at any time; an unreadable cache is rebuilt.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

import Stemmer

from ..digests import hex_of
from ..errors import ReverieError
from ..memories.recall import search
from ..memories.recall import terms as lexical
from ..memories.recall.search import MemoryWords
from ..memories.store import frontmatter, records
from ..memories.store.records import MemoryRecord
from ..paths import open_no_follow, replace_file
from ..text import stems
from ..values import cast
from . import mentions
from .mentions import names_in
from .queue import FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_MAX_BYTES: Final = 64 * 2**20
_FRESH_NS: Final = 2_000_000_000
"""A file that changed this recently could change again within the same time stamp, so it is not cached."""

_COLUMNS: Final = 7
Row = tuple[str, str, str, int, dict[str, int], list[str]]


class WordCache:
    """The cached words of one memory directory, in a file under home; ``save`` writes changes."""

    def __init__(self, home: str, root: str, scope: str) -> None:
        name = hex_of(f"{scope}\0{root}".encode("utf-8", "surrogateescape"))[:32]
        self._home = home
        self._name = f"{FOLDER}/words-{name}.json"
        self._made_by = _makers()
        self._before = self._read()
        self._now: dict[str, list[Any]] = {}
        self._changed = False

    def row(self, name: str, stamp: tuple[int, ...]) -> Row | None:
        """Return the cached row of a file; None if it is not cached or the file has another stamp."""
        found = self._before.get(name)
        if found is None or found[0] != list(stamp) or stamp[-1] != 1:
            return None
        self._now[name] = found
        return cast("Row", tuple(found[1:]))

    def put(self, memory: MemoryRecord, words: MemoryWords, stamp: tuple[int, ...]) -> Row:
        """Return the words of a file as a row, and cache it, unless the file changed in the last seconds."""
        row: Row = (
            memory.type,
            memory.modified,
            memory.expires,
            words.length,
            dict(words.counts),
            names_in(f"{memory.description}\n{memory.body}") if memory.is_in_use else [],
        )
        if max(stamp[:2]) < time.time_ns() - _FRESH_NS:
            self._now[memory.file] = [list(stamp), *row]
            self._changed = True
        return row

    def save(self) -> None:
        """Write the cache if it changed; a failure to write is ignored."""
        if not self._changed and self._now.keys() == self._before.keys():
            return
        body = json.dumps({"made_by": self._made_by, "rows": self._now}, separators=(",", ":"))
        with suppress(ReverieError, OSError):  # the cache only saves time
            replace_file(self._home, self._name, body.encode())

    def _read(self) -> dict[str, list[Any]]:
        try:
            with open(os.path.join(self._home, self._name), "rb", opener=open_no_follow) as stream:
                found: Any = json.loads(stream.read(_MAX_BYTES))
            rows = cast("dict[str, list[Any]]", found["rows"] if found["made_by"] == self._made_by else {})
            return {name: row for name, row in rows.items() if len(row) == _COLUMNS}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}


def delete_word_caches(home: str | os.PathLike[str]) -> None:
    """Delete all cached words and names under a home, because memories were erased; later hooks build new ones."""
    with suppress(OSError), os.scandir(os.path.join(home, FOLDER)) as entries:
        for entry in entries:
            if entry.name.startswith(("words-", "names-")):
                os.unlink(entry.path)


def _makers() -> list[int]:
    """Return the modification times of the modules that split words: other times mean another version."""
    files = [room.__file__ for room in (frontmatter, lexical, mentions, records, search, stems, Stemmer)]
    with suppress(OSError):
        return [os.stat(file).st_mtime_ns for file in files if file]
    return [0]
