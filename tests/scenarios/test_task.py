"""A real task, end to end: read, search, edit, run the tests, finish; and the same task abandoned at every event."""

from __future__ import annotations

import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.events import Event, QueryEnded, TextStreamed, ToolFinished
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.testing.messages_server import MessagesServer

WRONG = "def add(one, other):\n    return one - other\n"
RIGHT = "def add(one, other):\n    return one + other\n"
TEST = """import unittest

from sums import add


class Sums(unittest.TestCase):
    def test_two_and_two(self):
        self.assertEqual(add(2, 2), 4)
"""
MODEL = "claude-sonnet-4-5"


def use(number: int, name: str, **given: Any) -> list[dict[str, Any]]:
    """Return a reply that says something and calls a tool."""
    words = {"type": "text", "text": f"Step {number}."}
    return [words, {"type": "tool_use", "id": f"toolu_{number:02}", "name": name, "input": given}]


def by_the_book(request: dict[str, Any], tests: str = f"{sys.executable} -m unittest -q") -> Any:
    """Do the next step that the conversation does not show yet, as a model would."""
    said = repr(request["messages"])
    done = sum(f"'toolu_{number:02}'" in said for number in range(1, 5))
    steps = [
        use(1, "Read", file_path="sums.py"),
        use(2, "Grep", pattern="def add", path="."),
        use(3, "Edit", file_path="sums.py", old_string="one - other", new_string="one + other"),
        use(4, "Bash", command=tests),
    ]
    return steps[done] if done < len(steps) else "The test passes: `sums.py:2` added with a minus."


class Shared(AnthropicModel):
    """A model whose connections outlive the agent that uses it."""

    async def aclose(self) -> None:
        """Keep the connections for the next one."""


class Workshop:
    """A small project with a bug, and an agent to mend it."""

    def __init__(self, folder: Path, model: AnthropicModel) -> None:
        self.folder = folder / "project"
        self.folder.mkdir(parents=True)
        (self.folder / "sums.py").write_text(WRONG)
        (self.folder / "test_sums.py").write_text(TEST)
        self.storage = InMemoryStorage()
        self.settings = Settings(home=folder / "home")
        self.model = model
        self.asked: list[Approval] = []

    async def approve(self, approval: Approval) -> ApprovalAnswer:
        """Allow whatever is asked, and remember it."""
        self.asked.append(approval)
        return ApprovalAnswer("once")

    def agent(self) -> Agent:
        """Return an agent with a connection of its own."""
        given: dict[str, Any] = {"storage": self.storage, "settings": self.settings, "approve": self.approve}
        return Agent(model=self.model, cwd=self.folder, session="mend", **given)

    def check(self) -> None:
        """Check that the log as it lies there makes a valid request."""
        for key in self.storage.list("projects"):
            if key.endswith(".jsonl"):
                loaded = parse_log(self.storage.load(key) or b"")
                assert not loaded.damage
                view = View().fold_all(loaded.entries)
                if view.length:
                    assert problems(build_request(view)) == []


async def worked(shop: Workshop, prompt: str, *, until: int | None = None) -> list[Event]:
    """Ask, check the log at every event, and let go after so many of them."""
    events: list[Event] = []
    async with shop.agent() as agent, aclosing(agent.ask(prompt)) as heard:
        async for event in heard:
            events.append(event)
            shop.check()
            if until is not None and len(events) >= until:
                break
    return events


@pytest.mark.requirement("Q1", "Q3")
def test_a_bug_is_found_mended_and_proven(tmp_path: Path) -> None:
    with MessagesServer(by_the_book) as server:
        shop = Workshop(tmp_path, AnthropicModel(MODEL, base_url=server.base_url, api_key="test"))
        events = anyio.run(worked, shop, "test_sums fails. Mend it.")
        assert server.refusals == []
        assert server.errors == []
    assert isinstance(events[-1], QueryEnded)
    assert events[-1].end == "completed"
    assert (shop.folder / "sums.py").read_text() == RIGHT
    finished = {event.name: event for event in events if isinstance(event, ToolFinished)}
    assert list(finished) == ["Read", "Grep", "Edit", "Bash"]
    assert "OK" in finished["Bash"].text
    assert [one.tool for one in shop.asked] == ["Edit", "Bash"]
    assert "+    return one + other" in shop.asked[0].preview
    assert "added with a minus" in "".join(event.text for event in events if isinstance(event, TextStreamed))


@pytest.mark.requirement("Q8")
def test_the_task_left_at_any_event_goes_on_from_its_log(tmp_path: Path, torture: bool) -> None:
    async def main(base_url: str) -> None:
        model = Shared(MODEL, base_url=base_url, api_key="test")
        prompt = "test_sums fails. Mend it."
        total = len(await worked(Workshop(tmp_path / "whole", model), prompt))
        for until in range(1, total, 1 if torture else 5):  # in the quick form every fifth event
            shop = Workshop(tmp_path / str(until), model)
            await worked(shop, prompt, until=until)
            events = await worked(shop, "Go on.")
            assert isinstance(events[-1], QueryEnded)
            assert events[-1].end == "completed", f"left after {until} of {total} events"
        await AnthropicModel.aclose(model)

    quick = partial(by_the_book, tests="grep -c 'one + other' sums.py > found.txt")
    with MessagesServer(quick) as server:
        anyio.run(main, server.base_url)
        assert server.refusals == []
        assert server.errors == []
