"""Read memories quickly from their files, with their trust from the journal; the only writes are the record of shown
memories and the names that they contain.

A writer that died between two files does no harm: each file is complete, and the next writer finishes the change.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain

from ..errors import StorageError, UnsafePath
from ..memories.store.file_stamps import stamped_files
from ..memories.store.index import INDEX
from ..memories.store.names import is_memory
from ..memories.store.records import MemoryRecord, Scope, read_record
from ..memories.store.trust_history import TrustHistory
from ..paths import append_line, closed_after, open_file, refuse_shared_link, replace_file
from ..values import replace
from .queue import FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Final

    from ..memories.recall.search import Match

_MAX_FILE_BYTES: Final = 262_144
_MAX_NAMES_BYTES: Final = 2**20
_MAX_KEY_CHARS: Final = 200
_JOURNAL: Final = ".journal"
_SURFACED: Final = "surfaced.jsonl"
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MARK_DIGITS: Final = 20
_CHANGED: Final = re.compile(rb'"file":"([^"\\]+)"')


class MemoryReader:
    """The memories of a directory, and of the team's directory as ``team/<file>``, indexed for one query.

    The words of each file are cached between hooks, so only changed files are read. A record of an unchanged file
    holds only the fields that decide whether it may be shown; ``whole`` reads its text.
    """

    def __init__(self, directory: str, team: str | None, *, query: str, home: str, embedder: str | None = None) -> None:
        from ..memories.recall.search import MemoryIndex
        from ..memories.recall.terms import terms  # the index text alone needs no search

        self.index = MemoryIndex()
        self.records: dict[str, MemoryRecord] = {}
        self.names: dict[str, list[str]] = {}
        self._home = home
        self._directory, self._embedder = directory, embedder
        self._roots: dict[Scope, str] = {"private": directory}
        if team is not None:
            with suppress(UnsafePath):  # a hook stays quiet; every command says it
                refuse_shared_link(team)
                self._roots["team"] = team
        for scope, root in self._roots.items():
            self._take(root, scope, set(terms(query)), home)

    def search(
        self, query: str, *, limit: int = 10, now: datetime | None = None, without: Collection[str] = ()
    ) -> list[Match]:
        """Return the memories that best match a question by words and, with an endpoint for vectors, by these too.

        A local embedder is left out: loading its weights for one prompt takes longer than a host should wait.
        """
        if self._embedder is None or self._embedder.startswith("local:"):
            return self.index.search(query, limit=limit, now=now, without=without)
        from ..errors import ModelError
        from ..memories.recall.search import fused
        from ..models.embedders import open_embedder
        from ..runtime.memory.vectors import MemoryVectors

        found = self.index.search(query, limit=len(self.index), now=now, without=without)
        try:
            vectors = MemoryVectors(self._directory, open_embedder(self._embedder))
        except ModelError:  # a hook says nothing but its answer
            return found[:limit]
        known = {name: value for name, value in vectors.likenesses(query).items() if name in self.records}
        return fused(found, known, limit, without=without, specificity=vectors.specificity(query))

    def whole(self, names: Sequence[str]) -> list[MemoryRecord]:
        """Return these memories with their current text, and trust and source by the journal; leave out lost files.

        The source of a version that the store did not write is ``outside``; the claim of the file does not count.
        """
        found: dict[str, MemoryRecord] = {}
        for scope, root in self._roots.items():
            prefix = "team/" if scope == "team" else ""
            files = {name.removeprefix(prefix): name for name in names if self.records[name].scope == scope}
            trusts = journal_trusts(root, files) if files else TrustHistory()
            for file, name in files.items():
                memory = _record(root, file, name, scope, self.records[name].modified)
                if memory is not None:
                    trust = trusts.trust(file, memory.version, memory.trust)
                    source = ("outside",) if trusts.is_outside(file, memory.version) else memory.source
                    found[name] = replace(memory, trust=trust, source=source)
        return [found[name] for name in names if name in found]

    def save_names(self, project: str) -> None:
        """Write the strings that a tool call about a memory contains, so that other calls need start no Python."""
        from .mentions import search_strings

        found = "".join(f"{one}\n" for one in search_strings(chain.from_iterable(self.names.values()))).encode()
        key = names_file(project)
        with suppress(OSError, StorageError):
            known = _bytes(os.path.join(self._home, key), _MAX_NAMES_BYTES) or b""
            if known != found and len(key) <= _MAX_KEY_CHARS:
                replace_file(self._home, key, found)

    def _take(self, root: str, scope: Scope, asked: set[str], home: str) -> None:
        from ..memories.recall.search import MemoryWords
        from .word_cache import WordCache

        kept = WordCache(home, root, scope)
        for file, stamp in stamped_files(root):
            name = f"team/{file}" if scope == "team" else file
            row = kept.row(name, stamp)
            if row is None:
                memory = _record(root, file, name, scope, _iso(stamp[0]))
                if memory is None:
                    continue
                words = self.index.words_of(memory) if memory.is_in_use else MemoryWords({}, 0)
                row = kept.put(memory, words, stamp)
            type, modified, expires, length, counts, self.names[name] = row
            memory = MemoryRecord(name, "", type=type, modified=modified, expires=expires, scope=scope)
            here = {word: counts[word] for word in asked if word in counts}
            self.index.put_words(memory, MemoryWords(here, length))
            self.records[name] = memory
        kept.save()


def _record(root: str, file: str, name: str, scope: Scope, modified: str) -> MemoryRecord | None:
    data = _bytes(os.path.join(root, file))
    if data is None:
        return None
    memory = read_record(name, data, scope=scope)
    return replace(memory, modified=memory.modified or modified)


def _iso(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def index_text(directory: str) -> str:
    """Return the index of a memory directory; an empty string if there is none."""
    return (_bytes(os.path.join(directory, INDEX)) or b"").decode("utf-8", "replace")


def files_to_mark(directory: str, files: Sequence[str], today: str) -> tuple[list[str], list[str]]:
    """Return the files that the journal or their own claim calls unconfirmed or that are missing, and the expired."""
    trusts = journal_trusts(directory, files)
    found = {file: _record(directory, file, file, "private", "") for file in files if is_memory(file)}
    waiting = [
        file
        for file in files
        if (memory := found.get(file)) is None or trusts.trust(file, memory.version, memory.trust) == "unconfirmed"
    ]
    return waiting, [file for file, memory in found.items() if memory is not None and memory.has_expired(today)]


def note_surfaced(directory: str, files: Sequence[str], session: str) -> None:
    """Record in the memory directory that a session was shown these files, so that ``forget`` can list copies."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = json.dumps({"session": session, "files": sorted(files), "time": time})
    key = f"{_JOURNAL}/{_SURFACED}"
    with closed_after(open_file(directory, key, os.O_RDWR | os.O_CREAT | os.O_APPEND)) as descriptor:
        append_line(descriptor, line.encode(), path=os.path.join(directory, key))


