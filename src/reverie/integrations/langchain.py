"""LangChain agents: a middleware that offloads tool results, sends the session's view, and logs every reply.

    agent = create_agent(model, tools, middleware=[ReverieMiddleware(session)])

Put it last, so that it sees what is really sent. The agent's own state keeps its history; a big tool result is in it as
the preview that stands for it. With a model of Anthropic's the breakpoints are placed too, and those that another
middleware asked for are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

from ..conversation.entries import new_uuid
from ..conversation.options import DEFAULT_MAX_TOKENS
from ..errors import PromptTooLong
from ..models.failures import failure_of_exception
from ..runtime.memory import Memory
from ..runtime.session import Session
from .door import Door
from .pieces import Block, Replies, apart, reply_key, shared_start
from .seams import Hosted

__all__ = ["ReverieMiddleware"]

Body = dict[str, Any]
_WHAT: Final = "langchain"
_ANTHROPIC: Final = "anthropic-chat"
_MARK: Final = "cache_control"


class ReverieMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps an agent's conversations in sessions: one for all, or one for each thread."""

    def __init__(self, session: Session | Callable[[str], Session], *, memory: Memory | None = None) -> None:
        """Use an open session, or a function that returns the open session of a thread by its id."""
        super().__init__()
        self._session = session
        self._memory = memory
        self._seats: WeakKeyDictionary[Session, _Seat] = WeakKeyDictionary()
        if isinstance(session, Session):
            self._seat(session)

    # -- what the agent calls

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Send the session's view in place of the agent's history."""
        seat = self._here()
        told, body = seat.request(request)
        sent = seat.door.softly(_WHAT, partial(seat.hosted.prepare, body))
        if sent is None:
            return handler(request)
        try:
            response = handler(told.overridden(request, sent))
        except Exception as error:
            shorter = seat.shorter(body, error)
            again = seat.door.softly(_WHAT, shorter) if shorter is not None else None
            if again is None:
                return handler(request)
            response = handler(told.overridden(request, again))
        seat.door.softly(_WHAT, partial(seat.hosted.observe, wire_reply(response)))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Send the session's view in place of the agent's history."""
        seat = self._here()
        told, body = seat.request(request)
        sent = await seat.door.asoftly(_WHAT, partial(seat.hosted.prepare, body))
        if sent is None:
            return await handler(request)
        try:
            response = await handler(told.overridden(request, sent))
        except Exception as error:
            shorter = seat.shorter(body, error)
            again = await seat.door.asoftly(_WHAT, shorter) if shorter is not None else None
            if again is None:
                return await handler(request)
            response = await handler(told.overridden(request, again))
        await seat.door.asoftly(_WHAT, partial(seat.hosted.observe, wire_reply(response)))
        return response

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Move a big result to disk at once, and let the agent keep its preview."""
        seat = self._here()
        message = handler(request)
        if not isinstance(message, ToolMessage):
            return message
        return _previewed(message, seat.door.softly(_WHAT, partial(_offloaded, seat.hosted, message)))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Move a big result to disk at once, and let the agent keep its preview."""
        seat = self._here()
        message = await handler(request)
        if not isinstance(message, ToolMessage):
            return message
        return _previewed(message, await seat.door.asoftly(_WHAT, partial(_offloaded, seat.hosted, message)))

    # -- sessions

    def _here(self) -> _Seat:
        """Return the seat of the thread that is running."""
        if isinstance(self._session, Session):
            return self._seat(self._session)
        settings = get_config().get("configurable", {})
        return self._seat(self._session(str(settings.get("thread_id", ""))))

    def _seat(self, session: Session) -> _Seat:
        found = self._seats.get(session)
        if found is None:
            found = self._seats[session] = _Seat(session, self._memory)
        return found


class _Seat:
    """The seams of one session, and its agent's history as it was last told."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self.door = Door(session)
        self.hosted = Hosted(session, memory)
        self._told = Told()

    def request(self, request: ModelRequest[Any]) -> tuple[Told, Body]:
        """Return a model request in the wire's shape, and what finds its messages again."""
        told = self._told
        with told.lock:
            if told.goes_on(request.messages):
                return told, wire_request(request, told)
        told = Told()
        body = wire_request(request, told)
        self._told = told
        return told, body

    def shorter(self, body: Body, error: Exception) -> Callable[[], Any] | None:
        """Return how to make room where the prompt was too long; raise what is the provider's own trouble."""
        status = getattr(error, "status_code", None)
        failure = failure_of_exception("the provider", error)
        if isinstance(failure, PromptTooLong):
            return partial(self.hosted.make_room, failure, body)
        if status != 400:
            raise error
        self.door.fell_back(_WHAT, f"the request was refused and the agent's own is sent instead: {failure}")
        return None


