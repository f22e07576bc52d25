"""The official SDK, sync and async, streaming and not, against the Messages API server: shapes of the current API.

Pages: build-with-claude/preserved-thinking, compaction-on-demand, context-editing, mid-conversation-system-messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from raw_requests import ALL_BETAS
from reverie.testing.messages_server import MessagesServer, ServerReply

pytestmark = [pytest.mark.requirement("V10"), pytest.mark.slow]

MODEL = "claude-opus-5-5"
READ: Any = {"name": "Read", "input_schema": {"type": "object"}}
LATER: Any = {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True}
Send = Callable[..., Any]


def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    turn = len(request["messages"])
    return [
        {"type": "thinking", "thinking": f"Thought {turn}."},
        {"type": "text", "text": f"Answer {turn}."},
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(reply) as running:
        yield running


def sync_sender(url: str, streams: bool) -> Send:
    def send(**body: Any) -> Any:
        with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as client:
            if not streams:
                return client.beta.messages.create(betas=list(ALL_BETAS), **body)
            with client.beta.messages.stream(betas=list(ALL_BETAS), **body) as stream:
                return stream.get_final_message()

    return send


def async_sender(url: str, streams: bool) -> Send:
    async def send(**body: Any) -> Any:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
            if not streams:
                return await client.beta.messages.create(betas=list(ALL_BETAS), **body)
            async with client.beta.messages.stream(betas=list(ALL_BETAS), **body) as stream:
                return await stream.get_final_message()

    return lambda **body: asyncio.run(send(**body))


@pytest.fixture(params=["sync", "sync streamed", "async", "async streamed"])
def send(request: pytest.FixtureRequest, server: MessagesServer) -> Send:
    maker = async_sender if request.param.startswith("async") else sync_sender
    return maker(server.base_url, request.param.endswith("streamed"))


class Talk:
    """A conversation kept as the SDK's own objects."""

    def __init__(self, send: Send, **options: Any) -> None:
        self.send = send
        self.messages: list[Any] = []
        self.options: dict[str, Any] = {"model": MODEL, "max_tokens": 4_000, "system": "Be brief.", **options}

    def say(self, words: Any, *instructions: Any, **changes: Any) -> Any:
        self.messages += [{"role": "user", "content": words}, *instructions]
        answer = self.send(**{**self.options, "messages": self.messages, **changes})
        self.messages.append({"role": "assistant", "content": answer.content})
        return answer


