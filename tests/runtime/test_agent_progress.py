"""A model's progress lines about an agent: from the cheaper model, checked, and never in the conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import CallRecorded, decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.events import AgentProgressed, Event
from reverie.layers.l7_relay.policy import RelayPolicy
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches


class Watching:
    """An agent that starts one which waits in its second turn until a line was said about it."""

    def __init__(self, tmp_path: Path, lines: list[Any], small: list[str] | None) -> None:
        self.lines = iter(lines)
        self.storage = InMemoryStorage()
        self.events: list[Event] = []
        self.enough = anyio.Event()
        self.wanted = len(lines) + 1  # one more, so that the last of them was shown
        self.own = ScriptedModel(self._answer, name="scripted:claude-sonnet-4-5")
        self.small = ScriptedModel(lambda request: self._line(), name="scripted:claude-haiku-4-5") if small else None
        (tmp_path / "work").mkdir()
        self.settings = Settings(
            tmp_path / "home",
            switches=Switches(extraction=False, recall=False, dream=False),
            relay=RelayPolicy(progress=True, progress_seconds=0.01),
        )
        self.cwd = tmp_path / "work"

    def _line(self) -> Any:
        self.wanted -= 1
        if self.wanted <= 0:
            self.enough.set()
        return next(self.lines, "")

    async def _answer(self, request: dict[str, Any]) -> Any:
        if "3 to 5 words" in str(request["messages"][-1]):
            return self._line()
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        if turn == 0:
            return [{"type": "tool_use", "name": "Glob", "input": {"pattern": "**/view.py"}}]
        await self.enough.wait()
        return "Done."

    def run(self) -> list[str]:
        async def steps() -> None:
            agent = Agent(
                model=self.own,
                cwd=self.cwd,
                session="s",
                settings=self.settings,
                storage=self.storage,
                mode="bypass",
            )
            agent.listen(self.events.append)
            async with agent:
                if self.small is not None:
                    agent.parts.models._small = self.small
                with anyio.fail_after(60):
                    await agent.spawn("Look around.", kind="general")

        anyio.run(steps)
        return [event.line for event in self.events if isinstance(event, AgentProgressed)]

    def sources(self) -> list[str]:
        key = next(one for one in self.storage.list("agents") if one.endswith(".jsonl"))
        entries = parse_log(self.storage.load(key) or b"").entries
        made = [decision_of(entry.body) for entry in entries if entry.kind == DECISION]
        return [one.source for one in made if isinstance(one, CallRecorded)]


@pytest.mark.requirement("L7.9")
def test_without_a_smaller_model_a_fork_with_tools_denied_says_the_line(tmp_path: Path) -> None:
    watching = Watching(
        tmp_path,
        [
            "Working on things here",
            "Investigating the issue",
            "Reading other.py once more",
            "Listing `view.py` for tests",
            "Reading view.py twice now",
        ],
        None,
    )
    lines = watching.run()
    assert not {"Investigating the issue", "Reading other.py once more"} & set(lines)
    assert lines[0] == "Looking for **/view.py"
    assert "Working on things here" not in lines
    assert "Listing `view.py` for tests" in lines
    asked = [request for request in watching.own.requests if "3 to 5 words" in str(request["messages"][-1])]
    others = [request for request in watching.own.requests if "3 to 5 words" not in str(request)]
    assert asked[0]["tools"] == others[-1]["tools"]  # the warm prefix: the same tools, denied when called
    assert "progress" in watching.sources()
    assert not any("3 to 5 words" in str(request["messages"]) for request in others)


@pytest.mark.requirement("L7.9")
def test_a_smaller_model_is_asked_where_it_is_cheaper_with_the_end_of_the_work_alone(tmp_path: Path) -> None:
    watching = Watching(tmp_path, ["Listing view.py for tests"], ["yes"])
    lines = watching.run()
    assert "Listing view.py for tests" in lines
    assert watching.small is not None
    request = watching.small.requests[0]
    assert "calls Glob with {'pattern': '**/view.py'}" in str(request["messages"])
    assert "tools" not in request
    assert not any("3 to 5 words" in str(one["messages"][-1]) for one in watching.own.requests)


@pytest.mark.requirement("L7.9", "V9")
@pytest.mark.parametrize("small", [None, ["yes"]], ids=["by a fork", "by a smaller model"])
def test_a_line_of_a_reply_that_was_refused_is_not_shown(tmp_path: Path, small: list[str] | None) -> None:
    refused = {"content": "Listing secrets.py for tests", "stop_reason": "refusal"}
    watching = Watching(tmp_path, [refused, "Listing `view.py` for tests"], small)
    lines = watching.run()
    assert "Listing secrets.py for tests" not in lines
    assert "Listing `view.py` for tests" in lines
