"""An agent's memory: the rules it is told, the index it begins with, what it recalls, what is kept of its work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from anyio.abc import TaskGroup

from ..errors import ReverieError
from ..events import FellBack
from ..layers.l5_extract.provenance import Witnesses
from ..memories.guidance import index_context, rules_text
from ..ports import Model
from ..settings import PermissionRules, Settings
from ..tools.context import ToolContext
from ..tools.memory import MemoryTool
from ..tools.tool import Tool
from .extracting import Extracting
from .memory import Memory
from .memory_scopes import memory_directory
from .recalling import Recalling
from .session import Session
from .spending import Spending

__all__ = ["Remembering"]


class Remembering:
    """What one agent knows from before, and what it leaves for later."""

    def __init__(
        self,
        session: Session,
        context: ToolContext,
        settings: Settings,
        *,
        model: Model | None,
        small: Model | None,
        tasks: TaskGroup,
        rules: PermissionRules,
        sandboxed: bool,
    ) -> None:
        """``model`` writes memories; ``small`` chooses among them, and without one the local search does, for free."""
        self._session = session
        directory = memory_directory(context.cwd, settings)
        self.memory = Memory.open(context.cwd, settings=settings)
        self.path = str(directory)
        self._recalling = Recalling(
            session,
            directory,
            small,
            team=settings.team_memory,
            tasks=tasks,
            spent=self._spent_on_recall,
        )
        self._extracting = Extracting(
            session,
            self.memory,
            model=model,
            policy=settings.extract,
            tools=context,
            rules=rules,
            sandboxed=sandboxed,
            spending=Spending(home=settings.home),
            allowed=self._may_extract,
            tasks=tasks,
        )

    @staticmethod
    def allowed(settings: Settings) -> bool:
        """Say whether this agent has a memory at all."""
        return settings.switches.memory

    def tool(self) -> Tool:
        """Return the door by which the agent saves, changes and forgets when it is asked to."""
        return MemoryTool(self.memory, trust_of=lambda text: Witnesses(self._session.view.said).trust(text))

    def rules(self) -> str:
        """Return what the system prompt says about memory; the same bytes for a whole session."""
        return rules_text(self.path)

    async def context(self) -> str:
        """Return the index for the first message; empty where it cannot be read, and that is told."""
        try:
            index = await to_thread.run_sync(self.memory.index)
        except (ReverieError, OSError) as error:
            self._session.tell(FellBack(self._session.name, "memory", f"the index cannot be read: {error}"))
            return ""
        return index_context(index, path=self.path, tag=os.urandom(4).hex())

    def use_model(self, model: Model) -> None:
        """Let another model write memories from now on."""
        self._extracting.model = model

    def look(self, prompt: str) -> None:
        """Begin to look for memories that help with a prompt, beside whatever else goes on."""
        self._recalling.start(prompt)

    async def surface(self) -> None:
        """Show the model what was found, if it was found by now."""
        await self._recalling.surface()

    async def completed(self) -> None:
        """Let what was said become memories, behind the conversation."""
        self._recalling.cancel()
        await self._extracting.after_query()

    async def close(self) -> None:
        """Give up looking, and give what is being written its time."""
        self._recalling.cancel()
        await self._extracting.close()

    def _may_extract(self) -> bool:
        switches = self._session.settings.switches
        return switches.memory and switches.extraction

    async def _spent_on_recall(self, reply: Mapping[str, Any]) -> None:
        await self._session.spent(reply, source="recall")
