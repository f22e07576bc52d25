"""The library: list, find, read, export, import, delete and purge the sessions of a storage."""

from __future__ import annotations

from typing import Any

from ..conversation.entries import ASSISTANT, USER, Entry, encode_entry
from ..conversation.log import ParsedLog, parse_log
from ..conversation.view import View
from ..conversation.wire.blocks import accepted_message, as_blocks
from ..errors import InputError, SessionBusy, SessionNotFound
from ..ports import Storage
from ..storage.files import FileStorage
from ..values import record
from .memory.memory import Memory

__all__ = ["Library", "RemovedSession", "SessionListing"]


@record
class SessionListing:
    """The summary of a session in a list."""

    session: str
    project: str
    key: str
    title: str
    model: str
    cwd: str
    started: str
    touched: str
    messages: int
    bytes: int
    damaged: int


@record
class RemovedSession:
    """The storage keys and memories that deleting a session removed, or would remove in a dry run."""

    session: str
    keys: list[str]
    memories: list[str]


class Library:
    """All sessions of a storage; ``project`` is the slug of the project that ``find`` prefers."""

    def __init__(self, storage: Storage, *, project: str = "") -> None:
        self._storage = storage
        self._project = project

    def keys(self) -> list[str]:
        """Return the storage keys of all session logs, of all projects."""
        return [key for key in self._storage.list("projects") if key.endswith(".jsonl") and key.count("/") == 2]

    def find(self, name: str) -> str:
        """Return the log key of the session with this name, or of the only session whose name starts with it.

        ``project/name`` selects a project; a bare name prefers the library's own project. A deleted session with
        files left is found too. Raise ``SessionNotFound`` if none matches, and ``InputError`` if several do.
        """
        keys = self.keys() or []
        keys += [key for key in self._deleted_logs() if key not in keys]
        exact = [key for key in keys if name in (_session(key), _full_name(key))]
        here = [key for key in exact if key.split("/")[1] == self._project]
        found = (here if len(exact) > 1 else exact) or exact or [key for key in keys if _session(key).startswith(name)]
        if not found:
            raise SessionNotFound(f"there is no session {name!r}; 'reverie sessions' lists them")
        if len(found) > 1:
            shown = ", ".join(map(_full_name, found[:5]))
            raise InputError(f"{name!r} matches {len(found)} sessions: {shown}; use one of these names")
        return found[0]

    def _deleted_logs(self) -> list[str]:
        """Return the log keys of all sessions with results, notes or an inbox, also of deleted ones."""
        folders = {tuple(key.split("/")[:3]) for key in self._storage.list("projects") if key.count("/") > 2}
        return [f"{'/'.join(parts)}.jsonl" for parts in sorted(folders) if parts[2] != "memory"]

    def load(self, key: str) -> ParsedLog:
        """Return a session's parsed log, which lists damaged lines; raise ``SessionNotFound`` without a log."""
        data = self._storage.load(key)
        if data is None:
            raise SessionNotFound(f"no log at {key}")
        return parse_log(data)

    def view(self, key: str) -> View:
        """Return the view folded from a session's log; raise ``SessionNotFound`` if there is no log."""
        return View().fold_all(self.load(key).entries)

    def describe(self, key: str) -> SessionListing:
        """Return the summary of a session for a list, read from its log."""
        data = self._storage.load(key) or b""
        loaded = parse_log(data)
        meta: dict[str, Any] = {}
        model = ""
        for entry in loaded.entries:
            if entry.kind == "meta":
                meta.update(entry.body)
            elif entry.kind == ASSISTANT:
                model = str(entry.reply.get("model") or model)
        said = [entry for entry in loaded.entries if entry.kind in (USER, ASSISTANT)]
        times = [entry.time for entry in loaded.entries if entry.time]
        return SessionListing(
            session=_session(key),
            project=key.split("/")[1],
            key=key,
            title=str(meta.get("title") or _first_words(said)),
            model=str(model or meta.get("model") or ""),
            cwd=str(meta.get("cwd") or ""),
            started=times[0] if times else "",
            touched=times[-1] if times else "",
            messages=len(said),
            bytes=len(data),
            damaged=len(loaded.damage) + bool(loaded.torn),
        )

    def export(self, key: str) -> bytes:
        """Return the bytes of a session's log; raise ``SessionNotFound`` if there is no log."""
        data = self._storage.load(key)
        if data is None:
            raise SessionNotFound(f"no log at {key}")
        return data

    def store(self, key: str, entries: list[Entry]) -> None:
        """Write imported entries as a new log under a key; raise ``InputError`` if the log exists."""
        if self._storage.load(key) is not None:
            raise InputError(f"session {_session(key)} exists already and was not changed")
        lease = self._storage.lease(key, holder="import")
        try:
            data = b"".join(encode_entry(entry) + b"\n" for entry in entries)
            self._storage.write(key, data, create=True)
        finally:
            lease.release()

    def _session_files(self, key: str) -> list[str]:
        """Return the keys of a session's results, notes and inbox."""
        return list(self._storage.list(key.removesuffix(".jsonl")))

    def remove(self, key: str, *, purge: bool = False, dry_run: bool = False) -> RemovedSession:
        """Delete a session's log; ``purge`` also deletes its results, notes, inbox and memories derived from it.

        ``dry_run`` deletes nothing and returns the keys to be removed. Raise ``SessionBusy`` if the session is
        open.
        """
        holder = self._storage.holder(key)
        if holder is not None:
            raise SessionBusy(f"session {_session(key)} is open ({holder}); close it first", holder=holder)
        keys = [key, *(self._session_files(key) if purge else [])]
        memories = self._forget_memories(key, dry_run=dry_run) if purge else []
        if not dry_run:
            for name in [*keys[1:], key]:
                self._storage.delete(name)
        return RemovedSession(_session(key), keys, memories)

    def _forget_memories(self, key: str, *, dry_run: bool) -> list[str]:
        """Forget the memories derived from a session, through their journal if there is one; return their keys.

        ``dry_run`` only returns the keys.
        """
        memories = self._derived_memories(key)
        if memories and not dry_run and isinstance(self._storage, FileStorage):
            folder = self._storage.root / key.rsplit("/", 1)[0] / "memory"
            Memory(folder).forget_source(_session(key), erase=True)
        for name in memories if not dry_run else ():
            self._storage.delete(name)
        return memories

    def _derived_memories(self, key: str) -> list[str]:
        """Return the keys of the memories whose source is this session."""
        session = _session(key)
        folder = f"{key.rsplit('/', 1)[0]}/memory"
        found: list[str] = []
        for name in self._storage.list(folder):
            document = self._storage.read(name) if name.endswith(".md") else None
            head = document.data[:4096].decode("utf-8", "replace") if document is not None else ""
            if any(line.startswith("source:") and session in line for line in head.splitlines()):
                found.append(name)
        return found


def _full_name(key: str) -> str:
    return key.removeprefix("projects/").removesuffix(".jsonl")


def _session(key: str) -> str:
    return key.rsplit("/", 1)[-1].removesuffix(".jsonl")


def _first_words(said: list[Entry]) -> str:
    for entry in said:
        message = accepted_message(entry.message, USER) if entry.kind == USER and entry.message is not None else None
        for block in as_blocks(message) if message is not None else []:
            if block["type"] == "text":
                return " ".join(block["text"].split())[:80]
    return ""
