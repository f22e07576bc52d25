"""``Memory``: the memories of a project across sessions, usable without a session, a model or an event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import InputError, SettingsError, StorageConflict
from ...memories.recall.policy import RecallPolicy
from ...memories.rules.secrets import refuse_secrets, without_secrets
from ...memories.rules.taxonomy import MemoryType, body_for, description_for, lint_memory, refusal, revised_fields
from ...memories.store import drafts
from ...memories.store.drafts import Draft
from ...memories.store.index import LoadedIndex
from ...memories.store.journal import BlamedLine, JournalEntry
from ...memories.store.journal_files import SharedJournal
from ...memories.store.names import file_for, title_for
from ...memories.store.records import MemoryRecord, Scope, front_matter
from ...memories.store.store import MemoryStore, Transaction, stamp, utc_now
from ...memories.store.trust import Trust
from ...ports import Embedder
from ...settings import Settings
from ...text.dates import DatedText, absolute
from ...values import replace
from ..search.vectors import settings_embedder
from .daily_logs import append_log, forget_logged
from .results import ForgottenMemories, LintProblem, PendingMemory, SavedMemory
from .scopes import Scopes, author_trust, iso_time, memory_directory, refuse_unsafe, source_tuple, team_fields
from .search import MemorySearch
from .shared_journal import project_folder, shared_journal
from .vectors import MemoryVectors, delete_vectors

__all__ = ["Memory", "memory_directory"]

# The class below has a method ``list``, so its annotations cannot use the type of that name.
Names: TypeAlias = list[str]
Gone: TypeAlias = list[tuple[Scope, str]]
Heads: TypeAlias = list[MemoryRecord]
Log: TypeAlias = list[JournalEntry]
Phrases: TypeAlias = Sequence[tuple[str, str]]

_OURS: Final = frozenset({"trust", "source", "created", "modified", "scope"})  # the program sets these fields


class Memory:
    """The memories of a project, as Markdown files that a person can read, edit and version."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        team: str | os.PathLike[str] | None = None,
        instructions: Sequence[str] | Callable[[], Sequence[str]] = (),
        clock: Callable[[], datetime] = utc_now,
        embedder: Embedder | None = None,
        recall: RecallPolicy | None = None,
        shared: SharedJournal | None = None,
    ) -> None:
        """Use the memories in a directory; a text that ``instructions`` already contain is not saved.

        With an ``embedder``, recall finds memories by their meaning too; ``recall`` are its thresholds. With a
        ``shared`` journal the directory is this machine's working copy of memories in a database.
        """
        self.path = Path(os.path.abspath(directory))
        self._instructions, self._clock = instructions, clock
        self._found = MemorySearch(self.path, team=team, embedder=embedder, shared=shared)
        self._policy = recall or RecallPolicy()
        self.shared = shared
        self._scopes = Scopes(str(self.path), os.path.abspath(team) if team is not None else None, clock, shared)
        self.refresh()

    @classmethod
    def open(
        cls,
        project: str | os.PathLike[str] = ".",
        *,
        home: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
    ) -> Memory:
        """Open the memories of the project that contains a directory; the first save creates the files.

        Raise ``SettingsError`` if memories are switched off, and ``InputError`` if there is neither the directory nor
        a memory of it; with ``settings``, the project may be on another machine.
        """
        settings = settings or Scopes.project_settings(project, home)
        if not settings.switches.memory:
            raise SettingsError("memories are switched off; set switches.memory to true to use them")

        def instructions() -> Names:
            from ..instructions.reader import gather

            return [one.text for one in gather(Path(project), home=settings.home).files]

        return cls(
            memory_directory(project, settings),
            team=settings.team_memory,
            instructions=instructions,
            embedder=settings_embedder(settings),
            recall=settings.recall,
            shared=None if settings.memory_dir is not None else shared_journal(project_folder(project), settings),
        )

    @property
    def store(self) -> MemoryStore:
        """The store of the private memories."""
        return self._scopes.stores["private"]

    def refresh(self) -> None:
        """Read the changes of other machines, if the memories are in a database."""
        self.store.refresh()

    # -- reading

    def list(self, *, type: MemoryType | None = None) -> Heads:
        """Return a list of all memories, or of those of one type, newest first, without their bodies."""
        heads = [head for head in self._scopes.heads() if type is None or head.type == type]
        return sorted(heads, key=lambda head: (head.modified, head.file), reverse=True)

    def get(self, file_or_name: str) -> MemoryRecord:
        """Return one memory with its body, by file name or by name; raise ``InputError`` if there is none."""
        scope, file = self._scopes.find(file_or_name)
        if (found := self._store(scope).get(file)) is None:
            raise InputError(f"there is no memory {file_or_name[:100]!r}; 'reverie memory list' lists the memories")
        return self._scopes.outward(scope, found)

    def path_of(self, file: str) -> Path:
        """Return the path of a memory's file, whether or not the file exists."""
        scope, inner = self._scopes.split(file)
        return Path(self._store(scope).path(inner))

    def index(self, scope: Scope = "private") -> LoadedIndex:
        """Return the part of a scope's index that fits its limits, with a warning if a part is left out."""
        return self._store(scope).load_index()

    def recall(self, query: str, *, limit: int = 5, everything: bool = False) -> Heads:
        """Return a list of the memories that are certain to help with a question, with bodies, best first.

        With ``everything``, return every match up to the limit, however weak, also expired ones.
        """
        return self._found.recall(query, limit=limit, policy=None if everything else self._policy, now=self._clock())

    def has_expired(self, memory: MemoryRecord) -> bool:
        """Say whether a memory's last day is over, so that it is no longer recalled."""
        return memory.has_expired(stamp(self._clock()))

    @property
    def recalls_meaning(self) -> bool:
        """Whether recall uses embeddings; without them a question finds a memory only by common words."""
        return self._found.vectors is not None

    @property
    def vectors(self) -> MemoryVectors | None:
        """The vectors of the memories; None without an embedder."""
        return self._found.vectors

    @property
    def recall_problem(self) -> str:
        """The reason why the last recall could not use the embedder; empty if it could or there is none."""
        return self.vectors.problem if self.vectors is not None else ""

    def log(self, file_or_name: str | None = None) -> Log:
        """Record edits by other programs, then return a list of all changes or of one memory's, newest first."""
        return self._scopes.entries(self._scopes.find(file_or_name, gone=True) if file_or_name is not None else None)

    def blame(self, file_or_name: str) -> Sequence[BlamedLine]:
        """Return the lines of a memory's file, each with its author, time and reason.

        Raise ``InputError`` if the journal has no such memory.
        """
        scope, file = self._scopes.find(file_or_name)
        history = self._store(scope).history()
        lines = history.blame(file)
        if not lines and history.known.get(file) is None:
            raise InputError(f"the journal has no memory {file_or_name[:100]!r}; see 'reverie memory list'")
        return lines

    def review(self) -> Sequence[PendingMemory]:
        """Return the unconfirmed memories, each with a diff against its last version that was not unconfirmed."""
        return self._scopes.pending()

    def lint(self) -> Sequence[LintProblem]:
        """Return the problems found: unreadable files, vague descriptions, differences of index, files and journal."""
        return self._scopes.lint()

    def journal_problems(self) -> Sequence[LintProblem]:
        """Return the problems of the journal: damaged, newer and missing lines."""
        return self._scopes.journal_problems()

    # -- changing

    def save(
        self,
        text: str,
        *,
        type: MemoryType,
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
    ) -> SavedMemory:
        """Save a text as a new memory; raise ``InputError`` with the reason if the text must not be saved.

        ``author`` is "user" or the name of an agent, whose text has less trust than the user's. ``trust`` can lower the
        trust further, for text derived from untrusted input.
        """
        self._refuse(text, type, why)
        dated = self._dated(body_for(text, why, how), type)  # its reason too
        text, body = self._dated(text, type).text, dated.text
        title = " ".join((name or title_for(text)).split())
        file = file_for(type, title, text="" if name else text)
        about = self._dated(" ".join((description or description_for(text)).split()), type).text
        vouched = author_trust(author, trust)
        chosen = self._scopes.route(type, scope, vouched)
        sources = source_tuple(source)
        fields = {
            "name": title,
            "description": about,
            "type": type,
            "source": sources[0] if len(sources) == 1 else list(sources),
            "trust": vouched,
            "expires": iso_time(expires),
            **team_fields(chosen),
        }
        refuse_unsafe(chosen, body, fields, why)
        entry = self._store(chosen).commit(
            lambda change: drafts.save(change, file, fields, body, who=author, why=why), dry_run=dry_run
        )
        made = MemoryRecord(file, title, about, type, trust=vouched, expires=iso_time(expires), body=body)
        return self._saved(chosen, made, entry, dry_run, dated.replaced)

    def update(
        self,
        file_or_name: str,
        text: str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        type: MemoryType | None = None,
        why: str = "",
        how: str = "",
        source: str | Sequence[str] | None = None,
        author: str = "user",
        trust: Trust | None = None,
        expires: str | None = None,
        expect: str | None = None,
        dry_run: bool = False,
    ) -> SavedMemory:
        """Write a new version of a memory; an argument that is None keeps the old value.

        ``expect`` is the hash the current version must have, else ``StorageConflict`` is raised; a team memory
        with a new text is then saved beside the other version instead.
        """
        scope, file = self._scopes.find(file_or_name)
        old = self.get(file_or_name)
        if text is not None or type is not None:
            self._refuse(old.body if text is None else text, type or old.type or "project", why)
        replaced: Phrases = ()
        kind = type or old.type or "project"
        description = self._dated(description, kind).text if description else description
        body = body_for(text, why, how) if text is not None else None
        if text is not None and body is not None and not self._dated(old.body, "project").replaced:
            dated = self._dated(body, kind)
            text, body, replaced = self._dated(text, kind).text, dated.text, dated.replaced
        given = {"name": name, "description": description, "type": type, "expires": iso_time(expires) or None}
        changes = revised_fields(old, text, given)
        refuse_unsafe(scope, body or "", {"name": old.name, "description": old.description, **changes}, why)

        def plan(change: Transaction) -> Draft | None:
            trusted, sources = author_trust(author, trust), source_tuple(source)
            revision = drafts.Revision(file, changes, body, trusted, sources, expect)
            return drafts.revise(change, revision, who=author, why=why)

        try:
            entry = self._store(scope).commit(plan, dry_run=dry_run)
        except StorageConflict:
            if scope != "team" or body is None:
                raise
            return self._keep_both(old, changes, body, author, why)
        return self._saved(scope, self._store(scope).get(file) or old, entry, dry_run, replaced)

    def _keep_both(
        self, old: MemoryRecord, changes: Mapping[str, str], body: str, author: str, why: str
    ) -> SavedMemory:
        """Save our version of a team memory beside the version that another writer saved first."""
        name = f"{changes.get('name', old.name)} (conflict)"
        file = file_for(old.type or "project", name, text=body)
        kept = {"description": old.description, "type": old.type or "project"}
        fields = {**kept, **changes, "name": name, **team_fields("team")}
        entry = self._store("team").commit(lambda change: drafts.save(change, file, fields, body, who=author, why=why))
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
    ) -> SavedMemory:
        """Write a whole memory file, as an agent's own file tools do, under the rules of ``save`` and ``update``.

        The trust is at most that of the author even if the front matter claims more, and writing never raises it.
        Raise ``InputError`` if the content must not be saved.
        """
        scope, inner = self._scopes.split(file)
        store = self._store(scope)
        matter = front_matter(content)
        old = store.get(inner)
        type_name = str(matter.fields.get("type") or (old.type if old else ""))
        self._refuse(matter.body, type_name)
        body = matter.body if old else self._dated(matter.body, type_name).text
        vouched = author_trust(author, trust)
        fields = {key: value for key, value in matter.fields.items() if key not in _OURS}
        if not old and isinstance(about := fields.get("description"), str):
            fields["description"] = self._dated(about, type_name).text
        if scope == "team":
            self._scopes.route(type_name, "team", vouched)
        refuse_unsafe(scope, content, {}, "")
        refuse_unsafe(scope, matter.body, fields, "")

        def plan(change: Transaction) -> Draft | None:
            if change.read(inner) is None:
                born = {**fields, **team_fields(scope), "trust": vouched, "source": source}
                return drafts.save(change, inner, born, body, who=author, why=why)
            sources, dropped = source_tuple(source), dict.fromkeys(old.extra.keys() - fields.keys() if old else ())
            new = {**dropped, **fields}
            revision = drafts.Revision(inner, new, body, vouched, sources, expect)
            return drafts.revise(change, revision, who=author, why=why)

        entry = store.commit(plan)
        return self._saved(scope, store.get(inner) or MemoryRecord(inner, inner), entry, False)

    def forget(
        self, *files_or_names: str, why: str = "", author: str = "user", erase: bool = False, dry_run: bool = False
    ) -> ForgottenMemories:
        """Remove memories and their index lines; return sessions that saw them and memories that link to them.

        The journal keeps every version for an undo; ``erase`` deletes them there too, which cannot be undone.
        """
        found = [self._scopes.find(one) for one in files_or_names]
        ids: Names = []
        for scope, store in self._scopes.stores.items():
            files = [file for one, file in found if one == scope]
            if not files:
                continue
            entry = store.commit(
                lambda change: drafts.forget(change, files, who=author, why=without_secrets(why)),  # noqa: B023 - called at once
                dry_run=dry_run,
            )
            ids += [self._scopes.id(scope, entry.id)] if entry and not dry_run else []
            if erase and not dry_run:
                store.erase(files)
                delete_vectors(self.path)
        return self._scopes.forgotten(found, ids)

    def forget_source(
        self, source: str, *, author: str = "user", erase: bool = False, dry_run: bool = False
    ) -> ForgottenMemories:
        """Remove the memories from one source, such as a session, and undo later edits based on it, in one change.

        ``erase`` also deletes everything from this source in the journal, the reports of dreams and the daily logs,
        which cannot be undone, and finishes an erasure that was interrupted.
        """
        gone: Gone = []
        restored: Names = []
        ids: Names = []
        scope: Scope
        for scope, store in self._scopes.stores.items():
            entry = store.commit(
                lambda change: drafts.forget_source(change, source, who=author), notice=True, dry_run=dry_run
            )
            changes = entry.changes if entry is not None else []
            gone.extend((scope, change.file) for change in changes if change.after is None)
            restored += [self._scopes.name(scope, change.file) for change in changes if change.after is not None]
            ids += [self._scopes.id(scope, entry.id)] if entry is not None and not dry_run else []
            if erase and not dry_run:
                removed = [file for one, file in gone if one == scope]
                store.erase(removed, source=lambda one: drafts.comes_from(one, source))
                delete_vectors(self.path)
                forget_logged(store.files, source)
        return replace(self._scopes.forgotten(gone, ids), restored=restored)

    def undo(self, what: int | str = 1, *, author: str = "user", dry_run: bool = False) -> JournalEntry | None:
        """Undo the last ``what`` private changes, or the change with the id ``what``, and return the new change.

        Files are restored byte for byte. An undo is a change too, so it can be undone by its id.
        """
        scope: Scope = "team" if isinstance(what, str) and what.startswith("team:") else "private"

        def plan(change: Transaction) -> Draft:
            history = change.history
            wanted = (
                [history.entry(what.removeprefix("team:"))] if isinstance(what, str) else history.last_undoable(what)
            )
            return drafts.undo(change, wanted, who=author)

        if isinstance(what, int) and what < 1:
            raise InputError("say how many changes to undo: 1 or more")
        return self._made(scope, plan, dry_run=dry_run)

    def rewind(
        self, to: datetime | str, *, scope: Scope = "private", author: str = "user", dry_run: bool = False
    ) -> JournalEntry | None:
        """Restore every memory of a scope to its state at a time, or right after the change with an id.

        Return the new change, which can be undone; None if nothing differs.
        """
        after = to if isinstance(to, str) and to[:1] == "c" and to[1:].isdigit() else ""
        time = "" if after else stamp(datetime.fromisoformat(iso_time(to)) if isinstance(to, str) else to)

        def plan(change: Transaction) -> Draft | None:
            later = change.history.since(time, after=after)
            return drafts.rewind(change, later, who=author, why=f"back to {after or time}")

        return self._made(scope, plan, dry_run=dry_run)

    def confirm(self, file_or_name: str, *, author: str = "user", version: str = "") -> JournalEntry | None:
        """Raise a memory's trust to the user's and return the change; None if it has that trust already.

        No other call raises trust. With a ``version`` from ``review``, raise ``InputError`` for any other text.
        """
        scope, file = self._scopes.find(file_or_name)
        return self._made(scope, lambda one: drafts.confirm(one, file, who=author, seen=version))

    def reject(self, file_or_name: str, *, author: str = "user") -> JournalEntry | None:
        """Reject an unconfirmed memory as the user: restore its last trusted version, or remove it without one.

        Return the change; raise ``InputError`` if the memory is not unconfirmed.
        """
        scope, file = self._scopes.find(file_or_name)
        return self._made(scope, lambda one: drafts.reject(one, file, who=author))

    def reindex(self, scope: Scope = "private", *, author: str = "user", dry_run: bool = False) -> JournalEntry | None:
        """Journal copied files, rewrite a scope's index from its files, and return the change; None if it was right."""
        return self._made(scope, lambda one: drafts.reindex(one, who=author), notice=not dry_run, dry_run=dry_run)

    def append_daily(self, text: str, *, source: str = "", trust: Trust = "agent") -> Path:
        """Append a line to today's private log, from which a dream makes memories, and return the log's path.

        Raise ``InputError`` if the line contains a secret.
        """
        refuse_secrets(text, "the line")
        return self.path / append_log(self.store.files, self._clock().astimezone(), text, source=source, trust=trust)

    # -- steps of every change

    @property
    def is_shared(self) -> bool:
        """Whether there are memories of a team beside the private ones."""
        return "team" in self._scopes.stores

    def _store(self, scope: Scope) -> MemoryStore:
        return self._scopes.store(scope)

    def _made(
        self, scope: Scope, plan: Callable[[Transaction], Draft | None], *, notice: bool = True, dry_run: bool = False
    ) -> JournalEntry | None:
        entry = self._store(scope).commit(plan, notice=notice, dry_run=dry_run)
        return self._scopes.outward_entry(scope, entry) if entry is not None else None

    def _refuse(self, text: str, type_name: str, why: str = "") -> None:
        said = self._instructions() if callable(self._instructions) else self._instructions
        if reason := refusal(text, type_name, instructions=said, reason_given=bool(why.strip())):
            raise InputError(reason)

    def _dated(self, text: str, type_name: str) -> DatedText:
        """Return a text with its relative dates made absolute; a reference stays as it is."""
        return DatedText(text) if type_name == "reference" else absolute(text, self._clock().astimezone().date())

    def _saved(
        self, scope: Scope, memory: MemoryRecord, entry: JournalEntry | None, dry_run: bool, replaced: Phrases = ()
    ) -> SavedMemory:
        if self.recalls_meaning and not dry_run:
            self._found.refresh()  # the vector is computed now, not when a prompt waits for it
        return SavedMemory(
            self._scopes.name(scope, memory.file),
            memory.name,
            Path(self._store(scope).path(memory.file)),
            self._scopes.id(scope, entry.id) if entry is not None and not dry_run else "",
            scope,
            memory.trust,
            [
                *(f"wrote {shown!r} instead of {phrase!r}" for phrase, shown in replaced),
                *(f"{memory.name!r} {problem}" for problem in lint_memory(memory, today=stamp(self._clock()))),
            ],
            dry_run,
        )