async def _offloaded(hosted: Hosted, message: ToolMessage) -> str | list[Block] | None:
    return await hosted.result(message.tool_call_id, _content(message), is_error=message.status == "error")


def _previewed(message: ToolMessage, shown: str | list[Block] | None) -> ToolMessage:
    return message if shown is None or shown == _content(message) else message.model_copy(update={"content": shown})


# -- LangChain's messages as the wire has them


def wire_request(request: ModelRequest[Any], told: Told) -> Body:
    """Return a model request in the wire's shape."""
    system = request.system_message
    body: Body = {
        "model": _model_name(request.model),
        "max_tokens": getattr(request.model, "max_tokens", None) or DEFAULT_MAX_TOKENS,
        "messages": told.history(request.messages),
        "tools": [tool for one in request.tools if (tool := _tool(one)) is not None],
    }
    return {**body, "system": _list(system.content)} if system is not None and system.content else body


def wire_message(message: AnyMessage) -> Body:
    """Return a message in the wire's shape."""
    if isinstance(message, ToolMessage):
        block: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": _content(message)}
        if message.status == "error":
            block["is_error"] = True
        return {"role": "user", "content": [block]}
    if isinstance(message, AIMessage):
        return {"role": "assistant", "content": reply_blocks(message)}
    return {"role": "user", "content": cast(Any, message.content)}


def reply_blocks(message: AIMessage) -> list[Block]:
    """Return a reply as blocks, its calls among them."""
    blocks = [block for block in _list(message.content) if block.get("type") not in ("tool_use", "tool_call")]
    blocks = [{key: value for key, value in block.items() if key != "index"} for block in blocks]
    calls = [
        {"type": "tool_use", "id": call["id"] or "", "name": call["name"], "input": call["args"]}
        for call in message.tool_calls
    ]
    return [*(block for block in blocks if block.get("type") != "text" or block.get("text")), *calls]


def wire_reply(response: Any) -> Body:
    """Return what a model answered as a reply of the wire."""
    if isinstance(response, ExtendedModelResponse):
        response = cast(Any, response).model_response
    result = cast("Sequence[Any]", response.result) if isinstance(response, ModelResponse) else [response]
    message = next(one for one in result if isinstance(one, AIMessage))
    said: Mapping[str, Any] = message.response_metadata
    return {
        "id": str(said.get("id") or message.id or new_uuid()),  # two without an id are not the same
        "model": str(said.get("model_name") or said.get("model") or ""),
        "role": "assistant",
        "content": reply_blocks(message),
        "stop_reason": said.get("stop_reason"),
        "usage": _usage(message, said),
    }


