"""The stores of one ``Memory``: the user's private directory, and the team's directory if there is one.

Callers name a team memory ``team/<file>`` and its changes ``team:<id>``, wherever the directory is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Final

from ...arguments import check_text, check_type
from ...errors import InputError, StorageError, UnsafePath
from ...memories.rules.secrets import refuse_secrets
from ...memories.rules.taxonomy import lint_memory, route
from ...memories.store.drafts import last_trusted
from ...memories.store.head_files import JOURNAL_FILE
from ...memories.store.index import INDEX, lines_of, load
from ...memories.store.journal import JournalEntry
from ...memories.store.journal_files import SharedJournal
from ...memories.store.names import check_file, composed
from ...memories.store.records import MemoryRecord, Scope, has_conflict, version_of
from ...memories.store.side_files import read_plain
from ...memories.store.store import MemoryStore, stamp
from ...memories.store.trust import Trust, worst
from ...settings import Settings, load_settings
from ...tools.git import git_identity
from ...values import replace
from ..places.projects import project_slug
from .results import ForgottenMemories, LintProblem, PendingMemory

MAX_TEAM_BYTES: Final = 250_000
TEAM: Final = "team"
FOR_USER_SUFFIX: Final = " for the user"
"""The end of an author's name if the author wrote down the user's own words; the journal then names both."""


def memory_directory(project: str | os.PathLike[str], settings: Settings) -> Path:
    """Return the memory directory of a project: the one the settings name, else its folder under home.

    All worktrees of a repository share one directory. Files of the project cannot change it.
    """
    return settings.memory_dir or settings.home / "projects" / project_slug(Path(project)) / "memory"


class Scopes:
    """The private and the team store, with the names callers use for their files and changes."""

    def __init__(
        self, private: str, team: str | None, clock: Callable[[], datetime], shared: SharedJournal | None = None
    ) -> None:
        self._clock = clock
        self.stores: dict[Scope, MemoryStore] = {"private": MemoryStore(private, clock=clock, shared=shared)}
        if team is not None:
            self.stores["team"] = MemoryStore(team, scope="team", clock=clock)

    @staticmethod
    def project_settings(project: str | os.PathLike[str], home: str | os.PathLike[str] | None) -> Settings:
        """Return the settings for a project; raise ``InputError`` if it has neither a directory nor memories."""
        check_type("project", project, (str, os.PathLike), "the path of a directory")
        settings = load_settings(home=Path(home) if home is not None else None, project=Path(project))
        if not Path(project).is_dir() and not memory_directory(project, settings).is_dir():
            raise InputError(f"there is neither a directory {str(project)!r} nor a memory of it")
        return settings

    def store(self, scope: Scope) -> MemoryStore:
        """Return the store of a scope; raise ``InputError`` if there is no team store."""
        if scope not in self.stores:
            raise InputError("there are no team memories; set team_memory to a folder to share some")
        return self.stores[scope]

    # -- names

    def split(self, file: str) -> tuple[Scope, str]:
        """Return the scope and file of a caller's file name; raise if it is unsafe or there is no team store."""
        file = composed(file)
        inner = file.removeprefix(f"{TEAM}/")
        check_file(inner)
        if inner == file:
            return "private", file
        self.store("team")
        return "team", inner

    def name(self, scope: Scope, file: str) -> str:
        """Return the name callers use for a file."""
        return f"{TEAM}/{file}" if scope == "team" else file

    def id(self, scope: Scope, id: str) -> str:
        """Return the id callers use for a change."""
        return f"{TEAM}:{id}" if scope == "team" else id

    def find(self, file_or_name: str, *, gone: bool = False) -> tuple[Scope, str]:
        """Return the scope and file of a memory by file name or name; raise ``InputError`` unless one matches.

        A file name is only checked, not looked up. ``gone`` adds a hint about deleted memories to the error.
        """
        check_text("the memory's name", file_or_name)
        if file_or_name.endswith(".md"):
            return self.split(file_or_name)
        wanted = " ".join(file_or_name.split()).casefold()
        if not wanted:
            raise InputError("the name of the memory is empty; 'reverie memory list' lists the memories")
        found: list[tuple[Scope, str]] = [
            (scope, head.file)
            for scope, store in self.stores.items()
            for head in store.scan().memories
            if wanted in (head.name.casefold(), self.name(scope, head.file).removesuffix(".md").casefold())
        ]
        if len(found) > 1:
            names = ", ".join(self.name(*one) for one in found[:5])
            raise InputError(f"{file_or_name[:100]!r} matches {len(found)} memories: {names}; use one of these files")
        if not found:
            hint = "; use the file name of a deleted memory" if gone else ""
            raise InputError(
                f"there is no memory {file_or_name[:100]!r}; 'reverie memory list' lists the memories{hint}"
            )
        return found[0]

    def outward(self, scope: Scope, memory: MemoryRecord) -> MemoryRecord:
        """Return a memory with the file name callers use."""
        return replace(memory, file=self.name(scope, memory.file)) if scope == "team" else memory

    def outward_entry(self, scope: Scope, entry: JournalEntry) -> JournalEntry:
        """Return a change with the ids and file names callers use."""
        if scope == "private":
            return entry
        changes = [replace(change, file=self.name(scope, change.file)) for change in entry.changes]
        undoes = [self.id(scope, one) for one in entry.undoes]
        return replace(entry, id=self.id(scope, entry.id), changes=changes, undoes=undoes)

    # -- all stores

    def heads(self) -> list[MemoryRecord]:
        """Return a list of all memories of all stores, without their bodies."""
        return [self.outward(scope, head) for scope, store in self.stores.items() for head in store.scan().memories]

    def entries(self, wanted: tuple[Scope, str] | None = None) -> list[JournalEntry]:
        """Return a list of all changes, or those of one file, newest first."""
        found: list[tuple[str, int, JournalEntry]] = []
        for scope, store in self.stores.items():
            for entry in store.entries():
                if wanted is None or (wanted[0] == scope and wanted[1] in entry.files):
                    found.append((entry.time, entry.number, self.outward_entry(scope, entry)))
        return [entry for _, _, entry in sorted(found, key=lambda one: one[:2], reverse=True)]

    def forgotten(self, gone: Sequence[tuple[Scope, str]], ids: Sequence[str]) -> ForgottenMemories:
        """Return the result of forgetting these files by the changes with these ids."""
        files = [self.name(scope, file) for scope, file in gone]
        return ForgottenMemories(files, ", ".join(ids), self.surfaced(gone), self.links({file for _, file in gone}))

    def surfaced(self, found: Iterable[tuple[Scope, str]]) -> list[str]:
        """Return the names of the sessions that were shown any of these memories."""
        names = [self.name(scope, file) for scope, file in found]
        return self.stores["private"].surfaced(names)

    def links(self, files: set[str]) -> list[str]:
        """Return the files of the other memories whose text links to any of these files."""
        found: list[str] = []
        stems = {file.rsplit("/", 1)[-1].removesuffix(".md") for file in files}
        for scope, store in self.stores.items():
            for head in store.scan().memories:
                memory = store.get(head.file) if head.file not in files else None
                if memory and any(f"[[{stem}]]" in memory.body or f"({stem}.md)" in memory.body for stem in stems):
                    found.append(self.name(scope, head.file))
        return found

    def pending(self) -> list[PendingMemory]:
        """Return a list of the unconfirmed memories, each with a diff against its last version of higher trust."""
        found: list[PendingMemory] = []
        for scope, store in self.stores.items():
            waiting = [head for head in store.scan().memories if head.trust == "unconfirmed"]
            history = store.history() if waiting else None
            for head in waiting:
                if history is None:
                    continue
                now = read_plain(store.root, head.file, is_memory=True) or b""  # the journal may not have it yet
                old = last_trusted(history, head.file)
                name = self.name(scope, head.file)
                diff = _diff(old, now, name)
                found.append(PendingMemory(name, head.name, head.source, diff, version_of(now)))
        return found

    def lint(self) -> list[LintProblem]:
        """Return a list of the problems of all memories and indexes."""
        today = stamp(self._clock())
        return [
            *(LintProblem(self.name(at, one), what) for at in self.stores for one, what in self._wrong(at, today)),
            *self.journal_problems(),
        ]

    def journal_problems(self) -> list[LintProblem]:
        """Return the problems of all journals: damaged, newer and missing lines."""
        return [
            LintProblem(self.name(scope, JOURNAL_FILE), problem)
            for scope, store in self.stores.items()
            for problem in store.journal_problems()
        ]

    def _wrong(self, scope: Scope, today: str) -> Iterable[tuple[str, str]]:
        store = self.stores[scope]
        scan = store.scan()
        files = {head.file for head in scan.memories}
        for head in scan.memories:
            memory = head if head.problem else store.get(head.file)
            if memory is not None:
                yield from ((head.file, what) for what in lint_memory(memory, today=today))
        yield from ((file, f"cannot be read: {why}") for file, why in scan.problems.items() if file not in files)
        yield from _misnamed(store.root)
        try:
            index = store.read_index()
        except StorageError as error:
            yield INDEX, str(error)
            return
        lines = Counter(line.file for line in lines_of(index) if line.file.endswith(".md"))
        listed = set(lines)
        unlisted = {head.file: head for head in scan.memories if not head.is_listed}
        yield from ((file, "is not in the index") for file in sorted(files - listed - unlisted.keys()))
        for file, head in sorted(unlisted.items()):
            if file in listed:
                yield file, "is in the index and should not be; 'reverie memory reindex' removes its line"
            if not head.superseded_by:
                yield (
                    file,
                    "is about a person and in the team's folder, so it is not shown; move it to your own memories",
                )
            elif head.superseded_by not in files:
                yield file, f"is superseded by {head.superseded_by}, and there is no such memory"
        if has_conflict(index):
            yield INDEX, "has conflict markers of git; 'reverie memory reindex' removes them"
        lost = sorted(listed - files - scan.problems.keys())
        yield from ((file, "is in the index, but there is no such memory") for file in lost)
        repeated = sorted(file for file in files & listed if lines[file] > 1)
        yield from ((file, "has two lines in the index; 'reverie memory reindex' leaves one") for file in repeated)
        if warning := load(index).warning:
            yield INDEX, warning

    def route(self, type_name: str, wanted: Scope | None, trust: Trust) -> Scope:
        """Return the scope for a new memory; raise ``InputError`` if the wanted team scope is not allowed.

        An unconfirmed memory is never shared with the team.
        """
        if wanted == "team":
            self.store("team")
            if type_name == "user":
                raise InputError("memories about the user are always private; leave out the scope")
            if trust == "unconfirmed":
                raise InputError("an unconfirmed memory cannot be shared with the team; confirm it first")
        team = "team" in self.stores and trust != "unconfirmed"
        return route(type_name, wanted, team=team)


