"""The requests of OpenHands' default condenser, turn by turn.

The agent's work before a call is timed: condense and turn events into messages (``decide``), then convert these to
the wire format. A condensation is a separate event, after which the agent asks again; both are counted.
"""

from __future__ import annotations

import json
import logging
import os
from importlib.metadata import version
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from openhands.sdk.agent.utils import prepare_llm_messages
from openhands.sdk.context.condenser.llm_summarizing_condenser import LLMSummarizingCondenser, default_condenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent, SystemPromptEvent
from openhands.sdk.event.condenser import CondensationSummaryEvent
from openhands.sdk.llm import LLMResponse, Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool.schema import Observation
from pydantic import PrivateAttr
from wire import Item, Play, clock, main

logging.disable(logging.CRITICAL)


class Scripted(TestLLM):
    """A model that only writes summaries, with a fixed text."""

    _play: Any = PrivateAttr(default=None)

    def completion(self, messages: list[Message], *args: Any, **options: Any) -> LLMResponse:
        """Answer a request for a summary."""
        texts = [part.text for message in messages for part in message.content if isinstance(part, TextContent)]
        said = Message(role="assistant", content=[TextContent(text=self._play.sum_up("\n".join(texts)))])
        self._scripted_responses.append(said)
        return super().completion(messages, *args, **options)


class Output(Observation):
    """The output of a tool."""


def events_of(item: Item, at: int, actions: dict[str, ActionEvent]) -> list[Any]:
    """Return an item as OpenHands' events."""
    blocks = item["blocks"]
    texts = [TextContent(text=block["text"]) for block in blocks if block["type"] == "text"]
    if item["role"] == "user":
        return [MessageEvent(source="user", llm_message=Message(role="user", content=texts))]
    if item["role"] == "tool":
        block = blocks[0]
        called = actions[block["tool_use_id"]]
        observed = Output.from_text(block["content"], is_error=bool(block.get("is_error")))
        names = {"tool_name": called.tool_name, "tool_call_id": called.tool_call_id, "action_id": called.id}
        return [ObservationEvent(observation=observed, **names)]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if not calls:
        return [MessageEvent(source="agent", llm_message=Message(role="assistant", content=texts))]
    events: list[Any] = []
    for block in calls:
        call = MessageToolCall(
            id=block["id"], name=block["name"], arguments=json.dumps(block["input"]), origin="completion"
        )
        thought = [] if events else texts
        names = {"tool_name": block["name"], "tool_call_id": block["id"], "llm_response_id": f"reply-{at}"}
        actions[block["id"]] = ActionEvent(thought=thought, tool_call=call, **names)
        events.append(actions[block["id"]])
    return events


def items_of(view: View, numbers: dict[str, int]) -> list[int | Item]:
    """Return a view as items; the calls of one reply are one item."""
    found: list[int | Item] = []
    for event in view.events:
        if isinstance(event, CondensationSummaryEvent):
            found.append({"role": "user", "blocks": [{"type": "text", "text": event.summary}]})
        elif event.id in numbers and (not found or found[-1] != numbers[event.id]):
            found.append(numbers[event.id])
    return found


def play(played: Play) -> dict[str, Any]:
    """Play a conversation."""
    model = Scripted(model="scripted", usage_id="peer")
    agent = Scripted(model="scripted", usage_id="agent", max_input_tokens=played.window if played.tells else None)
    model._play = agent._play = played
    # To be measured while nothing is due it must not act on the number of events either.
    condenser = default_condenser(model) if played.tells else LLMSummarizingCondenser(llm=model, max_size=10**9)
    view = View()
    view.append_event(SystemPromptEvent(source="agent", system_prompt=TextContent(text=played.system), tools=[]))
    numbers: dict[str, int] = {}
    actions: dict[str, ActionEvent] = {}
    taken = 0
    for end in played.turns:
        for at in range(taken, end):
            for event in events_of(played.items[at], at, actions):
                numbers[event.id] = at
                view.append_event(event)
        taken = end
        start = clock()
        found = prepare_llm_messages(view, condenser=condenser, llm=agent)
        while isinstance(found, Condensation):
            view.append_event(found)
            found = prepare_llm_messages(view, condenser=condenser, llm=agent)
        decided = clock() - start
        start = clock()
        agent.format_messages_for_llm(found)
        played.sent(decided, clock() - start, items_of(view, numbers) if played.tells else [])
    return played.told(version("openhands-sdk"), f"its default agent's: summary above {condenser.max_size} events")


if __name__ == "__main__":
    main(play)
