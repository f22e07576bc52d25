"""Requests of the Messages API, translated to chat completions."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_logs import random_log
from reverie.conversation.entries import Entry
from reverie.conversation.fork import ForkBase
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.model_facts import facts_of
from reverie.models.chat_request import chat_body, chat_messages, used_ids

PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}
IMAGE = {"type": "image", "source": PNG}
Messages = list[dict[str, Any]]
Chat = list[dict[str, Any]]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SAID = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})
RESULTS = st.one_of(TEXTS, st.lists(st.one_of(SAID, st.just(IMAGE)), max_size=3))


@st.composite
def conversations(draw: st.DrawFn) -> Messages:
    """Draw messages in turn, with calls that are answered, answered late, twice, or never."""
    messages: Messages = []
    open_calls: list[str] = []
    for turn in range(draw(st.integers(1, 4))):
        answered = [call for call in open_calls if draw(st.integers(0, 5))]
        strays = ["nobody"] if not draw(st.integers(0, 8)) else []
        user: Messages = [
            {"type": "tool_result", "tool_use_id": call, "content": draw(RESULTS), "is_error": draw(st.booleans())}
            for call in draw(st.permutations(answered + strays))
        ]
        user += draw(st.lists(st.one_of(SAID, st.just(IMAGE)), min_size=0 if user else 1, max_size=2))
        calls = [f"call_{turn}_{number}" for number in range(draw(st.integers(0, 3)))]
        said: Messages = draw(st.lists(SAID, max_size=2))
        said += [{"type": "thinking", "thinking": "SECRET THOUGHT", "signature": "s"}] if draw(st.booleans()) else []
        inputs = st.dictionaries(TEXTS, TEXTS, max_size=2)
        said += [{"type": "tool_use", "id": call, "name": "Read", "input": draw(inputs)} for call in calls]
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": said}]
        open_calls = calls
    return messages[: len(messages) - draw(st.integers(0, 1))]


def faults(chat: Chat, *, ended: bool) -> list[str]:
    """Return what a chat server would refuse: calls without answers, answers without calls. Written from its rules."""
    found: list[str] = []
    waiting: list[str] = []
    for message in chat:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                found.append(f"an answer nobody waits for: {message['tool_call_id']}")
            else:
                waiting.remove(message["tool_call_id"])
            if not isinstance(message["content"], str):
                found.append("a tool message that is not text")
            continue
        found += [f"a call without an answer: {call}" for call in waiting]
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        for call in message.get("tool_calls", ()):
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                found.append("arguments that are no object")
    return found + ([f"a call without an answer: {call}" for call in waiting] if ended else [])


@given(conversations())
def test_every_call_is_answered_right_after_it_and_no_other(messages: Messages) -> None:
    assert faults(chat_messages(messages), ended=messages[-1]["role"] == "user") == []


def test_a_translation_block_by_block_is_caught() -> None:
    """The known-bad twin: each block becomes a message of its own, in the order they stand."""

    def naive(messages: Messages) -> Chat:
        return [
            {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block.get("content", "")}
            if block["type"] == "tool_result"
            else {"role": message["role"], "content": block.get("text")}
            for message in messages
            for block in message["content"]
        ]

    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "y"}]},
    ]
    assert faults(naive(messages), ended=True)
    assert faults(chat_messages(messages), ended=True) == []


@given(conversations(), st.integers(0, 8))
def test_a_longer_conversation_begins_with_the_shorter_ones_translation(messages: Messages, at: int) -> None:
    """So that a server's prefix cache holds from turn to turn."""
    ends = [index + 1 for index, message in enumerate(messages) if message["role"] == "user"]
    shorter = chat_messages(messages[: ends[at % len(ends)]])
    assert chat_messages(messages)[: len(shorter)] == shorter


