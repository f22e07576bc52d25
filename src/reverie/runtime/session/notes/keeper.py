"""Layer 3 in a session: update the notes after a reply when they are due, one update at a time.

The log holds the notes and the file is their projection. A person's edit of the file is logged before anything else
happens to the notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ....conversation.decisions import Cause, NotesUpdated
from ....conversation.identifiers import struck_names
from ....conversation.view import View
from ....errors import InputError, StorageConflict, StorageError
from ....events import BackgroundChanged, FellBack, NotesWritten
from ....layers.l3_notes import (
    CURRENT,
    Notes,
    NotesBudget,
    NotesLimits,
    NotesPolicy,
    Template,
    changed_sections,
    covered_by,
    directive,
    enough_tokens,
    notes_due,
    notes_from_answer,
    notes_limits,
    parse_notes,
    projection_of,
    render_notes,
    take_notes,
    template_of,
    worth_logging,
)
from ....ports import Document, Storage
from ..forks import Forks, forking
from ..host import SessionHost
from .activity import SessionActivity
from .rules import RuleKeeper

NOTES_FILE: Final = "session-memory/summary.md"
DAMAGED: Final = "session-memory/summary.damaged.md"
"""The key of a person's edit that lost headings or italic lines and so could not be adopted."""
SOURCE: Final = "session_memory"
_LAYER: Final = "notes"
_RETRIES: Final = 2


