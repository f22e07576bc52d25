"""The library: list, find, read, export, import and delete the sessions of a storage."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from ..conversation.decisions import AgentSpawned, decision_of
from ..conversation.entries import ASSISTANT, USER, Entry, decode_entry, encode_entry, marked_imported
from ..conversation.log import ParsedLog, parse_log
from ..conversation.view import View
from ..conversation.wire.blocks import accepted_message, as_blocks
from ..errors import InputError, SessionBusy, SessionNotFound
from ..importers.import_result import first_words
from ..memories.store.records import read_record
from ..ports import Storage
from ..storage.files import FileStorage
from ..values import record
from .growth import extended
from .places.projects import session_of

ADDED, GROWN, UNCHANGED, OTHER = "added", "grown", "unchanged", "other"
"""The results of ``Library.extend``."""


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
    imported: bool = False
    """Whether it was recorded elsewhere and this user has not continued it."""


@record
class RemovedSession:
    """The storage keys that deleting a session removed, or would remove in a dry run, and its agents."""

    session: str
    keys: list[str]
    """The logs of the session and of its agents, stored results, notes, plans and inboxes."""
    memories: list[str]
    """The keys of memories that came from the session or its agents; older versions of them are restored."""
    agents: list[str]
    """The agents that the session started, and those that they started."""


class Library:
    """All sessions of a storage; ``project`` is the slug of the project that ``find`` prefers."""

    def __init__(self, storage: Storage, *, project: str = "") -> None:
        self._storage = storage
        self._project = project

    def keys(self) -> list[str]:
        """Return the storage keys of all session logs, of all projects."""
        return [key for key in self._storage.list("projects") if key.endswith(".jsonl") and key.count("/") == 2]

    def agent_keys(self) -> list[str]:
        """Return the storage keys of the logs of all agents that sessions started."""
        return [key for key in self._storage.list("agents") if key.endswith(".jsonl") and key.count("/") == 1]

    def all_keys(self) -> list[str]:
        """Return the log keys of all sessions and agents, also of deleted logs whose other files are left."""
        return list(dict.fromkeys([*self.keys(), *self._deleted_logs(), *self.agent_keys()]))

    def agents_of(self, key: str) -> list[str]:
        """Return the names of the agents that a session or agent started, each after those that it started itself."""
        found: dict[str, None] = {}
        self._collect_agents(key, found, {session_of(key)})
        return list(found)

    def recorded_agents(self, key: str) -> list[str]:
        """Return the log keys of the agents of a recording, which lie beside its log."""
        return [one for one in self.keys() if one.startswith(f"{key.removesuffix('.jsonl')}.agent-")]

    def _collect_agents(self, key: str, found: dict[str, None], seen: set[str]) -> None:
        for name in _started_agents(self._storage.load(key) or b""):
            if name not in seen:
                seen.add(name)
                self._collect_agents(agent_log(name), found, seen)
                found[name] = None

    def find(self, name: str) -> str:
        """Return the log key of the session or agent with this name, or of the only one whose name starts with it.

        ``project/name`` selects a project; a bare name prefers the library's own project, and the beginning of a name
        prefers sessions to agents. A deleted session with files left is found too. Raise ``SessionNotFound`` if none
        matches, and ``InputError`` if several do or the name is empty.
        """
        if not name.strip():
            raise InputError("the name of the session is empty; 'reverie sessions' lists them")
        keys = self.all_keys()
        exact = [key for key in keys if name in (session_of(key), qualified_name(key))]
        here = [key for key in exact if key.split("/")[1] == self._project]
        begun = [key for key in keys if session_of(key).startswith(name)]
        sessions = [key for key in begun if key.startswith("projects/")]
        found = (here if len(exact) > 1 else exact) or exact or sessions or begun
        if not found:
            raise SessionNotFound(f"there is no session {name!r}; 'reverie sessions' lists them")
        if len(found) > 1:
            shown = ", ".join(map(qualified_name, found[:5]))
            raise InputError(f"{name!r} matches {len(found)} sessions: {shown}; use one of these names")
        return found[0]

    def _deleted_logs(self) -> list[str]:
        """Return the log keys of all sessions and agents with results, notes or an inbox, also of deleted ones."""
        folders = {tuple(key.split("/")[:3]) for key in self._storage.list("projects") if key.count("/") > 2}
        found = [f"{'/'.join(parts)}.jsonl" for parts in sorted(folders) if parts[2] != "memory"]
        return found + sorted(
            {agent_log(key.split("/")[1]) for key in self._storage.list("agents") if key.count("/") > 1}
        )

    def load(self, key: str) -> ParsedLog:
        """Return a session's parsed log, which lists damaged lines; raise ``SessionNotFound`` without a log."""
        return parse_log(self.export(key))

    def view(self, key: str) -> View:
        """Return the view folded from a session's log; raise ``SessionNotFound`` if there is no log."""
        return View().fold_all(self.load(key).entries)

    def describe(self, key: str) -> SessionListing:
        """Return the summary of a session for a list, read from its log."""
        data = self._storage.load(key) or b""
        return _listing(key, parse_log(data), len(data))

    def read(self, key: str) -> tuple[ParsedLog, SessionListing]:
        """Return a session's parsed log and its summary, from one reading; raise ``SessionNotFound`` without a log."""
        data = self.export(key)
        loaded = parse_log(data)
        return loaded, _listing(key, loaded, len(data))

    def export(self, key: str) -> bytes:
        """Return the bytes of a session's log; raise ``SessionNotFound`` if there is no log."""
        data = self._storage.load(key)
        if data is None:
            raise SessionNotFound(f"{session_of(key)} has no log: it was deleted, or has only got messages so far")
        return data

    def store(self, key: str, entries: Sequence[Entry]) -> None:
        """Write a recording's entries, marked as imported, as a new log; raise ``InputError`` if the log exists."""
        if self._storage.load(key, 0, 1) is not None:
            raise InputError(f"session {session_of(key)} exists already and was not changed")
        self.extend(key, entries)

    def extend(
        self,
        key: str,
        entries: Sequence[Entry],
        *,
        abandoned: Collection[str] = (),
        is_whole: bool = True,
        dry_run: bool = False,
    ) -> str:
        """Store a recording's entries, marked as imported, as a log, or add those that the log does not have.

        ``abandoned`` are messages that its program went back from; ``is_whole`` is false if lines of it are damaged.
        Return ``ADDED``, ``GROWN``, ``UNCHANGED`` or ``OTHER``: then the log belongs to another session, and nothing
        changed. The log is replaced at once, so a killed process leaves the old or the new one. Raise ``SessionBusy``
        if the session is open.
        """
        marked = marked_imported(entries, session_of(key))
        document = self._storage.read(key)
        there: Sequence[Entry] = parse_log(document.data).entries if document is not None else []
        made = extended(there, marked, abandoned=abandoned, is_whole=is_whole) if document is not None else marked
        if made is None or made == list(there):
            return OTHER if made is None else UNCHANGED
        if not dry_run:
            lease = self._storage.lease(key, holder="import")
            try:
                data = b"".join(encode_entry(entry) + b"\n" for entry in made)
                self._storage.write(key, data, expect=document.version if document else None, create=document is None)
            finally:
                lease.release()
        return ADDED if document is None else GROWN

    def keep_result(self, key: str, name: str, data: bytes) -> None:
        """Store a tool result of a session under a file name, unless it is there."""
        place = f"{key.removesuffix('.jsonl')}/tool-results/{name}"
        if self._storage.load(place, 0, 1) is None:
            self._storage.write(place, data)

    def _session_files(self, key: str) -> list[str]:
        return list(self._storage.list(key.removesuffix(".jsonl")))

    @contextmanager
    def reserved(self, key: str, holder: str) -> Generator[None]:
        """Hold the leases of a session and its agents in a ``with`` block; raise ``SessionBusy`` if one is open."""
        with ExitStack() as leases:
            for log in [*map(agent_log, self.agents_of(key)), key]:
                leases.callback(self._storage.lease(log, holder=holder).release)
            yield

    def remove(self, key: str, *, dry_run: bool = False) -> RemovedSession:
        """Delete a session and everything derived from it, as ``removing`` does."""
        with self.removing(key, dry_run=dry_run) as planned:
            return planned

    @contextmanager
    def removing(self, key: str, *, dry_run: bool = False) -> Generator[RemovedSession]:
        """Delete a session and everything derived from it: log, results, notes, inbox, agents and memories.

        They go after the ``with`` block, during which no process can open the session. The log goes last, so that a
        second call finishes an interrupted one. ``dry_run`` deletes nothing. Raise ``SessionBusy`` if the session or
        one of its agents is open.
        """
        agents = self.agents_of(key)
        logs = [*map(agent_log, agents), key]
        for log in logs:
            if (holder := self._storage.holder(log)) is not None:
                raise SessionBusy(f"session {session_of(log)} is open ({holder}); close it first", holder=holder)
        with nullcontext() if dry_run else self.reserved(key, "delete"):
            keys = self.documents_of(logs)
            yield RemovedSession(session_of(key), keys, self._derived_memories(logs), agents)
            if not dry_run:
                self._note_deleted(key, [session_of(log) for log in logs])
                self._erase_memories(logs)
                for name in [*self._derived_memories(logs), *keys]:
                    self._storage.delete(name)

    def documents_of(self, logs: Sequence[str]) -> list[str]:
        """Return the keys of these logs that exist, and of the stored results, notes and others that belong to them."""
        there = [log for log in logs if self._storage.load(log) is not None]
        return [name for log in logs for name in [*self._session_files(log), *([log] if log in there else [])]]

    def _note_deleted(self, key: str, names: Sequence[str]) -> None:
        """Note that a recording was deleted, before it is, so that ``reverie keep`` does not file it again."""
        if isinstance(self._storage, FileStorage) and self._is_recording(key):
            from .places.archive_index import note_deleted  # it loads every reader of recordings

            note_deleted(str(self._storage.root), names)

    def _is_recording(self, key: str) -> bool:
        return any(entry.imported for entry in parse_log(self._storage.load(key) or b"").entries)

    def sources_in(self, folder: str, logs: Sequence[str]) -> list[str]:
        """Return the names by which the memories of a folder mean these sessions.

        Another session of the same name, in the folder's own project, is meant there instead, unless the project is
        named too, as in an exported memory.
        """
        projects = {log.split("/")[1] for log in logs if log.startswith("projects/")}
        full = [f"{project}/{session_of(log)}" for project in sorted(projects) for log in logs]
        own = {log: f"{folder.rpartition('/')[0]}/{session_of(log)}.jsonl" for log in logs}
        plain = [session_of(log) for log in logs if own[log] == log or self._storage.load(own[log], 0, 1) is None]
        return [*plain, *full]

    def namesakes(self, logs: Sequence[str]) -> dict[str, list[str]]:
        """Return, for each of these logs, the projects that have another session of its name, which stays."""
        others = [key for key in self.keys() if key not in logs]
        return {log: [key.split("/")[1] for key in others if session_of(key) == session_of(log)] for log in logs}

    def _erase_memories(self, logs: Sequence[str]) -> None:
        """Erase these sessions from the journals, lists and logs of all memory directories in a home."""
        if not isinstance(self._storage, FileStorage):
            return
        home = Path(self._storage.root)
        for folder in [*home.glob("projects/*/memory"), *home.glob("agent-memory/*")]:
            erase_sources(folder, self.sources_in(folder.relative_to(home).as_posix(), logs))

    def _derived_memories(self, logs: Sequence[str]) -> list[str]:
        """Return the keys of the memories in this storage whose source is one of these sessions."""
        sources = dict[str, list[str]]()
        names = [name for name in self._storage.list("projects") if name.split("/")[2:3] == ["memory"]]
        found: list[str] = []
        for name in [*names, *self._storage.list("agent-memory")]:
            document = self._storage.read(name) if name.endswith(".md") else None
            origins = read_record(name, document.data).source if document is not None else ()
            folder = "/".join(name.split("/")[: 3 if name.startswith("projects/") else 2])
            if origins and folder not in sources:
                sources[folder] = self.sources_in(folder, logs)
            if any(origin.split(" ")[0] in sources[folder] for origin in origins):
                found.append(name)
        return found


