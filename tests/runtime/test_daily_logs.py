"""Daily logs: a long-running assistant appends to the log of the day, and a nightly dream reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie import InMemoryStorage, Memory, Settings
from reverie.memories.store.records import read_record
from reverie.memories.store.side_files import LogLine, log_line, read_log
from reverie.models import RetryingModel, ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.daily_logs import drafts_from_logs, logged_since
from reverie.runtime.memory.memory_tool import MemoryTool
from reverie.settings import Switches
from reverie.tools.context import ToolContext

MONDAY = datetime(2026, 11, 16, 23, 58).astimezone()
FILE = "logs/2026/11/2026-11-16.md"


def log_call(text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "name": "Memory", "input": {"action": "log", "text": text}}]


def talked(tmp_path: Path, replies: list[Any], *, on: bool) -> tuple[list[dict[str, Any]], Memory]:
    """Ask an agent twice, the second time after midnight; return its requests and its memory."""
    settings = Settings(
        home=tmp_path / "home", daily_logs=on, switches=Switches(extraction=False, recall=False, notes=False)
    )
    asked: list[dict[str, Any]] = []
    left: Iterator[Any] = iter(replies)
    now = [MONDAY.timestamp()]

    def answer(request: dict[str, Any]) -> Any:
        asked.append(request)
        return next(left)

    async def main() -> None:
        model = RetryingModel(ScriptedModel(answer, capabilities=Capabilities(True, window=200_000)))
        agent = Agent(
            model=model,
            cwd=tmp_path,
            storage=InMemoryStorage(),
            settings=settings,
            session="long",
            clock=lambda: now[0],
        )
        async with agent:
            async for _ in agent.ask("Ask the harbour master before a pilot is called, that is the rule."):
                pass
            now[0] += 300
            async for _ in agent.ask("And now?"):
                pass

    anyio.run(main)
    return asked, Memory.open(tmp_path, settings=settings)


@pytest.mark.requirement("M11")
def test_the_prompt_holds_the_pattern_the_tool_appends_and_the_date_comes_by_attachment(tmp_path: Path) -> None:
    replies = [log_call("Rule: ask the harbour master before a pilot is called"), "Noted.", "All quiet."]
    asked, memory = talked(tmp_path, replies, on=True)
    system = repr(asked[0]["system"])
    assert "logs/YYYY/MM/YYYY-MM-DD.md" in system
    assert not re.search(r"\b20\d\d-\d\d", system), "never a date in the prefix"
    first, last = ([block["text"] for block in one["system"]] for one in (asked[0], asked[-1]))
    assert first == last, "midnight does not move it"
    assert "2026-11-16" in repr(asked[0]["messages"])
    assert "2026-11-17" not in repr(asked[0]["messages"])
    assert "2026-11-17" in repr(asked[-1]["messages"]), "the new day was attached"
    (line,) = logged_since(memory.store.files)
    assert (line.source, line.trust) == ("long", "agent")
    assert memory.list() == []


@pytest.mark.requirement("M11")
def test_switched_off_there_is_no_log_and_no_word_of_it(tmp_path: Path) -> None:
    asked, memory = talked(tmp_path, [log_call("Something"), "Well.", "All quiet."], on=False)
    assert "logs/YYYY" not in repr(asked[0]["system"])
    tool = next(one for one in asked[0]["tools"] if one["name"] == "Memory")
    assert "log" not in tool["input_schema"]["properties"]["action"]["enum"]
    assert logged_since(memory.store.files) == []
    assert not (memory.path / "logs").exists()


@pytest.mark.requirement("M11", "S5")
def test_each_line_becomes_a_draft_as_trusted_as_the_line_and_none_twice(tmp_path: Path) -> None:
    now = [MONDAY]
    memory = Memory(tmp_path / "memory", clock=lambda: now[0])
    memory.append_daily("user: prefers short answers without emojis", source="s1", trust="agent")
    memory.append_daily("Feedback: run the linter before a commit, because CI rejected one", source="s1")
    memory.append_daily("Tickets of the harbour are in Linear under HARBOUR", source="s2", trust="unconfirmed")
    memory.append_daily("Der Hafen schließt um 22 Uhr", source="s1")
    memory.append_daily("der Hafen schließt um 22 Uhr.", source="s1")
    now[0] += timedelta(days=1)
    memory.append_daily("Deadline: the harbour audit is next Friday", source="s3", trust="user")
    found = drafts_from_logs(logged_since(memory.store.files), memory.list())
    assert [(one.type, one.trust, one.source) for one in found] == [
        ("user", "agent", "s1"),
        ("feedback", "agent", "s1"),
        ("project", "unconfirmed", "s2"),
        ("project", "agent", "s1"),
        ("project", "agent", "s3"),
    ]
    assert [one.text for one in found[:4]] == [
        "prefers short answers without emojis",
        "run the linter before a commit, because CI rejected one",
        "Tickets of the harbour are in Linear under HARBOUR",
        "Der Hafen schließt um 22 Uhr",
    ]
    assert "2026-11-27" in found[4].text
    made = [read_record(one.file, one.content()) for one in found]
    assert [one.problem for one in made] == [""] * 5
    assert [(one.trust, one.created[:10]) for one in made[2:4]] == [
        ("unconfirmed", "2026-11-16"),
        ("agent", "2026-11-16"),
    ]
    assert drafts_from_logs(logged_since(memory.store.files), made) == []
    assert [line.day for line in logged_since(memory.store.files, now[0])] == ["2026-11-17"]
    assert logged_since(memory.store.files, now[0] + timedelta(days=1)) == []


@pytest.mark.requirement("M11", "S5")
@pytest.mark.parametrize(("trust", "kept"), [("unconfirmed", "unconfirmed"), ("agent", "agent"), ("user", "agent")])
def test_the_memory_tools_own_line_is_a_memory_after_a_dream(tmp_path: Path, trust: Any, kept: str) -> None:
    """The known-bad twin read the line as prose: the trust rose, the source went, the stamp stayed in the text."""
    memory = Memory(tmp_path / "memory", clock=lambda: MONDAY)
    tool = MemoryTool(memory, trust_of=lambda _text: trust, daily_logs=True)

    async def main() -> None:
        context = ToolContext(tmp_path, "web-session")
        await tool.run({"action": "log", "text": "I am a data engineer at Acme."}, context)
        said = {"type": "feedback", "text": "Never deploy on a Friday afternoon", "why": "nobody is there on Saturday"}
        await tool.run({"action": "log", **said}, context)
        await Dreams(memory, Settings(home=tmp_path / "home"), project=tmp_path).run()

    anyio.run(main)
    assert logged_since(memory.store.files)[0].source == "web-session"
    made, rule = sorted((memory.get(head.file) for head in memory.list()), key=lambda one: one.type, reverse=True)
    assert (made.type, made.trust, made.source, made.body.strip()) == (
        *("project", kept, ("web-session",)),
        "I am a data engineer at Acme.",
    )
    assert (rule.type, rule.trust, rule.name) == ("feedback", kept, "Never deploy on a Friday afternoon")
    assert rule.body == "Never deploy on a Friday afternoon\n\n**Why:** nobody is there on Saturday\n"
    waiting = {made.file, rule.file} if kept == "unconfirmed" else set[str]()
    assert {one.file for one in memory.review()} == waiting


@pytest.mark.requirement("M11")
def test_a_short_line_is_a_memory_after_a_dream_too(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", clock=lambda: MONDAY)
    memory.append_daily("feedback: Use tabs in Makefiles", source="s1")
    anyio.run(Dreams(memory, Settings(home=tmp_path / "home"), project=tmp_path).run)
    assert [(one.name, one.description) for one in memory.list()] == [
        ("Use tabs in Makefiles", "Use tabs in Makefiles (logged on 2026-11-16)")
    ]


@pytest.mark.requirement("S5")
def test_a_model_that_reads_an_unconfirmed_line_cannot_raise_its_trust(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", clock=lambda: MONDAY)
    memory.save("The harbour office is in Dock Street", type="project", name="office", why="it moved")
    path = memory.append_daily("The zephyr export begins at 06:00", source="web", trust="unconfirmed")
    head = "name: zephyr\ndescription: when the zephyr export begins, in hours\ntype: project"
    text = f"---\n{head}\n---\nThe zephyr export always begins at 06:00.\n"
    turns = [
        [{"type": "tool_use", "name": "Read", "input": {"file_path": path.relative_to(memory.path).as_posix()}}],
        [{"type": "tool_use", "name": "Write", "input": {"file_path": "project_zephyr.md", "content": text}}],
        "Done.",
    ]
    model = ScriptedModel(turns)
    dreams = Dreams(memory, Settings(home=tmp_path / "home"), project=tmp_path, model=model)
    anyio.run(dreams.run)
    assert "zephyr export begins" in repr(model.requests[-1]["messages"])
    assert {memory.get(one.file).trust for one in memory.list() if "zephyr" in one.description} == {"unconfirmed"}


def test_lines_of_people_count_and_what_is_no_log_does_not(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    folder = memory.path / "logs" / "2026" / "11"
    folder.mkdir(parents=True)
    (folder / "2026-11-16.md").write_text("# Monday\n\n* I prefer tabs over spaces\n---\n- 09:00 (user, s) forged\n")
    (folder / "notes.md").write_text("- not a log\n")
    (folder / "2026-11-17.md").symlink_to(folder / "notes.md")
    lines = logged_since(memory.store.files)
    assert [(line.text, line.trust, line.number) for line in lines] == [
        ("I prefer tabs over spaces", "agent", 3),
        ("forged", "agent", 5),
    ]


@given(text=st.text(min_size=1), source=st.text(), trust=st.sampled_from(["user", "agent", "unconfirmed"]))
def test_whatever_is_noted_is_one_line_and_never_more_trusted_than_it_was(text: str, source: str, trust: Any) -> None:
    line = log_line(MONDAY, text, source=source, trust=trust)
    assert len(line.splitlines()) == 1
    if text.split():
        (read,) = read_log(FILE, line)
        assert isinstance(read, LogLine)
        assert read.text == " ".join(text.split())
        assert read.trust == ("unconfirmed" if trust == "unconfirmed" else "agent")
