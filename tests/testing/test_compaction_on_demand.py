"""Compaction on demand on the Messages API server, with raw requests.

Pages: build-with-claude/compaction-on-demand, compaction-keep-recent-turns, compaction-background,
compaction-thinking-blocks.
"""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from raw_requests import ALL_BETAS, RawConversation, ask
from reverie.testing.messages_server import MessagesServer, ServerReply

pytestmark = pytest.mark.requirement("V10")

MODEL = "claude-opus-5-5"
READ = {"name": "Read", "input_schema": {"type": "object"}}
SUMMARIZE = {"type": "summarize"}


def thinking_reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    turn = len(request["messages"])
    return [{"type": "thinking", "thinking": f"Thought {turn}."}, {"type": "text", "text": f"Answer {turn}."}]


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(thinking_reply) as running:
        yield running


def conversation(server: MessagesServer, turns: int = 4, model: str = MODEL) -> RawConversation:
    talk = RawConversation(server, model, system="Be brief.", tools=[READ])
    for number in range(turns):
        talk.say(f"Question {number}")
    return talk


def as_message(block: dict[str, Any], role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": [block]}


def refusal(answer: dict[str, Any]) -> tuple[str, str | None]:
    error = answer["error"]
    return error["message"], (error.get("details") or {}).get("error_code")


def test_a_request_for_a_summary_gets_a_signed_block_and_its_bill_is_an_iteration(server: MessagesServer) -> None:
    talk = conversation(server)
    status, answer = talk.send(compaction=SUMMARIZE)
    assert status == 200
    [block] = answer["content"]
    assert set(block) == {"type", "content", "signature"}
    assert (block["type"], answer["stop_reason"], answer["role"]) == ("compaction", "compaction", "assistant")
    assert "user text: Question 0" in block["content"]
    assert "Thought" not in block["content"]
    usage = answer["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (0, 0)
    [bill] = usage["iterations"]
    assert bill["type"] == "compaction"
    assert bill["input_tokens"] > 50
    assert bill["output_tokens"] > 10


def test_the_block_goes_first_alone_or_inside_the_first_message(server: MessagesServer) -> None:
    talk = conversation(server)
    block = talk.compact()
    user = {"role": "user", "content": [{"type": "text", "text": "Next"}]}
    for messages in (
        [as_message(block), user],
        [as_message(block, "user"), user],
        [{"role": "user", "content": [block, *user["content"]]}],
    ):
        status, answer = talk.send(messages=messages)
        assert status == 200, answer
        assert answer["usage"]["input_tokens"] < 200
    other = {"model": "claude-sonnet-5-5", "system": "Another.", "tools": [], "messages": [as_message(block), user]}
    assert talk.send(**other)[0] == 200


def test_the_summary_comes_from_the_test_and_sees_the_request() -> None:
    seen: list[Any] = []

    async def summary(request: dict[str, Any]) -> str:
        seen.append(request["compaction"])
        return f"{len(request['messages'])} messages."

    with MessagesServer(thinking_reply, summary=summary) as server:
        talk = conversation(server, turns=2)
        assert talk.compact(instructions="Keep names.")["content"] == "4 messages."
    assert seen == [{"type": "summarize", "instructions": "Keep names."}]


def test_a_second_summary_covers_the_first_and_only_the_newest_is_sent(server: MessagesServer) -> None:
    talk = conversation(server)
    first = talk.compact()
    talk.messages[:] = [as_message(first)]
    talk.say("Question 4")
    second = talk.compact()
    assert "Summary of the conversation" in second["content"]
    talk.messages[:] = [as_message(second)]
    assert talk.say("Question 5")["input_transformations"] == []
    talk.messages[:] = [as_message(second), as_message(first), {"role": "user", "content": "?"}]
    assert refusal(talk.send()[1])[1] == "compaction_block_ambiguous"


@pytest.mark.parametrize("summaries", [1, 2, 3])
@pytest.mark.parametrize("cut", [2, 3, 5])
def test_kept_thinking_stays_valid_over_any_number_of_summaries(
    server: MessagesServer, summaries: int, cut: int
) -> None:
    talk = conversation(server)
    for number in range(summaries):
        talk.messages[:cut] = [as_message(talk.compact(talk.messages[:cut]))]
        assert talk.say(f"Later question {number}")["input_transformations"] == []


def test_a_summary_made_in_the_background_keeps_everything_said_meanwhile(server: MessagesServer) -> None:
    talk = conversation(server, turns=2)
    talk.messages.append({"role": "user", "content": "Question 2"})
    sent = copy.deepcopy(talk.messages)
    _, answer = talk.send()
    talk.messages.append({"role": "assistant", "content": answer["content"]})
    block = talk.compact(sent)
    talk.say("Question 3")
    talk.messages[: len(sent)] = [as_message(block)]
    assert talk.say("Question 4")["input_transformations"] == []


def changed_system(talk: RawConversation, block: Any) -> None:
    talk.body["system"] = "Be long."


def edited_turn(talk: RawConversation, block: Any) -> None:
    talk.messages[2]["content"] = "Another question"


def skipped_turn(talk: RawConversation, block: Any) -> None:
    del talk.messages[1:3]


def undone(talk: RawConversation, block: Any) -> None:
    talk.say("Made behind the block")
    talk.messages[:1] = talk.before  # type: ignore[attr-defined]


BROKEN: list[tuple[str, Callable[[RawConversation, Any], None]]] = [
    ("system changed", changed_system),
    ("a kept turn edited", edited_turn),
    ("a kept turn skipped", skipped_turn),
    ("the summary undone behind new thinking", undone),
]


@pytest.mark.parametrize("edit", [row[1] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_kept_thinking_fails_where_a_condition_is_broken(
    server: MessagesServer, edit: Callable[[RawConversation, Any], None]
) -> None:
    talk = conversation(server)
    talk.before = copy.deepcopy(talk.messages[:3])  # type: ignore[attr-defined]
    block = talk.compact(talk.messages[:3])
    talk.messages[:3] = [as_message(block)]
    edit(talk, block)
    talk.messages.append({"role": "user", "content": "Next"})
    status, answer = talk.send()
    assert status == 400
    assert "bound to a different conversation" in answer["error"]["message"]


def test_undoing_a_summary_makes_the_earlier_thinking_valid_again(server: MessagesServer) -> None:
    talk = conversation(server)
    whole = copy.deepcopy(talk.messages)
    talk.messages[:3] = [as_message(talk.compact(talk.messages[:3]))]
    talk.say("Next")
    talk.messages[:] = whole
    assert talk.say("Next")["input_transformations"] == []


def test_kept_thinking_fails_behind_a_summary_of_a_model_that_does_not_preserve_thinking(
    server: MessagesServer,
) -> None:
    talk = conversation(server)
    status, answer = talk.send(messages=talk.messages[:3], compaction=SUMMARIZE, model="claude-opus-5")
    assert status == 200
    talk.messages[:3] = [as_message(answer["content"][0])]
    talk.messages.append({"role": "user", "content": "Next"})
    assert talk.send()[0] == 400


def test_kept_thinking_fails_where_the_first_kept_message_is_a_system_message(server: MessagesServer) -> None:
    talk = RawConversation(server, MODEL)
    talk.messages.extend([{"role": "user", "content": "Begin"}, {"role": "system", "content": "The mode is plan."}])
    _, answer = talk.send()
    talk.messages.append({"role": "assistant", "content": answer["content"]})
    whole = copy.deepcopy(talk.messages)
    talk.messages[:1] = [as_message(talk.compact(talk.messages[:1]))]
    talk.messages.append({"role": "user", "content": "Next"})
    status, answer = talk.send()
    assert status == 400, answer
    assert "bound to a different conversation" in answer["error"]["message"]
    talk.messages[:] = [*whole, {"role": "user", "content": "Next"}]
    talk.messages[:2] = [as_message(talk.compact(talk.messages[:2]))]
    assert talk.send()[0] == 200


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "tool_use", "refusal", "end_turn"])
def test_a_failed_summary_is_empty_and_billed(reason: str) -> None:
    with MessagesServer(thinking_reply, summary=lambda request: ServerReply("Begun.", stop_reason=reason)) as server:
        talk = conversation(server, turns=1)
        status, answer = talk.send(compaction=SUMMARIZE)
    assert (status, answer["content"], answer["stop_reason"]) == (200, [], reason)
    [bill] = answer["usage"]["iterations"]
    assert bill["input_tokens"] > 0
    assert bill["output_tokens"] > 0


def test_a_summary_longer_than_max_tokens_or_the_window_fails(server: MessagesServer) -> None:
    talk = conversation(server)
    assert talk.send(compaction=SUMMARIZE, max_tokens=5)[1]["stop_reason"] == "max_tokens"
    with MessagesServer(thinking_reply, window=200, summary=lambda request: "word " * 500) as small:
        talk = RawConversation(small, MODEL)
        talk.say("word " * 50)
        _, answer = talk.send(compaction=SUMMARIZE)
        assert (answer["content"], answer["stop_reason"]) == ([], "model_context_window_exceeded")
        status, answer = talk.send(compaction={"type": "summarize", "instructions": "long " * 200})
    assert status == 400
    assert answer["error"]["message"].startswith("prompt is too long")


def test_an_overload_has_its_own_code_and_passes(server: MessagesServer) -> None:
    talk = conversation(server, turns=1)
    server.fail(529, code="compaction_unavailable")
    status, answer = talk.send(compaction=SUMMARIZE)
    assert (status, answer["error"]["type"]) == (529, "overloaded_error")
    assert refusal(answer)[1] == "compaction_unavailable"
    assert talk.send(compaction=SUMMARIZE)[0] == 200


BESIDE: list[tuple[str, dict[str, Any]]] = [
    ("context_management", {"context_management": {"edits": []}}),
    ("stop_sequences", {"stop_sequences": ["x"]}),
    ("output_config.format", {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}),
    ("tool_choice", {"tool_choice": {"type": "any"}, "model": "claude-opus-5"}),
    ("compaction.instructions", {"compaction": {"type": "summarize", "instructions": "x" * 16_385}}),
]


@pytest.mark.parametrize(("path", "fields"), BESIDE, ids=[row[0] for row in BESIDE])
def test_options_that_exclude_a_summary_are_refused(server: MessagesServer, path: str, fields: dict[str, Any]) -> None:
    talk = RawConversation(server, "claude-opus-5", tools=[READ])
    talk.say("Question")
    status, answer = talk.send(**{"compaction": SUMMARIZE, **fields})
    assert status == 400, answer
    assert path in answer["error"]["message"]
    fields = {key: value for key, value in fields.items() if key != "compaction"}
    talk.messages.append({"role": "user", "content": "Next"})
    assert talk.send(**fields)[0] == 200


def test_a_summary_needs_content_a_finished_turn_the_beta_and_a_model_that_writes_one(server: MessagesServer) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    opened = [{"role": "user", "content": "Read"}, as_message(use)]
    talk = RawConversation(server, MODEL, tools=[READ], compaction=SUMMARIZE)
    _, answer = talk.send(messages=opened)
    assert refusal(answer)[1] == "compaction_incomplete_turn"
    effort = {"role": "system", "content": [], "output_config": {"effort": "low"}}
    _, answer = talk.send(messages=[effort])
    assert refusal(answer)[1] == "compaction_nothing_to_summarize"
    hello = [{"role": "user", "content": "Hello"}]
    status, answer = talk.send(messages=hello, betas=())
    assert (status, refusal(answer)[0]) == (400, "compaction: requires anthropic-beta: compact-2026-09-04")
    status, answer = talk.send(messages=hello, model="claude-haiku-4-5")
    assert status == 400
    assert "compaction" in answer["error"]["message"]


def test_a_block_without_the_beta_is_an_unknown_block(server: MessagesServer) -> None:
    talk = conversation(server, turns=1)
    messages = [as_message(talk.compact()), {"role": "user", "content": "Next"}]
    status, answer = talk.send(messages=messages, betas=())
    assert status == 400
    assert "compact-2026" not in answer["error"]["message"]
    assert answer["error"]["message"].startswith("messages.0.content.0")


def test_a_misplaced_changed_or_forged_block_is_refused_with_its_code(server: MessagesServer) -> None:
    talk = conversation(server)
    block = talk.compact()
    user = {"role": "user", "content": "Next"}
    cases = [
        ([user, as_message(block), user], "compaction_block_misplaced"),
        ([{"role": "user", "content": [{"type": "text", "text": "Hello"}, block]}], "compaction_block_misplaced"),
        ([as_message({**block, "content": "Nothing."}), user], "compaction_content_mismatch"),
        ([as_message({**block, "signature": block["signature"][:-8]}), user], "compaction_signature_invalid"),
        ([as_message({**block, "signature": "A" + block["signature"]}), user], "compaction_signature_invalid"),
        ([as_message({**block, "tool_changes": [{"type": "tool_removal"}]}), user], "compaction_tool_changes_mismatch"),
        ([as_message(block), as_message(block), user], "compaction_block_ambiguous"),
    ]
    for messages, code in cases:
        status, answer = talk.send(messages=messages)
        assert (status, refusal(answer)[1]) == (400, code), answer
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    assert talk.send(messages=[as_message(marked), user])[0] == 200


def test_the_block_records_the_tool_changes_of_its_range(server: MessagesServer) -> None:
    later = {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True}
    talk = RawConversation(server, MODEL, tools=[READ, later])
    changes = [
        {"type": kind, "tool": {"type": "tool_reference", "name": name}}
        for kind, name in (("tool_addition", "Later"), ("tool_removal", "Read"))
    ]
    talk.messages.extend([{"role": "user", "content": "Begin"}, {"role": "system", "content": changes}])
    _, answer = talk.send()
    talk.messages.append({"role": "assistant", "content": answer["content"]})
    block = talk.compact()
    assert block["tool_changes"] == changes
    talk.messages[:] = [as_message(block)]
    assert talk.say("Next")["input_transformations"] == []
    without = {key: value for key, value in block.items() if key != "tool_changes"}
    _, answer = talk.send(messages=[as_message(without), {"role": "user", "content": "?"}])
    assert refusal(answer)[1] == "compaction_tool_changes_mismatch"


def test_a_summary_reads_the_warm_prefix(server: MessagesServer) -> None:
    talk = RawConversation(server, MODEL, system=[{"type": "text", "text": "A long and steady prefix. " * 400}])
    talk.body["system"][0]["cache_control"] = {"type": "ephemeral"}
    talk.say("Question")
    _, answer = talk.send(compaction=SUMMARIZE)
    [bill] = answer["usage"]["iterations"]
    assert bill["cache_read_input_tokens"] > 2_000
    assert bill["input_tokens"] < 200


def test_counting_ignores_the_request_for_a_summary(server: MessagesServer) -> None:
    talk = conversation(server, turns=1)
    talk.messages.append({"role": "user", "content": "Next"})
    body = {key: value for key, value in talk.body.items() if key != "max_tokens"}
    counts = [
        ask(server, {**body, **more}, path="/v1/messages/count_tokens") for more in ({}, {"compaction": SUMMARIZE})
    ]
    assert counts[0] == counts[1]
    assert counts[0][0] == 200


def test_the_block_is_streamed_whole(server: MessagesServer) -> None:
    talk = conversation(server, turns=1)
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01", "anthropic-beta": ",".join(ALL_BETAS)}
    body = {**talk.body, "compaction": SUMMARIZE, "stream": True}
    connection.request("POST", "/v1/messages", json.dumps(body).encode(), headers)
    text = connection.getresponse().read().decode()
    connection.close()
    events = [json.loads(part.split("data: ", 1)[1]) for part in text.strip().split("\n\n")]
    names = [event["type"] for event in events if event["type"] != "ping"]
    assert names == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    block = next(event["content_block"] for event in events if event["type"] == "content_block_start")
    assert block == talk.compact()
    ending = events[-2]
    assert ending["delta"]["stop_reason"] == "compaction"
    assert ending["usage"]["iterations"][0]["type"] == "compaction"
