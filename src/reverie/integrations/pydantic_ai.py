"""Pydantic AI: a capability that offloads tool results, sends the session's view, and logs every response.

    agent = Agent(model, capabilities=[ReverieCapability(session)])

The run's own history stays whole; a big tool result is in it as the preview that stands for it. What only Pydantic AI
can hold (an image, a delta of its own) stands in the log by name and is sent as it was. With a model of Anthropic's
the breakpoints are placed too.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from pydantic_ai import RetryModelRequest, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext

from ..errors import PromptTooLong
from ..models.failures import failure_of_status
from ..runtime.memory.memory import Memory
from ..runtime.session.session import Session
from .host_session import HostSession
from .pydantic_messages import PydanticTranslator, wire_reply
from .sync_session import SessionBridge

__all__ = ["ReverieCapability"]

_WHAT: Final = "pydantic-ai"


class _ConversationSession:
    """The seams of one session, and its run's history as it was last told."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self.door = SessionBridge(session)
        self.hosted = HostSession(session, memory)
        self.known = PydanticTranslator()

    async def prepared(self, context: ModelRequestContext, failure: PromptTooLong | None) -> ModelRequestContext:
        """Return a request with the session's view in it, shorter where it was too long before."""
        if not self.known.goes_on(context.messages):
            self.known = PydanticTranslator()
        known = self.known
        body = known.request(context)
        sent = await (self.hosted.make_room(failure, body) if failure else self.hosted.prepare(body))
        return known.overridden(context, sent)

    async def observe(self, response: ModelResponse) -> None:
        """Log a response and what it cost."""
        await self.hosted.observe(wire_reply(response))


class ReverieCapability(AbstractCapability[Any]):
    """Keeps an agent's conversations in sessions: one for all, or one for each conversation."""

    def __init__(self, session: Session | Callable[[str], Session], *, memory: Memory | None = None) -> None:
        """Use an open session, or a function that returns the open session of a conversation by its id."""
        self._session = session
        self._memory = memory
        self._seats: WeakKeyDictionary[Session, _ConversationSession] = WeakKeyDictionary()
        self._failure: PromptTooLong | None = None
        """What the next attempt of a run is to do, and whether the last one sent the session's view."""
        self._passes = False
        self._sent = False
        if isinstance(session, Session):
            self._seat(session)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return nothing: a session cannot be written into a specification."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return the same for one run, whose attempts are its own."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the session's view in place of the run's history, for this attempt."""
        self._sent = False
        if self._passes:
            self._passes = False
            return request_context
        seat = self._here(ctx)
        failure, self._failure = self._failure, None
        prepared = await seat.door.asoftly(_WHAT, partial(seat.prepared, request_context, failure))
        self._sent = prepared is not None
        return prepared or request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Log the response and what it cost, where what it answers was ours."""
        seat = self._here(ctx)
        if self._sent:
            await seat.door.asoftly(_WHAT, partial(seat.observe, response))
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Make room where the prompt was too long, and let the run's own request pass where ours was refused."""
        seat = self._here(ctx)
        status: Any = getattr(error, "status_code", None)
        if not self._sent or status not in (400, 413) or request_context.attempt > 2:
            raise error
        failure = failure_of_status("the provider", status, getattr(error, "body", None))
        if isinstance(failure, PromptTooLong):
            self._failure = failure
        else:
            self._passes = True
            seat.door.fell_back(_WHAT, f"the request was refused and the run's own is sent instead: {failure}")
        raise RetryModelRequest from error

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, result: Any
    ) -> Any:
        """Move a big result to disk at once, and let the run keep its preview."""
        seat = self._here(ctx)
        text = result if isinstance(result, str) else _text_of(call, result)
        if text is None:
            return result
        shown = await seat.door.asoftly(_WHAT, partial(seat.hosted.result, call.tool_call_id, text))
        return result if shown is None or shown == text or not isinstance(shown, str) else shown

    def _here(self, ctx: RunContext[Any]) -> _ConversationSession:
        session = self._session
        return self._seat(session if isinstance(session, Session) else session(ctx.conversation_id or ""))

    def _seat(self, session: Session) -> _ConversationSession:
        found = self._seats.get(session)
        if found is None:
            found = self._seats[session] = _ConversationSession(session, self._memory)
        return found


def _text_of(call: ToolCallPart, result: Any) -> str | None:
    """Return what a result will be as text; None where it is more than text."""
    if isinstance(result, (int, float, bool, dict, list, tuple)) or result is None:
        part = ToolReturnPart(call.tool_name, cast(Any, result), call.tool_call_id)
        return part.model_response_str() if not part.files else None
    return None
