"""Skills are found in their folders, listed in one line each, loaded on use; the todo list is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie.tools import Output, Todo, ToolContext
from reverie.tools.skill import SkillTexts, SkillTool
from reverie.tools.skills import MAX_SKILL_CHARS, brief_listing, find_skills, skill_folders
from reverie.tools.todo import TodoWrite


def add(folder: Path, name: str, description: str = "Use it for tests", body: str = "Do this.") -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")
    return place


def invoke(context: ToolContext, name: str, **more: Any) -> Output:
    return anyio.run(SkillTool().run, {"name": name, **more}, context)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_skills_of_the_project_go_before_those_of_the_user(tmp_path: Path) -> None:
    cwd, home, user = tmp_path / "ws", tmp_path / "home", tmp_path / "user"
    add(cwd / ".reverie" / "skills", "release", "of the project")
    add(cwd / ".claude" / "skills", "review", "of the project too")
    add(home / "skills", "release", "of the home")
    add(home / "skills", "deploy", "of the home")
    add(user / ".claude" / "skills", "deploy", "of the user")
    add(user / ".claude" / "skills", "greet", "of the user")
    found = find_skills(skill_folders(cwd, home=home, user=user))
    assert [(skill.name, skill.description) for skill in found] == [
        ("deploy", "of the home"),
        ("greet", "of the user"),
        ("release", "of the project"),
        ("review", "of the project too"),
    ]
    assert brief_listing(found).split("\n")[2] == "- release: of the project"


def test_a_skill_is_loaded_whole_with_its_directory_when_it_is_invoked(tmp_path: Path, user: Path) -> None:
    place = add(tmp_path / "ws" / ".claude" / "skills", "release", body="1. Run scripts/tag.sh\n2. Push.")
    context = ToolContext(cwd=tmp_path / "ws")
    output = invoke(context, "release", arguments="v2")
    assert str(place) in str(output.content)
    assert "1. Run scripts/tag.sh\n2. Push." in str(output.content)
    assert str(output.content).endswith("Arguments: v2")
    assert "description:" not in str(output.content)


def test_an_unknown_skill_is_an_error_that_names_those_there_are(tmp_path: Path, user: Path) -> None:
    add(user / ".claude" / "skills", "greet")
    output = invoke(ToolContext(cwd=tmp_path), "great")
    assert output.is_error
    assert "greet" in str(output.content)


def test_skills_of_a_project_that_is_not_trusted_are_not_offered(tmp_path: Path, user: Path) -> None:
    add(tmp_path / ".claude" / "skills", "planted")
    add(user / ".claude" / "skills", "greet")
    context = ToolContext(cwd=tmp_path, project_skills=False)
    assert invoke(context, "planted").is_error
    assert not invoke(context, "greet").is_error


def test_what_is_no_skill_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    add(folder, "good")
    (folder / "empty").mkdir()
    (folder / "file").write_text("x")
    add(folder, "silent", description="''")
    (folder / "broken").mkdir()
    (folder / "broken" / "SKILL.md").write_text("---\nname: &anchor x\n---\n")
    (folder / "binary").mkdir()
    (folder / "binary" / "SKILL.md").write_bytes(b"\0\1")
    secret = tmp_path / "secret.md"
    secret.write_text("---\ndescription: stolen\n---\nsecret")
    (folder / "leaving").mkdir()
    (folder / "leaving" / "SKILL.md").symlink_to(secret)
    assert [skill.name for skill in find_skills([(folder, "project")])] == ["good"]


def test_listing_and_skill_are_bounded_and_one_line_each(tmp_path: Path, user: Path) -> None:
    folder = tmp_path / ".claude" / "skills"
    for number in range(120):
        add(folder, f"skill-{number}", description='"' + "words " * 100 + "\\n\\x1b[31m" + '"')
    add(folder, "aaa-long", body="y" * (MAX_SKILL_CHARS * 2))
    skills = find_skills(skill_folders(tmp_path))
    listing = brief_listing(skills)
    assert len(listing) < 10_000
    assert "\x1b" not in listing
    assert "and also:" in listing
    output = str(invoke(ToolContext(cwd=tmp_path), "aaa-long").content)
    assert len(output) < MAX_SKILL_CHARS + 1_000
    assert "SKILL.md for the rest" in output


def test_the_text_of_a_skill_is_that_on_disk_now(tmp_path: Path, user: Path) -> None:
    context = ToolContext(cwd=tmp_path / "ws")
    texts = SkillTexts(context)
    assert texts.text_of("release") is None
    mine = add(user / ".claude" / "skills", "release", body="Of the user.")
    assert "Of the user." in str(texts.text_of("release"))
    place = add(tmp_path / "ws" / ".claude" / "skills", "release", body="Of the project.")
    assert "Of the project." in str(texts.text_of("release"))
    context.project_skills = False
    assert "Of the user." in str(texts.text_of("release"))
    context.project_skills = True
    (place / "SKILL.md").write_text("---\nname: other\ndescription: renamed\n---\nRenamed, and longer than before.\n")
    assert "Of the user." in str(texts.text_of("release"))
    (mine / "SKILL.md").unlink()
    assert texts.text_of("release") is None
    (mine / "SKILL.md").write_text("---\nname: release\ndescription: back\n---\nIt is back.\n")
    assert "It is back." in str(texts.text_of("release"))
    (mine / "SKILL.md").unlink()
    mine.rmdir()
    assert texts.text_of("release") is None
    assert "Renamed" in str(texts.text_of("other"))


def test_a_skill_that_did_not_change_is_not_read_again(
    tmp_path: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path / ".claude" / "skills", "release")
    texts = SkillTexts(ToolContext(cwd=tmp_path))
    first = texts.text_of("release")

    def refuse(*_: Any) -> Any:
        raise AssertionError("it was read again")

    monkeypatch.setattr("reverie.tools.skill.find_skills", refuse)
    monkeypatch.setattr("reverie.tools.skill.load_skill", refuse)
    assert texts.text_of("release") is first


def test_nothing_to_list_is_an_empty_text() -> None:
    assert brief_listing([]) == ""


def todo(context: ToolContext, *steps: tuple[str, str]) -> Output:
    given = {"todos": [{"content": content, "status": status} for content, status in steps]}
    return anyio.run(TodoWrite().run, given, context)


def test_the_list_is_replaced_whole_and_in_place(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path)
    held = context.todos
    output = todo(context, ("read", "completed"), ("write", "in_progress"), ("test", "pending"))
    assert output.content == "[x] read\n[>] write\n[ ] test"
    todo(context, ("test", "in_progress"))
    assert held == [Todo("test", "in_progress")]


def test_two_steps_at_once_are_refused_and_change_nothing(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path)
    todo(context, ("one", "pending"))
    output = todo(context, ("one", "in_progress"), ("two", "in_progress"))
    assert output.is_error
    assert "pending" in str(output.content)
    assert context.todos == [Todo("one")]
