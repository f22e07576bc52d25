"""Translate Pydantic AI's messages to the wire's shape and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai.messages import (
    CachePoint,
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_core import to_jsonable_python

from ..cache.usage import Usage
from ..conversation.authorship import text_of
from ..conversation.entries import new_uuid
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from .history_pieces import (
    Block,
    HistoryTranslator,
    Placeholders,
    block_list,
    content_key,
    detached,
    has_thought,
    reply_key,
)

Body = dict[str, Any]
_ANTHROPIC: Final = "anthropic"
_REDACTED: Final = "redacted_thinking"
_MARK: Final = "cache_control"
_RETRY: Final = "retry"
_ERRORS: Final = frozenset({"failed", "retried"})
_OTHERS_MARKS: Final = (
    "cache",
    "anthropic_cache",
    "anthropic_cache_messages",
    "anthropic_cache_tool_definitions",
    "anthropic_cache_instructions",
)


def wire_reply(response: ModelResponse) -> Body:
    """Return a response as a reply in the wire's shape."""
    usage = response.usage
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    uncached = max(0, usage.input_tokens - read - written)
    return {
        "id": response.provider_response_id or new_uuid(),  # two responses without an id are different ones
        "model": response.model_name or "",
        "role": "assistant",
        "content": _reply_blocks(response, Placeholders()),
        "stop_reason": response.finish_reason,
        "usage": Usage(read, written, uncached=uncached, output=usage.output_tokens).body(),
    }


def _reply_blocks(response: ModelResponse, placeholders: Placeholders) -> list[Block]:
    blocks: list[Block] = []
    for part in response.parts:
        if isinstance(part, TextPart):
            blocks += [{"type": "text", "text": part.content}] if part.content else []
        elif isinstance(part, ToolCallPart):
            given = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            blocks.append({"type": "tool_use", **given})
        elif isinstance(part, ThinkingPart):
            blocks += _thinking_blocks(part)
        else:
            blocks.append(placeholders.block(part.part_kind, part, _says(part)))
    return blocks


def _thinking_blocks(part: ThinkingPart) -> list[Block]:
    """Return thinking as a list of blocks; an empty one for thinking that is not of this wire or has no signature."""
    if part.provider_name != _ANTHROPIC or not part.signature:
        return []
    if part.id == _REDACTED:
        return [{"type": _REDACTED, "data": part.signature}]
    return [{"type": "thinking", "thinking": part.content, "signature": part.signature}]


def _says(thing: Any) -> Any:
    """Return an object of Pydantic AI's as JSON values that are the same after it was stored and loaded."""
    if getattr(thing, "part_kind", "").startswith(_RETRY):
        return to_jsonable_python(thing.content, fallback=repr)
    said: Any = to_jsonable_python(thing, bytes_mode="base64", fallback=repr)
    if not isinstance(said, dict):
        return said
    return {key: value for key, value in cast(Body, said).items() if key != "timestamp"}


