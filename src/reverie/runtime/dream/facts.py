"""Facts about memory files that a dream needs and the files do not contain, read from the disk before it starts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ...errors import StorageError
from ...layers.l6_dream import DreamFacts, links_in
from ...memories.store.names import is_memory
from ...memories.store.records import MemoryRecord, read_record
from ...memories.store.store import MemoryStore
from ...ports import Storage
from ..memory.daily_logs import drafts_from_logs, log_files, logged_since
from ..memory.vectors import MemoryVectors
from ..places.projects import log_key

_MAX_PATHS: Final = 20_000
_MAX_BYTES: Final = 64_000
_MAX_LINE_BYTES: Final = 4_000
_MAX_BLANKS: Final = 200
_BLANKS: Final = re.compile(rb"\s{%d}" % (_MAX_BLANKS + 1))


def oversized(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the files that a local dream skips because they would take too long, each with the reason."""
    found: dict[str, str] = {}
    for file, data in files.items():
        if len(data) > _MAX_BYTES:
            found[file] = f"it has {len(data):,} bytes, more than the {_MAX_BYTES:,} a memory should have; split it"
        elif len(data) > _MAX_LINE_BYTES and max(map(len, data.split(b"\n"))) > _MAX_LINE_BYTES:
            found[file] = f"it has a line of more than {_MAX_LINE_BYTES:,} bytes; break it into sentences"
        elif _BLANKS.search(data):
            found[file] = f"it has more than {_MAX_BLANKS} blanks in a row; remove them"
    return found


def facts_for(
    store: MemoryStore,
    files: Mapping[str, bytes],
    *,
    project: Path | None,
    has_session: Callable[[str], bool],
    dreamt: float | None,
    excluded: Iterable[str] = (),
    vectors: MemoryVectors | None = None,
) -> DreamFacts:
    """Return facts about these files, read from the disk; ``excluded`` files exist but are not part of the dream.

    ``dreamt`` is the time of the last dream. ``project`` is None on a machine without the project's files;
    ``has_session`` says whether the log of a session exists.
    """
    root = store.root
    records = {file: read_record(file, data) for file, data in files.items()}
    modified: dict[str, float] = {}
    for file in files:
        with suppress(OSError):
            modified[file] = os.lstat(os.path.join(root, file)).st_mtime
    beside = (*_files_below(root, root), *log_files(store.files))
    others = frozenset((*(name for name in beside if not is_memory(name)), *excluded))
    since = None if dreamt is None else datetime.fromtimestamp(dreamt, UTC)
    drafts = drafts_from_logs(logged_since(store.files, since), records.values())
    linked = {path for file, one in records.items() for path in links_in(file, one.body)}
    return DreamFacts(
        modified,
        others,
        frozenset(path for path in linked if not is_memory(path) and path not in others and _is_missing(project, path)),
        {draft.file: draft.content() for draft in drafts},
        gone_sessions=frozenset(_deleted_sessions(records.values(), has_session)),
        alike=vectors.alike(records) if vectors is not None else frozenset(),
    )


def has_session(storage: Storage, project: str, name: str) -> bool:
    """Return whether a storage has the log of a session; a name that no log can have has none."""
    with suppress(StorageError):
        return storage.load(log_key(project, name), 0, 1) is not None
    return False


def _files_below(folder: str, root: str) -> Iterator[str]:
    """Yield the files below a folder as paths relative to the root, without hidden ones, at most 20,000."""
    left = _MAX_PATHS
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            left -= 1
            if left < 0:
                return
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(at, name), root).replace(os.sep, "/")


def _is_missing(project: Path | None, path: str) -> bool:
    try:
        return project is not None and not os.path.lexists(os.path.join(project, path))
    except ValueError:
        return False


def _deleted_sessions(memories: Iterable[MemoryRecord], has_session: Callable[[str], bool]) -> Iterator[str]:
    """Yield the sessions that memories name as their source and whose logs no longer exist."""
    sessions = {source.split(" ", 1)[0] for one in memories for source in one.source if " " in source}
    for session in sorted(sessions):
        if "/" not in session and not has_session(session):
            yield session
