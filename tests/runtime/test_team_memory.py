"""A team's folder: no memory about a person gets in, superseded and conflicting memories are not shown."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session
from reverie.errors import InputError
from reverie.hosts.hook import answer
from reverie.hosts.memory_reader import MemoryReader
from reverie.hosts.worker import work
from reverie.integrations.memory_files import MemoryFiles
from reverie.layers.l5_extract import ExtractPolicy
from reverie.layers.l5_extract.prompts import directive
from reverie.memories.store import team as team_folder
from reverie.memories.store.store import MemoryStore
from reverie.models.scripted_model import ScriptedModel
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.extract.extractor import Extractor, ExtractorOptions
from reverie.runtime.memory.extract.tools import ToolAccess
from reverie.runtime.memory.memory import Memory
from reverie.runtime.memory.memory_tool import MemoryTool
from reverie.servers.answers import ToolAnswers
from reverie.servers.scope import ServedProjects
from reverie.settings import Settings, load_settings
from reverie.tools.context import ToolContext

ABOUT = "The user is a nurse who works at night and writes Haskell."
PROFILE = f"---\nname: Profile\ndescription: a nurse who works at night and writes Haskell\ntype: user\n---\n{ABOUT}\n"
MODEL = "claude-sonnet-4-5"


class House:
    """A project with a private and a shared folder."""

    def __init__(self, folder: Path) -> None:
        self.project, self.team = folder / "project", folder / "shared"
        self.project.mkdir()
        self.memory = Memory(folder / "memory", team=self.team)
        self.memory.save("Tickets of the ward are in the tracker", type="reference", name="tickets")
        assert self.shared == ["reference_tickets.md"], "this kind of memory is shared"
        settings = {"memory_dir": str(folder / "memory"), "team_memory": str(self.team)}
        self.settings: Settings = load_settings(home=folder / "home", arguments=settings, environ={})

    @property
    def shared(self) -> list[str]:
        return sorted(path.name for path in self.team.rglob("*.md") if path.name != "MEMORY.md")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": tool, "input": given}


def extracted(house: House, said: list[Any], *, tools: bool) -> ScriptedModel:
    """Extract once from a session in which a scripted model answers."""
    model = ScriptedModel(said, name=f"scripted:{MODEL}")
    access = ToolAccess(ToolContext(cwd=house.project, session="s")) if tools else None
    declared = [{"name": "Write", "description": "Write", "input_schema": {"type": "object"}}]

    async def run() -> None:
        async with Session.open("s", storage=InMemoryStorage(), cwd=house.project) as session:
            extractor = Extractor(session.parts.host, house.memory, ExtractorOptions(access=access), model=model)
            await session.say(f"{ABOUT} Please remember this for all of our next sessions, it matters to me.")
            await session.prepare(model=MODEL, max_tokens=500, tools=declared)
            text = [{"type": "text", "text": "Done."}]
            usage = {"input_tokens": 9, "output_tokens": 5}
            await session.observe({"id": "m", "role": "assistant", "model": MODEL, "content": text, "usage": usage})
            await extractor.after_query()

    anyio.run(run)
    return model


def by_extraction_tools(house: House) -> None:
    path = str(house.memory.path / "team" / "user_profile.md")
    extracted(house, [[call("Write", file_path=path, content=PROFILE)], "Done."], tools=True)


def by_extraction_answer(house: House) -> None:
    memory = {"type": "user", "name": "Profile", "description": ABOUT, "text": ABOUT, "scope": "team"}
    extracted(house, [json.dumps({"memories": [memory]})], tools=False)
    assert "user" in [one.type for one in house.memory.list()], "it is kept, for the user alone"


def by_memory_tool(house: House) -> None:
    tool = MemoryTool(house.memory, team=True)
    saved = {"action": "save", "type": "user", "text": ABOUT, "name": "Profile", "scope": "team"}
    changed = {"action": "update", "file": "team/reference_tickets.md", "text": ABOUT, "type": "user"}
    for given in (saved, changed):
        output = anyio.run(tool.run, given, ToolContext(cwd=house.project, session="s"))
        assert output.is_error


def by_mcp(house: House) -> None:
    answers = ToolAnswers(ServedProjects([house.project]), home=house.settings.home)
    os.environ["REVERIE_TEAM_MEMORY"] = str(house.team)
    try:
        with pytest.raises(InputError, match="always private"):
            answers.remember(answers.projects.find(), "client", {"text": ABOUT, "type": "user", "scope": "team"})
    finally:
        del os.environ["REVERIE_TEAM_MEMORY"]


def by_hooks(house: House) -> None:
    from reverie.testing.messages_server import MessagesServer

    said = "Remember that I am a nurse who works at night and writes Haskell."
    file = house.project.parent / "transcript.jsonl"
    reply = {"id": "m", "role": "assistant", "model": MODEL, "content": [{"type": "text", "text": "Understood."}]}
    common = {"sessionId": "abc", "cwd": str(house.project), "version": "2.1.0", "isSidechain": False}
    stamped = {**common, "timestamp": "2026-11-16T10:00:00Z"}
    asked = {**stamped, "type": "user", "message": {"role": "user", "content": said}, "uuid": "u0", "parentUuid": None}
    told = {**stamped, "type": "assistant", "message": reply, "uuid": "a0", "parentUuid": "u0"}
    file.write_text(json.dumps(asked) + "\n" + json.dumps(told) + "\n")
    made = {"type": "user", "name": "Profile", "description": ABOUT, "text": ABOUT, "scope": "team"}
    answers = json.dumps({"memories": [made]})
    with MessagesServer(lambda request: answers) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        patch.setenv("ANTHROPIC_API_KEY", "test")
        patch.setenv("REVERIE_MODEL_ALIASES", f"worker=anthropic:{MODEL}")
        patch.setenv("REVERIE_TEAM_MEMORY", str(house.team))
        for event, more in (("UserPromptSubmit", {"prompt": said}), ("Stop", {})):
            body = {"session_id": "abc", "cwd": str(house.project), "transcript_path": str(file)}
            answer(["--host", "claude-code", event], json.dumps({**body, "hook_event_name": event, **more}).encode())
        [ran] = work(Path(os.environ["REVERIE_HOME"]))
    assert (ran.problem, ran.by, ran.refused, len(ran.saved)) == ("", "model", 0, 1), "kept, for the user alone"


def by_sdk_tool(house: House) -> None:
    for root in (str(house.memory.path), str(house.team)):
        files = MemoryFiles(root)
        for path in ("/memories/team/user_profile.md", "/memories/../shared/user_profile.md"):
            with pytest.raises(Exception, match=r"cannot be used|not for memories|Invalid|escape|path"):
                files.create(path, PROFILE)


def by_file(house: House) -> None:
    with pytest.raises(InputError, match="always private"):
        house.memory.write("team/user_profile.md", PROFILE, author="user")


def by_dream(house: House) -> None:
    house.memory.save(ABOUT, type="user", name="Profile")
    said = [
        [
            call("Write", file_path="team/user_profile.md", content=PROFILE),
            call(
                "Write", file_path="user_profile.md", content=PROFILE.replace("type: user", "type: user\nscope: team")
            ),
        ],
        "Done.",
    ]
    dreams = Dreams(house.memory, house.settings, project=house.project, model=ScriptedModel(said))
    anyio.run(dreams.run)


DOORS = (
    *(by_extraction_tools, by_extraction_answer, by_memory_tool, by_mcp, by_hooks),
    *(by_sdk_tool, by_file, by_dream),
)


@pytest.mark.requirement("M10", "M12")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_memory_about_the_user_reaches_the_team_through_no_door(
    house: House, door: Callable[[House], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_WORKER", "off")
    door(house)
    assert not [name for name in house.shared if "type: user" in (house.team / name).read_text()]
    assert "Haskell" not in "".join((house.team / name).read_text() for name in house.shared)


@pytest.mark.requirement("M12")
def test_the_store_itself_is_the_last_guard(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.runtime.memory.scopes.Scopes.route", lambda *_: "team")
    with pytest.raises(InputError, match="always private"):
        house.memory.save(ABOUT, type="user")
    monkeypatch.setattr("reverie.memories.store.store.refuse_private", lambda *_: None)
    house.memory.save(ABOUT, type="user")
    assert len(house.shared) == 2, "without the guard it gets in"


@pytest.mark.requirement("M12")
@pytest.mark.parametrize("kind", ["user", "User"])
def test_a_file_about_a_person_that_somebody_puts_there_is_not_shown_and_lint_says_so(house: House, kind: str) -> None:
    (house.team / "user_profile.md").write_text(PROFILE.replace("type: user", f"type: {kind}"))
    house.memory.reindex("team")
    assert "user_profile" not in house.memory.index("team").text
    assert not [one for one in house.memory.recall("nurse night Haskell") if "profile" in one.file]
    assert [one.file for one in house.memory.lint() if "about a person" in one.problem] == ["team/user_profile.md"]
    reader = MemoryReader(str(house.memory.path), str(house.team), query="nurse Haskell", home=str(house.project))
    assert not reader.index.search("nurse Haskell")


@pytest.mark.requirement("M10", "M12")
def test_the_memory_tool_and_the_extraction_prompt_know_scopes_where_there_is_a_team(house: House) -> None:
    shared, alone = MemoryTool(house.memory, team=True), MemoryTool(house.memory)
    assert shared.input_schema["properties"]["scope"]["enum"] == ["private", "team"]
    assert "scope" not in alone.input_schema["properties"]
    given = {"action": "save", "type": "feedback", "text": "Write tests first", "why": "agreed by all", "scope": "team"}
    anyio.run(shared.run, given, ToolContext(cwd=house.project, session="s"))
    assert any(name.startswith("feedback_") for name in house.shared)
    for form in ("tools", "structured"):
        fixed: dict[str, Any] = {"manifest": "", "messages": 1, "path": "/m", "tag": "t", "policy": ExtractPolicy()}
        assert "scope: always private" in directive(form, team=True, **fixed)  # type: ignore[arg-type]
        assert "scope" not in directive(form, **fixed)  # type: ignore[arg-type]


@pytest.mark.requirement("M12")
def test_a_shared_memory_names_its_author_by_the_users_git_settings(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ada Low\n\temail = ada@example.org\n")
    saved = house.memory.save("The pager of the ward rings at desk 4", type="reference", name="pager")
    assert house.memory.get(saved.file).extra["author"] == "Ada Low <ada@example.org>"
    private = house.memory.save("Answer in short sentences", type="feedback", why="the user reads on a phone")
    assert "author" not in house.memory.get(private.file).extra


@pytest.mark.requirement("M12")
def test_conflict_markers_are_found_by_lint_and_never_shown(house: House) -> None:
    path = house.team / "reference_tickets.md"
    text = path.read_text()
    torn = text.replace(
        "Tickets of the ward", "<<<<<<< HEAD\nTickets of the ward\n=======\nTickets of night shifts\n>>>>>>> theirs\n"
    )
    path.write_text(torn)
    assert house.memory.get("team/reference_tickets.md").body == ""
    assert house.memory.recall("tickets ward night shifts tracker") == []
    assert any("conflict markers" in one.problem for one in house.memory.lint())
    index = house.team / "MEMORY.md"
    line = index.read_text()
    index.write_text(f"<<<<<<< HEAD\n- [a](a.md)\n=======\n{line}>>>>>>> theirs\n")
    assert house.memory.index("team").text == line
    assert any(one.file == "team/MEMORY.md" and "conflict" in one.problem for one in house.memory.lint())
    house.memory.reindex("team")
    assert "<<<<" not in index.read_text()


@pytest.mark.requirement("M12")
def test_an_index_that_git_merged_line_by_line_is_shown_as_the_files_say(house: House) -> None:
    index = house.team / "MEMORY.md"
    old = index.read_text()
    house.memory.update("team/reference_tickets.md", "Tickets of the ward are in the green folder")
    new = index.read_text()
    gone = "- [gone](reference_gone.md) — Removed by the others\n"
    index.write_text(old + new + gone)  # the lines of both sides
    assert house.memory.index("team").text == new
    problems = {one.file: one.problem for one in house.memory.lint()}
    assert "two lines" in problems["team/reference_tickets.md"]
    assert "no such memory" in problems["team/reference_gone.md"]
    house.memory.reindex("team")
    assert (index.read_text(), house.memory.lint()) == (new, [])


@pytest.mark.requirement("M12")
def test_a_text_about_conflict_markers_is_no_conflict(house: House) -> None:
    said = "A line that begins with seven signs, such as `<<<<<<< HEAD`, is a marker of git."
    saved = house.memory.save(said, type="reference", name="markers")
    assert house.memory.get(saved.file).body.strip() == said


@pytest.mark.requirement("M12")
def test_a_shared_folder_gets_rules_for_git_once_and_keeps_its_own(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / ".gitignore").write_text("*.bak")
    memory = Memory(tmp_path / "memory", team=tmp_path / "shared")
    for number in range(2):
        memory.save(f"Desk {number} has a printer with staples", type="reference")
    assert (tmp_path / "shared" / ".gitignore").read_text() == "*.bak\n.journal/\n.consolidate-lock\n"
    assert (tmp_path / "shared" / ".gitattributes").read_text() == "*.md merge=union\n"
    assert not (tmp_path / "memory" / ".gitignore").exists()
    assert team_folder.GIT_RULES.keys() == {".gitignore", ".gitattributes"}


@pytest.mark.requirement("L6.4")
def test_a_superseded_memory_stays_as_a_file_and_leaves_recall_index_and_prompts(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    old = memory.save("Deploys of the ward app go out on Mondays", type="project", name="deploys", why="agreed").file
    new = memory.save("Deploys of the ward app go out on Thursdays", type="project", name="deploy day", why="new").file
    path = memory.path / old
    path.write_text(
        path.read_text().replace("type: project", f"type: project\nsuperseded_by: {new}\nended: 2026-11-16")
    )
    assert any(one.file == old and "should not be" in one.problem for one in memory.lint())
    memory.reindex()
    assert [one.file for one in memory.recall("when do deploys of the ward app go out")] == [new]
    assert old not in memory.index().text
    assert new in memory.index().text
    assert not [one for one in memory.lint() if one.file == old], "lint knows it"
    assert memory.get(old).superseded_by == new
    reader = MemoryReader(str(memory.path), None, query="deploys ward", home=str(tmp_path))
    assert [match.file for match in reader.index.search("deploys ward")] == [new]
    memory.update(old, description="a new description of Monday deploys")
    assert old not in memory.index().text, "an update does not list it again"
    memory.forget(new)
    assert any(one.file == old and "no such memory" in one.problem for one in memory.lint())
    again = memory.save("Deploys of the ward app go out on Mondays", type="project", name="deploys", why="agreed")
    assert again.file == old
    assert memory.get(old).superseded_by == "", "said again, it holds again"
    assert old in memory.index().text
    now = datetime(2026, 11, 17, tzinfo=UTC)
    assert MemoryStore(str(memory.path), clock=lambda: now).get(old) is not None
