"""The vectors of memories, computed when a memory is saved or found changed, in a file beside the journal.

The file holds nothing that cannot be computed again, so a damaged one is deleted.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Mapping
from contextlib import closing
from heapq import nlargest
from itertools import combinations
from pathlib import Path
from typing import Final

from ...digests import hex_of
from ...errors import ReverieError
from ...memories.rules.taxonomy import claim_of
from ...memories.store.records import MemoryRecord
from ...ports import Embedder, PromptEmbedder
from ...storage.sqlite import delete_database, is_damage, open_database
from ..search.vectors import likeness, vector_of

_FILE: Final = "vectors.sqlite"
_JOURNAL: Final = ".journal"
_BUSY_SECONDS: Final = 5.0
_BODY_CHARS: Final = 500
_LEAST_LEAD: Final = 0.5
"""The least likeness of two alike memories, less half of that of the next one to either."""


def delete_vectors(directory: str | os.PathLike[str]) -> None:
    """Delete the vectors of a memory directory, because memories were erased; the next search computes the others."""
    delete_database(Path(directory) / _JOURNAL / _FILE)


class MemoryVectors:
    """The vectors of the memories of a directory, made by one embedder; ``problem`` says why there are none."""

    def __init__(self, directory: str | os.PathLike[str], embedder: Embedder) -> None:
        self._directory = directory
        self._path = Path(directory) / _JOURNAL / _FILE
        self._embedder = embedder
        self._rows: dict[str, tuple[str, array[float]]] = {}
        self._is_loaded = False
        self._asked: tuple[str, array[float]] | None = None
        self.problem = ""

    def refresh(self, memories: Mapping[str, MemoryRecord]) -> None:
        """Compute the vectors of new and changed memories, and delete those of memories that are gone."""
        try:
            if not self._is_loaded:
                self._load()
            wanted = {file: self._digest(memory) for file, memory in memories.items()}
            gone = [file for file in self._rows if file not in wanted]
            changed = [file for file, digest in wanted.items() if self._rows.get(file, ("",))[0] != digest]
            made = self._embedder.vectors([_text(memories[file]) for file in changed]) if changed else []
            rows = {file: (wanted[file], vector) for file, vector in zip(changed, made, strict=True)}
            if gone or rows:
                self._save(gone, rows)
            self.problem = ""
        except (ReverieError, sqlite3.Error, OSError) as error:
            self.problem = f"memories are found by their words alone: {error}"

    def likenesses(self, query: str) -> dict[str, float]:
        """Return the likeness of each memory that has a vector to a question, by file; empty if the embedder fails."""
        try:
            if not self._is_loaded:
                self._load()
            if not self._rows or not query.strip():
                return {}
            if self._asked is None or self._asked[0] != query:
                self._asked = (query, self._embedder.vectors([query])[0])
            asked = self._asked[1]
        except (ReverieError, sqlite3.Error, OSError) as error:
            self.problem = f"memories are found by their words alone: {error}"
            return {}
        return {file: likeness(asked, vector) for file, (_, vector) in self._rows.items()}

    def specificity(self, query: str) -> float:
        """Return how much the question whose likenesses were asked for last concerns the person's own work."""
        asked, embedder = self._asked, self._embedder
        if asked is None or asked[0] != query or not isinstance(embedder, PromptEmbedder):
            return 0.0
        return embedder.specificity(asked[1])

    def alike(self, memories: Mapping[str, MemoryRecord]) -> frozenset[tuple[str, str]]:
        """Return the pairs of memories, by file, that are each other's nearest and clearly nearer than all others.

        Only saved vectors that are up to date count, and nothing is written.
        """
        try:
            rows = self._read() if self._path.is_file() else {}
        except (ReverieError, sqlite3.Error, OSError, ValueError, TypeError):
            return frozenset()
        vectors = {
            file: rows[file][1] for file, one in memories.items() if rows.get(file, ("",))[0] == self._digest(one)
        }
        near: dict[str, list[tuple[float, str]]] = {file: [(0.0, ""), (0.0, "")] for file in vectors}
        for one, other in combinations(vectors, 2):
            value = likeness(vectors[one], vectors[other])
            near[one] = nlargest(2, [*near[one], (value, other)])
            near[other] = nlargest(2, [*near[other], (value, one)])
        return frozenset(
            (one, other)
            for one, ((value, other), (second, _)) in near.items()
            if one < other and near[other][0][1] == one and value - max(second, near[other][1][0]) / 2 >= _LEAST_LEAD
        )

    def _digest(self, memory: MemoryRecord) -> str:
        return hex_of(f"{self._embedder.name}\0{_text(memory)}".encode("utf-8", "replace"))[:32]

    def _load(self) -> None:
        try:
            self._rows = self._read()
        except (sqlite3.Error, ValueError, TypeError) as error:
            if not is_damage(error):
                raise
            delete_vectors(self._directory)
            self._rows = self._read()
        self._is_loaded = True

    def _read(self) -> dict[str, tuple[str, array[float]]]:
        with closing(self._opened()) as connection:
            rows = connection.execute("SELECT file, digest, vector FROM vectors").fetchall()
        return {file: (digest, vector_of(data)) for file, digest, data in rows}

    def _save(self, gone: list[str], rows: Mapping[str, tuple[str, array[float]]]) -> None:
        with closing(self._opened()) as connection, connection:
            connection.executemany("DELETE FROM vectors WHERE file = ?", [(file,) for file in gone])
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [(file, digest, vector.tobytes()) for file, (digest, vector) in rows.items()],
            )
        for file in gone:
            del self._rows[file]
        self._rows.update(rows)

    def _opened(self) -> sqlite3.Connection:
        connection = open_database(self._path, busy_seconds=_BUSY_SECONDS)
        try:
            connection.execute("PRAGMA secure_delete = ON")  # the vector of an erased memory tells of its text
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors (file TEXT PRIMARY KEY, digest TEXT NOT NULL, vector BLOB NOT NULL)"
            )
        except BaseException:
            connection.close()
            raise
        return connection


def _text(memory: MemoryRecord) -> str:
    """Return the description with the beginning of the claim, which says it in other words; reasons only dilute it."""
    claim = claim_of(memory.body)[:_BODY_CHARS]
    about = memory.description or memory.name
    return claim if about in claim else f"{about}\n{claim}".strip()
