"""Translate LangChain's messages to the wire's shape and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, cast

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from ..cache.usage import Usage
from ..conversation.entries import new_uuid
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from .history_pieces import (
    THOUGHT,
    Block,
    HistoryTranslator,
    Placeholders,
    block_list,
    detached,
    has_thought,
    reply_key,
)

Body = dict[str, Any]
_ANTHROPIC: Final = "anthropic-chat"
_MARK: Final = "cache_control"


def wire_request(request: ModelRequest[Any], translator: LangChainTranslator) -> Body:
    """Return a model request in the wire's shape; tools of the provider's own are left out."""
    system = request.system_message
    body: Body = {
        "model": _model_name(request.model),
        "max_tokens": getattr(request.model, "max_tokens", None) or DEFAULT_MAX_TOKENS,
        "messages": translator.history(request.messages),
        "tools": [tool for one in request.tools if (tool := _tool(one)) is not None],
    }
    return {**body, "system": block_list(system.content)} if system is not None and system.content else body


def wire_message(message: AnyMessage, placeholders: Placeholders) -> Body:
    """Return a message in the wire's shape, with placeholders for blocks that the wire does not know."""
    if isinstance(message, ToolMessage):
        content = result_content(message, placeholders)
        block: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        if message.status == "error":
            block["is_error"] = True
        return {"role": "user", "content": [block]}
    if isinstance(message, AIMessage):
        return {"role": "assistant", "content": reply_blocks(message)}
    if isinstance(message, SystemMessage):
        said = cast(Any, message.content)
        own = [{"role": "system", "content": said}]
        return {"role": "user", "content": [placeholders.block("system", message, said)], "own": own, "stands": True}
    return {"role": "user", "content": _wired(message.content, placeholders)}


def _wired(content: Any, placeholders: Placeholders) -> str | list[Block]:
    """Return content with placeholders for blocks that the wire does not know, such as LangChain's own images."""
    if isinstance(content, str):
        return content
    return [
        block if _is_wires(block) else placeholders.block(str(block.get("type")), _unmarked(block))
        for block in block_list(content)
    ]


def _is_wires(block: Block) -> bool:
    kind = block.get("type")
    return kind in ("text", "tool_result") or (kind in ("image", "document") and "source" in block)


def _unmarked(block: Block) -> Block:
    beside = {key: _bare(block[key]) for key in ("extras", "metadata") if isinstance(block.get(key), dict)}
    return {**_bare(block), **beside}


def reply_blocks(message: AIMessage) -> list[Block]:
    """Return a reply as a list of blocks in the wire's shape: its content without empty texts, then its calls."""
    blocks = [block for block in block_list(message.content) if block.get("type") not in ("tool_use", "tool_call")]
    blocks = [{key: value for key, value in block.items() if key != "index"} for block in blocks]
    for block in blocks:
        if block.get("type") == "thinking":
            block.setdefault("thinking", "")  # a stream without words has only the signature
    calls = [
        {"type": "tool_use", "id": call["id"] or "", "name": call["name"], "input": call["args"]}
        for call in message.tool_calls
    ]
    return [*(block for block in blocks if block.get("type") != "text" or block.get("text")), *calls]


