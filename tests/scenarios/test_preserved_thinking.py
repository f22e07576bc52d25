"""Long agent runs against a provider that refuses thinking whose content has changed."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session, Settings
from reverie.conversation.decisions import Compacted, ThinkingDropped, decision_of
from reverie.conversation.log import parse_log
from reverie.events import Event, QueryEnded
from reverie.layers.l4_compact import CompactPolicy
from reverie.model_facts import facts_of
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer

CHECKED = "claude-opus-5-5"
PROMPTS = 8
READS = 5
WINDOW = 90_000


class Reader:
    """Plays a model that thinks, reads some large files one after the other, and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = 0
        for number in range(PROMPTS * READS):
            lines = "\n".join(f"{number:03}.{line:04} value = {number * line}" for line in range(700))
            (folder / f"file{number}.txt").write_text(lines)

    def reply(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return thinking and a Read, or thinking and an answer after some reads."""
        if "tools" not in request or "<reverie-fork" in repr(request["messages"][-1]):
            return [{"type": "text", "text": "{}"}]
        turn, self.calls = self.calls, self.calls + 1
        thought = {"type": "thinking", "thinking": f"Thought {turn}: the files look alike."}
        prompt, step = divmod(turn, READS + 1)
        if step == READS:
            return [thought, {"type": "text", "text": f"Answer {prompt}."}]
        path = str(self.folder / f"file{prompt * READS + step}.txt")
        call = {"type": "tool_use", "id": f"toolu_{turn:04}", "name": "Read", "input": {"file_path": path}}
        return [thought, call]


async def ask(agent: Agent, prompt: str) -> list[Event]:
    async with aclosing(agent.ask(prompt)) as events:
        return [event async for event in events]


def main_requests(server: MessagesServer) -> list[dict[str, Any]]:
    return [one for one in server.requests if "compaction" not in one and "<reverie-fork" not in repr(one["messages"])]


def settings_for(home: Path, **changes: Any) -> Settings:
    quiet = Switches(notes=False, extraction=False, dream=False)
    return Settings(home=home, window_tokens=WINDOW, switches=quiet, **changes)


def logged(home: Path) -> list[Any]:
    """Return the decisions in the logs of a home, in order."""
    found: list[Any] = []
    for path in sorted(home.glob("projects/**/*.jsonl")):
        entries = parse_log(path.read_bytes()).entries
        found += [decision_of(entry.body) for entry in entries if entry.kind == "decision"]
    return found


async def converse(server: MessagesServer, folder: Path, settings: Settings, *, resumes: bool) -> list[str]:
    """Ask all prompts, in one process or resumed between prompts; return the ends of the queries."""
    ends: list[str] = []

    async def run(numbers: range) -> None:
        model = AnthropicModel(CHECKED, base_url=server.base_url, api_key="test")
        async with Agent(model=model, cwd=folder, settings=settings, session="long") as agent:
            for number in numbers:
                events = await ask(agent, f"Prompt {number}: read the next files.")
                ends.extend(f"{event.end} {event.detail}".strip() for event in events if isinstance(event, QueryEnded))

    for numbers in [range(at, at + 1) for at in range(PROMPTS)] if resumes else [range(PROMPTS)]:
        await run(numbers)
    return ends


@pytest.mark.slow
@pytest.mark.requirement("V4")
@pytest.mark.parametrize("resumes", [False, True], ids=["one process", "resumed between prompts"])
@pytest.mark.parametrize("background", [False, True], ids=["at the threshold", "in the background"])
def test_a_provider_compacts_and_the_thinking_of_kept_turns_stays(
    tmp_path: Path, resumes: bool, background: bool
) -> None:
    assert facts_of(CHECKED).checks_thinking
    reader = Reader(tmp_path)
    settings = settings_for(tmp_path / "home", compact=CompactPolicy(in_background=background))
    with MessagesServer(reader.reply, preserved_thinking="error") as server:
        ends = anyio.run(partial(converse, server, tmp_path, settings, resumes=resumes))
        assert ends == ["completed"] * PROMPTS
        assert server.refusals == []
        decisions = logged(tmp_path / "home")
        assert {one.method for one in decisions if isinstance(one, Compacted)} == {"provider"}
        assert not [one for one in decisions if isinstance(one, ThinkingDropped)]
        after = [one for one in main_requests(server) if one["messages"][0]["content"][0]["type"] == "compaction"]
        assert after
        for request in after:
            replies = [message["content"] for message in request["messages"][1:] if message["role"] == "assistant"]
            assert all(blocks[0]["type"] == "thinking" for blocks in replies)
            assert replies


CHILD = """
import sys
from pathlib import Path

import anyio

from reverie import Session, Settings
from reverie.models.anthropic import AnthropicModel
from reverie.settings import Switches

home, url = Path(sys.argv[1]), sys.argv[2]
tool = {"name": "Read", "description": "Read.", "input_schema": {"type": "object", "properties": {}}}


async def main():
    model = AnthropicModel("claude-opus-5-5", base_url=url, api_key="test")
    quiet = Switches(notes=False, extraction=False, dream=False)
    settings = Settings(home=home, window_tokens=40_000, switches=quiet)
    async with Session.open("killed", cwd=home, settings=settings, model=model) as session:
        for number in range(1_000):
            await session.say(f"Prompt {number}. " + "word " * 1_500)
            request = await session.prepare(model="claude-opus-5-5", max_tokens=500, system="Be brief.", tools=[tool])
            await session.observe((await model.complete(request)).body)
            print(number, flush=True)


anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.requirement("V5")
def test_a_process_killed_while_its_summary_is_written_loses_no_acknowledged_message(tmp_path: Path) -> None:
    asked = threading.Event()

    def reply(_: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "thinking", "thinking": "A thought."}, {"type": "text", "text": "Noted."}]

    def summary(_: dict[str, Any]) -> str:
        if not asked.is_set():
            asked.set()
            killed.wait(60)  # the provider is still writing when the process dies
        return "The summary."

    killed = threading.Event()
    with MessagesServer(reply, preserved_thinking="error", summary=summary) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), server.base_url], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        acknowledged = -1
        for line in child.stdout:
            acknowledged = int(line)
            if asked.is_set():
                break
        child.kill()
        child.communicate()
        killed.set()
        assert asked.is_set()

        async def go_on() -> tuple[int, list[str]]:
            model = AnthropicModel(CHECKED, base_url=server.base_url, api_key="test")
            quiet = Switches(notes=False, extraction=False, dream=False)
            settings = Settings(home=tmp_path, window_tokens=40_000, switches=quiet)
            tool = {"name": "Read", "description": "Read.", "input_schema": {"type": "object", "properties": {}}}
            async with Session.open("killed", cwd=tmp_path, settings=settings, model=model) as session:
                said = [entry for entry in session.view.history if entry.kind == "user"]
                for number in range(8):
                    await session.say(f"After the kill {number}. " + "word " * 1_500)
                    request = await session.prepare(model=CHECKED, max_tokens=500, system="Be brief.", tools=[tool])
                    await session.observe((await model.complete(request)).body)
                return len(said), list(session.view.facts.compactions)

        prompts, compactions = anyio.run(go_on)
        assert prompts >= acknowledged + 1
        assert compactions
        assert server.refusals == []
        assert not [one for one in logged(tmp_path) if isinstance(one, ThinkingDropped)]


