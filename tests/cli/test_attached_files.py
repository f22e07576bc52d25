"""Files that a prompt names with ``@``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Settings
from reverie.cli.terminal.attached_files import attach_files, image_path, missing_files, named_files, pasted_image
from reverie.conversation.wire.validate import problems
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import PermissionRules, Switches

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a text, a text with a blank in its name, an image and a secret."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "app.py").write_text("print('harbour')\n")
    (folder / "my notes.txt").write_text("low tide\n")
    (folder / "dot.png").write_bytes(base64.b64decode(PIXEL))
    (folder / ".env").write_text("TOKEN=1\n")
    return folder


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("fix @app.py please", ["app.py"]),
        ("look at @app.py, and at @app.py.", ["app.py"]),
        ("@my\\ notes.txt, then @dot.png!", ["my notes.txt", "dot.png"]),
        ("mail me@app.py or @nobody, use @pytest.fixture", []),
        ("@", []),
        ("ask @~nobodyhere and @" + 300 * "x", []),
    ],
)
def test_only_files_that_exist_are_named(project: Path, prompt: str, found: list[str]) -> None:
    assert named_files(prompt, project) == found


@pytest.mark.parametrize(
    ("prompt", "missing"),
    [
        ("see @nope.py please", ["nope.py"]),
        ("see @src/nope.toml, @./nope.md and @nope.py, @nope.py!", ["src/nope.toml", "./nope.md", "nope.py"]),
        ("see @app.py, (@app.py) and @app.py.", []),
        (f"see @{'x' * 300}.py", [f"{'x' * 300}.py"]),
        ("mail me@nope.py, ask @nobody or @first.last, install @types/node and @scope/name", []),
        ("@pytest.fixture\n@app.route('/x.html')\n    @functools.cache\n@app.get('/a.json')\ndef f(): ...", []),
        ("use foo@1.2, @v1.2.3, @latest, @media, {@link a.md} and @param path.py", []),
    ],
)
def test_a_word_that_can_only_be_a_file_and_is_none_is_named(project: Path, prompt: str, missing: list[str]) -> None:
    (project / "notes.md").touch()
    (project / "pyproject.toml").touch()
    assert missing_files(prompt, project) == missing


def test_the_lines_about_a_prompt_name_the_file_that_is_missing(home: Path, project: Path) -> None:
    requests, lines = asked(home, project, "see @app.py and @nope.py please", ["Seen."])
    assert lines == ["attached app.py", "nope.py does not exist"]
    assert "does not exist" not in str(requests)


def asked(home: Path, project: Path, prompt: str, replies: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Attach the files of a prompt, ask it, and return the requests and the lines that were shown."""
    settings = Settings(
        home,
        switches=Switches(extraction=False, recall=False, dream=False),
        permissions=PermissionRules(mode="accept-edits", deny=("Read(.env)",)),
    )
    model, lines = ScriptedModel(replies), list[str]()

    async def steps() -> None:
        async with Agent(model=model, cwd=project, session="s", settings=settings) as agent:
            await attach_files(agent, prompt, lambda line, _: lines.append(line))
            _ = [event async for event in agent.ask(prompt)]

    anyio.run(steps)
    return model.requests, lines


def test_an_attached_file_is_seen_and_edited_without_another_read(home: Path, project: Path) -> None:
    edit = {"file_path": "app.py", "old_string": "harbour", "new_string": "quay"}
    replies = [[{"type": "tool_use", "name": "Edit", "input": edit}], "Done."]
    requests, lines = asked(home, project, "rename it in @app.py", replies)
    assert lines == ["attached app.py"]
    assert "print('harbour')" in repr(requests[0]["messages"])
    assert (project / "app.py").read_text() == "print('quay')\n"
    assert all(problems(request) == [] for request in requests)


def test_an_image_is_attached_and_a_denied_file_is_not(home: Path, project: Path) -> None:
    requests, lines = asked(home, project, "compare @dot.png with @.env", ["Done."])
    assert lines[0] == "attached dot.png"
    assert ".env was not attached: Permission to use Read was denied" in lines[1]
    blocks = [block for message in requests[0]["messages"] for block in message["content"] if isinstance(block, dict)]
    assert any(block.get("type") == "image" for block in blocks)
    assert "TOKEN=1" not in repr(requests)


def test_a_pasted_path_of_an_image_is_attached_and_other_text_stays_text(project: Path) -> None:
    (project / "two dots.PNG").write_bytes(base64.b64decode(PIXEL))
    for pasted in (f"{project}/two\\ dots.PNG", f"'{project}/two dots.PNG'\n", f"file://{project}/two%20dots.PNG"):
        word = image_path(pasted)
        assert named_files(f"see {word}", project) == [f"{project}/two dots.PNG"]
    for text in (f"{project}/app.py", f"{project}/none.png", "dot.png", "a 'quote", "two\nlines.png", ""):
        assert image_path(text) == ""


def test_the_image_in_the_clipboard_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pasted_image(tmp_path / "pasted") is None
    (tmp_path / "data").write_bytes(base64.b64decode(PIXEL))
    (tmp_path / "xclip").write_text(f"#!/bin/sh\nexec /bin/cat {tmp_path}/data\n")
    (tmp_path / "xclip").chmod(0o755)
    path = pasted_image(tmp_path / "pasted")
    assert path is not None
    assert path.read_bytes() == base64.b64decode(PIXEL)
    (tmp_path / "data").write_text("no image")
    assert pasted_image(tmp_path / "pasted") is None
