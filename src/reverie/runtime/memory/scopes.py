"""The directories behind one memory: the user's own, and the one shared with a team where there is one.

Outside, a shared memory is called ``team/<file>`` and its changes ``team:<id>``, wherever the folder lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Final

from ...errors import InputError, UnsafePath
from ...memories.rules.taxonomy import lint_memory, route
from ...memories.store.drafts import last_trusted
from ...memories.store.index import INDEX, lines_of, load
from ...memories.store.journal import JournalEntry
from ...memories.store.names import check_file
from ...memories.store.records import MemoryRecord, Scope
from ...memories.store.store import MemoryStore, stamp
from ...memories.store.trust import Trust, worst
from ...settings import Settings
from ...values import replace
from ..places.projects import project_slug
from .results import Lint, Pending

__all__ = ["USERS_WORD", "Scopes", "memory_directory", "moment_of", "sources_of", "vouched_of"]

TEAM: Final = "team"
USERS_WORD: Final = " for the user"
"""How an author's name ends who writes down the user's own words: the journal names both."""


def memory_directory(project: str | os.PathLike[str], settings: Settings) -> Path:
    """Return where a project's memories are: where the user says, else its folder under home.

    All worktrees of a repository share one. Nothing in the project itself has a say.
    """
    return settings.memory_dir or settings.home / "projects" / project_slug(Path(project)) / "memory"


class Scopes:
    """Shelves by scope, and the names things have outside."""

    def __init__(self, private: str, team: str | None, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.shelves: dict[Scope, MemoryStore] = {"private": MemoryStore(private, clock=clock)}
        if team is not None:
            self.shelves["team"] = MemoryStore(team, scope="team", clock=clock)

    def shelf(self, scope: Scope) -> MemoryStore:
        """Return a scope's directory, or say that nothing is shared here."""
        if scope not in self.shelves:
            raise InputError("no memories are shared here; set team_memory to a folder to share some")
        return self.shelves[scope]

    # -- names

    def split(self, file: str) -> tuple[Scope, str]:
        """Return the scope a file name means, and the name there; any other name is refused."""
        inner = file.removeprefix(f"{TEAM}/")
        check_file(inner)
        if inner == file:
            return "private", file
        self.shelf("team")
        return "team", inner

    def name(self, scope: Scope, file: str) -> str:
        """Return what a file is called outside."""
        return f"{TEAM}/{file}" if scope == "team" else file

    def id(self, scope: Scope, id: str) -> str:
        """Return what a change is called outside."""
        return f"{TEAM}:{id}" if scope == "team" else id

    def find(self, file_or_name: str, *, gone: bool = False) -> tuple[Scope, str]:
        """Return where the memory is that a file name or a name means; with ``gone``, one that is no more counts."""
        if file_or_name.endswith(".md"):
            return self.split(file_or_name)
        wanted = " ".join(file_or_name.split()).casefold()
        found: list[tuple[Scope, str]] = [
            (scope, head.file)
            for scope, shelf in self.shelves.items()
            for head in shelf.scan().memories
            if wanted in (head.name.casefold(), self.name(scope, head.file).removesuffix(".md").casefold())
        ]
        if len(found) > 1:
            names = ", ".join(self.name(*one) for one in found[:5])
            raise InputError(f"{file_or_name[:100]!r} could be {len(found)} memories: {names}; name one of these files")
        if not found:
            hint = "; give the file's name" if gone else ""
            raise InputError(
                f"there is no memory {file_or_name[:100]!r}; 'reverie memory list' names what there is{hint}"
            )
        return found[0]

    def outward(self, scope: Scope, memory: MemoryRecord) -> MemoryRecord:
        """Return a memory under the name it has outside."""
        return replace(memory, file=self.name(scope, memory.file)) if scope == "team" else memory

    def outward_entry(self, scope: Scope, entry: JournalEntry) -> JournalEntry:
        """Return a change under the names it has outside."""
        if scope == "private":
            return entry
        changes = [replace(change, file=self.name(scope, change.file)) for change in entry.changes]
        undoes = [self.id(scope, one) for one in entry.undoes]
        return replace(entry, id=self.id(scope, entry.id), changes=changes, undoes=undoes)

    # -- over all

    def heads(self) -> list[MemoryRecord]:
        """Return the heads of all memories."""
        return [self.outward(scope, head) for scope, shelf in self.shelves.items() for head in shelf.scan().memories]

    def entries(self, wanted: tuple[Scope, str] | None = None) -> list[JournalEntry]:
        """Return all changes, or those of one file, newest first."""
        found: list[tuple[str, int, JournalEntry]] = []
        for scope, shelf in self.shelves.items():
            for entry in shelf.entries():
                if wanted is None or (wanted[0] == scope and wanted[1] in entry.files):
                    found.append((entry.time, entry.number, self.outward_entry(scope, entry)))
        return [entry for _, _, entry in sorted(found, key=lambda one: one[:2], reverse=True)]

    def surfaced(self, found: Iterable[tuple[Scope, str]]) -> list[str]:
        """Return the sessions that were shown one of these."""
        names = [self.name(scope, file) for scope, file in found]
        return self.shelves["private"].surfaced(names)

    def links(self, files: set[str], *, but: Iterable[str] = ()) -> list[str]:
        """Return the memories whose text points to one of these files."""
        found: list[str] = []
        skipped = {*files, *but}
        stems = {file.rsplit("/", 1)[-1].removesuffix(".md") for file in files}
        for scope, shelf in self.shelves.items():
            for head in shelf.scan().memories:
                memory = shelf.get(head.file) if head.file not in skipped else None
                if memory and any(f"[[{stem}]]" in memory.body or f"({stem}.md)" in memory.body for stem in stems):
                    found.append(self.name(scope, head.file))
        return found

    def pending(self) -> list[Pending]:
        """Return the memories that wait to be confirmed."""
        found: list[Pending] = []
        for scope, shelf in self.shelves.items():
            waiting = [head for head in shelf.scan().memories if head.trust == "unconfirmed"]
            history = shelf.history() if waiting else None
            for head in waiting:
                if history is None:
                    continue
                versions = history.of_file(head.file)
                now = history.content(head.file, versions[-1][1].after or "") if versions else b""
                old = last_trusted(history, head.file)
                name = self.name(scope, head.file)
                found.append(Pending(name, head.name, head.source, _diff(old, now, name)))
        return found

    def lint(self) -> list[Lint]:
        """Return what is wrong with any memory or index."""
        today = stamp(self._clock())
        return [Lint(self.name(scope, one), what) for scope in self.shelves for one, what in self._wrong(scope, today)]

    def _wrong(self, scope: Scope, today: str) -> Iterable[tuple[str, str]]:
        shelf = self.shelves[scope]
        scan = shelf.scan()
        files = {head.file for head in scan.memories}
        for head in scan.memories:
            memory = head if head.problem else shelf.get(head.file)
            if memory is not None:
                yield from ((head.file, what) for what in lint_memory(memory, today=today))
        yield from ((file, f"cannot be read: {why}") for file, why in scan.problems.items() if file not in files)
        yield from _misnamed(shelf.root)
        index = shelf.read_index()
        listed = {line.file for line in lines_of(index) if line.file.endswith(".md")}
        yield from ((file, "is not in the index") for file in sorted(files - listed))
        lost = sorted(listed - files - scan.problems.keys())
        yield from ((file, "is in the index, but there is no such memory") for file in lost)
        if warning := load(index).warning:
            yield INDEX, warning

    def route(self, type_name: str, wanted: Scope | None, trust: Trust) -> Scope:
        """Return where a new memory goes; what nobody has confirmed is never shared."""
        if wanted == "team":
            self.shelf("team")
            if type_name == "user":
                raise InputError("what is about the user is always private; leave out the scope")
            if trust == "unconfirmed":
                raise InputError("what nobody has confirmed is not shared; confirm it first")
        team = "team" in self.shelves and trust != "unconfirmed"
        return route(type_name, wanted, team=team)