@pytest.mark.slow
@pytest.mark.requirement("V7")
def test_text_that_others_can_edit_never_takes_the_system_role(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("REPOSITORY RULE: one.\n")

    def reply(_: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "thinking", "thinking": "A thought."}, {"type": "text", "text": "Noted."}]

    async def main(base_url: str) -> None:
        for turn in range(3):
            model = AnthropicModel(CHECKED, base_url=base_url, api_key="test")
            settings = settings_for(tmp_path / "home")
            async with Agent(model=model, cwd=folder, settings=settings, session="repo") as agent:
                (folder / "AGENTS.md").write_text(f"REPOSITORY RULE: number {turn}.\n")
                await ask(agent, f"Prompt {turn}.")
                await agent.session.attach(f"HOOK OUTPUT {turn}", type="hook")
                await ask(agent, f"Prompt {turn} again.")

    with MessagesServer(reply, preserved_thinking="error") as server:
        anyio.run(main, server.base_url)
        last = main_requests(server)[-1]
        assert server.refusals == []
    spoken = repr([last["system"], [message for message in last["messages"] if message["role"] == "system"]])
    others = repr([message for message in last["messages"] if message["role"] == "user"])
    for words in ("REPOSITORY RULE", "HOOK OUTPUT"):
        assert words not in spoken
        assert words in others
