"""The memory of an agent: that of its session, and dreams."""

from __future__ import annotations

from anyio.abc import TaskGroup

from ...ports import Model
from ...settings import Settings
from ...tools.context import ToolContext
from ..dream.scheduler import DreamScheduler
from ..memory.extract.tools import ToolAccess
from ..memory.session_memory import SessionMemory
from ..session.session import Session


class AgentMemory(SessionMemory):
    """Connects one agent to the memories of its project, and dreams about them."""

    def __init__(
        self,
        session: Session,
        context: ToolContext,
        settings: Settings,
        *,
        model: Model | None,
        small: Model | None,
        tasks: TaskGroup,
        sandboxed: bool,
    ) -> None:
        """Open the memories; ``model`` writes them, ``small`` selects them for recall (None: local search)."""
        access = ToolAccess(context, settings.permissions, sandboxed)
        super().__init__(session, context.cwd, settings, model=model, small=small, tasks=tasks, access=access)
        self.dreaming = DreamScheduler(session.parts.host, context.cwd, settings, tasks=tasks)

    async def end_query(self) -> None:
        """Start an extraction and a dream in the background if they are due; a late recall is kept."""
        await super().end_query()
        await self.dreaming.after_query()
