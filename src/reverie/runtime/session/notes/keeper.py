"""Layer 3 at work in a session: notes after a reply when they are due, one update at a time.

The log comes first and the file is its projection. What a person changed in the file is logged before anything else is
done with the notes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ....conversation.decisions import Cause, NotesUpdated
from ....conversation.entries import Entry
from ....conversation.tokens.window import Window, budgets
from ....conversation.view import View
from ....errors import InputError, ReverieError, StorageConflict, StorageError
from ....events import BackgroundChanged, Event, FellBack, NotesWritten
from ....layers.l3_notes import (
    CURRENT,
    Gathered,
    Limits,
    Notes,
    NotesPolicy,
    Template,
    changed_sections,
    covered_by,
    directive,
    due,
    edited,
    enough_tokens,
    limits_of,
    parse_notes,
    projection_of,
    render_notes,
    take_notes,
    template_of,
    worth_logging,
)
from ....ports import Document, Storage
from ....settings import Settings
from ..limits import DEFAULT_MODEL, max_output_tokens, window_tokens

__all__ = ["DAMAGED", "NOTES_FILE", "Asks", "Noted", "Noting", "noting_of"]

T = TypeVar("T")

NOTES_FILE: Final = "session-memory/summary.md"
DAMAGED: Final = "session-memory/summary.damaged.md"
"""Where a person's edit is kept that lost headings or italic lines, since it cannot be taken in."""
SOURCE: Final = "session_memory"
_LAYER: Final = "notes"
_RETRIES: Final = 2


class Noted(Protocol):
    """What notes need of the session they are kept for."""

    name: str

    @property
    def view(self) -> View:
        """What the model would be shown now."""
        ...

    async def decide(self, decision: NotesUpdated) -> Entry:
        """Log one decision; when this returns it is safe and in the view."""
        ...

    def tell(self, event: Event) -> None:
        """Tell whoever listens."""
        ...


class _Answer(Protocol):
    @property
    def text(self) -> str: ...


class Asks(Protocol):
    """Who puts a side question to a model on the session's warm prefix."""

    async def ask(self, directive: str, *, source: str, max_tokens: int) -> _Answer:
        """Ask one question and return the answer."""
        ...


def noting_of(
    session: Noted,
    storage: Storage,
    folder: str,
    settings: Settings,
    *,
    model: Callable[[], str] = lambda: DEFAULT_MODEL,
    allowed: Callable[[], bool] = lambda: True,
    root: str = "",
    inline: bool = False,
    asks: Asks | None = None,
) -> Noting:
    """Return the keeper of a session's notes, by its settings and the window of its model."""

    def limits() -> Limits:
        name = model()
        window = Window(window_tokens(name, settings), "capabilities", max_output_tokens(name))
        return limits_of(settings.notes, budgets(window))

    async def run(act: Callable[[], Any]) -> Any:
        return act() if inline else await to_thread.run_sync(act)

    dead_after = settings.compact.dead_after_seconds
    return Noting(
        session,
        storage,
        folder,
        settings.notes,
        limits=limits,
        run=run,
        root=root,
        allowed=allowed,
        asks=asks,
        dead_after_seconds=dead_after,
    )


