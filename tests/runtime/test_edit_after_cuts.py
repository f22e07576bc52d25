"""Edit works on a file that was read before a cut or a resume, if the file is unchanged, and refuses it if not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import Cause, ResultsClearedByProvider
from reverie.conversation.file_reads import FileReads
from reverie.conversation.reads import files_in_view
from reverie.layers.l4_compact import plan_snip
from reverie.layers.l4_compact.tail import TailPolicy
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches

TEXT = "".join(f"line {number} of the harbour\n" for number in range(1, 41))
EDIT: dict[str, Any] = {"file_path": "a.txt", "old_string": "line 3 of", "new_string": "row 3 of"}
READ: dict[str, Any] = {"file_path": "a.txt"}


class Desk:
    """An agent on a scripted model, opened again and again on the same log."""

    def __init__(self, tmp_path: Path) -> None:
        self.storage = InMemoryStorage()
        self.cwd = tmp_path / "work"
        self.cwd.mkdir()
        self.file = self.cwd / "a.txt"
        self.file.write_text(TEXT)
        switches = Switches(extraction=False, recall=False, dream=False, notes=False)
        self.settings = Settings(home=tmp_path / "home", switches=switches)
        self.replies: list[Any] = []
        self.model = ScriptedModel(lambda _: self.replies.pop(0), capabilities=Capabilities(True, window=200_000))
        self.agent: Agent = self.made()

    def made(self) -> Agent:
        given: dict[str, Any] = {"storage": self.storage, "settings": self.settings, "mode": "accept-edits"}
        return Agent(model=self.model, cwd=self.cwd, session="s", **given)

    def run(self, steps: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.agent.__aenter__()
            try:
                await steps()
            finally:
                await self.agent.__aexit__(None, None, None)

        anyio.run(main)

    async def call(self, tool: str, given: dict[str, Any]) -> tuple[str, bool]:
        """Let the model call a tool; return its result and whether it is an error."""
        self.replies = [[{"type": "tool_use", "name": tool, "input": given}], "Done."]
        _ = [event async for event in self.agent.ask(f"use {tool}")]
        results = [
            block
            for message in self.model.requests[-1]["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block.get("type") == "tool_result"
        ]
        return str(results[-1]["content"]), bool(results[-1].get("is_error"))

    async def resume(self) -> None:
        await self.agent.__aexit__(None, None, None)
        self.agent = self.made()
        await self.agent.__aenter__()

    async def clear(self) -> None:
        assert await self.agent.session.trim(0) is not None

    async def clear_by_provider(self) -> None:
        view = self.agent.session.view
        ids = [result.tool_use_id for result in view.results]
        await self.agent.session.log.decide(ResultsClearedByProvider(Cause("trim", "by the provider"), ids))

    async def compact(self) -> None:
        self.replies = ["A long answer. " * 12_000, "Yes.", "<summary>They read a file.</summary>"]
        for prompt in ("tell me all", "is that all?"):
            _ = [event async for event in self.agent.ask(prompt)]
        await self.agent.session.compact(instructions="Be short.")

    async def snip(self) -> None:
        tail = TailPolicy(0, 0, 0)
        planned = plan_snip(self.agent.session.view, tail, free_tokens=100_000, handle="cut-x")
        assert planned is not None
        await self.agent.session.log.decide(planned)


CUTS = ["resume", "clear", "clear_by_provider", "compact", "snip"]


@pytest.mark.requirement("W7", "L2.7", "L4.16")
@pytest.mark.parametrize("change", ["nothing", "content", "removed"])
@pytest.mark.parametrize("cut", CUTS)
def test_edit_works_after_a_cut_if_the_file_is_unchanged_and_says_why_if_not(
    cut: str, change: str, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)

    async def steps() -> None:
        for number in range(4):  # so that a clearing and a snip have something to remove
            (desk.cwd / f"{number}.txt").write_text(f"ship {number}\n" * 900)
            await desk.call("Read", {"file_path": f"{number}.txt"})
            if number == 0:
                await desk.call("Read", READ)
        await getattr(desk, cut)()
        if cut != "resume":
            assert "a.txt" not in files_in_view(desk.agent.session.view)
            await desk.resume()
        if change == "content":
            desk.file.write_text(TEXT.replace("line 9 ", "LINE 9 "))
        elif change == "removed":
            desk.file.unlink()
        result, failed = await desk.call("Edit", EDIT)
        assert failed == (change != "nothing"), result
        assert ("changed on disk since you read it: read it again" in result) == (change == "content")
        if change == "nothing":
            assert "row 3 of" in desk.file.read_text()

    desk.run(steps)


@pytest.mark.requirement("W7")
def test_known_bad_a_log_without_versions_makes_edit_ask_for_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    monkeypatch.setattr(FileReads, "after", lambda self, reads: self)

    async def steps() -> None:
        await desk.call("Read", READ)
        await desk.resume()
        result, failed = await desk.call("Edit", EDIT)
        assert failed
        assert "you have not read" in result

    desk.run(steps)


@pytest.mark.requirement("W7")
def test_a_partial_read_still_allows_only_edits_of_the_lines_that_were_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def steps() -> None:
        await desk.call("Read", {**READ, "offset": 1, "limit": 5})
        await desk.resume()
        result, failed = await desk.call("Edit", {**EDIT, "old_string": "line 30 of"})
        assert failed
        assert "you have not read lines 30 to 30" in result
        result, failed = await desk.call("Write", {"file_path": "a.txt", "content": "x\n"})
        assert failed
        assert "only parts" in result
        assert not (await desk.call("Edit", EDIT))[1]
        await desk.resume()
        assert not (await desk.call("Edit", {**EDIT, "old_string": "line 4 of"}))[1]  # its own edit is known too

    desk.run(steps)


@pytest.mark.requirement("W7")
def test_the_state_of_the_tools_equals_the_fold_of_the_log_after_every_call(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (desk.cwd / "b.txt").write_text("b\n")

    async def steps() -> None:
        calls = [("Read", READ), ("Read", {"file_path": "b.txt"}), ("Edit", EDIT), ("Read", {**READ, "offset": 3})]
        calls += [("Write", {"file_path": "c.txt", "content": "c\n"}), ("Edit", EDIT), ("Read", {"file_path": "no"})]
        for tool, given in calls:
            await desk.call(tool, given)
            live = desk.agent.parts.context.reads.known
            assert live == desk.agent.session.view.facts.files
            await desk.resume()
            assert desk.agent.parts.context.reads.known == live
        names = [Path(one.path).name for one in live.newest_first()]
        assert names == ["c.txt", "a.txt", "b.txt"]

    desk.run(steps)


@pytest.mark.requirement("W7")
def test_a_write_whose_result_was_never_logged_must_be_read_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def steps() -> None:
        await desk.call("Read", READ)
        desk.file.write_text(TEXT.replace("line 3 of", "row 3 of"))  # the process was killed before it logged this
        await desk.resume()
        result, failed = await desk.call("Edit", {**EDIT, "old_string": "line 4 of"})
        assert failed
        assert "changed on disk since you read it" in result

    desk.run(steps)


@pytest.mark.requirement("W5", "N2")
def test_instructions_near_a_file_that_was_read_just_before_a_kill_are_said_after_the_resume(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    folder = desk.cwd / "lib"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Only ships may enter.\n")
    (folder / "b.txt").write_text("b\n")

    async def steps() -> None:
        desk.replies = [[{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "lib/b.txt"}}]]
        session = desk.agent.session
        await session.say("read it")
        request = await session.prepare(**desk.agent._host.request_options())  # type: ignore[union-attr]
        reply = await desk.model.complete(request)
        await desk.agent.parts.runs.run(await session.observe(reply.body))  # and here the process is killed
        await desk.resume()
        desk.replies = ["Done."]
        _ = [event async for event in desk.agent.ask("go on")]
        assert str(desk.model.requests[-1]["messages"]).count("Only ships may enter.") == 1
        await desk.resume()
        desk.replies = ["Done."]
        _ = [event async for event in desk.agent.ask("and on")]
        assert str(desk.model.requests[-1]["messages"]).count("Only ships may enter.") == 1

    desk.run(steps)
