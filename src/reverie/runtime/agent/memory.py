"""An agent's memory: the rules it is told, the index it begins with, what it recalls, what is kept of its work."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from anyio import to_thread
from anyio.abc import TaskGroup

from ...errors import ReverieError
from ...events import FellBack
from ...layers.l5_extract.plan import imported_upto
from ...layers.l5_extract.provenance import Witnesses
from ...memories.rules.guidance import index_context, rules_text
from ...memories.store.index import lines_of
from ...memories.store.records import Scope
from ...memories.store.trust import Trust
from ...ports import Model
from ...settings import PermissionRules, Settings
from ...tools.context import ToolContext
from ...tools.memory import MemoryTool
from ...tools.tool import Tool
from ..dream.scheduler import FallingAsleep
from ..memory.extract.budget import Spending
from ..memory.extract.extractor import Extracting
from ..memory.memory import Memory
from ..memory.recall import Recalling
from ..memory.scopes import memory_directory
from ..session.session import Session

__all__ = ["AgentMemory"]

_TAG_BYTES: Final = 4


class AgentMemory:
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
        self._session, self._settings = session, settings
        self._imported_upto = imported_upto(session.view)
        self._witnesses = Witnesses(imported_upto=self._imported_upto)
        self._hearing = threading.Lock()
        directory = memory_directory(context.cwd, settings)
        self.memory = Memory.open(context.cwd, settings=settings)
        self.path = str(directory)
        self._recalling = Recalling(
            session,
            directory,
            small,
            team=settings.team_memory,
            tasks=tasks,
            policy=settings.recall,
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

        self.dreaming = FallingAsleep(session, context.cwd, settings, tasks=tasks)

    @staticmethod
    def allowed(settings: Settings) -> bool:
        """Say whether this agent has a memory at all."""
        return settings.switches.memory

    def tool(self) -> Tool:
        """Return the door by which the agent saves, changes and forgets when it is asked to."""
        return MemoryTool(self.memory, trust_of=self._trust_of, daily_logs=self._settings.daily_logs)

    def rules(self) -> str:
        """Return what the system prompt says about memory; the same bytes for a whole session."""
        team = self._settings.team_memory is not None
        return rules_text(self.path, team=team, daily_logs=self._settings.daily_logs)

    async def context(self) -> str:
        """Return the index for the first message; empty where it cannot be read, and that is told."""
        try:
            return await to_thread.run_sync(self._indexes)
        except (ReverieError, OSError) as error:
            self._session.emit(FellBack(self._session.name, "memory", f"the index cannot be read: {error}"))
            return ""

    def _indexes(self) -> str:
        """Return the index, and the one that is shared with a team, each in a fence of its own."""
        places: dict[Scope, str] = {"private": self.path}
        if self._settings.team_memory is not None:
            places["team"] = str(self._settings.team_memory)
        parts: list[str] = []
        for scope, path in places.items():
            index = self.memory.index(scope)
            waiting = [line.file for line in lines_of(index.text) if self._waits(scope, line.file)]
            tag = os.urandom(_TAG_BYTES).hex()
            parts.append(index_context(index, path=path, tag=tag, scope=scope, unconfirmed=waiting))
        return "\n\n".join(parts)

    def _waits(self, scope: Scope, file: str) -> bool:
        """Say whether nobody has confirmed what a line of the index points to; what is not there is nobody's word."""
        try:
            return self.memory.get(f"team/{file}" if scope == "team" else file).trust == "unconfirmed"
        except ReverieError:
            return True

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
        await self.dreaming.after_query()

    async def close(self) -> None:
        """Give up looking, and give what is being written its time."""
        self._recalling.cancel()
        await self._extracting.close()

    def _may_extract(self) -> bool:
        switches = self._session.settings.switches
        return switches.memory and switches.extraction

    def _trust_of(self, text: str) -> Trust:
        """Say whose word a text is that the agent would save; only what was said since the last time is read."""
        with self._hearing:
            said = self._session.view.said
            if not self._witnesses.follow(said):
                self._witnesses = Witnesses(said, imported_upto=self._imported_upto)
            return self._witnesses.trust(text)

    async def _spent_on_recall(self, reply: Mapping[str, Any]) -> None:
        await self._session.record_call(reply, source="recall")
