"""Sessions whose own loops call OpenAI's SDK: requests in its shapes, replies as they came, through the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest

from reverie import InMemoryStorage, Session
from reverie.conversation.decisions import ThinkingDropped
from reverie.errors import InputError
from reverie.events import DecisionMade
from reverie.layers.l4_compact import CompactPolicy
from reverie.models.responses import ResponsesModel
from reverie.settings import Settings, Switches
from reverie.testing.chat_server import ChatServer

pytestmark = pytest.mark.requirement("V14")
Body = dict[str, Any]

MODEL = "gpt-5.6-sol"
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
SHAPES = ["chat", "responses"]
SIGNED = {"google": {"thought_signature": "c2lnbmF0dXJl"}}


def settings_in(home: Path, **more: Any) -> Settings:
    return Settings(home=home, **more)


def random_script(rng: Random) -> Callable[[Any], list[Body]]:
    """Return a model that thinks, talks, calls tools, refuses and is cut off, at random."""
    numbers = iter(range(1, 10_000))

    def script(request: Any) -> list[Body]:
        number = next(numbers)
        blocks: list[Body] = []
        if rng.random() < 0.7:
            blocks.append({"type": "thinking", "thinking": "t" * rng.randrange(1, 200)})
        if rng.random() < 0.5:
            blocks.append({"type": "text", "text": f"Word {number}.", "phase": "commentary"})
        calls = rng.randrange(3)
        for call in range(calls):
            named = {"type": "tool_use", "id": f"call_{number}_{call}", "name": "Read", "input": {"at": number}}
            blocks += [{"type": "thinking", "thinking": "again"}, named] if rng.random() < 0.3 else [named]
        if not calls:
            kind = rng.choice(["text", "text", "refusal", "cut", "thought"])
            if kind == "thought":  # the limit of tokens is reached while the model thinks
                return [{"type": "thinking", "thinking": "t", "cut": True}]
            blocks.append({"type": "refusal", "refusal": "No."} if kind == "refusal" else {"type": "text", "text": "ä"})
            blocks[-1] = {**blocks[-1], "cut": True} if kind == "cut" else blocks[-1]
        return blocks

    return script


async def one_prompt(session: Session, client: Any, shape: Any, model: str, rng: Random) -> None:
    """Ask once and answer all calls, as an own loop does."""
    create = client.chat.completions.create if shape == "chat" else client.responses.create
    for _ in range(8):
        asked: Body = {"model": model, "max_tokens": 1_000, "system": "Be brief.", "tools": [READ]}
        calls = await session.observe(await create(**await session.prepare(**asked, shape=shape)))
        if not calls:
            return
        for call in calls:
            await session.result(call.id, "line of text\n" * rng.randrange(1, 30), is_error=rng.random() < 0.2)


def run_session(
    home: Path, shape: str, model: str, seed: str, script: Any, prompts: int = 5, **options: Any
) -> ChatServer:
    """Run one conversation that is closed and opened again after every prompt, and return its server."""

    async def steps() -> ChatServer:
        rng, storage = Random(seed), InMemoryStorage()
        with ChatServer(script) as server:
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="any") as client:
                for number in range(prompts):
                    # Without clearing, so that a request only extends the one before.
                    settings = settings_in(home, switches=Switches(idle_trim=False, priced_trim=False))
                    opened = Session.open("s", storage=storage, settings=settings)
                    async with opened as session:
                        await session.say(f"Prompt {number}.")
                        await one_prompt(session, client, shape, model, rng)
        return server

    return asyncio.run(steps())


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_random_conversations_are_never_refused_and_only_grow(
    shape: str, seed: int, torture: bool, tmp_path: Path
) -> None:
    for number in range(100 if torture else 2):
        name = f"{seed}/{number}"
        model = MODEL if shape == "responses" else "gpt-4.1"
        server = run_session(tmp_path, shape, model, name, random_script(Random(name)))
        assert server.refusals == [], name
        key = "messages" if shape == "chat" else "input"
        for before, after in pairwise(server.requests):
            assert unmarked(after[key])[: len(before[key])] == unmarked(before[key]), name


def unmarked(items: list[Any]) -> list[Any]:
    text = json.dumps(items).replace(', "prompt_cache_breakpoint": {"mode": "explicit"}', "")
    return json.loads(text)


@pytest.mark.slow
def test_reasoning_is_sent_back_with_its_bytes_through_the_log(tmp_path: Path) -> None:
    script = random_script(Random(7))
    server = run_session(tmp_path, "responses", MODEL, "7", script)
    sent = {item["id"]: item for item in server.requests[-1]["input"] if item["type"] == "reasoning"}
    assert len(sent) >= 4
    for identity, item in sent.items():
        first = next(body for body in server.requests if any(one.get("id") == identity for one in body["input"]))
        assert item in first["input"]
        server.seal.open(item["encrypted_content"], MODEL, identity)


def test_a_translation_that_forgets_reasoning_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin: items keep their ids, and the reasoning before them is left out."""
    monkeypatch.setattr("reverie.models.responses_request._is_sent", lambda item, unreadable: False)
    monkeypatch.setattr("reverie.models.responses_request._is_reasoning", lambda block, item: False)
    with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
        run_session(tmp_path, "responses", MODEL, "7", random_script(Random(7)))


