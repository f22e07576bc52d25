"""The adapter of OpenAI's Responses, through the official SDK, against the test server and against any bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from reverie.conversation.wire.carried_items import carried_block, carried_item
from reverie.errors import ModelRefused, ModelUnavailable, PromptTooLong, ReplyBroken
from reverie.model_facts import facts_of
from reverie.models import open_model
from reverie.models.anthropic import wire_request
from reverie.models.responses import ResponsesModel
from reverie.models.responses_request import responses_body
from reverie.ports import Reply, ReplyDelta
from reverie.testing.chat_server import ChatServer

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Body = dict[str, Any]
pytestmark = pytest.mark.requirement("V14")

MODEL = "gpt-5.6-sol"
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}
THOUGHT = {"type": "thinking", "thinking": "The file first."}
CALL = {"type": "tool_use", "id": "call_1", "name": "Read", "input": {"path": "ä.py"}}
SAID = {"type": "text", "text": "I read the file first.", "phase": "commentary"}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "x = 1"}]}


def asked(*messages: Body, **more: Any) -> Body:
    opening = {"role": "user", "content": "What is in the file?"}
    return {"model": MODEL, "max_tokens": 500, "tools": [READ], "messages": [opening, *messages], **more}


def model_at(server: ChatServer, model_id: str = MODEL, **more: Any) -> ResponsesModel:
    return ResponsesModel(model_id, base_url=server.base_url, **more)


def said_by(reply: Reply) -> Body:
    """Return a reply as a message of the next request, after a log has stored it as JSON."""
    return json.loads(json.dumps({"role": "assistant", "content": reply.body["content"]}))


def shown(reply: Reply) -> list[str]:
    return [block["type"] for block in reply.body["content"] if block["type"] != "redacted_thinking"]


def test_every_item_goes_back_as_it_came_and_in_its_place(run: Run) -> None:
    script = iter([[THOUGHT, SAID, THOUGHT, CALL], [THOUGHT, {"type": "text", "text": "x is 1."}], "Bye."])

    async def steps() -> None:
        with ChatServer(lambda request: next(script)) as server:
            model = model_at(server)
            parts = [part async for part in model.stream(asked())]
            assert parts[-2:-1] == [ReplyDelta("tool", "Read")]
            assert "".join(part.text for part in parts[:-2] if isinstance(part, ReplyDelta)) == SAID["text"]
            first = parts[-1]
            assert isinstance(first, Reply)
            assert (shown(first), first.body["stop_reason"]) == (["text", "tool_use"], "tool_use")
            second = await model.complete(asked(said_by(first), RESULT))
            await model.complete(asked(said_by(first), RESULT, said_by(second), {"role": "user", "content": "Thanks."}))
            assert server.refusals == []
            assert all(body["store"] is False for body in server.requests)
            assert server.requests[0]["include"] == ["reasoning.encrypted_content"]
            items = server.requests[2]["input"]
            assert [item["type"] for item in items] == [
                *("message", "reasoning", "message", "reasoning", "function_call", "function_call_output"),
                *("reasoning", "message", "message"),
            ]
            assert (items[2]["phase"], items[2]["id"]) == ("commentary", "msg_chat00000001_1")
            assert items[4]["arguments"] == '{"path": "ä.py"}'  # with the provider's own space
            await model.aclose()

    run(steps())


def test_reasoning_is_never_sent_without_its_item_and_ids_never_without_their_reasoning() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
    frame = {"type": "message", "id": "msg_1", "phase": "final_answer", "parts": [{"type": "output_text"}]}
    thought, framed = carried_block(reasoning, MODEL), carried_block(frame, MODEL)
    text = {"type": "text", "text": "Hm."}

    def kinds(*content: Body, **more: Any) -> list[tuple[str, bool]]:
        body = responses_body(asked({"role": "assistant", "content": list(content)}), **more)
        return [(item["type"], "id" in item) for item in body["input"][1:]]

    assert kinds(thought, framed, text) == [("reasoning", True), ("message", True)]
    assert kinds(framed, text, thought) == [("message", True)]
    assert kinds(thought) == []
    assert kinds(thought, framed, text, unreadable={"rs_1"}) == [("message", False)]
    other = responses_body({**asked({"role": "assistant", "content": [thought, framed, text]}), "model": "gpt-6-luna"})
    assert [item["type"] for item in other["input"]] == ["message", "message"]
    assert "id" not in other["input"][1]


def test_reasoning_that_cannot_be_read_is_left_out_once_and_from_then_on(run: Run) -> None:
    async def steps() -> None:
        with ChatServer(lambda request: [THOUGHT, {"type": "text", "text": "Yes."}]) as server:
            model = model_at(server)
            first = await model.complete(asked())
            server.seal.renew()
            more = {"role": "user", "content": "And?"}
            second = await model.complete(asked(said_by(first), more))
            assert second.body["input_transformations"][0]["reason"] == "invalid_encrypted_content"
            assert [status for status, _ in server.refusals] == [400]
            third = await model.complete(asked(said_by(first), more, said_by(second), more))
            assert "input_transformations" not in third.body
            sent = server.requests[-1]["input"]
            assert [item["id"] for item in sent if item["type"] == "reasoning"] == ["rs_chat00000002_0"]
            assert len(server.refusals) == 1
            await model.aclose()

    run(steps())


def test_a_model_that_keeps_unreadable_reasoning_is_refused_for_good(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin: nothing is left out on the second try."""
    monkeypatch.setattr("reverie.models.responses.encrypted_ids", lambda body: set())

    async def steps() -> None:
        with ChatServer(lambda request: [THOUGHT, {"type": "text", "text": "Yes."}]) as server:
            model = model_at(server)
            first = await model.complete(asked())
            server.seal.renew()
            with pytest.raises(ModelRefused, match="could not be verified"):
                await model.complete(asked(said_by(first), {"role": "user", "content": "And?"}))
            await model.aclose()

    run(steps())


