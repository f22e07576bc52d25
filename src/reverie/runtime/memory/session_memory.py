"""The memories of a session's project: the index and recall before a prompt, and extraction after a query."""

from __future__ import annotations

import threading
from pathlib import Path

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
from ...tools.tool import Tool
from ...values import replace
from ..places.projects import log_key, project_slug
from ..search.sessions import SessionSearch
from ..search.vectors import settings_embedder
from ..session.session import Session
from ..session.standing_context import ContextSource
from .extract.budget import DailyBudget
from .extract.extraction_vectors import settings_vectors
from .extract.extractor import Extractor, ExtractorOptions
from .extract.past_sessions import PastSessions
from .extract.tools import ToolAccess
from .memory import Memory
from .memory_tool import MemoryTool
from .recall import SessionRecall
from .search import MemorySearch
from .standing_memories import IndexSource, IndexText, read_indexes


class MemoryContext:
    """Shows a session the index of memories, and the memories that fit a prompt."""

    def __init__(
        self, session: Session, memory: Memory, *, small: Model | None = None, tasks: TaskGroup | None = None
    ) -> None:
        """Show these memories; the model ``small`` selects them for recall (None: local search)."""
        settings = session.settings
        self._session, self._memory = session, memory
        self._team = settings.team_memory if memory.is_shared else None
        self.index = IndexSource(self._read_indexes, self.report)
        self.recall = SessionRecall(
            session.parts.host,
            MemorySearch(memory.path, team=self._team, embedder=settings_embedder(settings), shared=memory.shared),
            small,
            tasks=tasks,
            # A memory has at most a fortieth of the window, at four bytes a token.
            policy=replace(
                settings.recall, file_bytes=min(settings.recall.file_bytes, session.thresholds.effective // 10)
            ),
            spent=lambda reply: session.parts.host.record_call(reply, source="recall"),
        )

    def sources(self) -> list[ContextSource]:
        """Return the sources of standing context: the index and the memories that were recalled."""
        return [self.index, self.recall.source]

    def add_to_session(self) -> None:
        """Let the requests of the session say the index and the recalled memories."""
        for source in self.sources():
            self._session.parts.standing.add(source)

    async def open_conversation(self) -> None:
        """Say the memory index if the view is still empty."""
        standing = self._session.parts.standing
        if not self._session.view.length and (opening := await standing.opening()):
            await standing.say_opening(opening)

    def begin_query(self, prompt: str) -> None:
        """Search memories for a prompt, and let the next request say which memories changed since the last one."""
        self.index.reload()
        self.recall.source.reload()
        self.recall.start(prompt)
        self._session.parts.standing.refresh()

    def _read_indexes(self) -> list[IndexText]:
        """Read the private index and the team's, each in a small window at most an eighth of it."""
        if not self._session.settings.switches.memory:
            return []
        places: dict[Scope, str] = {"private": str(self._memory.path)}
        if self._team is not None:
            places["team"] = str(self._team)
        return read_indexes(self._memory, places, most_bytes=self._session.thresholds.effective // 2)

    def report(self, problem: str) -> None:
        """Emit ``FellBack`` about memories."""
        self._session.log.emit(FellBack(self._session.name, "memory", problem))


class SessionMemory:
    """Connects a session to the memories of its project: index, recall, the Memory tool and extraction."""

    def __init__(
        self,
        session: Session,
        cwd: Path,
        settings: Settings,
        *,
        model: Model | None,
        small: Model | None,
        tasks: TaskGroup,
        access: ToolAccess | None = None,
    ) -> None:
        """Open the memories; ``model`` writes them, ``small`` selects them for recall (None: local search).

        With ``access`` the model may use the tools of the agent while it extracts.
        """
        self._session, self._settings, self._cwd = session, settings, cwd
        self._imported_upto = imported_upto(session.view)
        self._witnesses = Witnesses(imported_upto=self._imported_upto)
        self._witness_lock = threading.Lock()
        self.memory = Memory.open(cwd, settings=settings)
        self.path = str(self.memory.path)
        self.context = MemoryContext(session, self.memory, small=small, tasks=tasks)
        self.recall = self.context.recall
        self.recall.open_client()
        self.extractor = Extractor(
            session.parts.host,
            self.memory,
            ExtractorOptions(
                policy=settings.extract,
                access=access,
                budget=DailyBudget(settings=settings),
                allowed=self._may_extract,
                past=PastSessions(
                    session.parts.storage, project_slug(cwd), without=session.name, embed=settings_vectors(settings)
                ),
                daily_logs=settings.daily_logs,
            ),
            model=model,
            tasks=tasks,
        )

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

    async def end_query(self) -> None:
        """Start an extraction in the background if it is due; a late recall is kept."""
        await self.extractor.after_query()

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
            self.context.report(f"the session is indexed by the next search: {error}")

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