def test_thought_signatures_of_gemini_survive_the_log(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        if len(request["messages"]) > 6:
            return "Done."
        number = len(request["messages"])
        return [
            {"type": "tool_use", "id": f"a{number}", "name": "Read", "input": {}, "extra_content": SIGNED},
            {"type": "tool_use", "id": f"b{number}", "name": "Read", "input": {}},
        ]

    server = run_session(tmp_path, "chat", "gemini-3.8-flash", "1", script, prompts=2)
    assert server.refusals == []
    calls = [call for message in server.requests[-1]["messages"] for call in message.get("tool_calls", ())]
    assert [call.get("extra_content") for call in calls[:2]] == [SIGNED, None]


def test_calls_of_other_models_get_the_placeholder_that_gemini_wants(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}

    async def steps() -> None:
        script = iter([[use, {**use, "id": "b"}], "Done.", "Done again."])
        with ChatServer(lambda request: next(script)) as server:
            opened = Session.open("s", storage=InMemoryStorage(), settings=settings_in(tmp_path))
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="any") as client, opened as session:
                await session.say("Read.")
                await one_prompt(session, client, "chat", "gpt-4.1", Random(1))
                await session.say("And now?")
                await one_prompt(session, client, "chat", "gemini-3.8-flash", Random(1))
                assert server.refusals == []
                first, second = server.requests[-1]["messages"][2]["tool_calls"]
                assert first["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
                assert "extra_content" not in second
                assert "extra_content" not in json.dumps(server.requests[1])

    asyncio.run(steps())


def test_a_signature_that_is_lost_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin: the fields that a server added to a call are forgotten."""
    keys = {"index", "id", "type", "function", "extra_content"}
    monkeypatch.setattr("reverie.models.chat_reply._CALL_KEYS", keys)
    use = {"type": "tool_use", "id": "a", "name": "Read", "input": {}, "extra_content": SIGNED}
    with pytest.raises(openai.BadRequestError, match="missing a thought_signature"):
        run_session(tmp_path, "chat", "gemini-3.8-flash", "1", lambda request: [use], prompts=1)


@pytest.mark.parametrize("model", ["deepseek-v4", "kimi-k2.6"])
def test_reasoning_text_goes_back_with_calls_where_a_server_demands_it(model: str, tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        if request["messages"][-1]["role"] == "tool":
            return [{"type": "thinking", "thinking": "It is read."}, {"type": "text", "text": "Done."}]
        number = len(request["messages"])
        thought = [{"type": "thinking", "thinking": f"Read {number}."}] if number < 4 else []
        return [*thought, {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {}}]

    server = run_session(tmp_path, "chat", model, "1", script, prompts=3)
    assert server.refusals == []
    replies = [message for message in server.requests[-1]["messages"] if message["role"] == "assistant"]
    told = [message.get("reasoning_content") for message in replies]
    # A reply without calls needs no reasoning; one without reasoning gets an empty field.
    assert told == ["Read 2.", None, "", None, ""]


def test_reasoning_text_that_is_dropped_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin: reasoning is shown and forgotten, as before."""
    monkeypatch.setattr("reverie.models.chat_request._reasoning", lambda blocks, facts: {})
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "tool_use", "id": "c", "name": "Read", "input": {}}]
    with pytest.raises(openai.BadRequestError, match="must be passed back"):
        run_session(tmp_path, "chat", "deepseek-v4", "1", lambda request: blocks, prompts=1)


def test_thinking_inside_the_content_stays_there(tmp_path: Path) -> None:
    said = "<think>Read it?</think>Yes."
    server = run_session(tmp_path, "chat", "minimax-m3", "1", lambda request: said, prompts=2)
    assert server.requests[-1]["messages"][2]["content"] == said