def test_a_cached_prefix_is_read_at_breakpoints_and_writes_are_counted(run: Run) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "Be brief. " * 800, **mark}]

    async def steps() -> None:
        with ChatServer(lambda request: "Yes.") as server:
            model = model_at(server)
            messages: list[Body] = []
            replies: list[Body] = []
            for turn in range(6):
                told = {"type": "text", "text": f"Question {turn}. " * 100, **mark}
                messages.append({"role": "user", "content": [told]})
                reply = await model.complete({**asked(), "system": system, "messages": messages})
                replies.append(reply.body["usage"])
                messages.append(said_by(reply))
            for before, after in pairwise(replies):
                sent_before = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
                assert after["cache_read_input_tokens"] == sent_before > 1_024
                assert after["cache_creation_input_tokens"] > 0
            for body in server.requests:
                marked = [
                    (item["role"], part)
                    for item in body["input"]
                    if isinstance(item.get("content"), list)
                    for part in item["content"]
                    if "prompt_cache_breakpoint" in part
                ]
                assert 1 <= len(marked) <= 3
                assert marked[0][0] == "developer"
                assert {role for role, _ in marked} <= {"developer", "user"}
            await model.aclose()

    run(steps())


def test_breakpoints_go_only_to_models_that_take_them() -> None:
    text = {"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}
    request = {**asked(), "messages": [{"role": "user", "content": [text]}]}
    assert "prompt_cache_breakpoint" in json.dumps(responses_body(request))
    assert "prompt_cache_breakpoint" not in json.dumps(responses_body({**request, "model": "gpt-5.5"}))


def test_a_whole_request() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}}
    late = {"name": "Late", "input_schema": {"type": "object"}, "strict": True}
    addition = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": late}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "no"}, image]}
    request = asked(
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."}, CALL]},
        {"role": "user", "content": [{**result, "is_error": True}]},
        {"role": "system", "content": [{"type": "text", "text": "The date is new."}, addition, removal]},
        system="Be kind.",
        temperature=0.5,
        thinking={"type": "adaptive", "display": "summarized"},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        tool_choice={"type": "tool", "name": "Read", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
    )
    parameters = {"type": "object", "properties": {}}
    output = [{"type": "input_text", "text": "Error: no"}, {"type": "input_image", "detail": "auto"}]
    output[1]["image_url"] = "data:image/png;base64,iVBORw0="
    told = "These tools are no longer available; do not call them: Read"
    assert responses_body(request) == {
        "model": MODEL,
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in the file?"}]},
            {"type": "message", "role": "assistant", "content": "Hm."},
            {"type": "function_call", "call_id": "call_1", "name": "Read", "arguments": '{"path":"ä.py"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": output},
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "The date is new."}, {"type": "input_text", "text": told}],
            },
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [{"type": "function", "name": "Late", "parameters": {"type": "object"}, "strict": True}],
            },
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 500,
        "reasoning": {"effort": "high", "context": "all_turns", "summary": "auto"},
        "tools": [
            {
                "type": "function",
                "name": "Read",
                "description": "Read a file.",
                "parameters": parameters,
                "strict": False,
            }
        ],
        "tool_choice": {"type": "function", "name": "Read"},
        "parallel_tool_calls": False,
        "text": {
            "format": {"type": "json_schema", "name": "reply", "schema": {"type": "object"}, "strict": True},
        },
    }


