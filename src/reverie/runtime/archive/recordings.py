"""File recorded sessions in the library: under a project, with the results that their program stored beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from uuid import NAMESPACE_OID, uuid5

from ...conversation.decisions import Cause, PrefixRendered, body_of
from ...conversation.entries import ASSISTANT, DECISION, META, Entry
from ...digests import hex_of
from ...errors import InputError
from ...importers import ImportedSession
from ...paths import open_no_follow
from ...values import replace
from ..library import ADDED, GROWN, OTHER, Library
from ..places.archive_index import ArchiveIndex
from ..places.projects import log_key, project_slug

GATEWAY: Final = "gateway"
"""The format of sessions that the gateway recorded, with the calls that it entered in the ledger."""
DELETED: Final = "deleted"
"""The result of ``Recordings.file`` for a session that the user deleted."""
_RESULTS: Final = "tool-results"
_MOST_RESULT_BYTES: Final = 2**26


def project_of(recording: ImportedSession) -> str:
    """Return the project of a recording's directory: that on this machine, else one of its own named after it."""
    directory = recording.cwd
    if directory and os.path.isdir(directory):
        return project_slug(directory)
    readable = "".join(
        one if one.isalnum() or one in "._" else "-" for one in os.path.basename(directory.rstrip("/\\"))
    )
    name = readable.strip("-.")[:48] or recording.format
    return f"{name}-{hex_of((directory or recording.format).encode('utf-8', 'surrogateescape'))[:8]}"


def storable(session: str) -> str:
    """Return a valid log name for a session id: 128 characters at most, without ``.jsonl`` and leading ``._-``."""
    return session.removesuffix(".jsonl").lstrip("._-")[:128] or "session"


class Recordings:
    """Files recordings in a library; a session that is there, under any project, is extended there.

    With an ``index``, sessions that the user deleted stay deleted: those that it names and those whose logs are gone.
    """

    def __init__(self, library: Library, *, dry_run: bool = False, index: ArchiveIndex | None = None) -> None:
        self._library = library
        self._dry_run = dry_run
        keys = library.keys()
        self._there = {key.rsplit("/", 1)[1]: key for key in keys}
        self._deleted = set[str]()
        if index is not None:
            filed = {key.rsplit("/", 1)[1] for file in index.files.values() for key in file.keys}
            index.deleted |= {name.removesuffix(".jsonl") for name in filed - self._there.keys()}
            self._deleted = {name for name in index.deleted if f"{name}.jsonl" not in self._there}

    def is_deleted(self, name: str) -> bool:
        """Return whether the user deleted the session with this id, or the session that started this agent."""
        return not self._deleted.isdisjoint((storable(name), storable(name).split(".agent-")[0]))

    def named(self, session: str) -> str | None:
        """Return the key of the log of a session; None if the library has none."""
        return self._there.get(f"{storable(session)}.jsonl")

    def file(self, recording: ImportedSession, project: str, path: Path) -> tuple[str, str]:
        """Store or extend a recording; return the key of its log and the result.

        A log of the same name that belongs to another session stays, and the recording gets a name of its own. A
        deleted one is not stored, and only a copy of it that is there is extended.
        """
        session = storable(recording.session_id)
        named = hex_of(f"{recording.format}:{path.name}".encode("utf-8", "surrogateescape"))[:6]
        gone = ""
        for name in (session, f"{session[:120]}-{named}"):
            key = self._there.get(f"{name}.jsonl") or log_key(project, name)
            if f"{name}.jsonl" not in self._there and (self.is_deleted(session) or self.is_deleted(name)):
                gone = key
                continue
            entries, whole = described(recording, name), not recording.damage
            result = self._library.extend(
                key, entries, abandoned=recording.abandoned, is_whole=whole, dry_run=self._dry_run
            )
            if result != OTHER:
                self._there.setdefault(f"{name}.jsonl", key)
                if result in (ADDED, GROWN) and not self._dry_run:
                    self._keep_results(recording, key, path)
                return key, result
        if gone:
            return gone, DELETED
        raise InputError(f"{path}: the library has two other sessions of the name {session}; delete one of them")

    def _keep_results(self, recording: ImportedSession, key: str, path: Path) -> None:
        """Copy the results that a program stored in the folder beside a transcript, each under the id of its call."""
        for name, source in _stored_results(path) if path.name else ():
            call = recording.stored_results.get(name, name.removesuffix(".txt"))
            self._library.keep_result(key, f"{storable(call)}.txt", source)


def _stored_results(transcript: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each regular file in a transcript's folder of results."""
    folder = transcript.parent / transcript.stem / _RESULTS
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            with suppress(OSError), open(folder / name, "rb", opener=open_no_follow) as stream:
                if os.fstat(stream.fileno()).st_size <= _MOST_RESULT_BYTES:
                    yield name, stream.read()


def described(found: ImportedSession, session: str) -> list[Entry]:
    """Return the entries with the recorded system prompt, tools and cost added."""
    entries = list(found.entries)
    known: dict[str, Any] = {"system": found.system, "tools": found.tools, "cost_usd": found.cost_usd}
    recorded = {name: value for name, value in known.items() if value is not None}
    if recorded and entries and entries[0].kind == META and "recorded" not in entries[0].body:
        entries[0] = replace(entries[0], body={**entries[0].body, "recorded": recorded})
        # Thinking is bound to the request as it was sent, which the log does not repeat byte for byte.
        if (found.system is not None or found.tools is not None) and not any(map(_thinks, entries)):
            cause = Cause("import", "as the recording has it")
            prefix = PrefixRendered(cause, found.model, found.system, found.tools or [])
            first = entries[0]
            uuid = str(uuid5(NAMESPACE_OID, f"{first.uuid}:prefix"))
            entries.insert(1, Entry(uuid, first.uuid, first.time, session, DECISION, body_of(prefix)))
    return entries


def _thinks(entry: Entry) -> bool:
    content: Any = (entry.message or {}).get("content") if entry.kind == ASSISTANT else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and str(cast(Any, block).get("type")).endswith("thinking")
        for block in cast("list[Any]", content)
    )
