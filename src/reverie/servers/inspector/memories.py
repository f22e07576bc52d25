"""The memories of all projects of a home: each with its origin, history and blame, the waiting ones, and the dreams."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from ...conversation.entries import Entry
from ...errors import InputError, ReverieError
from ...memories.store.head_files import JOURNAL_FILE
from ...memories.store.records import MemoryRecord
from ...ports import Stamp, Storage
from ...runtime.dream.control import stop
from ...runtime.dream.dreams import Dreams
from ...runtime.dream.progress import read_progress
from ...runtime.library import Library
from ...runtime.memory.memory import Memory
from ...runtime.memory.shared_journal import StoredJournal
from ...runtime.places.storage import database_of
from ...runtime.search.log_text import text_of_entry
from ...settings import Settings
from ...text.words import words
from .server import Act, Query

_AROUND_CHARS: Final = 240
_SENTENCE: Final = re.compile(r"[^\n.!?。！？]+[.!?。！？]*")
_HEAD: Final = ("file", "name", "description", "type", "created", "modified", "trust", "scope", "expires", "problem")


class MemorySources:
    """The memories of all projects, each by the name of its project: directories of a home, or in a database."""

    def __init__(self, settings: Settings, storage: Storage) -> None:
        self._settings = settings
        self._storage = storage
        self._waiting: dict[str, tuple[tuple[float, ...], int]] = {}

    def folders(self) -> dict[str, str]:
        """Return the memory directories of all projects and types of agents below the home, some as working copies."""
        settings, home = self._settings, self._settings.home
        if not settings.switches.memory:
            return {}
        if settings.memory_dir is not None:
            return {"": str(settings.memory_dir)}
        paths = (path for pattern in ("projects/*/memory", "agent-memory/*") for path in home.glob(pattern))
        found = {path.relative_to(home).as_posix() for path in paths} | self._journals().keys()
        ordered = sorted(found, key=lambda folder: (not folder.startswith("projects/"), folder))
        return {folder.removeprefix("projects/").removesuffix("/memory"): folder for folder in ordered}

    def opened(self) -> dict[str, Memory]:
        """Return the memories of each project; those of the team belong to the first."""
        shared = self._journals()
        found: dict[str, Memory] = {}
        for name, folder in self.folders().items():
            found[name] = self._opened(folder, folder in shared, None if found else self._settings.team_memory)
        return found

    def _opened(self, folder: str, is_shared: bool, team: Path | None = None) -> Memory:
        shared = StoredJournal(self._storage, folder, self._settings.tenant or "") if is_shared else None
        return Memory(self._settings.home / folder, team=team, shared=shared)

    def _journals(self) -> dict[str, Stamp]:
        """Return the stamps of the journals in a database by folder; empty if memories are files alone."""
        database = database_of(self._storage)
        if database is None or self._settings.memory_dir is not None:
            return {}
        found = (one for top in ("projects", "agent-memory") for one in database.stamps(top))
        end = f"/{JOURNAL_FILE}"
        return {one.key.removesuffix(end): one for one in found if one.key.endswith(end)}

    # -- reading

    def now(self) -> dict[str, Any]:
        """Return the number of memories that wait for approval, by project, and the running dreams."""
        waiting: list[dict[str, Any]] = []
        dreams: list[dict[str, Any]] = []
        shared = self._journals()
        for name, folder in self.folders().items():
            known, path = shared.get(folder), self._settings.home / folder
            stamp = (*map(modified, (path, path / JOURNAL_FILE)), known.changed_ns if known is not None else 0)
            if self._waiting.get(name, ((), 0))[0] != stamp:
                self._waiting[name] = stamp, len(self._opened(folder, known is not None).review())
            if count := self._waiting[name][1]:
                waiting.append({"project": name, "count": count})
            if (running := read_progress(str(path))) is not None and not running.is_over:
                said = {"dream": running.dream, "state": running.state, "began": running.began, "text": running.text}
                dreams.append({"project": name, **said, "tools": running.tools, "files": len(running.paths)})
        return {"waiting": waiting, "dreams": dreams}

    def all(self) -> dict[str, Any]:
        """Return the heads of all memories by project, newest first, with the changes of those that wait."""
        return {"projects": [{"project": name, **_project(memory)} for name, memory in self.opened().items()]}

    def one(self, query: Query) -> dict[str, Any]:
        """Return a memory with its text, the sentences it came from, its history and the author of each line."""
        memory, file = self._memory(query), query.get("file", "")
        found = memory.get(file)
        changes = [
            {"id": one.id, "time": one.time, "who": one.who, "act": one.act, "why": one.why} for one in memory.log(file)
        ]
        blame = [
            {"text": one.text, "id": one.id, "time": one.time, "who": one.who, "why": one.why}
            for one in memory.blame(file)
        ]
        return {**_head(found), "body": found.body, "origins": self._origins(found), "log": changes, "blame": blame}

    def dreams(self) -> dict[str, Any]:
        """Return the reports of past dreams with their diffs, the running ones, and their open questions."""
        rows: list[dict[str, Any]] = []
        for name, memory in self.opened().items():
            dreams = self._dreams(memory)
            reports = [{**msgspec.to_builtins(one), "can_undo": _can_undo(one)} for one in dreams.reports()]
            questions = [{"topic": one.topic, "files": one.files, "text": one.text} for one in dreams.questions()]
            rows.append({"project": name, "reports": reports, "questions": questions})
        return {"projects": rows, "running": self.now()["dreams"]}

    def _dreams(self, memory: Memory) -> Dreams:
        return Dreams(memory, self._settings, project=memory.path)

    def _origins(self, found: MemoryRecord) -> list[dict[str, Any]]:
        """Return the sources of a memory, each with the sentence of its message that is most like the memory."""
        rows: list[dict[str, Any]] = []
        library = Library(self._storage)
        for source in found.source:
            session, _, message = source.partition(" ")
            entry = _entry(library, session, message)
            said = source_sentence(text_of_entry(entry), found.body) if entry is not None else ("", "", "")
            kind = entry.kind if entry is not None else ""
            rows.append({"session": session, "message": message, "kind": kind, "said": said})
        return rows

    # -- acting

    @property
    def acts(self) -> dict[str, Act]:
        """The acts on memories and dreams, by name; the commands 'memory review' and 'dream' do the same."""
        return {
            "approve": self._approve,
            "reject": self._reject,
            "undo-change": self._undo_change,
            "undo-dream": self._undo_dream,
            "stop-dream": self._stop_dream,
        }

    def _approve(self, query: Query) -> str:
        if not (seen := query.get("version", "")):
            raise InputError("name the version that was shown: &version=HASH")
        entry = self._memory(query).confirm(query.get("file", ""), version=seen)
        return f"approved, change {entry.id}" if entry is not None else "it was approved already"

    def _reject(self, query: Query) -> str:
        entry = self._memory(query).reject(query.get("file", ""))
        return f"rejected, change {entry.id}" if entry is not None else "nothing changed"

    def _undo_change(self, query: Query) -> str:
        entry = self._memory(query).undo(query.get("change", "") or "c0")
        return f"undone, change {entry.id}" if entry is not None else "nothing changed"

    def _undo_dream(self, query: Query) -> str:
        undone = self._dreams(self._memory(query)).undo(query.get("dream") or None)
        stayed = f"; not restored, because changed since: {', '.join(undone.stayed)}" if undone.stayed else ""
        return f"undone: {len(undone.restored):,} restored{stayed}"

    def _stop_dream(self, query: Query) -> str:
        ended = stop(self._settings.home / self._folder(query))
        return "no dream is running" if ended is None else "stopped" if ended.gone else "its process does not stop"

    def _folder(self, query: Query) -> str:
        found = self.folders().get(query.get("project", ""))
        if found is None:
            raise InputError(f"there are no memories of a project {query.get('project', '')[:80]!r}")
        return found

    def _memory(self, query: Query) -> Memory:
        self._folder(query)
        return self.opened()[query.get("project", "")]


def source_sentence(text: str, memory: str) -> tuple[str, str, str]:
    """Return the sentence of a message that shares most words with a memory, and the text before and after it."""
    wanted, best, most = set(words(memory)), (0, 0), 0.0
    for found in _SENTENCE.finditer(text):
        said = set(words(found[0]))
        share = len(said & wanted) / len(said | wanted) if said else 0.0
        if share > most:
            best, most = found.span(), share
    start, end = best
    return text[max(0, start - _AROUND_CHARS) : start], text[start:end], text[end : end + _AROUND_CHARS]


def _project(memory: Memory) -> dict[str, Any]:
    try:
        shown = {one.file: {"diff": one.diff, "version": one.version} for one in memory.review()}
        none = {"diff": "", "version": ""}
        return {"memories": [{**_head(one), **shown.get(one.file, none)} for one in memory.list()], "error": ""}
    except (ReverieError, OSError) as error:
        return {"memories": [], "error": str(error)}


def _head(found: MemoryRecord) -> dict[str, Any]:
    return {**{name: getattr(found, name) for name in _HEAD}, "source": list(found.source)}


def _entry(library: Library, session: str, message: str) -> Entry | None:
    try:
        entries = library.load(library.find(session)).entries
    except ReverieError:
        return None  # the session was deleted, or the memory came from elsewhere
    return next((entry for entry in entries if message and entry.uuid == message), None)


def _can_undo(report: Any) -> bool:
    return bool(report.entry) and not report.undone


def modified(path: Path) -> float:
    """Return the time of the last change of a file, 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