@pytest.mark.parametrize(
    ("model", "thinking", "effort", "temperature"),
    [
        ("gpt-6-luna", {"type": "disabled"}, "none", 0.5),
        ("gpt-6-luna", {"type": "adaptive"}, None, None),
        ("gpt-6-astra", {"type": "disabled"}, None, None),
        ("gpt-4.1", {"type": "disabled"}, None, 0.5),
    ],
)
def test_effort_and_temperature_go_where_the_model_takes_them(
    run: Run, model: str, thinking: Body, effort: str | None, temperature: float | None
) -> None:
    request = {**asked(thinking=thinking, temperature=0.5), "model": model}
    body = responses_body(request)
    assert (body.get("reasoning", {}).get("effort"), body.get("temperature")) == (effort, temperature)

    async def steps() -> None:
        with ChatServer(lambda request: "Yes.") as server:
            adapter = model_at(server, model)
            await adapter.complete(request)
            assert server.refusals == []
            await adapter.aclose()

    run(steps())


def test_refusals_limits_and_errors_are_told_apart(run: Run) -> None:
    answers: list[Any] = [
        [{"type": "refusal", "refusal": "I cannot help with that."}],
        [{"type": "text", "text": "It is so long that", "cut": True}],
        [THOUGHT, {"type": "thinking", "thinking": "And more", "cut": True}],
        "After that.",
    ]

    async def steps() -> None:
        with ChatServer(lambda request: answers.pop(0), window=3_000) as server:
            model = model_at(server)
            refused, cut, silent = [await model.complete(asked()) for _ in range(3)]
            assert (refused.body["stop_reason"], shown(refused)) == ("refusal", ["text"])
            assert (cut.body["stop_reason"], shown(cut)) == ("max_tokens", ["text"])
            assert (silent.body["stop_reason"], shown(silent)) == ("max_tokens", [])
            # The reply that ended in reasoning goes back without it: alone it would be refused.
            await model.complete(asked(said_by(silent), {"role": "user", "content": "Go on."}))
            assert server.refusals == []
            with pytest.raises(PromptTooLong) as error:
                await model.complete(asked({"role": "user", "content": "x" * 20_000}))
            assert error.value.limit == 3_000
            await model.aclose()

    run(steps())


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (event("error", code="server_error", message="oh"), ModelUnavailable, "oh"),
        (event("error", code="invalid_prompt", message="no"), ModelRefused, "no"),
        (
            event("response.failed", response={"status": "failed", "error": {"code": "rate_limit_exceeded"}}),
            ModelUnavailable,
            "429",
        ),
        (event("response.completed", response={"status": "queued"}), ReplyBroken, "queued"),
        (b"data: []\n\n", ReplyBroken, "not an object"),
        (b"data: {\n\n", ReplyBroken, "not JSON"),
    ],
)
def test_errors_inside_a_stream_have_their_class(
    run: Run, serving: Any, body: bytes, kind: type[Exception], message: str
) -> None:
    async def steps() -> None:
        async with serving([{"body": body}]) as canned:
            model = ResponsesModel(MODEL, base_url=f"{canned.base_url}/v1")
            with pytest.raises(kind, match=message):
                await model.complete(asked())
            await model.aclose()

    run(steps())


