"""File recorded sessions in the library: under a project, with the results that their program stored beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

from ...conversation.decisions import Cause, PrefixRendered, body_of
from ...conversation.entries import ASSISTANT, DECISION, META, Entry
from ...conversation.wire.flatten import THINKING
from ...digests import hex_of
from ...errors import InputError, SessionBusy, UnsafePath
from ...importers import ImportedSession
from ...paths import open_plain, opened_folder
from ...values import replace, rows_of
from ..library import ADDED, GROWN, OTHER, UNCHANGED, Library
from ..places.archive_index import ArchiveIndex
from ..places.projects import log_key, project_slug

GATEWAY: Final = "gateway"
"""The format of sessions that the gateway recorded, with the calls that it entered in the ledger."""
DELETED: Final = "deleted"
"""The result of ``Recordings.file`` for a session that the user deleted."""
_RESULTS: Final = "tool-results"
_MOST_RESULT_BYTES: Final = 2**26
_LIVE_SECONDS: Final = 60.0
_NO_MODEL: Final = "<synthetic>"
"""The model of replies that a program wrote itself."""


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
    ``subject`` is the person that the sessions are about.
    """

    def __init__(
        self, library: Library, *, dry_run: bool = False, index: ArchiveIndex | None = None, subject: str = ""
    ) -> None:
        self._library = library
        self._dry_run = dry_run
        self._subject = subject
        keys = library.keys()
        self._there = {key.rsplit("/", 1)[1]: key for key in keys}
        self._deleted = set[str]()
        if index is not None:
            filed = {key.rsplit("/", 1)[1] for file in index.files.values() for key in file.keys}
            index.deleted |= {name.removesuffix(".jsonl") for name in filed - self._there.keys()}
            self._deleted = {name for name in index.deleted if f"{name}.jsonl" not in self._there}

    def is_deleted(self, name: str) -> bool:
        """Return whether the user deleted the session with this id, or the session that started this agent."""
        own = storable(name).removeprefix(f"{GATEWAY}-")
        names = {own, own.split(".agent-")[0]}
        return not self._deleted.isdisjoint(names | {f"{GATEWAY}-{one}" for one in names})

    def named(self, session: str) -> str | None:
        """Return the key of the log of a session; None if the library has none."""
        return self._there.get(f"{storable(session)}.jsonl")

    def file(self, recording: ImportedSession, project: str, path: Path) -> tuple[str, str]:
        """Store or extend a recording; return the key of its log and the result.

        A log of the same name that belongs to another session stays, and the recording gets a name of its own. A
        deleted one is not stored, and only a copy of it that is there is extended. A session that the gateway has
        recorded stays the gateway's, unless the recording has more replies. Raise ``SessionBusy`` if the newest of
        these may still be on their way through the gateway.
        """
        session = storable(recording.session_id)
        if recording.format != GATEWAY and (held := self._held_by_gateway(recording, session)):
            return held, UNCHANGED
        named = hex_of(f"{recording.format}:{path.name}".encode("utf-8", "surrogateescape"))[:6]
        gone = ""
        for name in (session, f"{session[:120]}-{named}"):
            key = self._there.get(f"{name}.jsonl") or log_key(project, name)
            if f"{name}.jsonl" not in self._there and (self.is_deleted(session) or self.is_deleted(name)):
                gone = key
                continue
            entries, whole = described(recording, name, self._subject), not recording.damage
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

    def _held_by_gateway(self, recording: ImportedSession, session: str) -> str | None:
        """Return the key of the gateway's log of a session if it and its agents have every reply of a recording."""
        main = f"{GATEWAY}-{session.split('.agent-')[0]}"
        key = self._there.get(f"{main}.jsonl")
        if key is None:
            return None
        logs = [log for name, log in self._there.items() if name.startswith(f"{main}.agent-")]
        known = set[str]().union(*(_replied(self._library.load(log).entries) for log in (key, *logs)))
        if not (missing := _replied(recording.entries) - known):
            return self._there.get(f"{GATEWAY}-{session}.jsonl", key)
        last = [entry for entry in recording.entries if not missing.isdisjoint(_replied([entry]))]
        if min(entry.at for entry in last) > time.time() - _LIVE_SECONDS:
            raise SessionBusy(f"the gateway is recording session {session}")
        return None

    def _keep_results(self, recording: ImportedSession, key: str, path: Path) -> None:
        """Copy the results that a program stored in the folder beside a transcript, each under the id of its call."""
        for name, source in _stored_results(path) if path.name else ():
            call = recording.stored_results.get(name, name.removesuffix(".txt"))
            self._library.keep_result(key, f"{storable(call)}.txt", source)


def _stored_results(transcript: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each regular file in a transcript's folder of results; follow no link there."""
    with suppress(OSError), opened_folder(str(transcript.parent), (transcript.stem, _RESULTS)) as folder:
        for name in sorted(os.listdir(folder)):
            with suppress(OSError, UnsafePath), open(open_plain(folder, name, os.O_RDONLY, name), "rb") as stream:
                if os.fstat(stream.fileno()).st_size <= _MOST_RESULT_BYTES:
                    yield name, stream.read()


def described(found: ImportedSession, session: str, subject: str = "") -> list[Entry]:
    """Return the entries with the recorded system prompt, tools and cost added, and the person that they are about."""
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
    if subject and entries:
        first = entries[0]
        uuid = str(uuid5(NAMESPACE_OID, f"{first.uuid}:subject:{subject}"))
        entries.insert(1, Entry(uuid, first.uuid, first.time, session, META, {"subject": subject}))
    return entries


def _replied(entries: Iterable[Entry]) -> set[str]:
    """Return the texts and the ids of the calls in replies, by which two recordings of one session compare."""
    said = (entry for entry in entries if entry.kind == ASSISTANT and entry.reply.get("model") != _NO_MODEL)
    contents: list[Any] = [(entry.message or {}).get("content") for entry in said]
    texts = [one for one in contents if isinstance(one, str)]
    blocks = [block for content in contents for block in rows_of(content)]
    texts += [str(block.get("text") or block.get("id") or "") for block in blocks]
    return {text.strip() for text in texts} - {""}


def _thinks(entry: Entry) -> bool:
    blocks = rows_of((entry.message or {}).get("content")) if entry.kind == ASSISTANT else []
    return any(block.get("type") in THINKING for block in blocks)
