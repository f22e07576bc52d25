"""Forty files are read, then the first one is edited: no preset that keeps content forces another read (W7, U7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import Compacted, ResultsCleared, ResultsKept
from reverie.events import DecisionMade, Event, QueryEnded, ToolFinished
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session import session as session_module
from reverie.settings import Preset, Switches
from reverie.testing.messages_server import ManualClock, MessagesServer

FILES = 40
AT_ONCE = 5
MODEL = "claude-sonnet-4-5"
PAUSE_SECONDS = 7_200.0  # longer than any cache lives


def text_of(number: int) -> str:
    """Return a file of about 3,500 tokens."""
    rows = (f"harbour_{number}_{row} = berth({row * 7 % 97}, {row * 13 % 89})" for row in range(205))
    return "\n".join(["# a list of berths", *rows, ""])


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given, "id": f"toolu_{given['file_path'][:-3]}_{name}"}


class Task:
    """A folder of forty files, the test server, and an agent that reads all of them and edits the first."""

    def __init__(self, folder: Path, preset: Preset) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        for number in range(FILES):
            (self.folder / f"f{number}.py").write_text(text_of(number))
        switches = Switches(extraction=False, recall=False, dream=False)
        self.settings = Settings(folder / "home", preset=preset, switches=switches)
        self.storage = InMemoryStorage()
        self.clock = ManualClock(1.79e9)
        self.events: list[Event] = []
        self.tokens = 0

    def answer(self, request: dict[str, Any]) -> Any:
        """Act as the model: read the files, five at once; after the pause edit the first one."""
        called = [
            block
            for message in request["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_use"
        ]
        if self.edits:
            edit = use("Edit", file_path="f0.py", old_string="harbour_0_7 =", new_string="pier_7 =")
            return "Done." if any(one["name"] == "Edit" for one in called) else [edit]
        read = sum(one["name"] == "Read" for one in called)
        return [use("Read", file_path=f"f{at}.py") for at in range(read, min(FILES, read + AT_ONCE))] or "All read."

    async def run(self, *, pause: bool) -> None:
        self.edits = False
        with MessagesServer(self.answer, clock=self.clock) as server:
            for prompt in ("Read all files.", "Rename the seventh berth in f0.py."):
                model = AnthropicModel(MODEL, base_url=server.base_url, api_key="none")
                given: dict[str, Any] = {"storage": self.storage, "settings": self.settings}
                given["clock"] = lambda: self.clock.now
                async with Agent(model=model, cwd=self.folder, session="s", mode="accept-edits", **given) as agent:
                    agent.listen(self.events.append)
                    async for event in agent.ask(prompt):
                        if isinstance(event, QueryEnded):
                            assert event.end == "completed", event
                    self.tokens = max(self.tokens, agent.session.view.tokens)
                self.edits = True
                self.clock.advance(PAUSE_SECONDS if pause else 0.0)

    def made(self, kind: type[Any]) -> list[Any]:
        return [one.decision for one in self.events if isinstance(one, DecisionMade) and isinstance(one.decision, kind)]

    def tools(self) -> list[tuple[str, bool]]:
        """Return the tools that ran and whether each failed."""
        return [(one.name, one.is_error) for one in self.events if isinstance(one, ToolFinished)]


@pytest.mark.requirement("W7", "U7")
@pytest.mark.slow
@pytest.mark.parametrize("pause", [False, True], ids=["at once", "after two hours"])
@pytest.mark.parametrize("preset", ["faithful", "balanced"])
def test_the_first_of_forty_files_is_edited_without_another_read(tmp_path: Path, preset: Preset, pause: bool) -> None:
    task = Task(tmp_path, preset)
    anyio.run(lambda: task.run(pause=pause))
    assert task.tools() == [("Read", False)] * FILES + [("Edit", False)]
    assert "pier_7 = berth(49, 2)" in (task.folder / "f0.py").read_text()
    assert task.tokens > 130_000
    assert not task.made(Compacted)
    cleared = {one.tool_use_id for decision in task.made(ResultsCleared) for one in decision.cleared}
    assert ("toolu_f0_Read" in cleared) == pause  # the text is gone, and the edit works by the version in the log
    assert task.made(ResultsKept)


def test_known_bad_a_log_without_the_versions_of_files_needs_another_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "named_files", lambda files: {})
    task = Task(tmp_path, "balanced")
    anyio.run(lambda: task.run(pause=False))
    assert task.tools()[-1] == ("Edit", True)
