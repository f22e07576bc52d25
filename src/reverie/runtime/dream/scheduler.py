"""Start a dream automatically after a query if one is due, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ...errors import InputError, ReverieError, SessionBusy
from ...events import DreamChanged, FellBack
from ...settings import Settings
from ..memory.memory import Memory
from ..memory.scopes import memory_directory
from ..places.projects import project_slug
from .control import start, stop
from .dreams import Dreams, DreamUndo
from .gate import gate_of
from .lock import DreamLock
from .progress import DreamProgress, progress_events, read_progress

if TYPE_CHECKING:
    from ..session.host import SessionHost

_BEGIN_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1


class DreamScheduler:
    """Checks the gate for one agent after each query, and follows the dream it starts."""

    def __init__(
        self,
        session: SessionHost,
        project: Path,
        settings: Settings,
        *,
        tasks: TaskGroup | None = None,
    ) -> None:
        self._session = session
        self._project = project
        self._settings = settings
        self._tasks = tasks
        self._directory = memory_directory(project, settings)
        self._gate = gate_of(self._directory, settings, project_slug(project))
        self.started = 0
        """The number of dreams this agent has started."""

    @property
    def _enabled(self) -> bool:
        switches = self._session.policy.settings.switches
        return switches.memory and switches.dream

    async def start_now(self) -> None:
        """Start a dream even if none is due, and follow it.

        Raise ``SessionBusy`` if one is running, and ``InputError`` if dreams are switched off.
        """
        if not self._enabled:
            raise InputError("dreams are switched off: set switches.dream to true")
        holder = await to_thread.run_sync(DreamLock(self._directory).holder)
        if holder is not None:
            raise SessionBusy(f"a dream is already running: {holder}")
        if not self._directory.is_dir():
            raise InputError("there are no memories yet, so a dream has nothing to do")
        before = await to_thread.run_sync(read_progress, str(self._directory))
        await to_thread.run_sync(lambda: self._start(only_if_due=False))
        self._watch(before)

    async def stop(self) -> bool:
        """Stop the running dream and discard its changes; return whether there was one."""
        return await to_thread.run_sync(stop, self._directory) is not None

    async def undo(self) -> DreamUndo:
        """Undo the last dream and return the restored files."""
        dreams = Dreams(Memory.open(self._project, settings=self._settings), self._settings, project=self._project)
        return await to_thread.run_sync(dreams.undo)

    async def after_query(self) -> bool:
        """Start a dream if one is due and return whether one was started; a closed gate costs one ``stat``."""
        enabled = self._enabled
        try:
            closed = await to_thread.run_sync(lambda: self._gate.check(self._session.log.name, enabled=enabled))
            if closed is not None:
                return False
            before = await to_thread.run_sync(read_progress, str(self._directory))
            await to_thread.run_sync(self._start)
        except (ReverieError, OSError) as error:
            self._session.log.emit(FellBack(self._session.log.name, "dream", f"no dream was started: {error}"))
            return False
        self._watch(before)
        return True

    def _watch(self, before: DreamProgress | None) -> None:
        self.started += 1
        if self._tasks is not None:
            self._tasks.start_soon(self._follow, before)

    def _start(self, *, only_if_due: bool = True) -> int:
        model = self._session.model
        return start(
            self._project,
            home=self._settings.home,
            memory_dir=self._directory,
            model=model.name if model is not None else None,
            only_if_due=only_if_due,
        )

    async def _follow(self, before: DreamProgress | None) -> None:
        """Emit the progress of the dream that follows ``before`` until it ends; it does not need this process."""
        root, name = str(self._directory), self._session.log.name
        self._session.log.emit(DreamChanged(name, "", "starting"))
        last = ""
        begun = False
        with anyio.move_on_after(_BEGIN_SECONDS):
            while not begun:
                now = await to_thread.run_sync(read_progress, root)
                begun = now is not None and (before is None or now.dream != before.dream)
                await anyio.sleep(0 if begun else _POLL_SECONDS)
        if begun:
            async for change in progress_events(root, session=name):
                last = change.state
                self._session.log.emit(change)
        if last not in ("completed", "failed", "killed"):
            why = "the dream that was started has written no progress"
            self._session.log.emit(DreamChanged(name, "", "failed", why))
