"""An agent on a model that checks thinking: the server clears its old reads, and it can still edit those files."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Settings
from reverie.conversation.file_reads import FileReads
from reverie.events import Event, FellBack, ResultsTrimmed
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer

CHECKED = "claude-opus-5-5"
READS = 14


class Editor:
    """Plays a model that thinks, reads many files, edits the first one, and reads its first result by handle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for number in range(READS):
            lines = [f"{number}.{line} holds nothing of note" for line in range(120)]
            (folder / f"f{number}.txt").write_text("\n".join(["first", *lines]))

    def reply(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        thought = {"type": "thinking", "thinking": f"Step {turn}."}
        if turn < READS:
            return [thought, self.call(turn, "Read", file_path=str(self.folder / f"f{turn}.txt"))]
        if turn == READS:
            change = {"old_string": "first", "new_string": "second"}
            return [thought, self.call(turn, "Edit", file_path=str(self.folder / "f0.txt"), **change)]
        if turn == READS + 1:
            return [thought, self.call(turn, "Read", file_path="toolu_0001")]
        return [thought, {"type": "text", "text": "Done."}]

    @staticmethod
    def call(turn: int, tool: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{turn:04}", "name": tool, "input": given}


def results_in(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    contents = (message["content"] for message in request["messages"] if isinstance(message["content"], list))
    blocks = (block for content in contents for block in content)
    return {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}


@pytest.mark.requirement("V3", "L2.1", "L2.7")
@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
def test_an_agent_edits_a_file_whose_read_the_server_cleared_and_reads_a_result_by_its_handle(
    tmp_path: Path, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    editor = Editor(work)
    if forgets:  # the known-bad twin: only files that the view still shows count as read
        monkeypatch.setattr(FileReads, "after", lambda self, reads: self)
    quiet = Switches(notes=False, extraction=False, dream=False, recall=False, auto_compact=False)
    settings = Settings(preset="thrifty", home=tmp_path / "home", window_tokens=24_000, switches=quiet)

    async def steps() -> list[Event]:
        model = AnthropicModel(CHECKED, base_url=server.base_url, api_key="test")
        async with Agent(model=model, cwd=work, settings=settings, session="s", mode="bypass") as agent:
            async with aclosing(agent.ask("Read all, then mend the first.")) as events:
                heard = [event async for event in events]
            assert agent.status().cleared > 0
        return heard

    with MessagesServer(editor.reply) as server:
        heard = anyio.run(steps)
        assert server.refusals == server.errors == []
        trimmed = [event for event in heard if isinstance(event, ResultsTrimmed)]
        assert trimmed
        assert str(work / "f0.txt") in [path for event in trimmed for path in event.paths]
        assert not [event for event in heard if isinstance(event, FellBack)]
        last = results_in(server.requests[-1])
        assert "0.7 holds nothing of note" in str(last["toolu_0000"]["content"])  # the server hides it, we do not
        assert bool(last[f"toolu_{READS:04}"].get("is_error")) == forgets
        assert (work / "f0.txt").read_text().startswith("first" if forgets else "second")
        assert "1.7 holds nothing of note" in str(last[f"toolu_{READS + 1:04}"]["content"])
