"""An agent opens the handles that it is shown with Read, one level at a time, and searches them with Grep."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches

TEXT = "".join(f"line {number} of the harbour\n" for number in range(1, 1_200))


@pytest.mark.requirement("B2", "L1.4")
def test_an_agent_opens_a_summary_then_a_message_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    replies: list[Any] = []
    settings = Settings(tmp_path / "home", switches=Switches(extraction=False, recall=False, dream=False, notes=False))
    model = ScriptedModel(
        lambda _: replies.pop(0) if replies else "A summary.", capabilities=Capabilities(True, window=200_000)
    )

    async def steps() -> None:
        given: dict[str, Any] = {"storage": InMemoryStorage(), "settings": settings, "mode": "accept-edits"}
        async with Agent(model=model, cwd=tmp_path, session="s", **given) as agent:

            async def use(tool: str, **given: Any) -> str:
                replies[:] = [[{"type": "tool_use", "name": tool, "input": given}], "Done."]
                _ = [event async for event in agent.ask(f"use {tool}")]
                content: Any = [entry for entry in agent.session.view.history if entry.kind == "user"][-1].message
                return str(content["content"][0]["content"])

            for _ in range(6):
                await use("Read", file_path="a.txt")
            await agent.session.compact()
            shown = str(agent.session.view.messages())
            (handle,) = set(re.findall(r"all of it by the handle ([\w-]+)", shown))
            listed = await use("Read", file_path=handle)
            leaf = next(line.split("\t")[1].split()[0] for line in listed.split("\n") if "result of Read" in line)
            assert "line 700 of the harbour" not in listed
            assert "line 700 of the harbour" in await use("Read", file_path=leaf)
            assert "line 700 of the harbour" in await use(
                "Grep", pattern="line 700 of", path=handle, output_mode="content"
            )
            assert "toolu_nothing does not exist" in await use("Read", file_path="toolu_nothing")

    anyio.run(steps)
