"""Thinking without words, unreadable thinking and signed summaries survive every path, block for block."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from reverie import InMemoryStorage, Session, Settings
from reverie.cli.main import run as reverie
from reverie.conversation.decisions import Cause, Compacted
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.importers import read_session
from reverie.integrations.history_pieces import Placeholders
from reverie.settings import load_settings

MODEL = "claude-opus-5-5"
THOUGHTS = [
    {"type": "thinking", "thinking": "", "signature": "c2lnbmVkIHdpdGhvdXQgd29yZHM="},
    {"type": "redacted_thinking", "data": "dW5yZWFkYWJsZQ=="},
    {"type": "thinking", "thinking": "Fine.", "signature": "c2lnbmVk"},
]
SUMMARY = {"type": "compaction", "content": "So far: one.", "signature": "c3VtbWFyeQ=="}
BLOCKS = [SUMMARY, *THOUGHTS]
Path_ = Callable[[Path], Awaitable[list[dict[str, Any]]]]
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def talk(session: Session) -> None:
    """Log a conversation that begins with a signed summary and goes on with thinking in three forms."""
    first = await session.say("One.")
    kept = await session.say("Two.")
    ask = {"model": MODEL, "max_tokens": 500, "system": "Be brief."}
    cause = Cause("compact", "for the test", moves_prefix=True)
    covered = {"trigger": "auto", "method": "provider", "summary": SUMMARY["content"], "tokens_before": 100}
    await session.log.decide(
        Compacted(cause, **covered, last_before=first.uuid, first_kept=kept.uuid, block=dict(SUMMARY))
    )
    await session.prepare(**ask)
    words = {"type": "text", "text": "Done."}
    reply = {
        "id": "msg_1",
        "model": MODEL,
        "role": "assistant",
        "content": [*THOUGHTS, words],
        "stop_reason": "end_turn",
    }
    await session.observe({**reply, "usage": {"input_tokens": 9, "output_tokens": 9}})
    await session.say("Three.")


def shown(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the summaries and the thinking in messages, without cache marks."""
    blocks = [block for one in messages if isinstance(one["content"], list) for block in one["content"]]
    kinds = ("compaction", "thinking", "redacted_thinking")
    return [
        {key: value for key, value in one.items() if key != "cache_control"} for one in blocks if one["type"] in kinds
    ]


async def by_request(folder: Path) -> list[dict[str, Any]]:
    async with Session.open("s", storage=InMemoryStorage(), settings=Settings(home=folder)) as session:
        await talk(session)
        return shown((await session.prepare(model=MODEL, max_tokens=500, system="Be brief."))["messages"])


async def logged(folder: Path) -> Path:
    async with Session.open("s", cwd=folder, settings=load_settings(project=folder)) as session:
        await talk(session)
    return next(session.settings.home.glob("projects/**/s.jsonl"))


async def by_json(folder: Path) -> list[dict[str, Any]]:
    entries = parse_log((await logged(folder)).read_bytes()).entries
    return shown(build_request(View().fold_all(entries))["messages"])


async def by_resume(folder: Path) -> list[dict[str, Any]]:
    await logged(folder)
    async with Session.open("s", cwd=folder, settings=load_settings(project=folder)) as session:
        return shown((await session.prepare(model=MODEL, max_tokens=500, system="Be brief."))["messages"])


async def by_export(folder: Path) -> list[dict[str, Any]]:
    await logged(folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    assert await to_thread.run_sync(reverie, ["export", "s", "-o", str(elsewhere / "out.jsonl")]) == 0
    os.environ["REVERIE_HOME"] = str(folder / "other")  # the test restores it
    assert await to_thread.run_sync(reverie, ["import", str(elsewhere)]) == 0
    [copy] = (folder / "other").glob("projects/**/*.jsonl")
    return shown(build_request(View().fold_all(parse_log(copy.read_bytes()).entries))["messages"])


async def by_claude_code(folder: Path) -> list[dict[str, Any]]:
    """Return the thinking of a recording with one line for each block; it has no signed summaries."""
    said = [("user", "user", "Two.")] + [
        ("assistant", "msg_1", [one]) for one in [*THOUGHTS, {"type": "text", "text": "Done."}]
    ]
    rows: list[Any] = []
    for at, (role, name, content) in enumerate(said):
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": name, "type": "message", "model": MODEL, "usage": {"input_tokens": 9, "output_tokens": 9}}
        line = {"type": role, "uuid": f"uuid-{at}", "parentUuid": f"uuid-{at - 1}" if at else None, "sessionId": "abc"}
        rows.append({**line, "timestamp": "2026-10-01T10:00:00Z", "message": message})
    (folder / "abc.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [found] = read_session(folder / "abc.jsonl")
    return [SUMMARY, *shown(build_request(View().fold_all(found.entries))["messages"])]


async def by_langchain(folder: Path) -> list[dict[str, Any]]:
    from langchain_anthropic.chat_models import _format_messages

    from reverie.integrations.langchain_messages import LangChainTranslator, reply_blocks

    translator = LangChainTranslator()
    told = translator.translated_back(
        [{"role": "assistant", "content": BLOCKS}, {"role": "user", "content": "Go."}], True
    )
    again = [{"role": "assistant", "content": reply_blocks(told[0])}]
    assert shown(again) == shown(_format_messages(told, model=MODEL)[1])
    return shown(again)


async def by_pydantic(folder: Path) -> list[dict[str, Any]]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from reverie.integrations.pydantic_messages import PydanticTranslator, _reply_blocks

    sent = [{"role": "assistant", "content": BLOCKS}, {"role": "user", "content": [{"type": "text", "text": "Go."}]}]
    told = PydanticTranslator().translated_back(sent, (True, []))
    assert shown([{"content": _reply_blocks(told[0], Placeholders())}]) == THOUGHTS
    async with AsyncAnthropic(api_key="any") as client:
        model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client))
        _, wire = await model._map_message(told, ModelRequestParameters(), {})
    return shown(wire)


async def by_openai(folder: Path) -> list[dict[str, Any]]:
    """Return the blocks if the items of a response with encrypted reasoning come back as they were."""
    from reverie.integrations.openai_items import OpenAITranslator

    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}
    items = [
        {"role": "user", "content": "One."},
        reasoning,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    translator = OpenAITranslator()
    found = translator.translated_back(translator.history(items))
    return BLOCKS if found == items else []


def without_empty(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The known-bad twin of every path: it takes a block without words for an empty one."""
    return [one for one in blocks if one["type"] != "thinking" or one["thinking"]]


def needs(package: str) -> Any:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")


PATHS = [
    by_request,
    by_json,
    by_resume,
    by_export,
    by_claude_code,
    pytest.param(by_langchain, marks=needs("langchain_anthropic")),
    pytest.param(by_pydantic, marks=needs("pydantic_ai")),
    pytest.param(by_openai, marks=needs("agents")),
]


@pytest.mark.requirement("V2", "V4")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__[3:])
async def test_signed_blocks_survive(
    path: Path_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    found = await path(tmp_path)
    assert found == BLOCKS
    assert without_empty(found) != BLOCKS
