"""``reverie notes --as-skill``, its old name, and ``/skillify``: a session becomes a valid skill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import skills_ref

from log_script import Script, call, text
from reverie import FileStorage, Library, Settings
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.commands import run_command
from reverie.cli.terminal.sessions import logged_entries
from reverie.cli.terminal.transcript import Transcript
from reverie.memories.store.frontmatter import parse
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer
from reverie.tools import ToolContext
from reverie.tools.skill import available_skills

from .conftest import Asked, Reverie

KEY = "projects/farm-1/fence-7.jsonl"
MODEL = "anthropic:claude-sonnet-5"
SKILL = """---
name: mend-fences
description: Mends fences. Use it when a fence does not hold enough sheep.
---

1. Count the posts in `fence.py`.
2. Run `make test`; it must end with exit code 0.
"""


@pytest.fixture(autouse=True)
def sessions(home: Path) -> None:
    script = Script()
    script.user("Mend the fence in /farm/fence.py so that it holds 2,000 sheep \x1b[31m")
    script.reply(text("Looking."), call("t1", "Read", file_path="/farm/fence.py"))
    script.result("t1", "posts = 3\n")
    script.reply(call("t2", "Bash", command="make test"))
    script.result("t2", "ValueError: too few posts\nExit code 2")
    greeting = Script()
    greeting.user("hi")
    greeting.reply(text("Hello!"))
    storage = FileStorage(home)
    Library(storage).store(KEY, script.entries)
    Library(storage).store("projects/farm-1/greeting-1.jsonl", greeting.entries)
    storage.close()


@pytest.fixture
def answers() -> list[str]:
    """Return the answers of the provider that are left; the last one repeats."""
    return [SKILL]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, answers: list[str]) -> Iterator[MessagesServer]:
    """Run a provider that answers a request for a skill from the list, and point the environment at it."""

    def answering(request: dict[str, Any]) -> Any:
        asked = str(request["messages"][0]["content"])
        if "into a skill" not in asked:
            return "The fence is mended: it has 4 posts now."
        return answers.pop(0) if len(answers) > 1 else answers[0]

    with MessagesServer(answering) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of the tests")
        monkeypatch.setenv("REVERIE_SWITCH_EXTRACTION", "off")
        yield running


@pytest.mark.requirement("L3.9")
def test_without_a_model_a_session_becomes_a_skeleton_that_is_never_overwritten(
    reverie: Reverie, asked: Asked, tmp_path: Path
) -> None:
    made = asked("notes", "fence-7", "--as-skill", "--output", tmp_path)
    path = Path(made["path"])
    assert path == tmp_path / made["name"] / "SKILL.md"
    assert (made["by"], made["model_calls"], made["written"]) == ("local", 0, True)
    assert skills_ref.validate(path.parent) == []
    skill = parse(path.read_text())
    assert (skill.fields["name"], made["text"]) == (path.parent.name, path.read_text())
    assert "make test" in skill.body
    assert "TODO" in skill.body
    assert "2,000 sheep" in str(skill.fields["description"])
    path.write_text("mine now")
    code, out, err = reverie("notes", "fence-7", "--as-skill", "--output", tmp_path)
    assert (code, out) == (2, "")
    assert "was not changed" in err
    assert path.read_text() == "mine now"
    code, out, _ = reverie("notes", "fence-7", "--as-skill", "--output", tmp_path, "--force")
    assert code == 0
    assert "TODO" in out
    assert path.read_text() == made["text"]


@pytest.mark.requirement("L3.9")
def test_an_existing_folder_is_refused_before_the_model_is_asked(
    reverie: Reverie, server: MessagesServer, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    code, _, err = reverie("notes", "fence-7", "--as-skill", "--name", "mine", "--output", tmp_path, "--model", MODEL)
    assert code == 2
    assert "exists already" in err
    assert server.requests == []
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.slow
@pytest.mark.requirement("L3.9")
def test_a_model_writes_the_skill_and_its_calls_are_in_the_ledger(
    asked: Asked, server: MessagesServer, home: Path, answers: list[str]
) -> None:
    answers.insert(0, SKILL.replace("mend-fences", "Mend Fences"))
    made = asked("notes", "fence-7", "--as-skill", "--model", MODEL)
    assert (made["by"], made["name"], made["model_calls"]) == ("model", "mend-fences", 2)
    assert len(made["problems"]) == 1
    assert made["cost_usd"] > 0
    path = home / "skills" / "mend-fences"
    assert Path(made["path"]) == path / "SKILL.md"
    assert skills_ref.validate(path) == []
    prompt = str(server.requests[0]["messages"])
    assert "2,000 sheep" in prompt
    assert "make test" in prompt
    spent = asked("ledger")
    assert "fence-7" in json.dumps(spent)
    offered = available_skills(ToolContext(cwd=home, home=home))
    assert "mend-fences" in [skill.name for skill in offered]


@pytest.mark.slow
def test_the_setting_names_the_model_and_local_does_without(
    asked: Asked, server: MessagesServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REVERIE_MODEL", MODEL)
    assert asked("notes", "fence-7", "--as-skill", "--output", tmp_path, "--local")["by"] == "local"
    assert server.requests == []
    assert asked("notes", "fence-7", "--as-skill", "--output", tmp_path)["by"] == "model"


@pytest.mark.slow
@pytest.mark.requirement("L3.9")
def test_an_answer_that_stays_wrong_gives_the_skeleton_and_says_so(
    reverie: Reverie, server: MessagesServer, answers: list[str], tmp_path: Path
) -> None:
    answers[:] = ["Here you are: nothing."]
    code, out, err = reverie("notes", "fence-7", "--as-skill", "--model", MODEL, "--output", tmp_path)
    assert code == 0
    assert err.count("the model's answer was refused: the front matter is missing") == 2
    assert "fill in" in out
    [folder] = tmp_path.iterdir()
    assert skills_ref.validate(folder) == []


@pytest.mark.requirement("V13")
def test_a_dry_run_prints_the_skeleton_calls_no_model_and_writes_nothing(
    reverie: Reverie, server: MessagesServer, home: Path
) -> None:
    code, out, err = reverie("notes", "fence-7", "--as-skill", "--name", "mend-fences", "--dry-run", "--model", MODEL)
    assert code == 0
    assert out.startswith("---\nname: mend-fences\n")
    assert "\x1b" not in out
    assert "a dry run calls no model" in err
    assert server.requests == []
    assert not (home / "skills").exists()


@pytest.mark.requirement("L3.9")
@pytest.mark.parametrize("command", [("notes", "greeting-1", "--as-skill"), ("skill", "greeting-1")])
def test_a_session_without_content_is_an_error_and_no_skill(
    reverie: Reverie, command: tuple[str, ...], tmp_path: Path
) -> None:
    code, out, err = reverie(*command, "--output", tmp_path / "made")
    assert (code, out) == (2, "")
    assert "there is nothing to make a skill of" in err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("notes", "nobody", "--as-skill"),
        ("notes", "fence-7", "--as-skill", "--name", "Not Valid"),
        ("notes", "fence-7", "--as-skill", "--output", "/proc/nowhere"),
        ("notes", "fence-7", "--as-skill", "--update"),
        ("notes", "fence-7", "--force"),
        ("notes", "fence-7", "--output", "there"),
        ("skill", "nobody"),
    ],
)
def test_bad_input_is_one_line_and_2(reverie: Reverie, arguments: tuple[str, ...]) -> None:
    code, out, err = reverie(*arguments)
    assert (code, out) == (2, "")
    assert err.strip()
    assert "Traceback" not in err


def test_the_old_name_works_and_names_the_new_one(reverie: Reverie, tmp_path: Path) -> None:
    code, _, err = reverie("skill", "fence-7", "--out", tmp_path)
    assert code == 0
    assert "'reverie skill' is now 'reverie notes --as-skill" in err
    [folder] = tmp_path.iterdir()
    assert skills_ref.validate(folder) == []
    assert "\n  skill " not in reverie("help", "all")[1]


@pytest.mark.requirement("L3.9")
def test_the_chat_turns_its_session_into_a_skill(home: Path, tmp_path: Path) -> None:
    shown: list[str] = []
    bad = SKILL.replace("mend-fences", "Mend Fences")
    replies = ["Mended: it has 4 posts.", bad, SKILL, SKILL, SKILL, SKILL]
    model = ScriptedModel(replies)
    settings = Settings(home, switches=Switches(extraction=False, recall=False, dream=False))

    async def steps() -> None:
        async with Agent(model=model, cwd=tmp_path, session="s", settings=settings) as agent:
            async for _ in agent.ask("Mend the fence so that it holds 2,000 sheep"):
                pass
            transcript = Transcript(shown.extend, paint=Paint(colour=False), cwd=tmp_path, size=lambda: (80, 250))
            chat: Any = SimpleNamespace(agent=agent, settings=settings, transcript=transcript, interruptible=unchanged)
            for line in ("/skillify", "/skill own-name", "/skillify own-name", "/skillify"):
                await run_command(chat, line)
            calls = [one for one in logged_entries(agent) if one.body.get("source") == "skill"]
            assert len(calls) == 5

    anyio.run(steps)
    said = " ".join(" ".join(shown).split())
    assert said.count("read it before you use or share it") == 2
    assert said.count("the model's answer was refused: 'Mend Fences' cannot name a skill") == 1
    assert said.count("own-name exists already and was not changed") == 1
    assert said.count("a skeleton made without a model") == 1
    folders = sorted((home / "skills").iterdir())
    assert {"mend-fences", "own-name"} < {folder.name for folder in folders}
    assert [skills_ref.validate(folder) for folder in folders] == [[], [], []]
    assert "2,000 sheep" in str(model.requests[1]["messages"])


async def unchanged(work: Any) -> Any:
    return await work