def test_options_go_in_the_names_of_the_api(tmp_path: Path) -> None:
    async def steps() -> None:
        opened = Session.open("s", storage=InMemoryStorage(), settings=settings_in(tmp_path))
        async with opened as session:
            await session.say("Hi.")
            asked: Body = {"model": MODEL, "max_tokens": 99, "extra_headers": {"x": "1"}}
            chat = await session.prepare(**asked, shape="chat")
            assert (chat["max_completion_tokens"], chat["extra_headers"]) == (99, {"x": "1"})
            responses = await session.prepare(**asked, shape="responses")
            assert (responses["max_output_tokens"], responses["store"]) == (99, False)
            messages = await session.prepare(**asked)
            assert messages["messages"][0]["content"][0]["text"] == "Hi."
            wrong: Any = "soap"
            with pytest.raises(InputError, match="'messages', 'chat' or 'responses'"):
                await session.prepare(**asked, shape=wrong)

    asyncio.run(steps())


@pytest.mark.parametrize(("model", "thinks"), [("gpt-6-astra", False), ("gpt-6-sol", True)])
def test_tools_that_a_model_does_not_take_in_a_shape_are_refused_with_the_remedy(
    model: str, thinks: bool, tmp_path: Path
) -> None:
    asked: Body = {"model": model, "max_tokens": 99, "tools": [READ]}

    async def prepared(models: Any = None, **given: Any) -> Body:
        settings = settings_in(tmp_path, models=models or {})
        async with Session.open("s", storage=InMemoryStorage(), settings=settings) as session:
            await session.say("Hi.")
            return await session.prepare(**asked, **given)

    async def steps() -> None:
        with pytest.raises(InputError, match=r"shape='responses'.*disabled" if thinks else "shape='responses'; for"):
            await prepared(shape="chat")
        assert (await prepared(shape="responses"))["tools"]
        remedies: Body = {"thinking": {"type": "disabled"}} if thinks else {"models": {model: {"chat_tools": "yes"}}}
        assert (await prepared(**remedies, shape="chat"))["tools"]

    asyncio.run(steps())


def test_a_switch_to_anthropic_and_back_loses_no_reasoning(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "Hm."}

    async def steps() -> None:
        with ChatServer(lambda request: [thought, {"type": "text", "text": "Yes."}]) as server:
            opened = Session.open("s", storage=InMemoryStorage(), settings=settings_in(tmp_path))
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="any") as client, opened as session:
                await session.say("One?")
                asked: Body = {"model": MODEL, "max_tokens": 99, "shape": "responses"}
                await session.observe(await client.responses.create(**await session.prepare(**asked)))
                await session.say("Two?")
                claude = await session.prepare(model="claude-opus-5-5", max_tokens=99)
                assert "openai:" not in json.dumps(claude)
                assert [one["role"] for one in claude["messages"]] == ["user", "assistant", "user"]
                reply = {"id": "m", "role": "assistant", "model": "claude-opus-5-5", "content": "Two."}
                await session.observe({**reply, "stop_reason": "end_turn"})
                await session.say("Three?")
                await session.observe(await client.responses.create(**await session.prepare(**asked)))
                kinds = [item["type"] for item in server.requests[-1]["input"]]
                assert kinds == ["message", "reasoning", "message", "message", "message", "message"]
                assert server.refusals == []

    asyncio.run(steps())


def test_reasoning_that_its_provider_cannot_read_is_dropped_in_the_log(tmp_path: Path) -> None:
    async def steps() -> None:
        storage, settings = InMemoryStorage(), settings_in(tmp_path)
        seen: list[Any] = []
        with ChatServer(reader()) as server:
            for turn in range(3):  # each time another process, which knows only the log
                model = ResponsesModel(MODEL, base_url=server.base_url)
                async with Session.open("s", storage=storage, settings=settings) as session:
                    session.listen(lambda event: seen.append(event))
                    await fill(session, model, 1, size=200)
                await model.aclose()
                if turn == 0:
                    server.seal.renew()
            made = [event.decision for event in seen if isinstance(event, DecisionMade)]
            dropped = [decision for decision in made if isinstance(decision, ThinkingDropped)]
            assert (len(server.refusals), [len(one.messages) for one in dropped]) == (1, [2])
            assert any(item["type"] == "reasoning" for item in server.requests[-1]["input"])

    asyncio.run(steps())


def by_provider(home: Path, **more: Any) -> Settings:
    return settings_in(home, window_tokens=20_000, compact=CompactPolicy(by_provider=True, **more))


