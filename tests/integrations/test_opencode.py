"""The history of opencode as a session shows it: shorter, with the newest turn, and the same for a new process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reverie import InMemoryStorage, Session
from reverie.integrations.opencode import shortened
from reverie.settings import Settings, load_settings
from reverie.values import replace

Body = dict[str, Any]


def user(number: int, text: str) -> Body:
    info = {"id": f"msg_u{number}", "role": "user", "sessionID": "ses_1", "model": {"modelID": "scripted"}}
    return {"info": info, "parts": [{"id": f"prt_u{number}", "type": "text", "text": text}]}


def reply(number: int, output: str = "", text: str = "") -> Body:
    parts: list[Body] = [{"type": "step-start"}]
    if output:
        state = {"status": "completed", "input": {"command": f"make {number}"}, "output": output, "title": "make"}
        parts.append({"type": "tool", "callID": f"call_{number}", "tool": "bash", "state": state})
    if text:
        parts.append({"type": "text", "text": text})
    return {"info": {"id": f"msg_a{number}", "role": "assistant", "sessionID": "ses_1"}, "parts": parts}


def history(turns: int, size: int = 3_000) -> list[Body]:
    """Return a history of turns with a call each; the last one waits for the reply to its result."""
    messages: list[Body] = []
    for number in range(turns):
        lines = "\n".join(f"line {at} of build {number}" for at in range(size // 20))
        messages += [user(number, f"Please run build {number}."), reply(number, lines)]
        if number < turns - 1:
            messages.append(reply(1_000 + number, text=f"Build {number} is done."))
    return messages


@pytest.fixture
def small(home: Any) -> Settings:
    return replace(load_settings(), window_tokens=24_000)


async def view(messages: list[Body], storage: InMemoryStorage, settings: Settings) -> list[Body] | None:
    """Return the view of a process of its own on these messages."""
    async with Session.open("opencode-ses_1", storage=storage, settings=settings) as session:
        return await shortened(session, json.loads(json.dumps(messages)))


async def test_a_long_history_is_shortened_with_the_newest_turn_whole_and_the_same_in_a_later_process(
    small: Settings, anyio_backend: str
) -> None:
    storage = InMemoryStorage()
    seen: list[list[Body]] = []
    for turns in range(2, 40, 6):
        messages = history(turns)
        seen.append(await view(messages, storage, small) or messages)
        assert seen[-1][-2:] == messages[-2:]
        assert seen[-1][0]["info"]["role"] == "user"
    assert len(json.dumps(seen[-1])) < len(json.dumps(history(38))) / 2
    assert seen[0] == history(2)
    assert seen[-1][0]["parts"][0]["synthetic"]
    assert "Please run build 0." in seen[-1][0]["parts"][0]["text"]
    assert await view(history(38), storage, small) == seen[-1]


async def test_the_summary_stands_in_a_first_message_that_has_only_a_file(small: Settings, anyio_backend: str) -> None:
    messages = history(38)
    file = {"id": "prt_f", "type": "file", "mime": "image/png", "filename": "plan.png", "url": "data:,"}
    messages[0]["parts"] = [file]
    found = await view(messages, InMemoryStorage(), small)
    assert found is not None
    [part] = found[0]["parts"]
    assert part.keys() == {"id", "type", "text", "synthetic"}
    assert (part["id"], part["type"]) == ("prt_f", "text")


async def test_a_short_history_and_one_without_a_prompt_are_sent_as_they_are(anyio_backend: str) -> None:
    storage = InMemoryStorage()
    assert await view(history(3), storage, load_settings()) is None
    assert await view([reply(1, text="hello")], storage, load_settings()) is None


async def test_a_big_result_is_a_preview_with_its_handle(anyio_backend: str) -> None:
    messages = [user(1, "Read the log."), reply(1, "row of the log\n" * 20_000)]
    found = await view(messages, InMemoryStorage(), load_settings())
    assert found is not None
    state = found[1]["parts"][1]["state"]
    assert len(state["output"]) < 5_000
    assert "call_1" in state["output"]
    assert state["input"] == {"command": "make 1"}
