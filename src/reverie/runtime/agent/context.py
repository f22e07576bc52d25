"""The standing context of an agent: its sources and its hooks.

Text that may change never enters the cached prefix. It opens the session, and is said again when it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from anyio import to_thread

from ...conversation.standing_context import said_message
from ...events import FellBack
from ...settings import Settings
from ...tools.context import ToolContext
from ...tools.skill import available_skills
from ...tools.skills import brief_listing
from ..guard.hooks import Hooks
from ..session.session import Session
from ..session.standing_context import ContextSource
from .context_sources import InstructionSource, LoadedSkillSource, TextSource, environment_text


class AgentContext:
    """Connects the sources of standing context to one agent's session."""

    def __init__(
        self,
        session: Session,
        context: ToolContext,
        settings: Settings,
        hooks: Hooks,
        *,
        clock: Callable[[], float],
        has_skills: bool = True,
    ) -> None:
        """List skills only if ``has_skills``: an agent without the tool Skill cannot load one."""
        self._has_skills = has_skills
        self._session = session
        self._context = context
        self._settings = settings
        self._hooks = hooks
        self._clock = clock
        self._sources: list[ContextSource] = []
        self._instructions = InstructionSource(context, settings, self._report)

    async def enter(
        self,
        more: Iterable[ContextSource],
        check: Callable[[str], None],
    ) -> None:
        """Say the first message of a new session, and run the start hooks.

        A resumed session gets the changes with its next request. ``more`` are further sources; ``check`` raises if
        the first message does not fit the window.
        """
        standing, is_new = self._session.parts.standing, not self._session.view.length
        self._sources = [
            TextSource("environment", "the place where you work", environment_text(self._context.cwd)),
            self._instructions,
            *([TextSource("listing:skills", "the list of skills", self._skills)] if self._has_skills else []),
            LoadedSkillSource(self._context),
            *more,
            TextSource("date", "the date", self._date, own=True),
        ]
        for source in self._sources:
            standing.add(source)
        opening = await standing.opening()
        message = said_message(opening, role="user") or {"content": []}
        check("\n\n".join(block["text"] for block in message["content"]))
        if is_new:
            await standing.say_opening(opening)
        await standing.run_start_hooks(self._hooks, "startup" if is_new else "resume")

    def begin_query(self) -> None:
        """Let the next request say all changes since the last prompt."""
        for source in self._sources:
            source.reload()
        self._session.parts.standing.refresh()

    def after_tools(self, touched: Iterable[str]) -> None:
        """Let the next request say the changes by tools: nested instruction files near the files they touched."""
        self._instructions.touched(touched)
        self._session.parts.standing.refresh()

    async def leave(self) -> None:
        """Run the session-end hooks."""
        await self._hooks.run("session_end", {})

    async def _skills(self) -> str:
        listed = brief_listing(await to_thread.run_sync(available_skills, self._context))
        return f"Skills you can load:\n{listed}" if listed else ""

    async def _date(self) -> str:
        return time.strftime("Today is %A, %Y-%m-%d.", time.localtime(self._clock()))

    def _report(self, problem: str) -> None:
        self._session.log.emit(FellBack(self._session.name, "instructions", problem))