async def fill(session: Session, model: ResponsesModel, prompts: int, size: int = 6_000) -> None:
    """Hold a conversation with one big result in each prompt."""
    for number in range(prompts):
        await session.say(f"Prompt {number}.")
        while True:
            reply = await model.complete(await session.prepare(model=MODEL, max_tokens=1_000, tools=[READ]))
            calls = await session.observe(reply.body)
            if not calls:
                break
            for call in calls:
                await session.result(call.id, f"{number} line of text\n" * (size // 20))


def reader() -> Callable[[Any], Any]:
    """Return a model that reads a file for every prompt, and thinks before each step."""
    numbers = iter(range(10_000))

    def script(request: Any) -> list[Body]:
        thought = {"type": "thinking", "thinking": "Hm."}
        if request["input"][-1].get("type") == "function_call_output" or "tools" not in request:
            return [thought, {"type": "text", "text": "Done."}]
        return [thought, {"type": "tool_use", "id": f"call_{next(numbers)}", "name": "Read", "input": {}}]

    return script


@pytest.mark.slow
def test_the_provider_compacts_a_session_and_undo_brings_the_past_back(tmp_path: Path) -> None:
    async def steps() -> None:
        storage, settings = InMemoryStorage(), by_provider(tmp_path, in_background=False)
        with ChatServer(reader()) as server:
            model = ResponsesModel(MODEL, base_url=server.base_url)
            async with Session.open("s", storage=storage, settings=settings, model=model) as session:
                await fill(session, model, 6)
                past = session.view.messages()
                report = await session.compact()
                assert (report.method, server.paths.count("/v1/responses/compact")) == ("provider", 1)
                await fill(session, model, 1)
            async with Session.open("s", storage=storage, settings=settings, model=model) as session:
                await fill(session, model, 1)
                kinds = [item["type"] for item in server.requests[-1]["input"]]
                assert (kinds.count("compaction"), kinds.count("reasoning") >= 4) == (1, True)
                await session.undo()
                assert session.view.messages()[: len(past)] == past
                await fill(session, model, 1)
                assert all(item["type"] != "compaction" for item in server.requests[-1]["input"])
            assert server.refusals == []
            await model.aclose()

    asyncio.run(steps())


@pytest.mark.slow
def test_the_provider_compacts_in_the_background(tmp_path: Path) -> None:
    async def steps() -> None:
        storage, settings = InMemoryStorage(), by_provider(tmp_path)
        with ChatServer(reader()) as server:
            model = ResponsesModel(MODEL, base_url=server.base_url)
            for prompts in (14, 1):
                async with Session.open("s", storage=storage, settings=settings, model=model) as session:
                    await fill(session, model, prompts)
            kinds = [item["type"] for item in server.requests[-1]["input"]]
            assert kinds.count("compaction") == 1
            assert server.refusals == []
            await model.aclose()

    asyncio.run(steps())


@pytest.mark.slow
def test_an_own_loop_compacts_by_its_own_call(tmp_path: Path) -> None:
    async def steps() -> None:
        with ChatServer(reader()) as server:
            model = ResponsesModel(MODEL, base_url=server.base_url)
            settings = by_provider(tmp_path)
            opened = Session.open("s", storage=InMemoryStorage(), settings=settings)
            async with openai.AsyncOpenAI(base_url=server.base_url, api_key="any") as client, opened as session:
                request = None
                while request is None:
                    await fill(session, model, 1)
                    request = await session.background_request(shape="responses")
                assert set(request) == {"model", "input"}
                assert await session.background_reply(await client.responses.compact(**request))
                await fill(session, model, 1)
                assert [item["type"] for item in server.requests[-1]["input"]].count("compaction") == 1
                assert server.refusals == []
            await model.aclose()

    asyncio.run(steps())


def test_a_tool_that_is_added_later_comes_at_the_end(tmp_path: Path) -> None:
    late = {"name": "Late", "description": "A late tool.", "input_schema": {"type": "object"}}

    async def steps() -> None:
        with ChatServer(lambda request: "Yes.") as server:
            model = ResponsesModel(MODEL, base_url=server.base_url)
            opened = Session.open("s", storage=InMemoryStorage(), settings=settings_in(tmp_path))
            async with opened as session:
                brief = "Be brief.\n" * 40
                changes = [([READ], brief), ([READ, late], f"{brief}Be kind."), ([READ, late], f"{brief}Be kind.")]
                for tools, system in changes:
                    await session.say("Well?")
                    request = await session.prepare(model=MODEL, max_tokens=99, tools=tools, system=system)
                    await session.observe((await model.complete(request)).body)
                first, second, third = server.requests
                assert (second["tools"], third["tools"]) == (first["tools"], first["tools"])
                added = [item for item in second["input"] if item["type"] == "additional_tools"]
                assert [tool["name"] for tool in added[0]["tools"]] == ["Late"]
                assert unmarked(third["input"])[: len(second["input"])] == unmarked(second["input"])
                developer = [item for item in second["input"] if item.get("role") == "developer"]
                assert "Be kind." in json.dumps(developer[1])
                assert server.refusals == []
            await model.aclose()

    asyncio.run(steps())
