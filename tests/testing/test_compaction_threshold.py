"""Compaction at a threshold on the Messages API server, with raw requests and with the SDK.

Page: build-with-claude/compaction-threshold.
"""

from __future__ import annotations

from typing import Any

import anthropic
import anyio
import pytest

from raw_requests import ALL_BETAS, RawConversation, ask
from reverie.cache.usage import usage_of
from reverie.conversation.decisions import ThinkingDropped
from reverie.testing.messages_server import MessagesServer, ServerReply, provider
from thinking_desk import Desk

pytestmark = pytest.mark.requirement("V10")

MODEL = "claude-opus-5-5"
COMPACT = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}}
LONG = "a word of it " * 20_000
SUMMARY = {"type": "compaction", "content": "The user sent a long text."}
USE = {"type": "tool_use", "name": "Read", "input": {}}
READ = {"name": "Read", "input_schema": {"type": "object"}}


def thinking_reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    said = len(request["messages"])
    return [{"type": "thinking", "thinking": f"Thought {said}."}, {"type": "text", "text": f"Answer {said}."}]


def summary_of(request: dict[str, Any]) -> Any:
    return SUMMARY["content"]


def conversation(server: MessagesServer, **edit: Any) -> RawConversation:
    management = {"edits": [{**COMPACT, **edit}]}
    return RawConversation(server, MODEL, system="Be brief.", tools=[READ], context_management=management)


