"""Pydantic AI: a capability that offloads tool results, sends the session's view, and logs every response.

    agent = Agent(model, capabilities=[ReverieCapability(session)])

The run's own history stays whole, with previews in place of big tool results. The log holds a placeholder for an
object that only Pydantic AI can represent (an image, a delta), and the object itself is sent. With a model of
Anthropic's it also places the cache breakpoints. It brings the tool ``expand``, which opens the handles that the model
is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Final, cast

from pydantic_ai import FunctionToolset, RetryModelRequest, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext

from ..errors import ImageRefused, ModelError, PromptTooLong, ThinkingRefused
from ..models.failures import failure_of_status
from ..runtime.memory.memory import Memory
from ..runtime.memory.session import Session
from ..runtime.session.offload.read_back import EXPAND_TOOL
from .host_session import HostSession
from .pydantic_messages import PydanticTranslator, wire_reply
from .sync_session import HostConversations, SessionBridge

__all__ = ["ReverieCapability"]

_WHAT: Final = "pydantic-ai"


class _ConversationSession:
    """A session with its run's history as it was last translated."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self.bridge = SessionBridge(session)
        self.host_session = HostSession(session, memory, messages_only=True)
        self.translator = PydanticTranslator()

    async def prepared(self, context: ModelRequestContext, failure: ModelError | None) -> ModelRequestContext:
        """Log the changes of the run's history and return the request, a changed one after a ``failure``."""
        if not self.translator.continues(context.messages):
            self.translator = PydanticTranslator()
        translator = self.translator
        body = translator.request(context)
        sent = await (self.host_session.recover(failure, body) if failure else self.host_session.prepare(body))
        if sent is None:
            assert failure is not None  # only a recovery returns None
            raise failure
        return translator.overridden(context, sent)

    async def observe(self, response: ModelResponse) -> None:
        """Log a response and its cost."""
        await self.host_session.observe(wire_reply(response))


class ReverieCapability(AbstractCapability[Any]):
    """Keeps an agent's conversations in sessions: one for all, or one per conversation."""

    def __init__(self, session: Session | Callable[[str], Session], *, memory: Memory | None = None) -> None:
        """Use an open session, or a function that returns the open session for a conversation id.

        With ``memory`` the memory index opens each conversation, and memories that fit are recalled.
        """
        self._conversations = HostConversations(session, lambda one: _ConversationSession(one, memory))
        self._failure: ModelError | None = None
        """The refusal from which the next attempt of a run must recover."""
        self._passes = False
        self._sent = False

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a session cannot be serialized."""
        return None

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tool ``expand``, which opens the handles that the model is shown."""

        async def expand(ctx: RunContext[Any], /, **given: Any) -> str:
            return await self._here(ctx).bridge.expand(**given)

        tool = Tool.from_schema(
            expand, EXPAND_TOOL["name"], EXPAND_TOOL["description"], EXPAND_TOOL["input_schema"], takes_ctx=True
        )
        return FunctionToolset([tool])

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return a copy of this capability for one run, so that each run counts its own retries."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with the session's view in place of its history; the same request if that fails."""
        self._sent = False
        if self._passes:
            self._passes = False
            return request_context
        conversation = self._here(ctx)
        failure, self._failure = self._failure, None
        prepared = await conversation.bridge.try_acall(_WHAT, partial(conversation.prepared, request_context, failure))
        self._sent = prepared is not None
        return prepared or request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Log the response and its cost if the session's view was sent; return the response unchanged."""
        conversation = self._here(ctx)
        if self._sent:
            await conversation.bridge.try_acall(_WHAT, partial(conversation.observe, response))
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Raise ``RetryModelRequest`` if our request was refused; raise any other error again.

        The retry sends a changed request if a prompt that is too long, an image or thinking was refused, else the
        run's own request.
        """
        conversation = self._here(ctx)
        status: Any = getattr(error, "status_code", None)
        if not self._sent or status not in (400, 413):
            raise error
        failure = failure_of_status("the provider", status, getattr(error, "body", None))
        if isinstance(failure, PromptTooLong | ImageRefused | ThinkingRefused):
            self._failure = failure
        else:
            self._passes = True
            conversation.bridge.report_fallback(
                _WHAT, f"the request was refused and the run's own is sent instead: {failure}"
            )
        raise RetryModelRequest from error

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, result: Any
    ) -> Any:
        """Log a tool's result and return it, or a preview of a big one; a result that is no text is not logged."""
        conversation = self._here(ctx)
        text = result if isinstance(result, str) else _text_of(call, result)
        if text is None:
            return result
        shown = await conversation.bridge.try_acall(
            _WHAT, partial(conversation.host_session.result, call.tool_call_id, text)
        )
        return result if shown is None or shown == text or not isinstance(shown, str) else shown

    def _here(self, ctx: RunContext[Any]) -> _ConversationSession:
        return self._conversations.find(lambda: ctx.conversation_id or "")


def _text_of(call: ToolCallPart, result: Any) -> str | None:
    """Return a result as text; None where it holds more than text."""
    if isinstance(result, (int, float, bool, dict, list, tuple)) or result is None:
        part = ToolReturnPart(call.tool_name, cast(Any, result), call.tool_call_id)
        return part.model_response_str() if not part.files else None
    return None