class Noting:
    """Keeps the notes of one session."""

    def __init__(
        self,
        session: Noted,
        storage: Storage,
        folder: str,
        policy: NotesPolicy,
        *,
        limits: Callable[[], Limits],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        root: str = "",
        allowed: Callable[[], bool] = lambda: True,
        asks: Asks | None = None,
        tasks: TaskGroup | None = None,
        dead_after_seconds: float = 60.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.asks = asks
        """Who is asked; without anybody the local note-taker writes."""
        self.tasks = tasks
        """Where an update by a model runs beside the conversation; without it the caller waits for it."""
        self._session = session
        self._storage = storage
        self._key = f"{folder}/{NOTES_FILE}"
        self._damaged = f"{folder}/{DAMAGED}"
        self._policy = policy
        self._limits = limits
        self._run = run
        self._tell = session.tell
        self._root = root
        self._allowed = allowed
        self._dead_after = dead_after_seconds
        self._clock = clock or anyio.current_time
        self._gathered = Gathered()
        self._running: anyio.Event | None = None
        self._since = 0.0

    # -- reading

    @property
    def notes(self) -> Notes:
        """The notes as the log has them."""
        return Notes(dict(self._session.view.facts.notes))

    @property
    def path(self) -> str:
        """Where the file is."""
        return f"{self._root}/{self._key}" if self._root else self._key

    async def document(self) -> str:
        """Return the notes as they stand in the file, whole."""
        template: Template = await self._run(lambda: template_of(self._policy))
        return render_notes(self.notes, template)

    # -- acting

    async def after_reply(self) -> None:
        """Bring the notes up to date if they are due; with a model and a task group, beside the conversation."""
        if self._running is not None or not self._allowed() or not self.due():
            return
        if self.asks is None or self.tasks is None:
            await self.update()
            return
        self._begin()
        self.tasks.start_soon(self._in_background)

    def due(self) -> bool:
        """Say whether an update is due; what is new since the last look is read only where there is enough of it."""
        limits, view = self._limits(), self._session.view
        if not enough_tokens(view, limits):
            return False
        return due(view, self._policy, limits, calls=self._gathered.follow(view).calls)

    async def update(self, *, manual: bool = False, local: bool = False) -> NotesUpdated | None:
        """Bring the notes up to date now and return what was logged, or None where nothing was to be.

        A running update is waited for instead; ``manual`` logs every changed section, ``local`` asks no model.
        """
        running = self._running
        if running is not None and not self._is_dead():
            await running.wait()
            if not manual:
                return None
        self._begin()
        return await self._finish(manual=manual, local=local)

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for a running update; say whether none is running now. One that takes too long counts as dead."""
        running = self._running
        if running is None:
            return True
        if self._is_dead():
            return False
        with anyio.move_on_after(timeout_seconds):
            await running.wait()
        return running.is_set()

    async def adopt(self) -> NotesUpdated | None:
        """Log what a person changed in the file, if anybody did."""
        template: Template = await self._run(lambda: template_of(self._policy))
        return (await self._adopted(template))[0]

    async def edit(self, document: str) -> NotesUpdated | None:
        """Log a person's edit that did not come by way of the file, and write the file."""
        template: Template = await self._run(lambda: template_of(self._policy))
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
        return self._clock() - self._since > self._dead_after

    async def _in_background(self) -> None:
        name = self._session.name
        self._tell(BackgroundChanged(name, "notes", "started"))
        try:
            await self._finish(manual=False, local=False)
            self._tell(BackgroundChanged(name, "notes", "completed"))
        except ReverieError as error:  # nobody waits for it, and a session goes on without notes
            self._tell(BackgroundChanged(name, "notes", "failed", str(error)))
        except BaseException:
            self._tell(BackgroundChanged(name, "notes", "killed"))
            raise

    async def _finish(self, *, manual: bool, local: bool) -> NotesUpdated | None:
        """Do one update and let the next one in, whatever happens."""
        running = self._running
        try:
            template: Template = await self._run(lambda: template_of(self._policy))
            _, found = await self._adopted(template)
            covered = covered_by(self._session.view)
            written, by = await self._written(template, local=local or self.asks is None)
            whole = manual or by == "model"
            chosen = changed_sections if whole else worth_logging
            sections = chosen(self.notes, written, template)
            update: NotesUpdated | None = None
            if sections or covered != self._session.view.facts.notes_covered:
                update = await self._log(sections, by, "asked for" if manual else "due", template, covered)
            await self._project(template, found)
            return update
        finally:
            if self._running is running:
                self._running = None
            if running is not None:
                running.set()

    async def _written(self, template: Template, *, local: bool) -> tuple[Notes, str]:
        """Return the new notes and who wrote them."""
        limits = self._limits()
        if not local and self.asks is not None:
            try:
                return await self._asked(self.asks, template, limits), "model"
            except Exception as error:
                self._tell(FellBack(self._session.name, "notes", f"written without a model: {error}"))
        view = self._session.view
        foreign = view.facts.notes_foreign
        previous = Notes({name: text for name, text in self.notes.sections.items() if name in foreign})
        gathered = self._gathered
        written: Notes = await self._run(lambda: take_notes(gathered.follow(view), previous, budget=limits.budget))
        kept = {name: text for name, text in self.notes.sections.items() if name not in written.sections}
        return Notes({**kept, **written.sections}), "local"

    async def _asked(self, asks: Asks, template: Template, limits: Limits) -> Notes:
        """Return the notes as a model edits them; where it leaves Current State out, the local one stands there."""
        view, before = self._session.view, self.notes
        text = directive(before, template, self._policy, limits, path=self.path)
        answer = await asks.ask(text, source=SOURCE, max_tokens=limits.total + limits.section)
        notes = edited(before, answer.text, template, limits)
        if notes[CURRENT] == before[CURRENT] and CURRENT in template.headings:
            local = take_notes(self._gathered.follow(view), budget=limits.budget)
            notes = Notes({**notes.sections, CURRENT: local[CURRENT] or notes[CURRENT]})
        return notes

    async def _adopted(self, template: Template) -> tuple[NotesUpdated | None, Document | None]:
        """Log a person's edit of the file; return what was logged and the document that was found."""
        found: Document | None = await self._run(lambda: self._storage.read(self._key))
        if found is None:
            return None, None
        text = found.data.decode("utf-8", "replace")
        facts = self._session.view.facts
        if projection_of(text) in facts.notes_projections or text == render_notes(self.notes, template):
            return None, found
        try:
            after = parse_notes(text, template)
        except InputError as error:
            data = found.data
            await self._run(lambda: self._storage.write(self._damaged, data))
            why = f"{error}; the file as it was edited is kept at {self._damaged} and the notes are restored"
            self._tell(FellBack(self._session.name, "notes", why))
            return None, found
        sections = changed_sections(self.notes, after, template)
        if not sections:
            return None, found
        return await self._log(sections, "person", "edited by a person", template), found

    async def _log(
        self, sections: dict[str, str], by: str, reason: str, template: Template, covered: str | None = None
    ) -> NotesUpdated:
        """Log an update and tell of it; the file is written after."""
        after = Notes({**self.notes.sections, **sections})
        update = NotesUpdated(
            Cause(_LAYER, reason),
            sections,
            covered,
            by,
            self._session.view.counted.tokens if by != "person" else 0,
            self._gathered.calls if by != "person" else 0,
            projection_of(render_notes(after, template)),
        )
        await self._session.decide(update)
        self._tell(NotesWritten(self._session.name, by, list(sections), covered))
        return update

    async def _project(self, template: Template, found: Document | None) -> None:
        """Write the file; a person's edit that comes between is taken in first."""
        for _ in range(_RETRIES):
            data = render_notes(self.notes, template).encode("utf-8", "replace")
            if found is not None and found.data == data:
                return
            try:
                await self._run(lambda data=data, found=found: self._write(data, found))
                return
            except StorageConflict:
                _, found = await self._adopted(template)
            except StorageError as error:
                self._tell(FellBack(self._session.name, "notes", f"the file is not up to date, the log is: {error}"))
                return

    def _write(self, data: bytes, found: Document | None) -> str:
        if found is None:
            return self._storage.write(self._key, data, create=True)
        return self._storage.write(self._key, data, expect=found.version)