def _diff(old: bytes | None, now: bytes, name: str) -> str:
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (old, now))
    origin = name if old is not None else "(new)"
    return "\n".join(unified_diff(list(before), list(after), origin, name, lineterm=""))


def team_fields(scope: Scope) -> Mapping[str, str]:
    """Return the fields of a shared memory only: its scope, and its author by the user's git settings."""
    return {"scope": "team", "author": git_identity()} if scope == "team" else {}


def author_trust(author: str, trust: Trust | None) -> Trust:
    """Return the trust of an author's text: "user" or "agent", or the given trust if that is lower."""
    own: Trust = "user" if author == "user" or author.endswith(FOR_USER_SUFFIX) else "agent"
    return worst((own, trust)) if trust else own


def source_tuple(source: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one source or several as a tuple; an empty tuple for None or an empty text."""
    return (source,) if isinstance(source, str) and source else tuple(source or ())


def iso_time(text: str | None) -> str:
    """Return a date or a time as ISO 8601, empty for an empty text; raise ``InputError`` if it is neither.

    A time without a zone is local.
    """
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is not a time; write it like 2026-11-15 or 2026-11-15T14:30") from None
    return moment.date().isoformat() if len(text) == 10 else moment.astimezone().isoformat()


def _misnamed(root: str) -> Iterable[tuple[str, str]]:
    """Yield the Markdown files that are skipped because a memory may not have their name, with the reason."""
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


def refuse_unsafe(scope: Scope, body: str, fields: Mapping[str, object], why: str) -> None:
    """Raise ``InputError`` if a memory holds a secret, a value that its title calls one, or too much for a team."""
    titles = [str(fields[key]) for key in ("name", "description") if fields.get(key)]
    named = [f"{title}: {text}" for title in titles for text in (body.strip(), *titles) if text != title]
    for part in (body, why, *(str(value) for value in fields.values()), *named):
        refuse_secrets(part, "the memory")
    if scope == "team" and len(body.encode()) > MAX_TEAM_BYTES:
        raise InputError(f"a team memory may have at most {MAX_TEAM_BYTES} bytes; split it")
