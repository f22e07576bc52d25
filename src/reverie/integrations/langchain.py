"""LangChain agents: a middleware that offloads tool results, sends the session's view, and logs every reply.

    agent = create_agent(model, tools, middleware=[ReverieMiddleware(session)])

Put it last, so that it sees the request that is really sent. The agent's own state keeps its history, with previews
in place of big tool results. With a model of Anthropic's it also places the cache breakpoints, and removes those of
other middlewares. It brings the tool ``expand``, which opens the handles that the model is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.config import get_config

from ..errors import ModelError, PromptTooLong
from ..models.failures import failure_of_exception
from ..runtime.memory.memory import Memory
from ..runtime.memory.session import Session
from ..runtime.session.offload.read_back import EXPAND_TOOL
from .history_pieces import Block, Placeholders
from .host_session import HostSession
from .langchain_messages import Body, LangChainTranslator, result_content, wire_reply, wire_request, with_preview
from .sync_session import HostConversations, SessionBridge, Tried, as_async, run_now

__all__ = ["ReverieMiddleware"]

_WHAT: Final = "langchain"
_PreparedRequest: TypeAlias = tuple[ModelRequest[Any], LangChainTranslator, Body]


class ReverieMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps an agent's conversations in sessions: one for all, or one per thread."""

    def __init__(self, session: Session | Callable[[str], Session], *, memory: Memory | None = None) -> None:
        """Use an open session, or a function that returns the open session for a thread id.

        With ``memory`` the memory index opens each conversation, and memories that fit are recalled.
        """
        super().__init__()
        self._threads = HostConversations(session, lambda one: _ThreadSession(one, memory))
        self.tools = [
            StructuredTool(
                name=EXPAND_TOOL["name"],
                description=EXPAND_TOOL["description"],
                args_schema=EXPAND_TOOL["input_schema"],
                func=self._expand_blocking,
                coroutine=self._expand,
            )
        ]

    # -- called by the agent

    def _expand_blocking(self, /, **given: Any) -> str:
        return self._threads.find(_thread_id).bridge.expand_blocking(**given)

    async def _expand(self, /, **given: Any) -> str:
        return await self._threads.find(_thread_id).bridge.expand(**given)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model with the session's view in place of the agent's history, log the reply, and return it.

        A refused request is sent again as long as the session can change it: a prompt that is too long is compacted.
        If we fail, or nothing can be changed, the agent's own request is sent; other errors are raised.
        """
        thread = self._threads.find(_thread_id)
        return run_now(thread.call(request, as_async(handler), thread.bridge.try_now))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Do for an asynchronous agent the same as ``wrap_model_call``."""
        thread = self._threads.find(_thread_id)
        return await thread.call(request, handler, thread.bridge.try_acall)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run the tool, log its result, and return its message, with a preview in place of a big result.

        A result that is no ``ToolMessage`` is returned as it is and not logged.
        """
        thread = self._threads.find(_thread_id)
        return run_now(thread.offload(handler(request), thread.bridge.try_now))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do for an asynchronous agent the same as ``wrap_tool_call``."""
        thread = self._threads.find(_thread_id)
        return await thread.offload(await handler(request), thread.bridge.try_acall)


class _ThreadSession:
    """A session with its agent's history as it was last translated."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self.bridge = SessionBridge(session)
        self.host_session = HostSession(session, memory, messages_only=True)
        self._translator = LangChainTranslator()

    async def call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]], tried: Tried
    ) -> Any:
        """Send the session's view, again while a refusal can be repaired, else the agent's own request."""
        prepared: _PreparedRequest | None = await tried(_WHAT, partial(self._prepared, request))
        if prepared is None:
            return await handler(request)
        sent = prepared[0]
        while True:
            try:
                response = await handler(sent)
            except Exception as error:
                failure = _refusal(error)
                again: ModelRequest[Any] | None = await tried(_WHAT, partial(self._recovered, prepared, failure))
                if again is None:
                    said = f"the request was refused and the agent's own is sent instead: {failure}"
                    self.bridge.report_fallback(_WHAT, said)
                    return await handler(request)
                sent = again
                continue
            await tried(_WHAT, partial(self._observe, response))
            return response

    async def offload(self, message: Any, tried: Tried) -> Any:
        """Log a tool's message, and return it with a preview in place of a big result."""
        if not isinstance(message, ToolMessage):
            return message
        return with_preview(message, await tried(_WHAT, partial(_offload, self.host_session, message)))

    async def _prepared(self, request: ModelRequest[Any]) -> _PreparedRequest:
        """Log the changes of the agent's history; return the request with the view, the translator and the body."""
        translator, body = self._body(request)
        sent = await self.host_session.prepare(body)
        return translator.overridden(request, sent), translator, body

    def _body(self, request: ModelRequest[Any]) -> tuple[LangChainTranslator, Body]:
        translator = self._translator
        with translator.lock:
            if translator.continues(request.messages):
                return translator, wire_request(request, translator)
        translator = LangChainTranslator()
        body = wire_request(request, translator)
        self._translator = translator
        return translator, body

    async def _observe(self, response: Any) -> None:
        """Log a model's reply and its cost."""
        await self.host_session.observe(wire_reply(response))

    async def _recovered(self, prepared: _PreparedRequest, failure: ModelError) -> ModelRequest[Any] | None:
        """Return another request after a refusal of the last one; None if a change cannot help."""
        request, translator, body = prepared
        sent = await self.host_session.recover(failure, body)
        return None if sent is None else translator.overridden(request, sent)


def _thread_id() -> str:
    return str(get_config().get("configurable", {}).get("thread_id", ""))


def _refusal(error: Exception) -> ModelError:
    """Return the provider's refusal of a request (status 400, or a prompt that is too long); raise other errors."""
    failure = failure_of_exception("the provider", error)
    if not isinstance(failure, PromptTooLong) and getattr(error, "status_code", None) != 400:
        raise error
    return failure


async def _offload(host_session: HostSession, message: ToolMessage) -> str | list[Block] | None:
    content = result_content(message, Placeholders())
    return await host_session.result(message.tool_call_id, content, is_error=message.status == "error")