def names_file(project: str) -> str:
    """Return the key of the file with the names for a project; ``before_tool.sh`` makes the same one."""
    return f"{FOLDER}/names{project.replace('/', '-')}"


def _bytes(path: str, size: int = _MAX_FILE_BYTES) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if found.st_nlink > 1 or (found.st_mode & 0o170000) != 0o100000:
            return None
        return os.read(descriptor, size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


class _Change:
    """A change of the journal, as far as trust depends on it."""

    __slots__ = ("after", "file", "trust")

    def __init__(self, given: dict[str, Any]) -> None:
        self.file, self.after, self.trust = given["file"], given.get("after"), given.get("trust")


def journal_trusts(root: str, files: Collection[str]) -> TrustHistory:
    """Return the trust history of these files of a memory directory; empty without a readable journal.

    Only lines that name one of the files are parsed. A line that the writer has not applied yet does not count.
    """
    found = TrustHistory()
    with suppress(OSError, ValueError):
        applied = int(_head(os.path.join(root, ".journal", "lock"), _MARK_DIGITS) or b"0")
        data = _head(os.path.join(root, ".journal", "journal.jsonl"), applied)
        wanted = {file.encode("utf-8", "replace") for file in files}
        done = 0
        for match in _CHANGED.finditer(data):
            if match.group(1) not in wanted or match.start() < done:
                continue
            start, done = data.rfind(b"\n", 0, match.start()) + 1, data.find(b"\n", match.end()) + 1 or len(data)
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                line = json.loads(data[start:done])
                found.add(line["act"], [_Change(one) for one in line["changes"]])
    return found


def _head(path: str, size: int) -> bytes:
    """Return the first bytes of a file."""
    with closed_after(os.open(path, _FLAGS)) as descriptor:
        data = os.read(descriptor, size)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
        return data
