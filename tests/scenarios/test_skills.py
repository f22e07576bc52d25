"""Recorded sessions become skills, by a scripted model and without one, and the reference validator accepts all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import skills_ref

from reverie.conversation.view import View
from reverie.importers import find_sessions, read_session
from reverie.layers.l3_notes import SkillMaterial, render_skill, skill_material
from reverie.memories.rules.secrets import find_secrets
from reverie.models import ScriptedModel
from reverie.runtime.session.notes.skill_writer import SkillWriter, WrittenSkill
from reverie.tools.skills import find_skills

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DOZEN = 12


@pytest.fixture
def materials(corpus: Path) -> list[SkillMaterial]:
    """Return notes and user messages of recorded sessions, one of each file, in every format of the corpus."""
    files = sorted(find_sessions(corpus), key=str)
    found = [skill_material(View().fold_all(read_session(str(file))[0].entries)) for file in files]
    assert len(found) > DOZEN
    return found


def saved(made: list[WrittenSkill], folder: Path) -> list[Path]:
    """Write skills, each below a folder of its own because two may have one name, and return their folders."""
    out: list[Path] = []
    for number, each in enumerate(made):
        place = folder / str(number) / each.skill.name
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(render_skill(each.skill))
        out.append(place)
    return out


def check(folders: list[Path]) -> None:
    """Assert that the validator accepts each skill, our tool offers it, and it has no secret."""
    for place in folders:
        text = (place / "SKILL.md").read_text()
        assert skills_ref.validate(place) == [], text[:400]
        assert [skill.name for skill in find_skills([(place.parent, "user")])] == [place.name]
        assert find_secrets(text) == []
        assert len(text) > 200


def command_in(prompt: str) -> str:
    """Return the longest text in backticks of a prompt's notes, which is a command or a path of the session."""
    notes = prompt.split("</notes-", 1)[0]
    return max(re.findall(r"`([^`\n]{2,80})`", notes.split("<notes-", 1)[1]), key=len, default="the tests")


def answer(request: dict[str, Any]) -> str:
    """Answer like a model that reads its prompt and, the first time, breaks a rule of the format."""
    content = request["messages"][0]["content"]
    prompt = content if isinstance(content, str) else content[0]["text"]
    command = command_in(prompt)
    words = re.findall(r"[a-z]+", command.lower())[:4] or ["session"]
    body = f"# {command}\n\n1. Run `{command}` in the root of the project.\n2. Read its output to the end.\n"
    name = "-".join(words) if len(request["messages"]) > 1 else " ".join(words).title()
    described = f"Runs {command}: use it when the user asks for '{words[0]}' --- or for anything like it."
    return f"```markdown\n---\nname: {name}\ndescription: {described}\n---\n\n{body}```"


@pytest.mark.requirement("L3.9")
async def test_a_dozen_skeletons_of_recorded_sessions_are_valid(materials: list[SkillMaterial], tmp_path: Path) -> None:
    made = [await SkillWriter(None).written(material) for material in materials]
    assert {each.by for each in made} == {"local"}
    check(saved(made, tmp_path))
    for each, material in zip(made, materials, strict=True):
        commands = re.findall(r"`([^`\n]+)`", material.notes["Workflow"])
        assert not commands or any(command in each.skill.body for command in commands)


@pytest.mark.requirement("L3.9")
async def test_a_dozen_skills_by_a_model_of_recorded_sessions_are_valid(
    materials: list[SkillMaterial], tmp_path: Path
) -> None:
    model = ScriptedModel(answer)
    made = [await SkillWriter(model).written(material) for material in materials]
    assert [each.problems for each in made if each.by != "model"] == []
    assert {each.model_calls for each in made} == {2}
    check(saved(made, tmp_path))


async def test_the_validator_refuses_the_answers_as_the_model_gave_them(
    materials: list[SkillMaterial], tmp_path: Path
) -> None:
    model = ScriptedModel(answer)
    await SkillWriter(model).written(materials[0])
    for number, request in enumerate(model.requests):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "SKILL.md").write_text(answer(request))
        assert skills_ref.validate(place) != []
