"""A generated value is a secret also if only the title of its memory says so, through every door that saves one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.errors import InputError, ReverieError
from reverie.integrations.memory_files import MemoryFiles
from reverie.runtime.memory.memory import Memory

VALUE = "kX9vQ2mZ7pL4wR8tB3"
TOKEN = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    made = Memory.open(tmp_path / "project")
    made.save("We deploy after the review.", type="project", name="deploy")
    return made


def written(memory: Memory, name: str, body: str) -> object:
    text = f"---\nname: {name}\ndescription: about the database\ntype: reference\n---\n\n{body}\n"
    return memory.write("reference_x.md", text, author="agent")


DOORS: dict[str, Callable[[Memory, str, str], Any]] = {
    "name": lambda memory, title, text: memory.save(text, type="reference", name=title),
    "description": lambda memory, title, text: memory.save(text, type="reference", name="x", description=title),
    "both": lambda memory, title, text: memory.save("See it.", type="reference", name=title, description=text),
    "update": lambda memory, title, text: memory.update("deploy", name=title, text=text, why="new"),
    "renamed": lambda memory, title, text: (
        memory.save("See it.", type="reference", name=title),
        memory.update(title, text=text, why="new"),
    ),
    "file": written,
    "memory tool": lambda memory, title, text: MemoryFiles(str(memory.path)).create(
        f"/memories/{title.replace(' ', '_')}.md", text
    ),
}


@pytest.mark.requirement("M10")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("title", ["prod database password", "api key"])
def test_a_value_that_its_title_calls_a_secret_is_refused(memory: Memory, door: str, title: str) -> None:
    with pytest.raises((InputError, ReverieError), match="looks like a secret"):
        DOORS[door](memory, title, VALUE)
    stored = b"".join(path.read_bytes() for path in memory.path.rglob("*") if path.is_file())
    assert VALUE.encode() not in stored


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("commit of the release", VALUE),
        ("password rules", "Passwords need twelve characters and a manager; see docs/passwords.md."),
        ("token budget", "The limit of tokens is 200,000 for each request."),
        ("api keys", "They are in the vault under team/keys; ask Ana."),
    ],
)
def test_other_titles_and_words_are_saved(memory: Memory, door: str, title: str, text: str) -> None:
    DOORS[door](memory, title, text)
    stored = b"".join(path.read_bytes() for path in memory.path.rglob("*.md"))
    assert text.encode() in stored


@pytest.mark.requirement("M10")
def test_the_reason_to_forget_keeps_no_secret(memory: Memory) -> None:
    memory.forget("deploy", why=f"it had {TOKEN} in it")
    stored = b"".join(path.read_bytes() for path in memory.path.rglob("*") if path.is_file())
    assert TOKEN.encode() not in stored
    assert b"it had" in stored
