"""Translate the items of OpenAI Agents to the wire's shape and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from agents import Agent, FunctionTool, ModelResponse
from agents.run_config import CallModelData

from ..cache.usage import Usage
from ..conversation.authorship import text_of
from ..conversation.entries import ASSISTANT, Entry, new_uuid
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from ..models.content_parts import tool_input
from .history_pieces import Block, HistoryTranslator, Placeholders, block_list, detached, reply_key
from .session_history import OWN

Body = dict[str, Any]
_STANDING: Final = frozenset({"compaction", "developer", "system"})
"""Items that our compaction never removes, because nothing could replace them."""
_encode: Final = msgspec.json.Encoder().encode


def model_name(agent: Agent[Any]) -> str:
    """Return the name of an agent's model; an empty string if it has none."""
    model = agent.model
    return model if isinstance(model, str) else str(getattr(model, "model", "") or "")


def wire_reply(response: ModelResponse, model: str) -> Body:
    """Return a response as a reply in the wire's shape, which also holds the response's own items."""
    items = cast("list[Body]", response.to_input_items())
    messages = OpenAITranslator().messages(items)
    usage = response.usage
    cached = usage.input_tokens_details.cached_tokens or 0
    written = usage.input_tokens_details.cache_write_tokens or 0
    uncached = max(0, usage.input_tokens - cached - written)
    return {
        "id": response.response_id
        or response.request_id
        or new_uuid(),  # two responses without an id are different ones
        "model": model,
        "role": "assistant",
        "content": [block for message in messages for block in message["content"]],
        "usage": Usage(cached, written, uncached=uncached, output=usage.output_tokens).body(),
        OWN: items,
    }