@pytest.mark.requirement("Q7")
def test_a_stream_cut_at_any_byte_is_never_a_reply(run: Run, serving: Any, seed: int, torture: bool) -> None:
    from reverie.testing.chat_server.replies import Tokens, response_body, response_events, response_output

    output = response_output("r", [THOUGHT, SAID, CALL], lambda text: "sealed")
    body = b"".join(response_events(response_body("r", MODEL, output, Tokens(9, 0, 0, 3))))
    rng = Random(seed)
    cuts = [rng.randrange(len(body) - 2) for _ in range(500 if torture else 60)]

    async def steps() -> None:
        async with serving([{"body": body, "cut": cut} for cut in cuts] + [{"body": body}]) as canned:
            model = ResponsesModel(MODEL, base_url=f"{canned.base_url}/v1")
            for _ in cuts:
                with pytest.raises((ReplyBroken, ModelUnavailable)):
                    await model.complete(asked())
            assert shown(await model.complete(asked())) == ["text", "tool_use"]
            await model.aclose()

    run(steps())


def test_a_compacted_conversation_is_one_block_that_goes_on_as_it_came(run: Run) -> None:
    async def steps() -> None:
        with ChatServer(lambda request: [THOUGHT, {"type": "text", "text": "Summary or answer."}]) as server:
            model = model_at(server)
            first = await model.complete(asked())
            more = {"role": "user", "content": "And then?"}
            told = asked(said_by(first), more, system="Be kind.")
            reply = await model.complete({**told, "compaction": {"type": "summarize", "instructions": "Keep ä.py."}})
            assert server.paths[-1] == "/v1/responses/compact"
            assert set(server.requests[-1]) == {"model", "input"}
            assert server.requests[-1]["input"][-1]["content"][0]["text"] == "Keep ä.py."
            (block,) = reply.body["content"]
            assert (reply.body["stop_reason"], block["type"]) == ("compaction", "compaction")
            assert "And then?" in block["content"]
            later = {**told, "messages": [said_by(reply), {"role": "user", "content": "Go on."}]}
            await model.complete(later)
            window = carried_item(block, MODEL)
            assert window is not None
            assert server.requests[-1]["input"][1:-1] == window["items"]
            assert [item["type"] for item in window["items"]] == ["message", "message", "compaction"]
            # Another model cannot read the item and gets the text instead; so does Anthropic.
            other = responses_body({**later, "model": "gpt-6-luna"})["input"]
            assert [item["role"] for item in other] == ["developer", "user", "user"]
            assert "And then?" in other[1]["content"][0]["text"]
            body, _ = wire_request({**later, "model": "claude-opus-5-5"})
            assert (body["messages"][0]["role"], body["messages"][0]["content"][0]["type"]) == ("user", "text")
            assert server.refusals == []
            # A key that changed: the item is dropped once, its text remains.
            server.seal.renew()
            await model.complete(later)
            assert [item["type"] for item in server.requests[-1]["input"]] == ["message"] * 3
            await model.aclose()

    run(steps())


def test_what_is_carried_for_one_provider_never_reaches_another(run: Run) -> None:
    async def steps() -> None:
        with ChatServer(lambda request: [THOUGHT, SAID, CALL]) as server:
            model = model_at(server)
            reply = await model.complete(asked())
            body, _ = wire_request({**asked(said_by(reply), RESULT), "model": "claude-opus-5-5"})
            assert "openai:" not in json.dumps(body)
            assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use"]
            await model.aclose()

    run(steps())


@pytest.mark.parametrize(
    ("name", "address", "api"),
    [
        ("openai:gpt-5.6", "", "ResponsesModel"),
        ("gpt-6-astra", "", "ResponsesModel"),
        ("openai:gpt-5.5", "", "OpenAIModel"),
        ("openai:gpt-5.6", "http://localhost:1/v1", "OpenAIModel"),
        ("openai-responses:gpt-5.6", "http://localhost:1/v1", "ResponsesModel"),
        ("openai-responses:gpt-5.5", "", "ResponsesModel"),
        ("openai-chat:gpt-5.6", "", "OpenAIModel"),
    ],
)
def test_the_name_the_model_and_the_address_choose_the_api(name: str, address: str, api: str) -> None:
    environ = {"OPENAI_API_KEY": "k", **({"OPENAI_BASE_URL": address} if address else {})}
    model = open_model(name, environ=environ)
    assert type(model).__name__ == api
    # A name that is given again opens the same API.
    assert type(open_model(model.name, environ=environ)).__name__ == api


def test_a_setting_chooses_the_api_too() -> None:
    model = open_model("gpt-5.6", environ={"OPENAI_API_KEY": "k"}, corrections={"gpt-5.6": {"api": "chat"}})
    assert type(model).__name__ == "OpenAIModel"
    assert facts_of("gpt-5.6").api == "responses"
