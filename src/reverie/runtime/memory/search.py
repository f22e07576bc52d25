"""Local search over memory directories; only files that changed are read again."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import datetime
from typing import Final

from ...arguments import check_text
from ...errors import StorageError
from ...memories.recall.local_choice import RecallContext, is_certain, may_show
from ...memories.recall.policy import RecallPolicy
from ...memories.recall.search import Match, MemoryIndex, fused
from ...memories.store.file_stamps import FileStamp, stamped_files
from ...memories.store.journal_files import SharedJournal
from ...memories.store.records import MemoryRecord, Scope
from ...memories.store.store import MemoryStore
from ...ports import Embedder
from ...values import replace
from .vectors import MemoryVectors

_TEAM: Final = "team/"


class MemorySearch:
    """A search index over a private memory directory and a team directory, for one thread at a time.

    A team memory is named ``team/<file>``. With an embedder, memories are found by their meaning too.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        team: str | os.PathLike[str] | None = None,
        embedder: Embedder | None = None,
        shared: SharedJournal | None = None,
    ) -> None:
        self._stores: dict[Scope, MemoryStore] = {"private": MemoryStore(os.fspath(directory), shared=shared)}
        if team is not None:
            self._stores["team"] = MemoryStore(os.fspath(team), scope="team")
        self._index = MemoryIndex()
        self.vectors = MemoryVectors(directory, embedder) if embedder is not None else None
        self._records: dict[str, MemoryRecord] = {}
        self._stamps: dict[str, FileStamp] = {}
        self.problems: dict[str, str] = {}
        """Files that could not be read, with the reason."""

    def refresh(self) -> int:
        """Read changed files and drop deleted ones since the last call; return the number of both together."""
        found: dict[str, tuple[Scope, str, FileStamp]] = {
            _outside(scope, file): (scope, file, stamp)
            for scope, store in self._stores.items()
            for file, stamp in stamped_files(store.root)
        }
        for store in self._stores.values():
            store.finish_writes()
        changed = [name for name, (_, _, stamp) in found.items() if self._stamps.get(name) != stamp]
        gone = [name for name in self._stamps if name not in found]
        for name in gone:
            self._drop(name)
        for name in changed:
            scope, file, stamp = found[name]
            self._take(name, self._stores[scope], file)
            self._stamps[name] = stamp
        if self.vectors is not None:
            self.vectors.refresh(self._records)
        return len(changed) + len(gone)

    def prepare(self, query: str) -> str:
        """Refresh the index and compute the vector of a question; return the problem of the embedder, if any.

        A search for this question then needs no model.
        """
        self.refresh()
        if self.vectors is None:
            return ""
        self.vectors.likenesses(query)
        return self.vectors.problem

    def search(
        self, query: str, *, limit: int = 10, now: datetime | None = None, without: Collection[str] = ()
    ) -> list[Match]:
        """Return a list of the memories most relevant to a question as of the last refresh, best first.

        ``without`` names files to leave out.
        """
        if self.vectors is None:
            return self._index.search(query, limit=limit, now=now, without=without)
        likenesses = self.vectors.likenesses(query)
        matches = self._index.search(query, limit=len(self._index), now=now, without=without)
        return fused(matches, likenesses, limit, without=without, specificity=self.vectors.specificity(query))

    def recall(
        self, query: str, *, limit: int = 10, policy: RecallPolicy | None = None, now: datetime | None = None
    ) -> list[MemoryRecord]:
        """Refresh the index and return the memories most relevant to a question, with bodies, best first.

        With a policy, only the memories that have not expired at ``now`` and are certain to help by it.
        """
        check_text("the question", query)
        self.refresh()
        context = RecallContext(now=now)
        hidden = {one.file for one in self.memories if policy is not None and not may_show(one, context)}
        matches = self.search(query, limit=limit, without=hidden)
        found = (self.get(match.file) for match in matches if policy is None or is_certain(match, policy))
        return [one for one in found if one is not None]

    @property
    def memories(self) -> list[MemoryRecord]:
        """A list of all memories as of the last refresh, with their bodies."""
        return list(self._records.values())

    def get(self, file: str) -> MemoryRecord | None:
        """Return a memory by its file as of the last refresh; None if there is none."""
        return self._records.get(file)

    def read(self, file: str) -> MemoryRecord | None:
        """Return a memory by its file as it is on disk now; None if there is none, an error if it is unreadable."""
        scope: Scope = "team" if file.startswith(_TEAM) and "team" in self._stores else "private"
        found = self._stores[scope].get(file.removeprefix(_TEAM) if scope == "team" else file)
        return replace(found, file=file) if found is not None else None

    def note_surfaced(self, files: list[str], session: str) -> None:
        """Record that a session was shown these memories, so that ``forget`` can name the sessions with copies."""
        self._stores["private"].note_surfaced(files, session)

    def _take(self, name: str, store: MemoryStore, file: str) -> None:
        try:
            memory = store.get(file)
        except StorageError as error:
            self._drop(name)
            self.problems[name] = str(error)
            return
        if memory is None or not memory.is_in_use:
            self._drop(name)
            return
        self.problems.pop(name, None)
        self._records[name] = memory = replace(memory, file=name)
        self._index.put(memory)

    def _drop(self, name: str) -> None:
        self._stamps.pop(name, None)
        self._records.pop(name, None)
        self.problems.pop(name, None)
        self._index.drop(name)


def _outside(scope: Scope, file: str) -> str:
    return f"{_TEAM}{file}" if scope == "team" else file