class PydanticTranslator(HistoryTranslator[ModelResponse, ModelMessage]):
    """Translates a run's messages to the wire's shape and back.

    The translation back depends on whether messages have cache marks, and on the system prompt's parts in them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[str, tuple[bytes, ToolReturnPart]] = {}
        self._systems: list[SystemPromptPart] = []
        self._system = ""
        self._prompts: dict[str, tuple[list[SystemPromptPart], list[InstructionPart]]] = {}
        """The parts of every system prompt of this run, by its text."""

    def request(self, context: ModelRequestContext) -> Body:
        """Return a request in the wire's shape; it must begin with the messages that were translated before."""
        for message in context.messages[len(self._told) :]:
            if isinstance(message, ModelResponse):
                blocks = _reply_blocks(message, self._placeholders)
                self._replies.add(reply_key(blocks), message)
                self._wired.append({"role": "assistant", "content": blocks})
            else:
                self._wired.append({"role": "user", "content": self._blocks(message, first=not self._wired)})
            self._told += detached(self._facts([message]))
        parameters = context.model_request_parameters
        system = "\n\n".join(
            [*(part.content for part in self._systems), *(part.content for part in parameters.instruction_parts or ())]
        )
        self._system = system
        self._prompts[system] = list(self._systems), list(parameters.instruction_parts or ())
        settings = cast("Mapping[str, Any]", context.model_settings or {})
        tools = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
            for tool in (*parameters.function_tools, *parameters.output_tools)
        ]
        return {
            "model": context.model.model_name,
            "max_tokens": settings.get("max_tokens") or DEFAULT_MAX_TOKENS,
            "messages": list(self._wired),
            "tools": tools,
            **({"system": system} if system else {}),
        }

    def _blocks(self, message: ModelRequest, *, first: bool) -> list[Block]:
        blocks: list[Block] = []
        for part in message.parts:
            if isinstance(part, SystemPromptPart) and first:
                self._systems.append(part)
            elif isinstance(part, ToolReturnPart):
                blocks.append(self._result(part))
            elif isinstance(part, UserPromptPart):
                blocks += self._prompt(part)
            else:
                kind = _RETRY if part.part_kind.startswith(_RETRY) else part.part_kind
                blocks.append(self._placeholders.block(kind, part, _says(part)))
        return blocks

    def _result(self, part: ToolReturnPart) -> Block:
        text = part.content if isinstance(part.content, str) else part.model_response_str()
        content: str | list[Block] = text
        if part.files:
            content = [{"type": "text", "text": text}, self._placeholders.block("files", part.files, _says(part.files))]
        self._results[part.tool_call_id] = content_key(content), part
        block: Block = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": content}
        return {**block, "is_error": True} if part.outcome in _ERRORS else block

    def _prompt(self, part: UserPromptPart) -> list[Block]:
        if isinstance(part.content, str):
            return [{"type": "text", "text": part.content}] if part.content else []
        blocks: list[Block] = []
        for item in part.content:
            if isinstance(item, str):
                blocks.append({"type": "text", "text": item})
            elif not isinstance(item, CachePoint):
                blocks.append(self._placeholders.block(item.kind, item, _says(item)))
        return blocks

    # -- from the wire to Pydantic AI

    def overridden(self, context: ModelRequestContext, sent: Body) -> ModelRequestContext:
        """Return the context with the session's view as messages, for Anthropic with our cache breakpoints alone."""
        marks = context.model.system == _ANTHROPIC
        context, systems = self._with_system(context, sent)
        messages = self.translated_back(sent["messages"], (marks, list(systems)))
        last = next((one for one in reversed(context.messages) if isinstance(one, ModelRequest)), None)
        if last is not None and isinstance(messages[-1], ModelRequest):
            messages[-1] = replace(last, parts=messages[-1].parts)
        if not marks:
            return replace(context, messages=messages)
        settings = cast("dict[str, Any]", dict(context.model_settings or {}))
        settings = {key: value for key, value in settings.items() if key not in _OTHERS_MARKS}
        system = block_list(sent.get("system") or "")
        if system and _MARK in system[-1]:
            settings["anthropic_cache_instructions"] = _ttl(system[-1])
        settings.setdefault("anthropic_cache", False)
        headers: Mapping[str, str] = sent.get("extra_headers") or {}
        if named := headers.get("anthropic-beta"):
            settings["anthropic_betas"] = [*settings.get("anthropic_betas", ()), *named.split(",")]
        return replace(context, messages=messages, model_settings=cast(Any, settings))

    def _with_system(
        self, context: ModelRequestContext, sent: Body
    ) -> tuple[ModelRequestContext, list[SystemPromptPart]]:
        """Return the context with the system prompt that the session sends; its changes are among the messages."""
        text = "".join(str(block.get("text", "")) for block in block_list(sent.get("system") or ""))
        if text == self._system or not text:
            return context, self._systems
        systems, parts = self._prompts.get(text, ([], [InstructionPart(content=text)]))
        parameters = replace(context.model_request_parameters, instruction_parts=parts)
        return replace(context, model_request_parameters=parameters), systems

    def _facts(self, history: Sequence[ModelMessage]) -> list[Any]:
        """Return the parts of messages that count in a comparison; a result's metadata does not count."""
        return [[message.kind, *map(_part_facts, message.parts)] for message in history]

    def _user_items(self, content: list[Block]) -> list[ModelMessage]:
        marks, systems = self._shown
        opens = not any(isinstance(one, ModelRequest) for found in self._found[:2] for one in found)
        parts = list[ModelRequestPart](systems) if opens else []
        owed = _mark_of(self._sent[-1]) if marks and self._sent else None
        if owed is not None:  # a mark on the reply before becomes a cache point at the start of this message
            parts.append(UserPromptPart([CachePoint(ttl=cast(Any, owed))]))
        return [ModelRequest(parts=[*parts, *self._parts(content, marks)])]

    def _reply_items(self, reply: ModelResponse | None, content: list[Block]) -> list[ModelMessage]:
        """Return a response as the run has it, without thinking that the session dropped; a new one for None."""
        if reply is None:
            return [self._reply(content)]
        thoughts = [part for part in reply.parts if isinstance(part, ThinkingPart) and _thinking_blocks(part)]
        if not thoughts or has_thought(content):
            return [reply]
        return [replace(reply, parts=[part for part in reply.parts if part not in thoughts])]

    def _reply(self, content: list[Block]) -> ModelResponse:
        parts: list[Any] = []
        for block in content:
            kind = block.get("type")
            if kind == "tool_use":
                parts.append(ToolCallPart(block["name"], block["input"], block["id"]))
            elif kind == "text":
                parts.append(self._placeholders.thing(block) or TextPart(block["text"]))
            else:
                parts += _signed_parts(block)
        return ModelResponse(parts=parts, provider_name=_ANTHROPIC)

    def _parts(self, content: Sequence[Block], marks: bool) -> list[ModelRequestPart]:
        parts: list[ModelRequestPart] = []
        said: list[Any] = []
        for block in content:
            thing = self._placeholders.thing(block)
            if block.get("type") == "tool_result":
                parts.append(self._returned(block))
            elif thing is not None and hasattr(thing, "part_kind"):
                parts += [UserPromptPart(said)] if said else []
                said = []
                parts.append(thing)
            else:
                said.append(thing if thing is not None else block.get("text", ""))
            if marks and _MARK in block:
                said.append(CachePoint(ttl=cast(Any, _ttl(block))))
                if block.get("type") == "tool_result":
                    parts.append(UserPromptPart(said))
                    said = []
        return [*parts, UserPromptPart(said)] if said else parts

    def _returned(self, block: Block) -> ToolReturnPart:
        called = block["tool_use_id"]
        digest, part = self._results.get(called, (b"", None))
        content: Any = block.get("content", "")
        if part is not None and digest == content_key(content):
            return part
        text = text_of(block)
        if part is not None:
            return ToolReturnPart(part.tool_name, text, called, outcome=part.outcome)
        outcome = "failed" if block.get("is_error") else "success"
        calls = [one for message in self._sent for one in block_list(message["content"]) if one.get("id") == called]
        return ToolReturnPart(calls[-1]["name"] if calls else "tool", text, called, outcome=outcome)


def _signed_parts(block: Block) -> list[Any]:
    """Return thinking, or a provider's summary, as a list of one part; an empty one for other blocks."""
    match block.get("type"):
        case "thinking":
            return [ThinkingPart(block["thinking"], signature=block["signature"], provider_name=_ANTHROPIC)]
        case "redacted_thinking":
            return [ThinkingPart("", id=_REDACTED, signature=block["data"], provider_name=_ANTHROPIC)]
        case "compaction":
            details = {"signature": block["signature"]} if "signature" in block else None
            return [CompactionPart(block.get("content"), provider_name=_ANTHROPIC, provider_details=details)]
        case _:
            return []


def _part_facts(part: Any) -> Any:
    if isinstance(part, ToolReturnPart):
        return [part.tool_name, part.content, part.tool_call_id, part.outcome]
    return getattr(part, "__dict__", part)


def _mark_of(message: Body) -> str | None:
    """Return the lifetime of the cache mark on a reply; None for a reply without a mark and for other messages."""
    if message["role"] != "assistant":
        return None
    return next((_ttl(block) for block in block_list(message["content"]) if _MARK in block), None)


def _ttl(block: Block) -> str:
    return str(block[_MARK].get("ttl", "5m"))