def sums(usage: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the kind of each iteration, and whether it read the long text."""
    return [(one["type"], one["input_tokens"] > 50_000) for one in usage["iterations"]]


def test_a_reply_at_the_threshold_begins_with_a_summary_and_goes_on_from_it() -> None:
    with MessagesServer(thinking_reply, summary=summary_of) as server:
        talk = conversation(server)
        before = talk.say("Hello.")
        assert [block["type"] for block in before["content"]] == ["thinking", "text"]
        assert sums(before["usage"]) == [("message", False)]
        reached = talk.say(LONG)
        after = talk.say("Go on.")
        talk.messages[:] = talk.messages[3:]
        assert talk.messages[0]["content"][0] == SUMMARY
        dropped = talk.say("And on.")
    assert [block["type"] for block in reached["content"]] == ["compaction", "thinking", "text"]
    assert (reached["content"][0], reached["stop_reason"]) == (SUMMARY, "end_turn")
    assert reached["context_management"] == {"applied_edits": []}
    usage = reached["usage"]
    assert sums(usage) == [("compaction", True), ("message", False)]
    assert usage["input_tokens"] == usage["iterations"][1]["input_tokens"] < 100
    assert usage_of(usage).uncached > 50_000
    # What stands before the summary is neither read nor compared, whether it is sent or left out.
    assert sums(after["usage"]) == sums(dropped["usage"]) == [("message", False)]
    assert after["input_transformations"] == dropped["input_transformations"] == []


def test_thinking_behind_a_summary_is_bound_to_it() -> None:
    with MessagesServer(thinking_reply, summary=summary_of) as server:
        talk = conversation(server)
        talk.say(LONG)
        talk.messages[0] = {"role": "user", "content": "Another beginning."}
        talk.say("Go on.")
        talk.messages[1]["content"][0] = {**SUMMARY, "content": "Another summary."}
        status, answer = talk.send(messages=[*talk.messages, {"role": "user", "content": "?"}])
    assert status == 400
    assert answer["error"]["message"].startswith("messages.1.content.1: Invalid `signature` in `thinking` block.")


def test_a_pause_ends_the_reply_behind_the_summary_and_the_next_request_goes_on() -> None:
    with MessagesServer(thinking_reply, summary=summary_of) as server:
        talk = conversation(server, pause_after_compaction=True)
        paused = talk.say(LONG)
        status, answer = talk.send()
        kept = [talk.messages[1], {"role": "user", "content": "A kept question."}]
        assert talk.send(messages=kept)[0] == 200
    assert (paused["content"], paused["stop_reason"]) == ([SUMMARY], "compaction")
    assert (paused["usage"]["input_tokens"], paused["usage"]["output_tokens"]) == (0, 0)
    assert sums(paused["usage"]) == [("compaction", True)]
    assert status == 200
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]


def test_instructions_reach_the_summary_and_count_in_its_bill() -> None:
    asked: list[Any] = []

    def summary(request: dict[str, Any]) -> str:
        asked.append(request["context_management"]["edits"][0].get("instructions"))
        return "Brief."

    with MessagesServer(thinking_reply, summary=summary) as server:
        plain = conversation(server, instructions="Be short.").say(LONG)
        long = conversation(server, instructions="Keep every name. " * 400).say(LONG)
    assert asked == ["Be short.", "Keep every name. " * 400]
    first, second = (one["usage"]["iterations"][0]["input_tokens"] for one in (plain, long))
    assert second > first + 1_000


def test_a_summary_that_fails_is_null_and_changes_nothing() -> None:
    with MessagesServer(thinking_reply, summary=lambda request: [USE]) as server:
        talk = conversation(server)
        failed = talk.say(LONG)
        again = talk.say("Go on.")
    assert failed["content"][0] == {"type": "compaction", "content": None}
    assert sums(failed["usage"]) == sums(again["usage"]) == [("compaction", True), ("message", True)]


def test_a_second_summary_covers_the_first() -> None:
    with MessagesServer(thinking_reply) as server:
        talk = conversation(server)
        talk.say(LONG)
        second = talk.say(LONG)
        small = talk.say("Go on.")
    assert "compaction: Summary of the conversation" in second["content"][0]["content"]
    assert sums(small["usage"]) == [("message", False)]


def test_results_are_cleared_before_the_threshold_is_looked_at_and_counting_never_summarises() -> None:
    with MessagesServer(thinking_reply, summary=summary_of) as server:
        clear = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 0}}
        talk = RawConversation(server, MODEL, tools=[READ])
        messages: list[Any] = [{"role": "user", "content": "Go."}]
        for number, words in enumerate([LONG, "a", "b", "c"]):
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": words}
            messages.append({"role": "assistant", "content": [{**USE, "id": f"t{number}"}]})
            messages.append({"role": "user", "content": [result]})
        _, cleared = talk.send(messages=messages, context_management={"edits": [clear, COMPACT]})
        assert sums(cleared["usage"]) == [("message", False)]
        body = {"model": MODEL, "tools": [READ], "messages": messages, "context_management": {"edits": [COMPACT]}}
        path = "/v1/messages/count_tokens"
        assert ask(server, body, path=path)[1]["input_tokens"] > 50_000
        body["messages"] = [*messages, {"role": "assistant", "content": [SUMMARY]}]
        _, counted = ask(server, body, path=path)
    assert counted["input_tokens"] < 100
    assert counted["context_management"]["original_input_tokens"] > 50_000


def test_a_prompt_above_the_window_is_refused_before_any_summary() -> None:
    with MessagesServer(thinking_reply, window=55_000) as server:
        talk = conversation(server)
        status, answer = talk.send(messages=[{"role": "user", "content": LONG}])
    assert (status, answer["error"]["message"][:18]) == (400, "prompt is too long")


def test_a_server_that_never_summarises_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "reached_threshold", lambda *given: None)
    with MessagesServer(thinking_reply, summary=summary_of) as server:
        assert sums(conversation(server).say(LONG)["usage"]) == [("message", True)]


@pytest.mark.parametrize("streams", [False, True])
def test_the_official_sdk_continues_from_the_summary(streams: bool) -> None:
    def failing_once(request: dict[str, Any]) -> Any:
        return ServerReply([USE]) if len(request["messages"]) == 1 else SUMMARY["content"]

    messages: list[Any] = []
    with (
        MessagesServer(thinking_reply, summary=failing_once) as server,
        anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        for words in (LONG, "Go on.", "And on."):
            messages.append({"role": "user", "content": words})
            edits: Any = {"edits": [COMPACT]}
            given: dict[str, Any] = {"model": MODEL, "max_tokens": 500, "messages": messages}
            if streams:
                with client.beta.messages.stream(**given, context_management=edits, betas=list(ALL_BETAS)) as stream:
                    kinds = [event.type for event in stream]
                    answer: Any = stream.get_final_message()
                assert kinds.count("compaction") == (words != "And on.")
            else:
                answer = client.beta.messages.create(**given, context_management=edits, betas=list(ALL_BETAS))
            messages.append({"role": "assistant", "content": [one.to_dict() for one in answer.content]})
        assert server.refusals == []
    firsts = [one["content"][0] for one in messages if one["role"] == "assistant"]
    assert [one["type"] for one in firsts] == ["compaction", "compaction", "thinking"]
    assert [one.get("content") for one in firsts] == [None, SUMMARY["content"], None]
    assert answer.usage.input_tokens < 200


def test_a_session_goes_on_behind_a_summary_and_after_a_resume() -> None:
    async def played() -> Desk:
        desk = Desk(window=200_000)
        for said in (["Hello.", LONG], ["Go on.", "And on."]):
            async with desk.session() as session:
                for words in said:
                    await desk.ask(session, words, context_management={"edits": [COMPACT]})
                assert session.view.token_count.tokens < 5_000
        return desk

    desk = anyio.run(played)
    assert (desk.refusals, desk.decisions(ThinkingDropped), desk.provider.calls.left_out) == ([], [], set())
    assert str(desk.requests()[-1]["messages"]).count("'compaction'") == 1
