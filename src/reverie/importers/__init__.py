"""Read sessions recorded by other programs into entries of our log, and report the records that were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..conversation.log import Damage
from ..errors import InputError
from ..values import record, replace
from . import (
    claude_code,
    codex,
    copilot,
    gemini,
    history,
    kimi,
    mini_swe_agent,
    opencode,
    openhands,
    pi,
    qwen,
    reverie_log,
    swe_agent,
)
from .foreign_values import Record
from .import_result import ImportedSession, RecordSource
from .places import SessionPlace, directory_of, files_below, usual_places
from .record_files import decompressed, document_of, read_bytes, source_of

__all__ = [
    "FORMATS",
    "Damage",
    "Format",
    "ImportedSession",
    "SessionPlace",
    "find_sessions",
    "format_of",
    "read_session",
    "read_sessions",
    "usual_places",
]

_SAMPLED: Final = 200
_HEAD_BYTES: Final = 2**18


@record
class Format:
    """A recording format: its name, a test for a record, and its reader."""

    name: str
    looks: Callable[[Record], bool]
    read: Callable[[RecordSource], list[ImportedSession]]


FORMATS: Final = tuple(
    Format(module.NAME, module.looks, module.read)
    for module in (
        reverie_log,
        qwen,  # before Claude Code, whose shape of a line it has
        claude_code,
        codex,
        gemini,
        opencode,
        copilot,
        kimi,
        pi,
        mini_swe_agent,
        swe_agent,
        openhands,
        history,
    )
)


def read_session(path: str | Path) -> list[ImportedSession]:
    """Return a list of the sessions in one file, the main one first.

    Raise ``InputError`` if the file cannot be read, is empty or is in an unknown format.
    """
    path = Path(path)
    if read_bytes(path, len(opencode.MAGIC)) == opencode.MAGIC:
        return opencode.read(opencode.source_of(path))
    data, torn = decompressed(read_bytes(path), str(path))
    if not data.strip():
        raise InputError(f"{path} is empty; {_known()}")
    source = replace(
        source_of(data, path.name, torn), directory=directory_of(path), parents=path.absolute().parts[-5:-1]
    )
    found = _format(source)
    if found is None and (whole := document_of(data, path.name, torn)):
        source, found = whole, _format(whole)
    if found is None:
        binary = b"\0" in data[:8192] or b"\xff" in data[:8192] or not _is_utf8(data[:8192])
        raise InputError(f"{path} is {'binary' if binary else f'in an unknown format: {_content(source)}'}; {_known()}")
    return _distinct(found.read(source))


def read_sessions(path: str | Path) -> Iterator[ImportedSession]:
    """Yield the sessions of a file or of all below a directory; raise ``InputError`` at one that cannot be read."""
    path = Path(path)
    for file in find_sessions(path) if path.is_dir() else [path]:
        yield from read_session(file)


def find_sessions(path: str | Path) -> Iterator[Path]:
    """Yield the recorded sessions below a directory by their content; raise ``InputError`` if it is none."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path} is not a directory; give one that holds recorded sessions")
    return files_below(path, lambda file: format_of(file) is not None)


def format_of(path: str | Path) -> str | None:
    """Return the name of a file's format; None if it is unknown or the file cannot be read.

    A compressed rollout is recognised by its file name.
    """
    path = Path(path)
    if path.name.startswith("rollout-") and path.name.endswith(".jsonl.zst"):
        return codex.NAME
    try:
        data = read_bytes(path, _HEAD_BYTES)
        if data.startswith(opencode.MAGIC):
            return opencode.NAME if opencode.sessions_in(path) else None
        found = _format(source_of(data, path.name))
        if found is None and len(data) == _HEAD_BYTES:
            found = _format(source_of(read_bytes(path), path.name))
    except InputError:
        return None
    return found.name if found else None


def _format(source: RecordSource) -> Format | None:
    """Return the format that matches most of the first records, in a tie the first listed; None without any."""
    sample = source.rows[:_SAMPLED]
    votes = [sum(1 for row in sample if one.looks(row)) for one in FORMATS]
    best = max(votes)
    return FORMATS[votes.index(best)] if best else None


def _distinct(sessions: list[ImportedSession]) -> list[ImportedSession]:
    """Return the sessions of one file with a number after the id of each that has the id of an earlier one."""
    out: list[ImportedSession] = []
    for one in sessions:
        name, number = one.session_id, 2
        while name in {known.session_id for known in out}:
            name, number = f"{one.session_id}-{number}", number + 1
        out.append(one if name == one.session_id else replace(one, session_id=name))
    return out


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _content(source: RecordSource) -> str:
    """Return in a few words the content of a file that has no known format."""
    if source.rows:
        keys = [key[:20] for key in source.rows[0]]
        return (
            f"a record with the keys {', '.join(keys[:3])}{' ...' if keys[3:] else ''}" if keys else "an empty record"
        )
    broken = next(iter(source.damage), None)
    return f"line {broken.line} is {broken.reason.partition(':')[0]}" if broken else "no record"


def _known() -> str:
    return f"known are {', '.join(one.name for one in FORMATS)}"
