"""What a dream should know that the memory files do not say, gathered from the disk before it begins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...conversation.entries import USER, Entry, iso
from ...errors import StorageError
from ...layers.l6_dream.facts import DreamFacts
from ...layers.l6_dream.links import links_in
from ...memories.rules.taxonomy import description_for
from ...memories.store.journal_files import read_plain
from ...memories.store.names import file_for, is_memory, title_for
from ...memories.store.records import MemoryRecord, new_text, read_record
from ...memories.store.trust import worst

if TYPE_CHECKING:
    from ...layers.l5_extract.local import Candidate

__all__ = ["daily_logs", "drafted", "facts_for", "unwieldy"]

_LOG: Final = re.compile(r"logs/\d{4}/\d{2}/(\d{4}-\d{2}-\d{2})\.md")
_MAX_LOGS: Final = 60
_MAX_LOG_CHARS: Final = 200_000
_MAX_PATHS: Final = 20_000
_MAX_BYTES: Final = 64_000
_MAX_LINE_BYTES: Final = 4_000
_MAX_BLANKS: Final = 200
_BLANKS: Final = re.compile(rb"\s{%d}" % (_MAX_BLANKS + 1))


def unwieldy(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the files a local dream leaves alone, and why: what holds no sentences could keep it busy for hours."""
    found: dict[str, str] = {}
    for file, data in files.items():
        if len(data) > _MAX_BYTES:
            found[file] = f"it has {len(data):,} bytes, more than the {_MAX_BYTES:,} a memory should have; split it"
        elif len(data) > _MAX_LINE_BYTES and max(map(len, data.split(b"\n"))) > _MAX_LINE_BYTES:
            found[file] = f"it has a line of more than {_MAX_LINE_BYTES:,} bytes; break it into sentences"
        elif _BLANKS.search(data):
            found[file] = f"it has more than {_MAX_BLANKS} blanks in a row; take them out"
    return found


def daily_logs(root: str, *, since: float | None = None) -> list[str]:
    """Return the daily logs of a directory from the day of a time on, the newest last."""
    first = "" if since is None else datetime.fromtimestamp(since, UTC).date().isoformat()
    found = [
        name for name in _beneath(os.path.join(root, "logs"), root) if (day := _LOG.fullmatch(name)) and day[1] >= first
    ]
    return sorted(found)[-_MAX_LOGS:]


def facts_for(
    root: str,
    files: Mapping[str, bytes],
    *,
    home: Path,
    slug: str,
    project: Path,
    dreamt: float | None,
    aside: Iterable[str] = (),
) -> DreamFacts:
    """Look at everything a dream over these files may ask about; those ``aside`` are there and not dreamt about."""
    records = {file: read_record(file, data) for file, data in files.items()}
    modified: dict[str, float] = {}
    for file in files:
        with suppress(OSError):
            modified[file] = os.lstat(os.path.join(root, file)).st_mtime
    others = frozenset((*(name for name in _beneath(root, root) if not is_memory(name)), *aside))
    logs = daily_logs(root, since=dreamt)
    linked = {path for file, one in records.items() for path in links_in(file, one.body)}
    return DreamFacts(
        modified,
        others,
        frozenset(path for path in linked if not is_memory(path) and path not in others and _is_missing(project, path)),
        drafted(root, logs, records.values()) if logs else {},
        frozenset(_gone(records.values(), home / "projects" / slug)),
    )


def _beneath(folder: str, root: str) -> Iterator[str]:
    """Yield the files beneath a folder, as paths beneath the root; hidden ones are not looked at."""
    left = _MAX_PATHS
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            left -= 1
            if left < 0:
                return
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(at, name), root).replace(os.sep, "/")


def _is_missing(project: Path, path: str) -> bool:
    try:
        return not os.path.lexists(os.path.join(project, path))
    except ValueError:
        return False


def _gone(memories: Iterable[MemoryRecord], logs: Path) -> Iterator[str]:
    """Yield the sessions that memories came from and whose logs are there no more."""
    sessions = {source.split(" ", 1)[0] for one in memories for source in one.source if " " in source}
    for session in sorted(sessions):
        if "/" not in session and not os.path.lexists(logs / f"{session}.jsonl"):
            yield session


def drafted(root: str, logs: Iterable[str], memories: Iterable[MemoryRecord]) -> dict[str, bytes]:
    """Return what daily logs ask to be kept and no memory says yet, as new memories: an agent's word at best."""
    from ...layers.l5_extract.local import extract  # here, because few keep logs

    entries: list[Entry] = []
    for name in logs:
        with suppress(StorageError, ValueError):
            text = (read_plain(root, name) or b"").decode("utf-8", "replace")[:_MAX_LOG_CHARS]
            noon = datetime.combine(datetime.fromisoformat(name[-13:-3]).date(), time(12), UTC)
            message = {"role": "user", "content": text}
            entries.append(Entry(name, None, iso(noon.timestamp()), "daily", USER, {"message": message}))
    found = extract(entries, memories) if entries else None
    made = [one for one in found.candidates if not one.updates] if found is not None else []
    return dict(_draft(one) for one in made)


def _draft(one: Candidate) -> tuple[str, bytes]:
    title = title_for(one.text)
    day = f"{one.message[-13:-3]}T12:00:00Z"
    fields = {
        "name": title,
        "description": description_for(one.text),
        "type": one.type,
        "source": one.message,
        "trust": worst((one.trust, "agent")),
        "expires": one.expires,
        "created": day,
        "modified": day,
    }
    return file_for(one.type, title, text=one.text), new_text(fields, one.body).encode()
