"""Memories in standing context: the recalled ones and the index, as they are on disk now.

Files are read at the start of a query and after a cut, not at every turn while the agent itself saves memories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from anyio import to_thread

from ...conversation.standing_context import StandingItem, StandingRow, digest_of
from ...conversation.view import View
from ...errors import ReverieError
from ...memories.recall.local_choice import RecallContext, may_show
from ...memories.recall.policy import RecallPolicy
from ...memories.recall.presentation import fitted_memory
from ...memories.recall.selection import KEY, SOURCE, memory_item
from ...memories.rules.guidance import fenced_index, index_changes, index_lines, lines_in_fence
from ...memories.store.index import lines_of, load
from ...memories.store.records import MemoryRecord, Scope
from ...values import record
from ..session.standing_context import FilesSource
from .memory import Memory

INDEX: Final = "index"
_UPDATE: Final = ":update"
_RECALL_TAG_BYTES: Final = 8
_INDEX_TAG_BYTES: Final = 4


def recalled_rows(view: View) -> dict[str, StandingRow]:
    """Return the rows of recalled memories in standing context by file, in the order in which they were first said."""
    table = view.facts.standing
    found = {key.removeprefix(KEY): table[key] for key in table if key.startswith(KEY)}
    return {file: row for file, row in found.items() if row.item.state != "ended"}


class RecalledMemories(FilesSource):
    """The source of recalled memories: each as it is now, the newest first; one that was deleted ends."""

    name = SOURCE

    def __init__(
        self,
        read: Callable[[str], MemoryRecord | None],
        *,
        policy: RecallPolicy,
        clock: Callable[[], datetime],
    ) -> None:
        """Give recalled memories; ``read`` returns a memory by its file as it is on disk."""
        super().__init__()
        self._read, self._policy, self._clock = read, policy, clock
        self._items: dict[str, StandingItem | None] = {}

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the memories that were recalled in this session and still exist."""
        rows = recalled_rows(view)
        if self.takes_files(view):
            self._items = {}
        known = {file: item.digest for file, item in self._items.items() if item is not None}
        stale = [file for file, row in rows.items() if known.get(file) != row.item.digest]
        if stale:
            self._items.update(await to_thread.run_sync(self._read_items, {file: rows[file] for file in stale}))
        found = [self._items.get(file) for file in reversed(rows)]
        return [item for item in found if item is not None]

    def _read_items(self, rows: Mapping[str, StandingRow]) -> dict[str, StandingItem | None]:
        return {file: self._item(file, row) for file, row in rows.items()}

    def _item(self, file: str, row: StandingRow) -> StandingItem | None:
        """Return a memory as it is now, as it was said if it cannot be read, None if it is gone or has expired."""
        try:
            memory = self._read(file)
        except ReverieError:
            return _as_said(row)
        now = self._clock()
        if memory is None or not may_show(memory, RecallContext(now=now)):
            return None
        tag = os.urandom(_RECALL_TAG_BYTES).hex()
        return memory_item(memory, fitted_memory(memory, tag=tag, now=now, policy=self._policy) or "")


@record
class IndexText:
    """The lines of one scope's index as the model reads them, and the directory that they describe."""

    scope: Scope
    path: str
    lines: str
    note: str = ""
    """A sentence after the index."""


def read_indexes(memory: Memory, places: Mapping[Scope, str], *, most_bytes: int, note: str = "") -> list[IndexText]:
    """Read the indexes of these directories, each at most ``most_bytes``; mark unconfirmed and expired memories."""
    heads = memory.list()
    trusts = {head.file: head.trust for head in heads}
    ended = {head.file for head in heads if memory.has_expired(head)}
    found: list[IndexText] = []
    for scope, path in places.items():
        index = memory.index(scope)
        if len(index.text.encode("utf-8", "replace")) > most_bytes:
            index = load(index.text, max_bytes=most_bytes)
        start = "team/" if scope == "team" else ""
        files = [line.file for line in lines_of(index.text)]
        waiting = [file for file in files if trusts.get(start + file, "unconfirmed") == "unconfirmed"]
        expired = [file for file in files if start + file in ended]
        found.append(IndexText(scope, path, index_lines(index, waiting, expired), note))
    return found


class IndexSource(FilesSource):
    """The source of the memory index: whole when it is new, then its changes while they are short."""

    name = INDEX

    def __init__(self, read: Callable[[], Sequence[IndexText]], report: Callable[[str], None]) -> None:
        """Give the index; ``read`` returns it as it is on disk, and ``report`` is called if that fails."""
        super().__init__()
        self._read, self._report = read, report
        self._found: Sequence[IndexText] | None = None

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the index of each scope, or the index as it was said and its changes."""
        if self.takes_files(view):
            try:
                self._found = await to_thread.run_sync(self._read)
            except (ReverieError, OSError) as error:
                self._report(f"the index cannot be read: {error}")
        if self._found is None:
            table = view.facts.standing
            rows = (table[key] for key in table if table[key].item.source == INDEX)
            return [_as_said(row) for row in rows if row.item.state != "ended"]
        return [item for one in self._found for item in _index_items(one, view)]


def _index_items(index: IndexText, view: View) -> list[StandingItem]:
    key = f"{INDEX}:{index.scope}"
    row, digest = view.facts.standing.get(key), digest_of(index.lines)
    name = "the memory index" if index.scope == "private" else f"the memory index of the {index.scope}"
    if row is not None and row.item.state == "said" and key not in view.facts.fallen and row.item.digest != digest:
        tag = os.urandom(_INDEX_TAG_BYTES).hex()
        changes = index_changes(lines_in_fence(row.item.value), index.lines, tag=tag, scope=index.scope)
        if changes is not None:
            changed = StandingItem(f"{key}{_UPDATE}", INDEX, f"the update of {name}", changes, digest)
            return [_as_said(row), changed]
    text = fenced_index(index.lines, path=index.path, tag=os.urandom(_INDEX_TAG_BYTES).hex(), scope=index.scope)
    return [StandingItem(key, INDEX, name, "\n".join(filter(None, [text, index.note])), digest)]


def _as_said(row: StandingRow) -> StandingItem:
    said = row.item
    return StandingItem(said.key, said.source, said.name, said.value, said.digest, budget=said.budget)