def _diff(old: bytes | None, now: bytes, name: str) -> str:
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (old, now))
    origin = name if old is not None else "(new)"
    return "\n".join(unified_diff(list(before), list(after), origin, name, lineterm=""))


def vouched_of(author: str, trust: Trust | None) -> Trust:
    """Return the trust of what an author writes: the user's word, or an agent's, or worse where that is said."""
    own: Trust = "user" if author == "user" or author.endswith(USERS_WORD) else "agent"
    return worst((own, trust)) if trust else own


def sources_of(source: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one source or several as several."""
    return (source,) if isinstance(source, str) and source else tuple(source or ())


def moment_of(text: str | None) -> str:
    """Check a time and return it as ISO 8601; one without a zone is local."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is no time; write it like 2026-11-15 or 2026-11-15T14:30") from None
    return moment.date().isoformat() if len(text) == 10 else moment.astimezone().isoformat()


def _misnamed(root: str) -> Iterable[tuple[str, str]]:
    """Yield the files that look like memories and are passed over, because no memory may have such a name."""
    with suppress(OSError):
        for name in sorted(os.listdir(root)):
            if (
                name.endswith(".md")
                and name[0] != "."
                and name != INDEX
                and not os.path.isdir(os.path.join(root, name))
            ):
                try:
                    check_file(name)
                except UnsafePath as error:
                    yield ascii(name)[1:-1], f"is not read: {error}"