class OpenAITranslator(HistoryTranslator[list[Body], Body]):
    """Translates items to the wire's shape and back."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: dict[str, Body] = {}
        self._called: set[str] = set()

    def request(self, data: CallModelData[Any]) -> Body:
        """Return a model's input in the wire's shape; only function tools are included."""
        agent, given = data.agent, data.model_data
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.params_json_schema}
            for tool in agent.tools
            if isinstance(tool, FunctionTool)
        ]
        body: Body = {
            "model": model_name(agent),
            "max_tokens": agent.model_settings.max_tokens or DEFAULT_MAX_TOKENS,
            "messages": self.history(cast("list[Body]", given.input)),
            "tools": tools,
        }
        return {**body, "system": given.instructions} if given.instructions else body

    @property
    def held_elsewhere(self) -> bool:
        """Whether the history has tool outputs but no replies, because the provider keeps the replies."""
        return not self._called.issuperset(self._outputs) and all(one["role"] == "user" for one in self._wired)

    def history(self, items: Sequence[Body]) -> list[Body]:
        """Return a history as wire messages; it must begin with the items translated before, which are reused."""
        if self._wired and self._wired[-1]["role"] == "assistant":  # the reply may have grown
            last = self._wired.pop()
            self._replies.drop(reply_key(last["content"]))
            del self._told[-len(last["own"]) :]
        new = items[len(self._told) :]
        self._wired += self.messages(new)
        self._told += map(detached, new)
        return list(self._wired)

    def messages(self, items: Sequence[Body]) -> list[Body]:
        """Return items as wire messages: neighbouring items of the model as one reply, others one by one."""
        messages: list[Body] = []
        reply: list[Body] = []
        for item in items:
            if _is_models(item):
                reply.append(item)
                continue
            messages += self._reply(reply)
            reply = []
            messages.append(self._saying(item))
        return [*messages, *self._reply(reply)]

    def _reply(self, items: list[Body]) -> list[Body]:
        if not items:
            return []
        blocks: list[Block] = []
        for item in items:
            kind = item.get("type", "message")
            if kind == "message":
                text = _text(item.get("content"))
                blocks += [{"type": "text", "text": text}] if text else []
            elif kind == "function_call":
                given = tool_input(str(item.get("arguments") or "{}"))
                self._called.add(str(item["call_id"]))
                blocks.append({"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": given})
            elif kind != "reasoning":
                blocks.append(self._placeholders.block(kind, item))
        self._replies.add(reply_key(blocks), items)
        return [{"role": "assistant", "content": blocks, "own": items}]

    def _saying(self, item: Body) -> Body:
        """Return an item as a user's message, with the item itself where the wire's form holds less."""
        blocks = self._user_blocks(item)
        if all(self._placeholders.thing(block) is None for block in blocks):
            return {"role": "user", "content": blocks}
        stands = (item.get("role") or item.get("type")) in _STANDING
        return {"role": "user", "content": blocks, "own": [item], "stands": stands}

    def _user_blocks(self, item: Body) -> list[Block]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            called = str(item["call_id"])
            output: Any = item.get("output")
            self._outputs[called] = item
            content = output if isinstance(output, str) else [self._part(one) for one in output or ()]
            return [{"type": "tool_result", "tool_use_id": called, "content": content}]
        if kind != "message" or item.get("role") != "user":
            return [self._placeholders.block(str(item.get("role") or kind), item)]
        content = item.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [self._part(part) for part in cast("list[Body]", content or [])]

    def _part(self, part: Body) -> Block:
        if part.get("type") in ("input_text", "output_text", "text"):
            return {"type": "text", "text": str(part.get("text", ""))}
        return self._placeholders.block(str(part.get("type")), part)

    # -- from the wire to items

    def _reply_items(self, reply: list[Body] | None, content: list[Block]) -> list[Body]:
        return reply or reply_items(content, self._placeholders)

    def _user_items(self, content: list[Block]) -> list[Body]:
        items: list[Body] = []
        said: list[Body] = []
        for block in content:
            thing = self._placeholders.thing(block)
            if block.get("type") == "tool_result":
                items.append(self._output(block))
            elif thing is not None and not str(thing.get("type", "")).startswith("input_"):  # a separate item
                items += _said(said)
                said = []
                items.append(thing)
            else:
                said.append(thing if thing is not None else _input_text(block.get("text", "")))
        return [*items, *_said(said)]

    def _output(self, block: Block) -> Body:
        called, content = block["tool_use_id"], block.get("content", "")
        known = self._outputs.get(called)
        if known is not None and not isinstance(known.get("output"), str):
            parts = block_list(content)
            return {**known, "output": [self._placeholders.thing(one) or _input_text(one["text"]) for one in parts]}
        return {**(known or {"type": "function_call_output", "call_id": called}), "output": text_of(block)}


def reply_items(content: Sequence[Block], placeholders: Placeholders) -> list[Body]:
    """Return a list of items for a reply's texts and calls; a placeholder gives the host's own item."""
    items: list[Body] = []
    for block in content:
        if block.get("type") == "tool_use":
            call = {"type": "function_call", "call_id": block["id"], "name": block["name"]}
            items.append({**call, "arguments": _encode(block["input"]).decode()})
        elif block.get("type") == "text":
            items.append(placeholders.thing(block) or {"role": "assistant", "content": block["text"]})
    return items


def items_of(entry: Entry) -> list[Body]:
    """Return a logged message as items: the host's own if the log holds them, else new ones."""
    given: Any = (entry.reply if entry.kind == ASSISTANT else entry.body).get(OWN)
    if isinstance(given, list):
        return cast("list[Body]", given)
    content = block_list((entry.message or {}).get("content") or "")
    if entry.kind == ASSISTANT:
        return reply_items(content, Placeholders())
    return OpenAITranslator().translated_back([{"role": "user", "content": content}])


def system_text(request: Body) -> str:
    """Return the text of the system prompt of a request."""
    return "".join(str(block.get("text", "")) for block in block_list(request.get("system") or ""))


def _is_models(item: Mapping[str, Any]) -> bool:
    """Return whether an item is the model's: words, reasoning or a call."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return kind == "reasoning" or kind.endswith("_call")


def _input_text(text: str) -> Body:
    return {"type": "input_text", "text": text}


def _said(parts: list[Body]) -> list[Body]:
    """Return a list with a user's parts as one item, empty without parts; a single text becomes a plain string."""
    if not parts:
        return []
    plain = len(parts) == 1 and parts[0].get("type") == "input_text"
    return [{"role": "user", "content": parts[0]["text"] if plain else parts}]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Body]", content or [])
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts).strip()