@given(conversations())
def test_thinking_is_never_sent_and_nothing_said_is_lost(messages: Messages) -> None:
    sent = json.dumps(chat_messages(messages), ensure_ascii=False)
    assert "SECRET THOUGHT" not in sent
    for message in messages:
        for block in message["content"]:
            if block["type"] == "text":
                assert json.dumps(block["text"], ensure_ascii=False)[1:-1] in sent
    images = sum(
        (block["type"] == "image")
        + sum(isinstance(inner, dict) and inner["type"] == "image" for inner in block.get("content", ()))
        for message in messages
        for block in message["content"]
    )
    assert sent.count('"image_url": {') == images


def test_requests_of_random_sessions_translate_without_fault(seed: int, torture: bool) -> None:
    for number in range(2_000 if torture else 200):
        request = build_request(View().fold_all(random_log(Random(f"{seed}/{number}"))))
        chat = chat_body(request)["messages"]
        assert faults(chat, ended=request["messages"][-1]["role"] == "user") == [], f"log {seed}/{number}"


def test_a_whole_request() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    request = {
        "model": "m",
        "max_tokens": 500,
        "system": [{"type": "text", "text": "Be brief.", **mark}, {"type": "text", "text": "Be kind."}],
        "temperature": 0.2,
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "context_management": {"edits": []},
        "tools": [
            {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}, **mark},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
            {"role": "user", "content": "Look at this."},
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I will."},
                    {"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "ä"}},
                    {"type": "tool_use", "id": "b", "name": "Read", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "no such file", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "pic:"}, IMAGE]},
                    {"type": "text", "text": "Well?", **mark},
                    {"type": "cache_edits", "tool_use_ids": ["a"]},
                ],
            },
        ],
    }
    assert chat_body(request, limit_field="max_completion_tokens") == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {"role": "user", "content": "Look at this."},
            {
                "role": "assistant",
                "content": "I will.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "Read", "arguments": '{"path":"ä"}'}},
                    {"id": "b", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "pic:\n\n[image: see the next user message]"},
            {"role": "tool", "tool_call_id": "b", "content": "Error: no such file"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Image of the result of call a:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
        "max_completion_tokens": 500,
        "temperature": 0.2,
        "stop": ["END"],
        "tools": [
            {
                "type": "function",
                "function": {"name": "Read", "description": "Read a file.", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": {"type": "object"}, "strict": True},
        },
    }
    assert used_ids(request) == {"a", "b"}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "Read"}, {"type": "function", "function": {"name": "Read"}}),
    ],
)
def test_what_a_model_may_call_is_said_in_chat_words(choice: dict[str, Any], said: Any) -> None:
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    asked = {"messages": [], "tool_choice": choice}
    assert chat_body({**asked, "tools": tools})["tool_choice"] == said
    assert "tool_choice" not in chat_body(asked)


def test_documents_and_blocks_nobody_knows_are_said_in_words_or_as_files() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    blocks = [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        {"type": "document", "title": "a.pdf", "source": pdf},
        {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "found"}]},
        {"type": "something_new", "payload": 1},
    ]
    (message,) = chat_messages([{"role": "user", "content": blocks}])
    assert message["content"] == [
        {"type": "text", "text": "plain"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "text", "text": "found"},
        {"type": "text", "text": "[something_new]"},
    ]


@pytest.mark.requirement("V9")
def test_a_forks_directive_is_a_message_of_its_own() -> None:
    """A message that grows would not be found in the cache; the same text of a user alone is one message as before."""
    view = View().fold(Entry("u", None, "", "", "user", {"message": {"role": "user", "content": "Hello."}}))
    base = ForkBase(view, "gpt-6", facts_of("gpt-6"), 100)
    request = base.request(base.branch("Who?", source="test"))
    sent = chat_body(request)["messages"]
    assert [one["content"].split("\n")[0] for one in sent] == ["Hello.", '<reverie-fork source="test">']
    assert chat_messages(build_request(view)["messages"]) == sent[:1]
    assert chat_messages([{"role": "user", "content": "<reverie-fork x"}]) == [
        {"role": "user", "content": "<reverie-fork x"}
    ]
