"""The protocol's requests: initialize, sessions, prompts, modes; each error has a remedy."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from acp import PROTOCOL_VERSION
from acp.agent.connection import AgentSideConnection
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionModeResponse,
)

from ...errors import InputError, ModelUnknown, ReverieError, SessionNotFound
from ...runtime.agent.agent import Agent
from ...runtime.library import Library
from ...runtime.places.projects import canonical_root, log_key, project_slug
from ...runtime.places.shared_settings import with_shared
from ...runtime.places.storage import storage_of
from ...settings import Mode, Settings, load_settings
from ...values import record, replace
from .content import EditorServer, PromptBlock, prompt_of, servers_of
from .editor_session import INTERNAL_ERROR, EditorSession, SlashCommands
from .transport import INVALID_PARAMS, LineTransport
from .updates import CallTitle

NOT_FOUND: Final = -32002
NO_MODEL: Final = -32000
LISTED: Final = 100

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


@record
class ServerOptions:
    """The model and the mode of new sessions, and their limits; None is that of the settings."""

    model: str | None = None
    mode: Mode | None = None
    max_turns: int | None = None
    budget_usd: float | None = None


def _with_clear_errors(
    act: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Awaitable[T]]:
    """Turn errors of Reverie into errors of the protocol with the same text."""

    @wraps(act)
    async def answer(server: S, /, *args: P.args, **given: P.kwargs) -> T:
        try:
            return await act(server, *args, **given)
        except ReverieError as error:
            raise RequestError(_code_of(error), str(error)) from error

    return answer


def _code_of(error: ReverieError) -> int:
    if isinstance(error, SessionNotFound):
        return NOT_FOUND
    if isinstance(error, ModelUnknown):
        return NO_MODEL
    return INVALID_PARAMS if isinstance(error, InputError) else INTERNAL_ERROR


class AcpServer:
    """The agents of one editor, one a session."""

    def __init__(
        self, options: ServerOptions, *, title: CallTitle, commands: SlashCommands, on_close: Callable[[Agent], None]
    ) -> None:
        """Call ``on_close`` with the agent of each session that was closed."""
        self._options = options
        self._on_close = on_close
        self._title = title
        self._commands = commands
        self._client: Client | None = None
        self._sessions: dict[str, EditorSession] = {}

    def on_connect(self, conn: Client) -> None:
        """Take the connection to the editor."""
        self._client = conn

    async def close(self) -> None:
        """Close all sessions."""
        open_ones, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*map(self._close, open_ones))

    async def _close(self, session: EditorSession) -> None:
        await session.close()
        await asyncio.to_thread(self._on_close, session.agent)

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """Return the protocol's version and the abilities of this agent."""
        sessions = SessionCapabilities(
            list=SessionListCapabilities(),
            resume=SessionResumeCapabilities(),
            close=SessionCloseCapabilities(),
            additional_directories=SessionAdditionalDirectoriesCapabilities(),
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="reverie", title="Reverie", version=version("reverie")),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=sessions,
            ),
        )

    # -- sessions

    @_with_clear_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorServer] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        """Start a session in a directory."""
        opened = await self._open(None, cwd, additional_directories, mcp_servers)
        asyncio.get_running_loop().call_soon(self._introduce, opened)  # the editor learns the session's id first
        return NewSessionResponse(session_id=opened.agent.name, modes=opened.modes())

    @_with_clear_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[EditorServer] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Open a session of the past and send its conversation."""
        opened = await self._known(session_id, cwd, additional_directories, mcp_servers)
        await opened.introduce(with_history=True)
        return LoadSessionResponse(modes=opened.modes())

    @_with_clear_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorServer] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Open a session of the past whose conversation the editor has."""
        opened = await self._known(session_id, cwd, additional_directories, mcp_servers)
        await opened.introduce(with_history=False)
        return ResumeSessionResponse(modes=opened.modes())

    @_with_clear_errors
    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Stop the session's work and close it; it can be loaded again."""
        found = self._session(session_id)
        del self._sessions[session_id]
        await self._close(found)
        return CloseSessionResponse()

    @_with_clear_errors
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """List the sessions of a project, the last written first, or those of all."""
        settings = load_settings()

        def find() -> list[SessionInfo]:
            with closing(storage_of(settings)) as storage:
                library = Library(storage, project=project_slug(Path(cwd)) if cwd else "")
                folder = f"projects/{project_slug(Path(cwd))}/" if cwd else "projects/"
                keys = list(library.keys())
                listed = [library.describe(key) for key in keys if key.startswith(folder)]
            found = sorted((one for one in listed if one.messages), key=lambda one: one.touched, reverse=True)
            return [
                SessionInfo(session_id=one.session, cwd=one.cwd or cwd or "/", title=one.title, updated_at=one.touched)
                for one in found[:LISTED]
            ]

        return ListSessionsResponse(sessions=await asyncio.to_thread(find))

    @_with_clear_errors
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        """Set the permission mode of a session."""
        found = self._session(session_id)
        found.set_mode(mode_id)
        await found.flush()
        return SetSessionModeResponse()

    # -- prompts

    @_with_clear_errors
    async def prompt(self, session_id: str, prompt: list[PromptBlock], **_: Any) -> PromptResponse:
        """Answer a prompt; the updates of the turn arrive before this response."""
        return PromptResponse(stop_reason=await self._session(session_id).answer(prompt_of(prompt)))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the running prompt of a session; its response says that it was cancelled."""
        if session_id in self._sessions:
            self._sessions[session_id].cancel()

    # -- opening

    def _session(self, name: str) -> EditorSession:
        if name not in self._sessions:
            raise SessionNotFound(f"no session {name!r} is open: send session/new or session/load first")
        return self._sessions[name]

    async def _known(
        self, name: str, cwd: str, directories: list[str] | None, servers: list[EditorServer] | None
    ) -> EditorSession:
        """Return a session of the past, opened if it is not open already."""
        if name in self._sessions:
            return self._sessions[name]
        settings = _settings_of(_directory(cwd))
        key = log_key(project_slug(Path(cwd).resolve()), name)
        with closing(storage_of(settings)) as storage:
            if storage.load(key) is None:
                raise SessionNotFound(f"{cwd} has no session {name!r}: session/list names all")
        return await self._open(name, cwd, directories, servers)

    async def _open(
        self, name: str | None, cwd: str, directories: list[str] | None, servers: list[EditorServer] | None
    ) -> EditorSession:
        assert self._client is not None
        place, options = _directory(cwd), self._options
        settings = _settings_of(place)
        rules = settings.permissions
        more = tuple(str(_directory(one)) for one in directories or ())
        settings = replace(
            settings,
            mcp_servers={**settings.mcp_servers, **servers_of(servers or ())},
            permissions=replace(rules, directories=(*rules.directories, *more)),
        )
        session = EditorSession(self._client, self._title, self._commands)
        agent = Agent(
            model=options.model,
            cwd=place,
            session=name,
            settings=settings,
            mode=options.mode,
            approve=session.approve,
            max_turns=options.max_turns,
            budget_usd=options.budget_usd,
        )
        await session.open(agent)
        self._sessions[agent.name] = session
        return session

    def _introduce(self, session: EditorSession) -> None:
        self._introduction = asyncio.ensure_future(session.introduce(with_history=False))


def _settings_of(place: Path) -> Settings:
    settings, _ = with_shared(load_settings(project=canonical_root(place)), canonical_root(place))
    return settings


def _directory(path: str) -> Path:
    if not os.path.isabs(path) or not os.path.isdir(path):
        raise InputError(f"{path} is no directory with an absolute path")
    return Path(path).resolve()


async def serve(server: AcpServer, transport: LineTransport) -> None:
    """Serve one editor until it closes its end or a signal arrives; then close all sessions."""
    connection = AgentSideConnection(cast(Any, server), transport, listening=False, use_unstable_protocol=True)
    listening = asyncio.ensure_future(connection.listen())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, listening.cancel)
    try:
        await asyncio.wait([listening])
    finally:
        await server.close()
        await connection.close()
