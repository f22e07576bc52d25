"""Thinking goes back with the calls that it led to, while their tool round is open: by model and mode of thinking.

Pages: build-with-claude/thinking (thinking-with-tool-use), extended-thinking (turn-structure-in-manual-mode),
thinking-steering-and-cost (turn-validation), thinking-troubleshooting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raw_requests import RawConversation
from reverie.testing.messages_server import MessagesServer
from reverie.testing.messages_server.thinking import ReturnedCalls

pytestmark = pytest.mark.requirement("V10")

READ = {"name": "Read", "input_schema": {"type": "object"}}
MANUAL = {"type": "enabled", "budget_tokens": 1_024}
ADAPTIVE = {"type": "adaptive"}
MANUAL_MODELS = ("claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5", "claude-opus-4-6", "claude-sonnet-4-6")
ADAPTIVE_MODELS = ("claude-opus-4-6", "claude-opus-5", "claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-2")
EXPECTED = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."


def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return thinking and a call, or thinking and an answer after a message that says so."""
    thought = {"type": "thinking", "thinking": f"Thought {len(request['messages'])}."}
    last = request["messages"][-1]["content"]
    if "answer" in str(last):
        return [thought, {"type": "text", "text": "The answer."}]
    return [thought, {"type": "tool_use", "name": "Read", "input": {}}]


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(reply) as running:
        yield running


def begun(server: MessagesServer, model: str, thinking: Any, rounds: int = 1) -> RawConversation:
    """Return a conversation with open rounds: each call has its result."""
    talk = RawConversation(server, model, tools=[READ], thinking=thinking)
    talk.messages.append({"role": "user", "content": "Go."})
    for _ in range(rounds):
        status, answer = talk.send()
        assert status == 200, answer
        talk.messages.append({"role": "assistant", "content": answer["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        talk.messages.append({"role": "user", "content": results})
    return talk


def noted(talk: RawConversation) -> list[int]:
    """Return the places of the replies that the server saw in their round without their thinking."""
    return [at for at, message in enumerate(talk.messages) if calls(message) & talk.server.calls_without_thinking]


def calls(message: dict[str, Any]) -> set[str]:
    content = [] if isinstance(message["content"], str) else message["content"]
    return {block["id"] for block in content if block["type"] == "tool_use"}


def without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [block for block in message["content"] if block["type"] != "thinking"]}


def stripped(talk: RawConversation, *places: int) -> list[dict[str, Any]]:
    """Return the messages without the thinking of the replies at these places; of all replies without any."""
    return [
        without_thinking(message) if message["role"] == "assistant" and (not places or at in places) else message
        for at, message in enumerate(talk.messages)
    ]


@pytest.mark.parametrize("model", MANUAL_MODELS)
def test_with_a_budget_a_call_without_its_thinking_is_refused_in_its_round(server: MessagesServer, model: str) -> None:
    talk = begun(server, model, MANUAL)
    assert talk.send()[0] == 200
    status, answer = talk.send(messages=stripped(talk))
    assert (status, answer["error"]["message"].partition(" When ")[0]) == (400, EXPECTED)


def test_with_a_budget_the_thinking_of_every_call_of_the_round_goes_back(server: MessagesServer) -> None:
    talk = begun(server, "claude-opus-4-5", MANUAL, rounds=3)
    assert talk.send()[0] == 200
    for place in (1, 3, 5):
        assert talk.send(messages=stripped(talk, place))[0] == 400, place


@pytest.mark.parametrize("model", MANUAL_MODELS)
def test_with_a_budget_thinking_of_finished_turns_may_be_left_out(server: MessagesServer, model: str) -> None:
    talk = begun(server, model, MANUAL)
    talk.messages[-1]["content"][0]["content"] = "Now the answer."
    _, answer = talk.send()
    talk.messages.append({"role": "assistant", "content": answer["content"]})
    talk.messages.append({"role": "user", "content": "Go on."})
    status, answer = talk.send(messages=stripped(talk))
    assert status == 200, answer
    assert noted(talk) == []


@pytest.mark.parametrize("model", ADAPTIVE_MODELS)
def test_adaptive_thinking_may_be_left_out_of_an_open_round_and_the_server_takes_note(
    server: MessagesServer, model: str
) -> None:
    """The page on the 400 for changed content says so: strip every thinking block, keep the rest, retry."""
    talk = begun(server, model, ADAPTIVE, rounds=2)
    assert talk.send()[0] == 200
    assert noted(talk) == []
    status, answer = talk.send(messages=stripped(talk))
    assert status == 200, answer
    assert noted(talk) == [1, 3]


def test_thinking_that_is_turned_on_or_off_inside_a_round_makes_no_error_and_no_thinking(
    server: MessagesServer,
) -> None:
    talk = begun(server, "claude-sonnet-4-5", MANUAL)
    assert talk.send(thinking={"type": "disabled"}, messages=stripped(talk))[0] == 200
    talk.messages[1] = {"role": "assistant", "content": [{"type": "tool_use", "id": "t9", "name": "Read", "input": {}}]}
    talk.messages[2]["content"][0]["tool_use_id"] = "t9"
    status, answer = talk.send()
    assert status == 200
    assert [block["type"] for block in answer["content"]] == ["tool_use"]


def test_a_change_from_adaptive_to_a_budget_inside_a_round_makes_no_error(server: MessagesServer) -> None:
    talk = begun(server, "claude-opus-4-6", ADAPTIVE)
    assert talk.send(thinking=MANUAL, messages=stripped(talk))[0] == 200


def test_a_server_without_the_memory_is_found_out(server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReturnedCalls, "take", lambda *given: None)
    talk = begun(server, "claude-sonnet-4-5", MANUAL)
    assert talk.send(messages=stripped(talk))[0] == 200
