"""A conversation in LangChain's format, for the two peers that are built on it."""

from __future__ import annotations

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from wire import Item, Play

__all__ = ["Builder", "Scripted", "items_of", "message_of"]


class Scripted(BaseChatModel):
    """A model that only writes summaries, with a fixed text."""

    play: Any
    profile: Any = None

    @property
    def _llm_type(self) -> str:
        return "anthropic-chat-scripted"  # so that tokens are counted as they are for this provider

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kw: Any
    ) -> ChatResult:
        said = self.play.sum_up("\n".join(message.text for message in messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


class Builder:
    """Converts messages to the provider's format, as LangChain's own client does before every call."""

    def __init__(self, play: Play) -> None:
        self._client = ChatAnthropic(model_name="claude-sonnet-4-5", api_key="none", max_tokens=8_000)
        self._system = SystemMessage(play.system)
        self._tools = play.tools

    def built(self, messages: list[AnyMessage]) -> dict[str, Any]:
        """Return the request."""
        return self._client._get_request_payload([self._system, *messages], tools=self._tools)


def message_of(item: Item, at: int) -> AnyMessage:
    """Return an item as LangChain's message."""
    blocks = item["blocks"]
    if item["role"] == "tool":
        block = blocks[0]
        status = "error" if block.get("is_error") else "success"
        return ToolMessage(block["content"], tool_call_id=block["tool_use_id"], status=status, id=f"item-{at}")
    if item["role"] == "user":
        return HumanMessage(blocks, id=f"item-{at}")
    calls = [
        {"name": block["name"], "args": block["input"], "id": block["id"], "type": "tool_call"}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return AIMessage(blocks, tool_calls=calls, id=f"item-{at}")


def items_of(messages: list[AnyMessage], numbers: dict[int, int]) -> list[int | Item]:
    """Return messages as items: by number if they are input items."""
    return [numbers[id(message)] if id(message) in numbers else _made(message) for message in messages]


def _made(message: AnyMessage) -> Item:
    if isinstance(message, ToolMessage):
        block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
        return {"role": "tool", "blocks": [block]}
    if not isinstance(message, AIMessage):
        return {"role": "user", "blocks": [{"type": "text", "text": message.text}]}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
    for call in message.tool_calls:
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]})
    return {"role": "assistant", "blocks": blocks}
