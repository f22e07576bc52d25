"""The memory of an agent: rules in its prompt, the index, recall before a prompt, and extraction after a query."""

from __future__ import annotations

import threading

from anyio import to_thread
from anyio.abc import TaskGroup

from ...errors import ReverieError
from ...events import FellBack
from ...layers.l5_extract import Witnesses, imported_upto
from ...memories.rules.guidance import rules_text
from ...memories.store.records import Scope
from ...memories.store.trust import Trust
from ...ports import Model
from ...settings import Settings
from ...tools.context import ToolContext
from ...tools.memory import MemoryTool
from ...tools.tool import Tool
from ...values import replace
from ..dream.scheduler import DreamScheduler
from ..memory.extract.budget import DailyBudget
from ..memory.extract.extractor import Extractor, ExtractorOptions
from ..memory.extract.past_sessions import PastSessions
from ..memory.extract.tools import ToolAccess
from ..memory.memory import Memory
from ..memory.recall import SessionRecall
from ..memory.scopes import memory_directory
from ..memory.standing_memories import IndexSource, IndexText, read_indexes
from ..places.projects import log_key, project_slug
from ..search.sessions import SessionSearch
from ..search.vectors import settings_embedder, settings_vectors
from ..session.session import Session
from ..session.standing_context import ContextSource


class AgentMemory:
    """Connects one agent to the memories of its project: recall, the Memory tool, extraction and dreams."""

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
        self._session, self._settings = session, settings
        self._imported_upto = imported_upto(session.view)
        self._witnesses = Witnesses(imported_upto=self._imported_upto)
        self._witness_lock = threading.Lock()
        self._cwd = context.cwd
        directory = memory_directory(context.cwd, settings)
        self.memory = Memory.open(context.cwd, settings=settings)
        self.path = str(directory)
        self._index = IndexSource(self._read_indexes, self._report)
        effective = session.thresholds.effective
        self.recall = SessionRecall(
            session.parts.host,
            directory,
            small,
            team=settings.team_memory,
            tasks=tasks,
            # A memory has at most a fortieth of the window, at four bytes a token.
            policy=replace(settings.recall, file_bytes=min(settings.recall.file_bytes, effective // 10)),
            spent=lambda reply: session.parts.host.record_call(reply, source="recall"),
        )
        self.recall.open_client()
        self.extractor = Extractor(
            session.parts.host,
            self.memory,
            ExtractorOptions(
                policy=settings.extract,
                access=ToolAccess(context, settings.permissions, sandboxed),
                budget=DailyBudget(home=settings.home),
                allowed=self._may_extract,
                past=PastSessions(
                    session.parts.storage,
                    project_slug(context.cwd),
                    without=session.name,
                    embed=settings_vectors(settings),
                ),
                daily_logs=settings.daily_logs,
            ),
            model=model,
            tasks=tasks,
        )

        self.dreaming = DreamScheduler(session.parts.host, context.cwd, settings, tasks=tasks)

    def tool(self) -> Tool:
        """Return the Memory tool for the project's memories."""
        return MemoryTool(
            self.memory,
            trust_of=self._trust_of,
            daily_logs=self._settings.daily_logs,
            team=self._settings.team_memory is not None,
        )

    def rules(self) -> str:
        """Return the part of the system prompt about memory; it stays the same throughout a session."""
        team = self._settings.team_memory is not None
        return rules_text(self.path, team=team, daily_logs=self._settings.daily_logs)

    def sources(self) -> list[ContextSource]:
        """Return the sources of standing context: the index and the memories that were recalled."""
        return [self._index, self.recall.source]

    def _read_indexes(self) -> list[IndexText]:
        """Read the private index and the team's, each in a small window at most an eighth of it."""
        places: dict[Scope, str] = {"private": self.path}
        if self._settings.team_memory is not None:
            places["team"] = str(self._settings.team_memory)
        return read_indexes(self.memory, places, most_bytes=self._session.thresholds.effective // 2)

    def _report(self, problem: str) -> None:
        self._session.log.emit(FellBack(self._session.name, "memory", problem))

    async def end_query(self) -> None:
        """Start an extraction and a dream in the background if they are due; a late recall is kept."""
        await self.extractor.after_query()
        await self.dreaming.after_query()

    async def close(self) -> None:
        """Cancel a recall that still runs, wait for an extraction that is being written, and index the session."""
        self.recall.cancel()
        await self.extractor.close()
        if self._session.log.mode == "write":
            await to_thread.run_sync(self._index_session)

    def _index_session(self) -> None:
        """Add the session to the search index now, so that the next search need not read it."""
        home = self._settings.home
        key = log_key(project_slug(self._cwd), self._session.name)
        if not (home / key).is_file():
            return  # in another storage, or a sub-agent's, which is not searched
        try:
            with SessionSearch(home, embedder=settings_embedder(self._settings)) as search:
                search.refresh_log(key)
        except ReverieError as error:
            self._report(f"the session is indexed by the next search: {error}")

    def _may_extract(self) -> bool:
        switches = self._session.settings.switches
        return switches.memory and switches.extraction

    def _trust_of(self, text: str) -> Trust:
        """Return the trust of a text that the agent wants to save, by the authors of its words in the session."""
        with self._witness_lock:
            if not self._witnesses.follow(self._session.view):
                self._witnesses = Witnesses(imported_upto=self._imported_upto)
                self._witnesses.follow(self._session.view)
            return self._witnesses.trust(text)