def binding(behavior: str) -> dict[str, Any]:
    return {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": behavior}}


def test_thinking_comes_back_as_it_was_and_what_is_dropped_is_reported(send: Send) -> None:
    talk = Talk(send)
    for number in range(3):
        display = {"display": "summarized"} if number == 1 else {}
        answer = talk.say(f"Question {number}", thinking={**binding("error"), **display})
        assert answer.input_transformations == []
    assert [message["content"][0].thinking for message in talk.messages[1::2]] == ["", "Thought 3.", ""]
    dropped = talk.say("Next", system="Be long.", thinking=binding("drop_block")).input_transformations
    assert [(entry.type, entry.path, entry.reason) for entry in dropped] == [
        ("thinking_dropped", f"messages.{index}.content.0", "prefix_binding_mismatch") for index in (1, 3, 5)
    ]
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        talk.say("Next", system="Be short.", thinking=binding("error"))


def test_a_summary_is_a_block_to_send_back(send: Send) -> None:
    talk = Talk(send)
    for number in range(3):
        talk.say(f"Question {number}")
    summary = send(**talk.options, messages=talk.messages[:3], compaction={"type": "summarize"})
    [block] = summary.content
    assert (block.type, summary.stop_reason) == ("compaction", "compaction")
    assert block.content.startswith("Summary")
    assert (summary.usage.input_tokens, summary.usage.output_tokens) == (0, 0)
    [bill] = summary.usage.iterations
    assert (bill.type, bill.output_tokens > 0, bill.input_tokens > 0) == ("compaction", True, True)
    talk.messages[:3] = [{"role": "assistant", "content": summary.content}]
    assert talk.say("Next", thinking=binding("error")).input_transformations == []


def test_refusals_of_a_summary_are_the_errors_of_the_sdk(send: Send, server: MessagesServer) -> None:
    talk = Talk(send)
    talk.say("Question")
    [block] = send(**talk.options, messages=talk.messages, compaction={"type": "summarize"}).content
    question = {"role": "user", "content": "Next"}
    changed = {**block.to_dict(), "content": "Other."}
    with pytest.raises(anthropic.BadRequestError) as caught:
        send(**talk.options, messages=[{"role": "assistant", "content": [changed]}, question])
    assert caught.value.body["error"]["details"] == {"error_code": "compaction_content_mismatch"}
    server.fail(529, code="compaction_unavailable")
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        send(**talk.options, messages=talk.messages, compaction={"type": "summarize"})
    assert overloaded.value.status_code == 529


def test_system_messages_tool_changes_and_effort_go_at_the_end(send: Send) -> None:
    talk = Talk(send, tools=[READ, LATER])
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}}
    later = [
        {"role": "system", "content": "The mode is plan."},
        {"role": "system", "clear_at": "next_user_message", "content": "One file is open."},
        {"role": "system", "content": [addition]},
        {"role": "system", "content": [removal, {"type": "text", "text": "Read is gone."}]},
        {"role": "system", "content": [], "output_config": {"effort": "low"}},
    ]
    for number, instruction in enumerate(later):
        answer = talk.say(f"Question {number}", instruction, thinking=binding("error"))
        assert answer.input_transformations == []
    assert talk.say("Last", thinking=binding("error")).input_transformations == []


def test_edits_of_the_server_are_told_with_the_reply(send: Send) -> None:
    edits: Any = {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}}]}
    messages: list[Any] = [{"role": "user", "content": "Begin"}]
    for index in range(5):
        use = {"type": "tool_use", "id": f"toolu_{index}", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{index}", "content": "z" * 500}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 900, "tools": [READ], "messages": messages}
    [applied] = send(**body, context_management=edits).context_management.applied_edits
    assert (applied.cleared_tool_uses, applied.cleared_input_tokens > 100) == (2, True)


def test_thinking_without_its_words_is_signed_and_goes_back(send: Send) -> None:
    talk = Talk(send, thinking={**binding("error"), "display": "omitted"})
    answer: Any = None
    for number in range(3):
        answer = talk.say(f"Question {number}")
        assert (answer.content[0].thinking, bool(answer.content[0].signature)) == ("", True)
        assert answer.usage.output_tokens > 15
    assert answer.input_transformations == []


@pytest.mark.parametrize("streams", [False, True])
def test_a_refusal_tells_its_category(streams: bool) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    refused = ServerReply([], "refusal", extra={"stop_details": details})
    with MessagesServer(lambda request: refused) as server:
        answer = sync_sender(server.base_url, streams)(
            model=MODEL, max_tokens=900, messages=[{"role": "user", "content": "?"}]
        )
    assert (answer.stop_reason, answer.stop_details.category) == ("refusal", "cyber")


def test_the_models_api_lists_capabilities(server: MessagesServer) -> None:
    with anthropic.Anthropic(base_url=server.base_url, api_key="any") as client:
        rows = {row.id: row for row in client.beta.models.list(betas=["compact-2026-09-04"])}
        plain = client.models.retrieve(MODEL)
    row: Any = rows[MODEL]
    assert (row.max_input_tokens, row.max_tokens) == (1_000_000, 128_000)
    assert row.capabilities.compaction.summarize.supported
    assert not row.capabilities.thinking.types.disabled.supported
    assert not rows["claude-haiku-4-5"].capabilities.compaction.supported
    assert plain.max_input_tokens == 1_000_000