def wire_reply(response: Any) -> Body:
    """Return the first AI message of a response as a reply in the wire's shape, with its token usage."""
    if isinstance(response, ExtendedModelResponse):
        response = cast(Any, response).model_response
    result = cast("Sequence[Any]", response.result) if isinstance(response, ModelResponse) else [response]
    message = next(one for one in result if isinstance(one, AIMessage))
    said: Mapping[str, Any] = message.response_metadata
    return {
        "id": str(said.get("id") or message.id or new_uuid()),  # two replies without an id are different ones
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
    uncached = max(0, found["input_tokens"] - read - written)
    return Usage(read, written, uncached=uncached, output=found["output_tokens"]).body()


def result_content(message: ToolMessage, placeholders: Placeholders) -> str | list[Block]:
    """Return a tool's output in the wire's shape."""
    return _wired(message.content, placeholders)


def with_preview(message: ToolMessage, shown: str | list[Block] | None) -> ToolMessage:
    """Return a copy of a tool's message with the given content; the same message if that is None or no change."""
    placeholders = Placeholders()
    if shown is None or shown == result_content(message, placeholders):
        return message
    content = shown if isinstance(shown, str) else [_put_back(block, placeholders, marks=False) for block in shown]
    return message.model_copy(update={"content": content})


def _tool(tool: Any) -> Block | None:
    """Return a tool's declaration in the wire's shape; None if LangChain cannot convert the tool to a function."""
    try:
        known = convert_to_openai_tool(tool)["function"]
    except (ValueError, TypeError, KeyError):
        return None
    schema: Any = known.get("parameters") or {"type": "object", "properties": {}}
    return {"name": known["name"], "description": known.get("description", ""), "input_schema": schema}


def _model_name(model: Any) -> str:
    return str(getattr(model, "model", "") or getattr(model, "model_name", "") or "")


# -- from the wire to LangChain


class LangChainTranslator(HistoryTranslator[AIMessage, AnyMessage]):
    """Translates an agent's messages to the wire's shape and back."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()
        """Held during a translation, because an agent may run on several threads."""

    def history(self, messages: Sequence[AnyMessage]) -> list[Body]:
        """Return a history in the wire's shape; it must begin with the messages that were translated before."""
        for message in messages[len(self._told) :]:
            wired = wire_message(message, self._placeholders)
            if isinstance(message, AIMessage):
                self._replies.add(reply_key(wired["content"]), message)
            self._wired.append(wired)
            self._told += detached(self._facts([message]))
        return list(self._wired)

    def overridden(self, request: ModelRequest[Any], sent: Body) -> ModelRequest[Any]:
        """Return the request with the session's view as messages, for Anthropic with our cache breakpoints alone."""
        marks = str(getattr(request.model, "_llm_type", "")) == _ANTHROPIC
        with self.lock:
            changes: dict[str, Any] = {"messages": self.translated_back(_movable(sent["messages"]), marks)}
        if marks:
            changes["model_settings"] = _settings(request, sent)
            changes["tools"] = [_untagged(tool) for tool in request.tools]
        system = [block if marks else _bare(block) for block in block_list(sent.get("system") or "")]
        given = request.system_message
        if given is not None and system and (marks or system != block_list(given.content)):
            changes["system_message"] = SystemMessage(content=cast(Any, system))  # its changes are among the messages
        return request.override(**changes)

    def _facts(self, history: Sequence[AnyMessage]) -> list[Any]:
        return [
            [one.type, one.content, one.tool_call_id, one.status]
            if isinstance(one, ToolMessage)
            else [one.type, one.content, one.tool_calls if isinstance(one, AIMessage) else None]
            for one in history
        ]

    def _reply_items(self, reply: AIMessage | None, content: list[Block]) -> list[AnyMessage]:
        """Return a reply as the agent has it, without its thinking if the session dropped that; a new one for None."""
        if reply is None:
            return [_reply([_bare(block) for block in content])]
        if has_thought(content) or not has_thought(reply_blocks(reply)):
            return [reply]
        left = [block for block in block_list(reply.content) if block.get("type") not in THOUGHT]
        return [reply.model_copy(update={"content": left})]

    def _user_items(self, content: list[Block]) -> list[AnyMessage]:
        return _user_messages(content, self._placeholders, self._shown, first=not self._found)


def _settings(request: ModelRequest[Any], sent: Body) -> Body:
    """Return the settings of a request without cache marks, and with the betas that its messages need."""
    settings = {key: value for key, value in request.model_settings.items() if key != _MARK}
    headers: Mapping[str, str] = sent.get("extra_headers") or {}
    if named := headers.get("anthropic-beta"):
        given: list[str] = settings.get("betas") or getattr(request.model, "betas", None) or []
        settings["betas"] = list(dict.fromkeys([*given, *named.split(",")]))
    return settings


def _untagged(tool: Any) -> Any:
    """Return a tool without the cache breakpoint of another middleware."""
    if isinstance(tool, dict):
        return _bare(cast(Block, tool))
    extras: Mapping[str, Any] | None = getattr(tool, "extras", None)
    if not extras or _MARK not in extras:
        return tool
    return tool.model_copy(update={"extras": _bare(dict(extras)) or None})


def _movable(messages: Sequence[Body]) -> list[Body]:
    """Return messages with each breakpoint of a reply on the message before: LangChain would lose it with the calls."""
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


def _user_messages(
    content: Sequence[Block], placeholders: Placeholders, marks: bool, *, first: bool
) -> list[AnyMessage]:
    """Return a user's wire content as LangChain messages, results first.

    A provider with cache marks takes a system message only at the start, so a later one becomes a user's text.
    """
    opening: list[AnyMessage] = []
    made: list[AnyMessage] = []
    said: list[Block] = []
    for block in content:
        thing: Any = placeholders.thing(block)
        if block.get("type") == "tool_result":
            made.append(_result(block, placeholders, marks))
        elif not isinstance(thing, SystemMessage):
            said.append(_put_back(block, placeholders, marks))
        elif first:
            opening.append(thing)
        elif marks:
            said += block_list(cast(Any, thing.content))
            said[-1] = {**said[-1], **({_MARK: block[_MARK]} if _MARK in block else {})}
        else:
            made += [HumanMessage(content=cast(Any, said)), thing] if said else [thing]
            said = []
    return [*opening, *made, *([HumanMessage(content=cast(Any, said))] if said else [])]


def _put_back(block: Block, placeholders: Placeholders, marks: bool) -> Block:
    """Return the host's block for a placeholder, any other block itself; cache marks stay only if ``marks``."""
    thing: Block | None = placeholders.thing(block)
    if thing is None:
        return block if marks else _bare(block)
    if not marks or _MARK not in block:
        return thing
    link: Any = thing.get("image_url")
    if isinstance(link, dict):  # LangChain drops the mark of this form, and keeps it on the equivalent one
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


def _result(block: Block, placeholders: Placeholders, marks: bool) -> ToolMessage:
    """Return a result as a ``ToolMessage``; with ``marks`` it holds the provider's block in its own shape."""
    status = "error" if block.get("is_error") else "success"
    content: Any = block.get("content", "")
    if not isinstance(content, str):
        content = [_put_back(one, placeholders, marks) for one in cast("list[Block]", content)]
    if marks:
        content = [{**block, "content": content or "(no output)"}]
    return ToolMessage(content=content, tool_call_id=block["tool_use_id"], status=status)
