"""Start a dream automatically after a query if one is due, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ...errors import ReverieError
from ...events import DreamChanged, FellBack
from ...layers.l6_dream import GateOpen
from ...settings import Settings
from ..memory.scopes import memory_directory
from ..places.projects import project_slug
from .control import start
from .gate import DreamGate
from .progress import progress_events, read_progress

if TYPE_CHECKING:
    from ..session.host import SessionHost

__all__ = ["DREAM_ALIAS", "DreamScheduler"]

DREAM_ALIAS: Final = "dream"
"""The alias of the model for dreams, if it is not the agent's own."""
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._project = project
        self._settings = settings
        self._tasks = tasks
        self._directory = memory_directory(project, settings)
        self._gate = DreamGate(
            self._directory, home=settings.home, project=project_slug(project), policy=settings.dream, clock=clock
        )
        self.started = 0
        """The number of dreams this agent has started."""

    async def after_query(self) -> bool:
        """Start a dream if one is due and return whether one was started; a closed gate costs one ``stat``."""
        switches = self._session.settings.switches
        enabled = switches.memory and switches.dream
        try:
            gate = await to_thread.run_sync(lambda: self._gate.check(self._session.name, enabled=enabled))
            if not isinstance(gate, GateOpen):
                return False
            await to_thread.run_sync(self._start)
        except (ReverieError, OSError) as error:
            self._session.emit(FellBack(self._session.name, "dream", f"no dream was started: {error}"))
            return False
        self.started += 1
        if self._tasks is not None:
            self._tasks.start_soon(self._follow)
        return True

    def _start(self) -> int:
        named = self._settings.model_aliases.get(DREAM_ALIAS)
        return start(self._project, home=self._settings.home, memory_dir=self._directory, model=named, only_if_due=True)

    async def _follow(self) -> None:
        """Emit the progress of the started dream until it ends; the dream does not need this process."""
        root, name = str(self._directory), self._session.name
        before = await to_thread.run_sync(read_progress, root)
        self._session.emit(DreamChanged(name, "", "starting"))
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
                self._session.emit(change)
        if last not in ("completed", "failed", "killed"):
            self._session.emit(DreamChanged(name, "", "failed", "the dream that was started has written no progress"))
