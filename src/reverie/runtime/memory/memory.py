"""``Memory``: what is kept across sessions, usable with no session, no model and no event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import InputError, SettingsError, StorageConflict
from ...memories.rules.secrets import refuse_secrets
from ...memories.rules.taxonomy import body_for, description_for, lint_memory, refusal
from ...memories.store import drafts
from ...memories.store.daily import log_line
from ...memories.store.drafts import Draft
from ...memories.store.index import LoadedIndex
from ...memories.store.journal import BlamedLine, JournalEntry
from ...memories.store.names import daily_log, file_for, title_for
from ...memories.store.records import MemoryRecord, Scope, front_matter
from ...memories.store.store import MemoryStore, Transaction, stamp, utc_now
from ...memories.store.trust import Trust
from ...settings import Settings, load_settings
from ...values import replace
from .results import Forgotten, Lint, Pending, Saved
from .scopes import Scopes, memory_directory, moment_of, sources_of, vouched_of
from .search import MemorySearch

__all__ = ["Memory", "memory_directory"]

# ``list`` is a method of the class below.
Names: TypeAlias = list[str]
Gone: TypeAlias = list[tuple[Scope, str]]
Heads: TypeAlias = list[MemoryRecord]
Log: TypeAlias = list[JournalEntry]

MAX_TEAM_BYTES: Final = 250_000
_OURS: Final = frozenset({"trust", "source", "created", "modified", "scope"})  # not for a text to claim


class Memory:
    """The memories of a project: Markdown files a person can read, edit and version."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        team: str | os.PathLike[str] | None = None,
        instructions: Sequence[str] | Callable[[], Sequence[str]] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Use the memories in a directory; ``instructions`` are texts that every session reads anyway."""
        self.path = Path(os.path.abspath(directory))
        self._instructions, self._clock = instructions, clock
        self._found = MemorySearch(self.path, team=team)
        self._scopes = Scopes(str(self.path), os.path.abspath(team) if team is not None else None, clock)

    @classmethod
    def open(
        cls,
        project: str | os.PathLike[str] = ".",
        *,
        home: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
    ) -> Memory:
        """Open the memories of the project a directory belongs to; nothing is written before something is saved."""
        settings = settings or load_settings(home=Path(home) if home is not None else None, project=Path(project))
        if not settings.switches.memory:
            raise SettingsError("memories are switched off; turn on switches.memory to use them")

        def instructions() -> Names:
            from ..instructions.reader import gather

            return [one.text for one in gather(Path(project), home=settings.home).files]

        return cls(memory_directory(project, settings), team=settings.team_memory, instructions=instructions)

    # -- reading

    def list(self, *, type: str | None = None) -> Heads:
        """Return the heads of all memories, newest first; the text of one is had by ``get``."""
        heads = [head for head in self._scopes.heads() if type is None or head.type == type]
        return sorted(heads, key=lambda head: (head.modified, head.file), reverse=True)

    def get(self, file_or_name: str) -> MemoryRecord:
        """Return one memory with its text, by its file or its name."""
        scope, file = self._scopes.find(file_or_name)
        found = self._shelf(scope).get(file)
        if found is None:
            raise InputError(f"there is no memory {file_or_name[:100]!r}; 'reverie memory list' names what there is")
        return self._scopes.outward(scope, found)

    def path_of(self, file: str) -> Path:
        """Return where a memory's file lies."""
        scope, inner = self._scopes.split(file)
        return Path(self._shelf(scope).path(inner))

    def index(self, scope: Scope = "private") -> LoadedIndex:
        """Return the index as far as it is shown, with a warning that names what is not."""
        return self._shelf(scope).load_index()

    def recall(self, query: str, *, limit: int = 5) -> Heads:
        """Return the memories that fit a question best, the best first; no model is asked."""
        return self._found.recall(query, limit=limit)

    def log(self, file_or_name: str | None = None) -> Log:
        """Return every change, newest first, or those of one memory; edits made outside are noticed here."""
        return self._scopes.entries(self._scopes.find(file_or_name, gone=True) if file_or_name is not None else None)

    def blame(self, file_or_name: str) -> Sequence[BlamedLine]:
        """Return the lines of a memory's file, each with who brought it, when and why."""
        scope, file = self._scopes.find(file_or_name)
        history = self._shelf(scope).history()
        lines = history.blame(file)
        if not lines and history.known.get(file) is None:
            raise InputError(
                f"the journal knows no memory {file_or_name[:100]!r}; 'reverie memory list' names what is there"
            )
        return lines

    def review(self) -> Sequence[Pending]:
        """Return the memories that wait to be confirmed, each as a diff to what the user last knew."""
        return self._scopes.pending()

    def lint(self) -> Sequence[Lint]:
        """Return what is wrong: files that cannot be read, vague descriptions, an index unlike the files."""
        return self._scopes.lint()

    # -- changing

    def save(
        self,
        text: str,
        *,
        type: str,
        name: str | None = None,
        description: str | None = None,
        why: str = "",
        how: str = "",
        scope: Scope | None = None,
        source: str | Sequence[str] | None = None,
        author: str = "user",
        trust: Trust | None = None,
        expires: str | None = None,
        dry_run: bool = False,
    ) -> Saved:
        """Keep a text as a new memory; what should not be kept is refused with the reason.

        ``author`` is who writes: the user, or the name of an agent, whose word never counts as the user's. ``trust``
        can lower what follows from that, for text derived from what nobody vouches for.
        """
        self._refuse(text, type)
        title = " ".join((name or title_for(text)).split())
        file = file_for(type, title, text="" if name else text)
        about = " ".join((description or description_for(text)).split())
        vouched = vouched_of(author, trust)
        chosen = self._scopes.route(type, scope, vouched)
        sources = sources_of(source)
        body = body_for(text, why, how)
        fields = {
            "name": title,
            "description": about,
            "type": type,
            "source": sources[0] if len(sources) == 1 else list(sources),
            "trust": vouched,
            "expires": moment_of(expires),
            "scope": chosen if chosen == "team" else "",
        }
        self._check(chosen, body, fields, why)
        entry = self._shelf(chosen).commit(
            lambda desk: drafts.save(desk, file, fields, body, who=author, why=why), dry_run=dry_run
        )
        return self._saved(chosen, MemoryRecord(file, title, about, type, trust=vouched, body=body), entry, dry_run)

    def update(
        self,
        file_or_name: str,
        text: str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        type: str | None = None,
        why: str = "",
        how: str = "",
        source: str | Sequence[str] | None = None,
        author: str = "user",
        trust: Trust | None = None,
        expires: str | None = None,
        expect: str | None = None,
        dry_run: bool = False,
    ) -> Saved:
        """Write another version of a memory; with ``expect`` only if it is still the version with that hash."""
        scope, file = self._scopes.find(file_or_name)
        old = self.get(file_or_name)
        if text is not None or type is not None:
            self._refuse(old.body if text is None else text, type or old.type or "project")
        body = body_for(text, why, how) if text is not None else None
        given = {"name": name, "description": description, "type": type, "expires": moment_of(expires) or None}
        changes = {key: " ".join(value.split()) for key, value in given.items() if value is not None}
        self._check(scope, body or "", changes, why)

        def plan(desk: Transaction) -> Draft | None:
            trusted, sources = vouched_of(author, trust), sources_of(source)
            revision = drafts.Revision(file, changes, body, trusted, sources, expect)
            return drafts.revise(desk, revision, who=author, why=why)

        try:
            entry = self._shelf(scope).commit(plan, dry_run=dry_run)
        except StorageConflict:
            if scope != "team" or body is None:
                raise
            return self._keep_both(old, changes, body, author, why)
        return self._saved(scope, self._shelf(scope).get(file) or old, entry, dry_run)

    def _keep_both(self, old: MemoryRecord, changes: Mapping[str, str], body: str, author: str, why: str) -> Saved:
        """Save our version of a shared memory beside the one somebody else wrote meanwhile; people choose."""
        name = f"{changes.get('name', old.name)} (conflict)"
        file = file_for(old.type or "project", name, text=body)
        kept = {"description": old.description, "type": old.type or "project"}
        fields = {**kept, **changes, "name": name, "scope": "team"}
        entry = self._shelf("team").commit(lambda desk: drafts.save(desk, file, fields, body, who=author, why=why))
        made = self._saved("team", MemoryRecord(file, name, old.description, old.type, body=body), entry, False)
        return replace(made, conflict=old.file)

    def write(
        self,
        file: str,
        content: str,
        *,
        author: str,
        source: str = "",
        trust: Trust | None = None,
        why: str = "written as a file",
        expect: str | None = None,
    ) -> Saved:
        """Write a whole memory file as an agent's own tools would, under the same rules as ``save`` and ``update``.

        Whatever the front matter claims, trust is that of the author or worse, and never rises by writing.
        """
        scope, inner = self._scopes.split(file)
        shelf = self._shelf(scope)
        matter = front_matter(content)
        old = shelf.get(inner)
        type_name = matter.fields.get("type") or (old.type if old else "")
        self._refuse(matter.body, type_name if isinstance(type_name, str) else "")
        vouched = vouched_of(author, trust)
        fields = {key: value for key, value in matter.fields.items() if key not in _OURS}
        self._check(scope, content, {}, "")

        def plan(desk: Transaction) -> Draft | None:
            if desk.read(inner) is None:
                born = {**fields, "trust": vouched, "source": source}
                return drafts.save(desk, inner, born, matter.body, who=author, why=why)
            sources, dropped = sources_of(source), dict.fromkeys(old.extra.keys() - fields.keys() if old else ())
            new = {**dropped, **fields}
            revision = drafts.Revision(inner, new, matter.body, vouched, sources, expect)
            return drafts.revise(desk, revision, who=author, why=why)

        entry = shelf.commit(plan)
        return self._saved(scope, shelf.get(inner) or MemoryRecord(inner, inner), entry, False)

    def forget(
        self, *files_or_names: str, why: str = "", author: str = "user", erase: bool = False, dry_run: bool = False
    ) -> Forgotten:
        """Remove memories and their index lines; say in which sessions copies stand and what still points to them.

        The journal keeps every version, so that this can be undone; with ``erase`` it does not, and it cannot.
        """
        found = [self._scopes.find(one) for one in files_or_names]
        ids: Names = []
        for scope, shelf in self._scopes.shelves.items():
            files = [file for one, file in found if one == scope]
            if not files:
                continue
            entry = shelf.commit(lambda desk: drafts.forget(desk, files, who=author, why=why), dry_run=dry_run)  # noqa: B023 - runs at once
            ids += [self._scopes.id(scope, entry.id)] if entry and not dry_run else []
            if erase and not dry_run:
                shelf.erase(files)
        return self._forgotten(found, ids)

    def forget_source(
        self, source: str, *, author: str = "user", erase: bool = False, dry_run: bool = False
    ) -> Forgotten:
        """Remove all that came from one source, such as a session, and what was built on it, in one change."""
        gone: Gone = []
        restored: Names = []
        ids: Names = []
        scope: Scope
        for scope, shelf in self._scopes.shelves.items():
            entry = shelf.commit(
                lambda desk: drafts.forget_source(desk, source, who=author), notice=True, dry_run=dry_run
            )
            if entry is None:
                continue
            gone.extend((scope, change.file) for change in entry.changes if change.after is None)
            restored += [self._scopes.name(scope, change.file) for change in entry.changes if change.after is not None]
            ids += [self._scopes.id(scope, entry.id)] if not dry_run else []
            if erase and not dry_run:
                shelf.erase(file for one, file in gone if one == scope)
        return replace(self._forgotten(gone, ids), restored=restored)

    def undo(self, what: int | str = 1, *, author: str = "user", dry_run: bool = False) -> JournalEntry | None:
        """Take back the last so many changes, or the one with this id, byte for byte.

        An undo is a change too: undoing it by its id brings back what it took.
        """
        scope: Scope = "team" if isinstance(what, str) and what.startswith("team:") else "private"

        def plan(desk: Transaction) -> Draft:
            history = desk.history
            wanted = (
                [history.entry(what.removeprefix("team:"))] if isinstance(what, str) else history.last_undoable(what)
            )
            return drafts.undo(desk, wanted, who=author)

        if isinstance(what, int) and what < 1:
            raise InputError("say how many changes to take back: 1 or more")
        return self._outward(scope, self._shelf(scope).commit(plan, notice=True, dry_run=dry_run))

    def rewind(
        self, to: datetime | str, *, scope: Scope = "private", author: str = "user", dry_run: bool = False
    ) -> JournalEntry | None:
        """Bring every memory to what it was at a time, or after the change with this id; this too can be undone."""
        after = to if isinstance(to, str) and to[:1] == "c" and to[1:].isdigit() else ""
        time = "" if after else stamp(datetime.fromisoformat(moment_of(to)) if isinstance(to, str) else to)

        def plan(desk: Transaction) -> Draft | None:
            later = desk.history.since(time, after=after)
            return drafts.rewind(desk, later, who=author, why=f"back to {after or time}")

        return self._outward(scope, self._shelf(scope).commit(plan, notice=True, dry_run=dry_run))

    def confirm(self, file_or_name: str, *, author: str = "user") -> JournalEntry | None:
        """Say as the user that a memory is right; only this raises trust."""
        scope, file = self._scopes.find(file_or_name)
        plan = self._shelf(scope).commit(lambda desk: drafts.confirm(desk, file, who=author), notice=True)
        return self._outward(scope, plan)

    def reject(self, file_or_name: str, *, author: str = "user") -> JournalEntry | None:
        """Say as the user that an unconfirmed memory is wrong: it goes back to what was trusted before, or goes."""
        scope, file = self._scopes.find(file_or_name)
        plan = self._shelf(scope).commit(lambda desk: drafts.reject(desk, file, who=author), notice=True)
        return self._outward(scope, plan)

    def reindex(self, scope: Scope = "private", *, author: str = "user", dry_run: bool = False) -> JournalEntry | None:
        """Make the index say what the files say."""
        plan = self._shelf(scope).commit(lambda desk: drafts.reindex(desk, who=author), dry_run=dry_run)
        return self._outward(scope, plan)

    def append_daily(self, text: str, *, source: str = "", trust: Trust = "agent") -> Path:
        """Append to today's log, from which a nightly run makes memories, and return its path."""
        refuse_secrets(text, "the line")
        now = self._clock().astimezone()
        file = daily_log(now.date())
        self._shelf("private").append(file, log_line(now, text, source=source, trust=trust))
        return self.path / file

    def note_surfaced(self, files: Sequence[str], session: str) -> None:
        """Note that a session was shown these memories, so that forgetting one can say where copies stand."""
        self._shelf("private").note_surfaced(files, session)

    # -- what every change goes through

    def _shelf(self, scope: Scope) -> MemoryStore:
        return self._scopes.shelf(scope)

    def _outward(self, scope: Scope, entry: JournalEntry | None) -> JournalEntry | None:
        return self._scopes.outward_entry(scope, entry) if entry is not None else None

    def _refuse(self, text: str, type_name: str) -> None:
        given = self._instructions
        said = given() if callable(given) else given
        if reason := refusal(text, type_name, instructions=said):
            raise InputError(reason)

    def _check(self, scope: Scope, body: str, fields: Mapping[str, object], why: str) -> None:
        for part in (body, why, *(str(value) for value in fields.values())):
            refuse_secrets(part, "the memory")
        if scope == "team" and len(body.encode()) > MAX_TEAM_BYTES:
            raise InputError(f"a shared memory may have {MAX_TEAM_BYTES} bytes and this has more; split it")

    def _saved(self, scope: Scope, memory: MemoryRecord, entry: JournalEntry | None, dry_run: bool) -> Saved:
        return Saved(
            self._scopes.name(scope, memory.file),
            memory.name,
            Path(self._shelf(scope).path(memory.file)),
            self._scopes.id(scope, entry.id) if entry is not None and not dry_run else "",
            scope,
            memory.trust,
            [f"it {problem}" for problem in lint_memory(memory)],
            dry_run,
        )

    def _forgotten(self, gone: Sequence[tuple[Scope, str]], ids: Sequence[str]) -> Forgotten:
        files = [self._scopes.name(scope, file) for scope, file in gone]
        links = self._scopes.links({file for _, file in gone})
        return Forgotten(files, ", ".join(ids), self._scopes.surfaced(gone), links)
