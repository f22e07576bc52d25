"""LangChain's messages told in the wire's shape, and found again in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, cast

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from ..conversation.entries import new_uuid
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from .history_pieces import Block, Placeholders, ReplyIndex, common_length, detached, reply_key

__all__ = [
    "Body",
    "LangChainTranslator",
    "reply_blocks",
    "result_content",
    "wire_reply",
    "wire_request",
    "with_preview",
]

Body = dict[str, Any]
_ANTHROPIC: Final = "anthropic-chat"
_MARK: Final = "cache_control"


def wire_request(request: ModelRequest[Any], told: LangChainTranslator) -> Body:
    """Return a model request in the wire's shape."""
    system = request.system_message
    body: Body = {
        "model": _model_name(request.model),
        "max_tokens": getattr(request.model, "max_tokens", None) or DEFAULT_MAX_TOKENS,
        "messages": told.history(request.messages),
        "tools": [tool for one in request.tools if (tool := _tool(one)) is not None],
    }
    return {**body, "system": _list(system.content)} if system is not None and system.content else body


def wire_message(message: AnyMessage, stand_ins: Placeholders) -> Body:
    """Return a message in the wire's shape."""
    if isinstance(message, ToolMessage):
        content = result_content(message, stand_ins)
        block: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        if message.status == "error":
            block["is_error"] = True
        return {"role": "user", "content": [block]}
    if isinstance(message, AIMessage):
        return {"role": "assistant", "content": reply_blocks(message)}
    if isinstance(message, SystemMessage):
        said = cast(Any, message.content)
        own = [{"role": "system", "content": said}]
        return {"role": "user", "content": [stand_ins.block("system", message, said)], "own": own, "stands": True}
    return {"role": "user", "content": _wired(message.content, stand_ins)}


def _wired(content: Any, stand_ins: Placeholders) -> str | list[Block]:
    """Return content with texts in place of what has another form than the wire's, such as LangChain's own images."""
    if isinstance(content, str):
        return content
    return [
        block if _is_wires(block) else stand_ins.block(str(block.get("type")), _unmarked(block))
        for block in _list(content)
    ]


def _is_wires(block: Block) -> bool:
    kind = block.get("type")
    return kind in ("text", "tool_result") or (kind in ("image", "document") and "source" in block)


def _unmarked(block: Block) -> Block:
    """Return a block of LangChain's without the breakpoint that was put on it, or beside what it holds."""
    beside = {key: _bare(block[key]) for key in ("extras", "metadata") if isinstance(block.get(key), dict)}
    return {**_bare(block), **beside}


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


def result_content(message: ToolMessage, stand_ins: Placeholders) -> str | list[Block]:
    """Return what a tool gave back in the wire's shape."""
    return _wired(message.content, stand_ins)


def with_preview(message: ToolMessage, shown: str | list[Block] | None) -> ToolMessage:
    """Return a tool's message with what is to be shown in its place."""
    stand_ins = Placeholders()
    if shown is None or shown == result_content(message, stand_ins):
        return message
    content = shown if isinstance(shown, str) else [_put_back(block, stand_ins, marks=False) for block in shown]
    return message.model_copy(update={"content": content})


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


class LangChainTranslator:
    """An agent's messages told in the wire's shape, and found again in it; of a history that grew, only what is new."""

    def __init__(self) -> None:
        self._facts: list[Any] = []
        """What was told, out of reach of an agent that writes into its messages, and what was made of it."""
        self._wired: list[Body] = []
        self._replies: ReplyIndex[AIMessage] = ReplyIndex()
        self._stand_ins = Placeholders()
        self._sent: list[Body] = []
        """What was found again, and as which messages."""
        self._found: list[list[AnyMessage]] = []
        self._marked = False
        self.lock = Lock()
        """Held while messages are told and found: an agent may run on several threads."""

    def goes_on(self, messages: Iterable[AnyMessage]) -> bool:
        """Say whether messages begin with the whole history that was told."""
        return common_length(self._facts, [_facts(one) for one in messages]) == len(self._facts)

    def history(self, messages: Sequence[AnyMessage]) -> list[Body]:
        """Return a history that goes on from the one that was told in the wire's shape."""
        for message in messages[len(self._facts) :]:
            wired = wire_message(message, self._stand_ins)
            if isinstance(message, AIMessage):
                self._replies.add(reply_key(wired["content"]), message)
            self._wired.append(wired)
            self._facts.append(detached(_facts(message)))
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
        same = common_length(self._sent, sent) if marks == self._marked else 0
        self._marked = marks
        del self._sent[same:], self._found[same:]
        new = [(message["role"], _list(message["content"])) for message in sent[same:]]
        replies = iter(self._replies.found([reply_key(content) for role, content in new if role == "assistant"]))
        for role, content in new:
            if role == "assistant":
                self._found.append([next(replies) or _reply([_bare(block) for block in content])])
            else:
                self._found.append(_told(content, self._stand_ins, marks, first=not self._found))
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


def _told(content: Sequence[Block], stand_ins: Placeholders, marks: bool, *, first: bool) -> list[AnyMessage]:
    """Return what the model is told as LangChain's messages, results first.

    Who marks takes a word of the system's only before all else: later it is told as the user's.
    """
    opening: list[AnyMessage] = []
    made: list[AnyMessage] = []
    said: list[Block] = []
    for block in content:
        thing: Any = stand_ins.thing(block)
        if block.get("type") == "tool_result":
            made.append(_result(block, stand_ins, marks))
        elif not isinstance(thing, SystemMessage):
            said.append(_put_back(block, stand_ins, marks))
        elif first:
            opening.append(thing)
        elif marks:
            said += _list(cast(Any, thing.content))
            said[-1] = {**said[-1], **({_MARK: block[_MARK]} if _MARK in block else {})}
        else:
            made += [HumanMessage(content=cast(Any, said)), thing] if said else [thing]
            said = []
    return [*opening, *made, *([HumanMessage(content=cast(Any, said))] if said else [])]


def _put_back(block: Block, stand_ins: Placeholders, marks: bool) -> Block:
    """Return what a block stands for, with its mark where the provider reads marks."""
    thing: Block | None = stand_ins.thing(block)
    if thing is None:
        return block if marks else _bare(block)
    if not marks or _MARK not in block:
        return thing
    link: Any = thing.get("image_url")
    if isinstance(link, dict):  # of this form LangChain drops the mark: of the other it makes the same and keeps it
        thing = {"type": "image", "url": cast(Block, link).get("url", "")}
    return {**thing, _MARK: block[_MARK]}


def _reply(content: list[Block]) -> AIMessage:
    calls = [
        {"type": "tool_call", "id": block["id"], "name": block["name"], "args": block["input"]}
        for block in content
        if block.get("type") == "tool_use"
    ]
    rest = [block for block in content if block.get("type") != "tool_use"]
    return AIMessage(content=cast(Any, rest), tool_calls=cast(Any, calls))


def _result(block: Block, stand_ins: Placeholders, marks: bool) -> ToolMessage:
    """Return a result; for a provider that marks as its own block, which a mark does not change the shape of."""
    status = "error" if block.get("is_error") else "success"
    content: Any = block.get("content", "")
    if not isinstance(content, str):
        content = [_put_back(one, stand_ins, marks) for one in cast("list[Block]", content)]
    if marks:
        content = [{**block, "content": content or "(no output)"}]
    return ToolMessage(content=content, tool_call_id=block["tool_use_id"], status=status)
