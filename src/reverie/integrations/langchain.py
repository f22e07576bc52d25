"""LangChain agents: a middleware that offloads tool results, sends the session's view, and logs every reply.

    agent = create_agent(model, tools, middleware=[ReverieMiddleware(session)])

Put it last, so that it sees what is really sent. The agent's own state keeps its history; a big tool result is in it as
the preview that stands for it. With a model of Anthropic's the breakpoints are placed too, and those that another
middleware asked for are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import ToolMessage
from langgraph.config import get_config

from ..errors import PromptTooLong
from ..models.failures import failure_of_exception
from ..runtime.memory.memory import Memory
from ..runtime.session.session import Session
from ..values import record
from .history_pieces import Block, Placeholders
from .host_session import HostSession
from .langchain_messages import Body, LangChainTranslator, result_content, wire_reply, wire_request, with_preview
from .sync_session import SessionBridge

__all__ = ["ReverieMiddleware"]

_WHAT: Final = "langchain"


class ReverieMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps an agent's conversations in sessions: one for all, or one for each thread."""

    def __init__(self, session: Session | Callable[[str], Session], *, memory: Memory | None = None) -> None:
        """Use an open session, or a function that returns the open session of a thread by its id."""
        super().__init__()
        self._session = session
        self._memory = memory
        self._seats: WeakKeyDictionary[Session, _ThreadSession] = WeakKeyDictionary()
        if isinstance(session, Session):
            self._seat(session)

    # -- what the agent calls

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Send the session's view in place of the agent's history."""
        seat = self._here()
        prepared = seat.door.softly(_WHAT, partial(seat.prepared, request))
        if prepared is None:
            return handler(request)
        try:
            response = handler(prepared.sent)
        except Exception as error:
            shorter = seat.shorter(prepared, error)
            again = seat.door.softly(_WHAT, shorter) if shorter is not None else None
            if again is None:
                return handler(request)
            response = handler(again)
        seat.door.softly(_WHAT, partial(seat.observe, response))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Send the session's view in place of the agent's history."""
        seat = self._here()
        prepared = await seat.door.asoftly(_WHAT, partial(seat.prepared, request))
        if prepared is None:
            return await handler(request)
        try:
            response = await handler(prepared.sent)
        except Exception as error:
            shorter = seat.shorter(prepared, error)
            again = await seat.door.asoftly(_WHAT, shorter) if shorter is not None else None
            if again is None:
                return await handler(request)
            response = await handler(again)
        await seat.door.asoftly(_WHAT, partial(seat.observe, response))
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Move a big result to disk at once, and let the agent keep its preview."""
        seat = self._here()
        message = handler(request)
        if not isinstance(message, ToolMessage):
            return message
        return with_preview(message, seat.door.softly(_WHAT, partial(_offload, seat.hosted, message)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Move a big result to disk at once, and let the agent keep its preview."""
        seat = self._here()
        message = await handler(request)
        if not isinstance(message, ToolMessage):
            return message
        return with_preview(message, await seat.door.asoftly(_WHAT, partial(_offload, seat.hosted, message)))

    # -- sessions

    def _here(self) -> _ThreadSession:
        """Return the seat of the thread that is running."""
        if isinstance(self._session, Session):
            return self._seat(self._session)
        settings = get_config().get("configurable", {})
        return self._seat(self._session(str(settings.get("thread_id", ""))))

    def _seat(self, session: Session) -> _ThreadSession:
        found = self._seats.get(session)
        if found is None:
            found = self._seats[session] = _ThreadSession(session, self._memory)
        return found


@record
class _PreparedRequest:
    """A request of the agent's, and what is sent in its place."""

    request: ModelRequest[Any]
    told: LangChainTranslator
    body: Body
    sent: ModelRequest[Any]


class _ThreadSession:
    """The seams of one session, and its agent's history as it was last told."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self.door = SessionBridge(session)
        self.hosted = HostSession(session, memory)
        self._told = LangChainTranslator()

    async def prepared(self, request: ModelRequest[Any]) -> _PreparedRequest:
        """Return a model request with the session's view in it, and what it was made of."""
        told, body = self._body(request)
        sent = await self.hosted.prepare(body)
        return _PreparedRequest(request, told, body, told.overridden(request, sent))

    def _body(self, request: ModelRequest[Any]) -> tuple[LangChainTranslator, Body]:
        told = self._told
        with told.lock:
            if told.goes_on(request.messages):
                return told, wire_request(request, told)
        told = LangChainTranslator()
        body = wire_request(request, told)
        self._told = told
        return told, body

    async def observe(self, response: Any) -> None:
        """Log what a model answered and what it cost."""
        await self.hosted.observe(wire_reply(response))

    async def _made_room(self, prepared: _PreparedRequest, failure: PromptTooLong) -> ModelRequest[Any]:
        sent = await self.hosted.make_room(failure, prepared.body)
        return prepared.told.overridden(prepared.request, sent)

    def shorter(
        self, prepared: _PreparedRequest, error: Exception
    ) -> Callable[[], Awaitable[ModelRequest[Any]]] | None:
        """Return how to make room where the prompt was too long; raise what is the provider's own trouble."""
        status = getattr(error, "status_code", None)
        failure = failure_of_exception("the provider", error)
        if isinstance(failure, PromptTooLong):
            return partial(self._made_room, prepared, failure)
        if status != 400:
            raise error
        self.door.fell_back(_WHAT, f"the request was refused and the agent's own is sent instead: {failure}")
        return None


async def _offload(hosted: HostSession, message: ToolMessage) -> str | list[Block] | None:
    content = result_content(message, Placeholders())
    return await hosted.result(message.tool_call_id, content, is_error=message.status == "error")