def erase_sources(folder: Path, sources: Sequence[str]) -> None:
    """Erase all that came from these sessions in a memory directory, if a file in it names one of them."""
    from .memory.memory import Memory  # only a deletion needs it, and it takes as long to load as all else here

    named = {source for source in sources if _is_named(folder, source.encode())}
    for source in named:
        Memory(folder).forget_source(source, erase=True)


def _is_named(folder: Path, name: bytes) -> bool:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return any(name in path.read_bytes() for path in paths)


def agent_log(name: str) -> str:
    """Return the key of an agent's log."""
    return f"agents/{name}.jsonl"


def _started_agents(data: bytes) -> Iterator[str]:
    """Yield the names of the agents that a log records as started."""
    for line in data.split(b"\n") if b"agent_spawned" in data else ():
        with suppress(ValueError):
            decision = decision_of(decode_entry(line).body) if b"agent_spawned" in line else None
            if isinstance(decision, AgentSpawned):
                yield decision.agent


def qualified_name(key: str) -> str:
    """Return the name of a session with its project, by the key of its log."""
    return key.removeprefix("projects/").removesuffix(".jsonl")


def _listing(key: str, loaded: ParsedLog, size: int) -> SessionListing:
    """Return the summary of a session for a list, from its parsed log and the size of that in bytes."""
    meta: dict[str, Any] = {}
    model = ""
    for entry in loaded.entries:
        if entry.kind == "meta":
            meta.update(entry.body)
        elif entry.kind == ASSISTANT:
            model = str(entry.reply.get("model") or model)
    said = [entry for entry in loaded.entries if entry.kind in (USER, ASSISTANT)]
    own = any(entry.kind == USER and not entry.imported for entry in said)
    times = [entry.time for entry in loaded.entries if entry.time]
    return SessionListing(
        session=session_of(key),
        project=key.split("/")[1] if key.startswith("projects/") else "",
        key=key,
        title=str(meta.get("title") or _first_words(said)),
        model=str(model or meta.get("model") or ""),
        cwd=str(meta.get("cwd") or ""),
        started=times[0] if times else "",
        touched=times[-1] if times else "",
        messages=len(said),
        bytes=size,
        damaged=len(loaded.damage) + bool(loaded.torn),
        imported=not own if any(entry.imported for entry in said) else bool(meta.get("source")),
    )


def _first_words(said: list[Entry]) -> str:
    for entry in said:
        message = accepted_message(entry.message, USER) if entry.kind == USER and entry.message is not None else None
        for block in as_blocks(message) if message is not None else []:
            if block["type"] == "text":
                return first_words(block["text"])
    return ""