def _usage(message: AIMessage, said: Mapping[str, Any]) -> Body:
    given = said.get("usage")
    if isinstance(given, Mapping):
        return dict(cast(Mapping[str, Any], given))
    found = message.usage_metadata
    if found is None:
        return {}
    details = cast(Mapping[str, Any], found.get("input_token_details") or {})
    read, written = int(details.get("cache_read") or 0), int(details.get("cache_creation") or 0)
    return {
        "input_tokens": max(0, found["input_tokens"] - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": found["output_tokens"],
    }


def _content(message: ToolMessage) -> str | list[Block]:
    content = cast(Any, message.content)
    return content if isinstance(content, str) else _list(content)


def _list(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [{"type": "text", "text": one} if isinstance(one, str) else cast(Block, one) for one in content]


def _tool(tool: Any) -> Block | None:
    """Return a tool as it is declared; None where only the provider knows it."""
    try:
        known = convert_to_openai_tool(tool)["function"]
    except (ValueError, TypeError, KeyError):
        return None
    schema: Any = known.get("parameters") or {"type": "object", "properties": {}}
    return {"name": known["name"], "description": known.get("description", ""), "input_schema": schema}


def _model_name(model: Any) -> str:
    return str(getattr(model, "model", "") or getattr(model, "model_name", "") or "")


# -- the wire's messages as LangChain has them


class Told:
    """An agent's messages told in the wire's shape, and found again in it; of a history that grew, only what is new."""

    def __init__(self) -> None:
        self._facts: list[Any] = []
        """What was told, out of reach of an agent that writes into its messages, and what was made of it."""
        self._wired: list[Body] = []
        self._replies: Replies[AIMessage] = Replies()
        self._sent: list[Body] = []
        """What was found again, and as which messages."""
        self._found: list[list[AnyMessage]] = []
        self._marked = False
        self.lock = Lock()
        """Held while messages are told and found: an agent may run on several threads."""

    def goes_on(self, messages: Iterable[AnyMessage]) -> bool:
        """Say whether messages begin with the whole history that was told."""
        return shared_start(self._facts, [_facts(one) for one in messages]) == len(self._facts)

    def history(self, messages: Sequence[AnyMessage]) -> list[Body]:
        """Return a history that goes on from the one that was told in the wire's shape."""
        for message in messages[len(self._facts) :]:
            wired = wire_message(message)
            if isinstance(message, AIMessage):
                self._replies.add(reply_key(wired["content"]), message)
            self._wired.append(wired)
            self._facts.append(apart(_facts(message)))
        return list(self._wired)

    def overridden(self, request: ModelRequest[Any], sent: Body) -> ModelRequest[Any]:
        """Return the request with the session's view in it."""
        marks = str(getattr(request.model, "_llm_type", "")) == _ANTHROPIC
        with self.lock:
            changes: dict[str, Any] = {"messages": self._messages(_movable(sent["messages"]), marks)}
        if marks:
            changes["model_settings"] = {key: value for key, value in request.model_settings.items() if key != _MARK}
            changes["tools"] = [_untagged(tool) for tool in request.tools]
            if request.system_message is not None and sent.get("system"):
                changes["system_message"] = SystemMessage(content=cast(Any, _list(sent["system"])))
        return request.override(**changes)

    def _messages(self, sent: Sequence[Body], marks: bool) -> list[AnyMessage]:
        """Return what is sent as LangChain's messages: a reply as it came where the agent still has it."""
        same = shared_start(self._sent, sent) if marks == self._marked else 0
        self._marked = marks
        del self._sent[same:], self._found[same:]
        new = [(message["role"], _list(message["content"])) for message in sent[same:]]
        replies = iter(self._replies.found([reply_key(content) for role, content in new if role == "assistant"]))
        for role, content in new:
            if role == "assistant":
                self._found.append([next(replies) or _reply([_bare(block) for block in content])])
            else:
                self._found.append(_told(content, marks))
        self._sent += sent[same:]
        return [message for found in self._found for message in found]


def _facts(message: AnyMessage) -> list[Any]:
    """Return what counts of a message."""
    if isinstance(message, ToolMessage):
        return [message.type, message.content, message.tool_call_id, message.status]
    return [message.type, message.content, message.tool_calls if isinstance(message, AIMessage) else None]


def _untagged(tool: Any) -> Any:
    """Return a tool without the breakpoint another middleware put on it."""
    if isinstance(tool, dict):
        return _bare(cast(Block, tool))
    extras: Mapping[str, Any] | None = getattr(tool, "extras", None)
    if not extras or _MARK not in extras:
        return tool
    return tool.model_copy(update={"extras": _bare(dict(extras)) or None})


def _movable(messages: Sequence[Body]) -> list[Body]:
    """Return messages whose breakpoints stand where they survive: not on a call, which is built anew, but before it."""
    moved = list(messages)
    for at, message in enumerate(messages):
        content = message["content"]
        if message["role"] != "assistant" or isinstance(content, str) or not any(_MARK in one for one in content):
            continue
        mark = next(one[_MARK] for one in content if _MARK in one)
        moved[at] = {**message, "content": [_bare(one) for one in content]}
        if at and not isinstance(moved[at - 1]["content"], str):
            *rest, last = moved[at - 1]["content"]
            moved[at - 1] = {**moved[at - 1], "content": [*rest, {_MARK: mark, **last}]}
    return moved


def _bare(block: Block) -> Block:
    return {key: value for key, value in block.items() if key != _MARK}


def _told(content: Sequence[Block], marks: bool) -> list[AnyMessage]:
    """Return what the model is told as LangChain's messages, results first."""
    made: list[AnyMessage] = []
    said: list[Block] = []
    for block in content:
        if block.get("type") == "tool_result":
            made.append(_result(block, marks))
        else:
            said.append(block if marks else _bare(block))
    return [*made, HumanMessage(content=cast(Any, said))] if said else made


def _reply(content: list[Block]) -> AIMessage:
    calls = [
        {"type": "tool_call", "id": block["id"], "name": block["name"], "args": block["input"]}
        for block in content
        if block.get("type") == "tool_use"
    ]
    rest = [block for block in content if block.get("type") != "tool_use"]
    return AIMessage(content=cast(Any, rest), tool_calls=cast(Any, calls))


def _result(block: Block, marks: bool) -> ToolMessage:
    """Return a result; for a provider that marks as its own block, which a mark does not change the shape of."""
    status = "error" if block.get("is_error") else "success"
    content: Any = block.get("content", "")
    if marks:
        content = [{**block, "content": content or "(no output)"}]
    return ToolMessage(content=content, tool_call_id=block["tool_use_id"], status=status)