class NotesKeeper:
    """Keeps the notes of one session in its log, and writes them to a file."""

    def __init__(
        self,
        session: SessionHost,
        storage: Storage,
        folder: str,
        activity: SessionActivity,
        *,
        root: str = "",
    ) -> None:
        """Keep the notes file in a session's folder; ``root`` is the storage's directory, for a person's path."""
        self.forks: Forks | None = None
        """The way to ask a model for notes; without one the local note-taker writes them."""
        self.rules: RuleKeeper | None = None
        """The rules of the user, which a model that takes notes finds."""
        self.tasks: TaskGroup | None = None
        """The task group in which a model's update runs; without one the caller waits for the update."""
        self._session = session
        self._storage = storage
        self._key = f"{folder}/{NOTES_FILE}"
        self._damaged = f"{folder}/{DAMAGED}"
        self._root = root
        self._clock: Callable[[], float] = anyio.current_time
        self._activity = activity
        self._running: anyio.Event | None = None
        self._since = 0.0

    @property
    def _policy(self) -> NotesPolicy:
        return self._session.policy.settings.notes

    def _limits(self) -> NotesLimits:
        return notes_limits(self._policy, self._session.policy.thresholds.effective)

    def _allowed(self) -> bool:
        switches = self._session.policy.settings.switches
        return switches.notes and switches.compact and switches.auto_compact and not forking()

    # -- reading

    @property
    def notes(self) -> Notes:
        """The session's notes as the log has them, without unlogged edits of the file."""
        return Notes(dict(self._session.log.view.facts.notes))

    @property
    def path(self) -> str:
        """The path of the notes file on disk; its storage key if the storage is not a directory."""
        return f"{self._root}/{self._key}" if self._root else self._key

    async def document(self) -> str:
        """Return the notes as one Markdown document."""
        template: Template = await self._session.log.run_blocking(lambda: template_of(self._policy))
        return render_notes(self.notes, template)

    # -- acting

    async def after_reply(self) -> None:
        """Update the notes if due and no update is running; with a model and a task group, in the background."""
        if self._running is not None or not self._allowed() or not self.due():
            return
        if self.forks is None or self.tasks is None:
            await self.update()
            return
        self._begin()
        self.tasks.start_soon(self._in_background)

    def due(self) -> bool:
        """Return whether an update is due; new entries are read only after enough tokens were added.

        With a model it is due at once if rules were said with later words that may take them back.
        """
        limits, view = self._limits(), self._session.log.view
        if view.facts.rules_unchecked and self.forks is not None:
            return True
        if not enough_tokens(view, limits):
            return False
        return notes_due(view, self._policy, limits, calls=self._activity.read(view, lambda gathered: gathered.calls))

    async def update(self, *, manual: bool = False, local: bool = False) -> NotesUpdated | None:
        """Update the notes now and return the logged decision, or None where nothing changed.

        If an update is running, wait for it, and then update again only if ``manual``. ``manual`` logs every
        changed section; ``local`` asks no model.
        """
        running = self._running
        if running is not None and not self._is_dead():
            await running.wait()
            if not manual:
                return None
        self._begin()
        return await self._finish(manual=manual, local=local)

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for a running update and return whether none runs now; False at once if it has run far too long."""
        running = self._running
        if running is None:
            return True
        if self._is_dead():
            return False
        with anyio.move_on_after(timeout_seconds):
            await running.wait()
        return running.is_set()

    async def adopt(self) -> NotesUpdated | None:
        """Log a person's edit of the notes file and return the decision; None if there is no valid edit."""
        template: Template = await self._session.log.run_blocking(lambda: template_of(self._policy))
        return (await self._adopted(template))[0]

    async def edit(self, document: str) -> NotesUpdated | None:
        """Log a person's edit given as Markdown, write the file, and return the decision; None if unchanged."""
        template: Template = await self._session.log.run_blocking(lambda: template_of(self._policy))
        after = parse_notes(document, template)
        _, found = await self._adopted(template)
        sections = changed_sections(self.notes, after, template)
        if not sections:
            return None
        update = await self._log(sections, "person", "edited by a person", template)
        await self._project(template, found)
        return update

    # -- inside

    def _begin(self) -> None:
        self._running = anyio.Event()
        self._since = self._clock()

    def _is_dead(self) -> bool:
        return self._clock() - self._since > self._session.policy.settings.compact.dead_after_seconds

    async def _in_background(self) -> None:
        name = self._session.log.name
        self._session.log.emit(BackgroundChanged(name, "notes", "started"))
        try:
            await self._finish(manual=False, local=False)
            self._session.log.emit(BackgroundChanged(name, "notes", "completed"))
        except Exception as error:  # the session continues without notes
            self._session.log.emit(BackgroundChanged(name, "notes", "failed", str(error) or type(error).__name__))
        except BaseException:
            self._session.log.emit(BackgroundChanged(name, "notes", "killed"))
            raise

    async def _finish(self, *, manual: bool, local: bool) -> NotesUpdated | None:
        """Run one update and return its decision, None if nothing changed; a failure still allows the next one."""
        running = self._running
        try:
            template: Template = await self._session.log.run_blocking(lambda: template_of(self._policy))
            _, found = await self._adopted(template)
            view = self._session.log.view
            covered = covered_by(view)
            calls = await self._session.log.run_blocking(
                lambda: self._activity.read(view, lambda gathered: gathered.calls)
            )
            written, by, filled = await self._written(template, local=local or self.forks is None)
            whole = manual or by == "model"
            chosen = changed_sections if whole else worth_logging
            sections = chosen(self.notes, written, template)
            update: NotesUpdated | None = None
            if sections or covered != self._session.log.view.facts.notes_covered:
                reason = "asked for" if manual else "due"
                update = await self._log(sections, by, reason, template, covered=covered, calls=calls)
            sections = worth_logging(self.notes, Notes({**self.notes.sections, **filled}), template)
            if sections:
                await self._log(sections, "local", "left out by the model", template)
            await self._project(template, found)
            return update
        finally:
            if self._running is running:
                self._running = None
            if running is not None:
                running.set()

    async def _written(self, template: Template, *, local: bool) -> tuple[Notes, str, dict[str, str]]:
        """Return the new notes, their author (``model`` or ``local``), and local text for sections a model left out."""
        limits = self._limits()
        if not local and self.forks is not None:
            try:
                notes = await self._by_model(self.forks, template, limits)
                return notes, "model", await self._filled(notes, template, limits)
            except Exception as error:
                self._session.log.emit(FellBack(self._session.log.name, "notes", f"written without a model: {error}"))
        view = self._session.log.view
        foreign = view.facts.notes_foreign
        previous = Notes({name: text for name, text in self.notes.sections.items() if name in foreign})
        written = await self.local(view, previous, limits.budget)
        kept = {name: text for name, text in self.notes.sections.items() if name not in written.sections}
        return Notes({**kept, **written.sections}), "local", {}

    async def _by_model(self, forks: Forks, template: Template, limits: NotesLimits) -> Notes:
        """Return the notes as a model edits them, without names that are nowhere in the log."""
        view, before = self._session.log.view, self.notes
        text = directive(before, template, self._policy, limits, path=self.path)
        seen = self.rules.newest if self.rules is not None else ""
        if self.rules is not None:
            text = f"{text}\n\n{self.rules.prompt}"
        reply = await forks.ask(text, source=SOURCE, max_tokens=limits.total + limits.section)
        if self.rules is not None:
            await self.rules.learn(reply.answer(), seen)
        answer, wrong = await self._session.log.run_blocking(lambda: struck_names(reply.answer(), view.entries()))
        if wrong:
            self._session.log.emit(
                FellBack(self._session.log.name, "notes", f"{wrong} names of the model are not in the log")
            )
        return notes_from_answer(before, answer, template, limits)

    async def _filled(self, notes: Notes, template: Template, limits: NotesLimits) -> dict[str, str]:
        """Return local text for the sections that no model or person wrote, and for a Current State left as it was."""
        view, before = self._session.log.view, self.notes
        local = await self.local(view, Notes({}), limits.budget)
        by_others = {name for name in notes.sections if notes[name] != before[name]} | view.facts.notes_foreign - {
            CURRENT
        }
        return {name: local[name] for name in template.headings if name not in by_others and local[name]}

    async def local(self, view: View, previous: Notes, budget: NotesBudget) -> Notes:
        """Return the notes that the local note-taker writes from the session's activity."""
        return await self._session.log.run_blocking(
            lambda: self._activity.read(view, lambda gathered: take_notes(gathered, previous, budget=budget))
        )

    async def _adopted(self, template: Template) -> tuple[NotesUpdated | None, Document | None]:
        """Log a person's edit of the file, or copy a damaged one aside; return the decision, if any, and file."""
        found: Document | None = await self._session.log.run_blocking(lambda: self._storage.read(self._key))
        if found is None:
            return None, None
        text = found.data.decode("utf-8", "replace")
        facts = self._session.log.view.facts
        if projection_of(text) in facts.notes_projections or text == render_notes(self.notes, template):
            return None, found
        try:
            after = parse_notes(text, template)
        except InputError as error:
            data = found.data
            await self._session.log.run_blocking(lambda: self._storage.write(self._damaged, data))
            why = f"{error}; the file as it was edited is kept at {self._damaged} and the notes are restored"
            self._session.log.emit(FellBack(self._session.log.name, "notes", why))
            return None, found
        sections = changed_sections(self.notes, after, template)
        if not sections:
            return None, found
        return await self._log(sections, "person", "edited by a person", template), found

    async def _log(
        self,
        sections: dict[str, str],
        by: str,
        reason: str,
        template: Template,
        *,
        covered: str | None = None,
        calls: int = 0,
    ) -> NotesUpdated:
        """Log changed sections, emit the event, and return the logged decision; the caller writes the file."""
        after = Notes({**self.notes.sections, **sections})
        update = NotesUpdated(
            Cause(_LAYER, reason),
            sections,
            covered,
            by,
            self._session.log.view.token_count.tokens if by != "person" else 0,
            calls,
            projection_of(render_notes(after, template)),
        )
        await self._session.log.decide(update)
        self._session.log.emit(NotesWritten(self._session.log.name, by, list(sections), covered))
        return update

    async def _project(self, template: Template, found: Document | None) -> None:
        """Write the notes of the log to the file; first adopt a person's edit that was made meanwhile."""
        for _ in range(_RETRIES):
            data = render_notes(self.notes, template).encode("utf-8", "replace")
            if found is not None and found.data == data:
                return
            try:
                await self._session.log.run_blocking(lambda data=data, found=found: self._write(data, found))
                return
            except StorageConflict:
                _, found = await self._adopted(template)
            except StorageError as error:
                self._session.log.emit(
                    FellBack(self._session.log.name, "notes", f"the file is not up to date, the log is: {error}")
                )
                return

    def _write(self, data: bytes, found: Document | None) -> str:
        if found is None:
            return self._storage.write(self._key, data, create=True)
        return self._storage.write(self._key, data, expect=found.version)
