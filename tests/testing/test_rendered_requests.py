"""The part of a request that the model sees and the account pays for: system messages, tools, thinking, edits, cache.

Pages: build-with-claude/mid-conversation-system-messages, tool-search-tool, thinking, context-editing, prompt-caching,
context-windows; about-claude/models/overview.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from raw_requests import ALL_BETAS, RawConversation, ask
from reverie.model_facts import facts_of, known_facts
from reverie.testing.messages_server import MessagesServer, count_block_tokens

pytestmark = pytest.mark.requirement("V10")

MODEL = "claude-opus-5-5"
READ: dict[str, Any] = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
LATER: dict[str, Any] = {"name": "Later", "description": "Do it later. " * 30, "input_schema": {"type": "object"}}
MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "A long and steady prefix. " * 400


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda request: f"I got {len(request['messages'])}.") as running:
        yield running


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(words: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(words, **more)]}


def tokens(server: MessagesServer, model: str = MODEL, **fields: Any) -> int:
    status, answer = ask(server, {"model": model, **fields}, path="/v1/messages/count_tokens")
    assert status == 200, answer
    return answer["input_tokens"]


def usage(server: MessagesServer, model: str = MODEL, **fields: Any) -> tuple[int, int, int]:
    status, answer = ask(server, {"model": model, "max_tokens": 90, **fields})
    assert status == 200, answer
    found = answer["usage"]
    return found["cache_read_input_tokens"], found["cache_creation_input_tokens"], found["input_tokens"]


def test_a_system_message_counts_where_it_stands(server: MessagesServer) -> None:
    plain = tokens(server, messages=[user("Hello")])
    said = {"role": "system", "content": "The mode is plan."}
    assert tokens(server, messages=[user("Hello"), said]) == plain + count_block_tokens(text("The mode is plan."))


def test_a_turn_scoped_message_counts_until_the_next_user_message(server: MessagesServer) -> None:
    said = {"role": "system", "clear_at": "next_user_message", "content": "Two files are open in the editor."}
    answer = {"role": "assistant", "content": "Yes."}
    without = [user("Hello"), answer, user("Next")]
    assert tokens(server, messages=[user("Hello"), said]) > tokens(server, messages=[user("Hello")])
    assert tokens(server, messages=[user("Hello"), said, answer, user("Next")]) == tokens(server, messages=without)
    kept = {"role": "system", "content": said["content"]}
    assert tokens(server, messages=[user("Hello"), kept, answer, user("Next")]) > tokens(server, messages=without)


def test_a_result_clears_a_turn_scoped_message_too_and_only_the_turn_after_it_is_processed_again(
    server: MessagesServer,
) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "hi", **MARK}
    said = {"role": "system", "clear_at": "next_user_message", "content": "One file is open."}
    before = [user(LONG, **MARK), said]
    after = [*before, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert usage(server, tools=[READ], messages=before)[1] > 2_000
    read, written, rest = usage(server, tools=[READ], messages=after)
    assert read > 2_000
    assert written < 100
    assert rest == 0


def test_an_automatic_mark_passes_over_a_turn_scoped_message(server: MessagesServer) -> None:
    said = {"role": "system", "clear_at": "next_user_message", "content": "One file is open."}
    body: dict[str, Any] = {"cache_control": {"type": "ephemeral"}, "messages": [user(LONG + "!"), said]}
    assert usage(server, **body)[2] == count_block_tokens(text("One file is open."))


def test_a_deferred_tool_costs_nothing_until_a_message_refers_to_it(server: MessagesServer) -> None:
    deferred = {**LATER, "defer_loading": True}
    reference = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}}
    asked = [user("Hello"), {"role": "system", "content": [reference]}]
    assert tokens(server, tools=[READ, deferred], messages=[user("Hello")]) == tokens(
        server, tools=[READ], messages=[user("Hello")]
    )
    loaded = tokens(server, tools=[READ, deferred], messages=asked)
    assert loaded >= tokens(server, tools=[READ], messages=[user("Hello")]) + count_block_tokens(deferred)


def test_a_tool_added_at_the_end_keeps_the_cache_and_one_added_to_the_list_loses_it(server: MessagesServer) -> None:
    deferred = {**LATER, "defer_loading": True}
    reference = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}}
    first = [user("Tools. " + LONG, **MARK)]
    assert usage(server, tools=[READ, deferred], messages=first)[1] > 2_000
    assert (
        usage(server, tools=[READ, deferred], messages=[*first, {"role": "system", "content": [reference]}])[0] > 2_000
    )
    assert usage(server, tools=[READ, LATER], messages=first)[0] == 0


def test_an_unknown_reference_is_refused_with_its_code(server: MessagesServer) -> None:
    for kind in ("tool_addition", "tool_removal"):
        change = {"type": kind, "tool": {"type": "tool_reference", "name": "Nowhere"}}
        body = {"max_tokens": 90, "tools": [READ], "messages": [user("Hello"), {"role": "system", "content": [change]}]}
        status, answer = ask(server, {"model": MODEL, **body})
        assert status == 400
        assert answer["error"]["details"]["error_code"] == "tool_reference_unresolved"
        assert "'Nowhere'" in answer["error"]["message"]


def test_a_definition_by_value_is_known_from_there_on_and_another_kind_of_tool_is_a_conflict(
    server: MessagesServer,
) -> None:
    def adding(definition: dict[str, Any]) -> dict[str, Any]:
        tool = {"type": "tool_definition", "definition": definition}
        removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": definition["name"]}}
        system = {"role": "system", "content": [{"type": "tool_addition", "tool": tool}, removal]}
        return {"model": MODEL, "max_tokens": 90, "tools": [READ], "messages": [user("Hello"), system]}

    assert ask(server, adding(LATER))[0] == 200
    assert ask(server, adding({**READ, "description": "Other."}))[0] == 200
    status, answer = ask(server, adding({"type": "web_search_20250305", "name": "Read"}))
    assert (status, answer["error"]["details"]["error_code"]) == (400, "tool_name_conflict")


FIELDS_WITH_A_BETA: list[tuple[str, dict[str, Any]]] = [
    ("messages.1.clear_at", {"role": "system", "clear_at": "next_user_message", "content": "Note."}),
    ("messages.1.output_config", {"role": "system", "content": [], "output_config": {"effort": "low"}}),
    (
        "messages.1.content.0",
        {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}}]},
    ),
]


@pytest.mark.parametrize(("path", "message"), FIELDS_WITH_A_BETA, ids=[row[0] for row in FIELDS_WITH_A_BETA])
def test_a_field_needs_its_beta(server: MessagesServer, path: str, message: dict[str, Any]) -> None:
    body = {"model": MODEL, "max_tokens": 90, "tools": [READ], "messages": [user("Hello"), message]}
    assert ask(server, body)[0] == 200
    status, answer = ask(server, body, betas=())
    assert status == 400
    assert answer["error"]["message"].startswith(path)


@pytest.mark.parametrize(
    ("fields", "hits"),
    [
        ({}, True),
        ({"output_config": {"effort": "medium"}}, True),
        ({"output_config": {"effort": "low"}}, False),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, True),
        ({"tool_choice": {"type": "auto"}}, True),
        ({"tool_choice": {"type": "none"}}, False),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, False),
        ({"tools": [READ, LATER]}, False),
        ({"max_tokens": 50}, True),
    ],
)
def test_a_change_of_an_option_loses_the_cached_messages_and_its_default_does_not(
    server: MessagesServer, fields: dict[str, Any], hits: bool
) -> None:
    body = {"tools": [READ], "messages": [user(f"Options {fields} " + LONG, **MARK)]}
    assert usage(server, **body)[0] == 0
    assert (usage(server, **body, **fields) if "tools" not in fields else usage(server, **{**body, **fields}))[0] == (
        usage(server, **body)[0] if hits else 0
    )


def test_a_model_thinks_or_not_by_default(server: MessagesServer) -> None:
    body = {"messages": [user("Thinking " + LONG * 2, **MARK)]}
    for model, default in (("claude-opus-5", "adaptive"), ("claude-opus-4-8", "disabled")):
        usage(server, model, **body)
        assert usage(server, model, **body, thinking={"type": default})[0] > 0


def thinking_reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "thinking", "thinking": "A thought of some length. " * 10}, text("So.")]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-6", "claude-sonnet-4-5", "claude-haiku-4-5"])
def test_older_models_keep_the_thinking_of_the_last_turn_only(model: str) -> None:
    with MessagesServer(thinking_reply) as server:
        talk = RawConversation(server, model)
        sizes: list[int] = []
        for number in range(4):
            talk.say(f"Question {number}")
            shown = talk.body["messages"]
            sizes.append(tokens(server, model, messages=[*shown, user("?")]))
        grown = [later - earlier for earlier, later in pairwise(sizes)]
        assert (min(grown) > 50) == facts_of(model).keeps_thinking
        cleared = {"edits": [{"type": "clear_thinking_20251015"}]}
        last = [*talk.body["messages"], user("?")]
        status, answer = ask(
            server, {"model": model, "max_tokens": 900, "messages": last, "context_management": cleared}
        )
        assert status == 200, answer
        expected = [] if facts_of(model).keeps_thinking else [3]
        applied = answer["context_management"]["applied_edits"]
        assert [edit["cleared_thinking_turns"] for edit in applied] == expected


def tool_rounds(number: int, size: int) -> list[Any]:
    messages = [user("Begin")]
    for index in range(number):
        use = {
            "type": "tool_use",
            "id": f"toolu_{index}",
            "name": ("Read", "Write")[index % 2],
            "input": {"x": "y" * 99},
        }
        result = {"type": "tool_result", "tool_use_id": f"toolu_{index}", "content": "z" * size}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


@pytest.mark.parametrize(
    ("edit", "cleared"),
    [
        ({}, 0),
        ({"trigger": {"type": "input_tokens", "value": 1_000}}, 5),
        ({"trigger": {"type": "tool_uses", "value": 9}}, 0),
        ({"trigger": {"type": "tool_uses", "value": 4}}, 5),
        ({"trigger": {"type": "tool_uses", "value": 4}, "keep": {"type": "tool_uses", "value": 6}}, 2),
        ({"trigger": {"type": "tool_uses", "value": 4}, "exclude_tools": ["Read"]}, 1),
        (
            {"trigger": {"type": "tool_uses", "value": 4}, "clear_at_least": {"type": "input_tokens", "value": 99_000}},
            0,
        ),
        ({"trigger": {"type": "tool_uses", "value": 4}, "clear_at_least": {"type": "input_tokens", "value": 900}}, 5),
        ({"trigger": {"type": "tool_uses", "value": 4}, "clear_tool_inputs": True}, 5),
    ],
)
def test_old_results_are_cleared_on_the_server_by_the_parameters_of_the_edit(
    server: MessagesServer, edit: dict[str, Any], cleared: int
) -> None:
    body = {
        "model": MODEL,
        "tools": [READ, {**READ, "name": "Write"}],
        "messages": tool_rounds(8, 1_000),
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919", **edit}]},
    }
    status, answer = ask(server, {**body, "max_tokens": 90})
    assert status == 200
    applied = answer["context_management"]["applied_edits"]
    assert sum(entry["cleared_tool_uses"] for entry in applied) == cleared
    _, counted = ask(server, body, path="/v1/messages/count_tokens")
    freed = sum(entry["cleared_input_tokens"] for entry in applied)
    assert counted["context_management"]["original_input_tokens"] - counted["input_tokens"] == freed
    assert counted["input_tokens"] == answer["usage"]["input_tokens"]
    assert (freed > 250 * cleared) == (edit.get("clear_tool_inputs") is True)


def test_results_cleared_by_the_server_leave_thinking_valid() -> None:
    def reply(request: dict[str, Any]) -> Any:
        return [{"type": "thinking", "thinking": "Look."}, {"type": "tool_use", "name": "Read", "input": {}}]

    edits = {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}}]}
    with MessagesServer(reply) as server:
        talk = RawConversation(server, MODEL, tools=[READ], context_management=edits)
        words: Any = "Begin"
        for _ in range(6):
            answer = talk.say(words)
            assert answer["input_transformations"] == []
            result = {"type": "tool_result", "tool_use_id": answer["content"][1]["id"], "content": "z" * 500}
            words = [result]
        assert answer["context_management"]["applied_edits"][0]["cleared_tool_uses"] == 2
        first = talk.messages[2]["content"][0]
        first["content"] = "[cleared by the client]"
        talk.messages.append({"role": "user", "content": words})
        assert talk.send()[0] == 400


def test_a_reply_ends_where_the_window_ends() -> None:
    with MessagesServer(lambda request: "word " * 400, window=300) as server:
        body = {"model": MODEL, "max_tokens": 1_000, "messages": [user("word " * 100)]}
        status, answer = ask(server, body)
        assert (status, answer["stop_reason"]) == (200, "model_context_window_exceeded")
        assert answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"] <= 300
        assert ask(server, {**body, "max_tokens": 50})[1]["stop_reason"] == "max_tokens"
        status, answer = ask(server, {**body, "messages": [user("word " * 300)]})
    assert status == 400
    assert answer["error"]["message"].startswith("prompt is too long: ")


def test_the_window_and_the_rows_of_models_are_those_of_the_model_facts(server: MessagesServer) -> None:
    _, listed = ask(server, {}, path="/v1/models?limit=100")
    rows = {row["id"]: row for row in listed["data"]}
    assert {name for row in known_facts() if row.context_editing for name in row.match if "*" not in name} == set(rows)
    for name, row in rows.items():
        facts = facts_of(name)
        assert (row["max_input_tokens"], row["max_tokens"]) == (facts.window_tokens, facts.max_output_tokens)
        types = row["capabilities"]["thinking"]["types"]
        assert {kind for kind, value in types.items() if value["supported"]} == set(facts.thinking)
        assert row["capabilities"]["compaction"]["supported"] == facts.compaction
    _, plain = ask(server, {}, path=f"/v1/models/{MODEL}", betas=())
    assert "compaction" not in plain["capabilities"]
    assert "compact-2026-09-04" in ALL_BETAS
    with MessagesServer(lambda request: "ok", window=9_000) as small:
        assert ask(small, {}, path=f"/v1/models/{MODEL}")[1]["max_input_tokens"] == 9_000


@pytest.mark.parametrize(("calls", "hits"), [(30, True), (1, False)])
def test_a_run_of_calls_and_a_run_of_results_are_one_position_each(
    server: MessagesServer, calls: int, hits: bool
) -> None:
    messages: list[Any] = [user(f"{calls} calls. " + LONG, **MARK)]
    body: dict[str, Any] = {"tools": [READ], "messages": messages}
    assert usage(server, **body)[1] > 2_000
    for turn in range(30 // calls):
        uses = [
            {"type": "tool_use", "id": f"toolu_{turn}_{index}", "name": "Read", "input": {}} for index in range(calls)
        ]
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "hi"} for use in uses]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    messages[-1]["content"][-1].update(MARK)
    del messages[0]["content"][0]["cache_control"]
    assert (usage(server, **body)[0] > 2_000) == hits


def test_a_request_for_no_tokens_warms_the_cache_and_asks_no_model() -> None:
    asked: list[Any] = []
    with MessagesServer(lambda request: asked.append(request) or "Hello.") as server:  # type: ignore[func-returns-value]
        body: dict[str, Any] = {"messages": [user(LONG, **MARK)]}
        status, answer = ask(server, {"model": MODEL, "max_tokens": 0, **body})
        assert status == 200, answer
        assert (answer["content"], answer["stop_reason"], asked) == ([], "max_tokens", [])
        assert answer["usage"]["cache_creation_input_tokens"] > 2_000
        assert answer["usage"]["output_tokens"] == 0
        assert usage(server, **body)[0] > 2_000
        for beside in ({"stream": True}, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}):
            assert ask(server, {"model": MODEL, "max_tokens": 0, **body, **beside})[0] == 400


@pytest.mark.parametrize(("model", "words"), [("claude-opus-5-5", ""), ("claude-opus-4-6", "A thought. " * 100)])
def test_thinking_without_words_is_the_default_of_newer_models_and_costs_the_same(model: str, words: str) -> None:
    thought = {"type": "thinking", "thinking": "A thought. " * 100}
    with MessagesServer(lambda request: [thought, text("So.")]) as server:
        talk = RawConversation(server, model)
        answer = talk.say("Question")
        assert answer["content"][0]["thinking"] == words
        assert answer["usage"]["output_tokens"] > 250
        shown = talk.say("Next", thinking={"type": "adaptive", "display": "summarized"})
        assert shown["content"][0]["thinking"] == thought["thinking"]
        assert shown["usage"]["input_tokens"] > 250
        kept = talk.say("Last", thinking={"type": "adaptive", "display": "omitted"})
        assert kept["content"][0]["thinking"] == ""
        assert kept["usage"]["input_tokens"] > 500
