"""A model writes a skill; an answer that breaks a rule is asked for once more, and then the skeleton is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reverie.errors import ModelUnavailable
from reverie.layers.l3_notes import Notes, SkillMaterial
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.session.notes.skill_writer import SkillWriter, WrittenSkill

pytestmark = pytest.mark.anyio

MATERIAL = SkillMaterial(Notes({"Workflow": "`make test`"}), ("Mend the fence so that it holds 2,000 sheep",))
GOOD = (
    "---\nname: mend-fences\ndescription: Mend fences when they break\n---\n"
    "1. Count the posts in the fence.\n2. Run `make test` and see exit code 0.\n"
)
BAD = GOOD.replace("mend-fences", "Mend Fences")


async def written(model: ScriptedModel, **options: Any) -> WrittenSkill:
    return await SkillWriter(model, **options).written(MATERIAL)


@pytest.mark.requirement("L3.9")
async def test_the_model_reads_notes_and_messages_and_writes_the_skill() -> None:
    model, billed = ScriptedModel([GOOD]), list[Mapping[str, Any]]()

    async def record_call(reply: Mapping[str, Any]) -> None:
        billed.append(reply)

    made = await written(model, record_call=record_call)
    assert (made.by, made.skill.name, made.problems, made.model_calls) == ("model", "mend-fences", (), 1)
    asked = str(model.requests[0]["messages"])
    assert "make test" in asked
    assert "2,000 sheep" in asked
    assert "tools" not in model.requests[0]
    assert [reply["stop_reason"] for reply in billed] == ["end_turn"]


@pytest.mark.requirement("L3.9")
async def test_a_refused_answer_is_asked_for_once_more_with_the_problem() -> None:
    model = ScriptedModel([BAD, GOOD])
    made = await written(model)
    assert (made.by, made.skill.name, made.model_calls) == ("model", "mend-fences", 2)
    first, again = model.requests
    assert again["messages"][:1] == first["messages"]
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "user"]
    assert "'Mend Fences' cannot name a skill" in str(again["messages"][-1])
    assert len(made.problems) == 1


@pytest.mark.requirement("L3.9")
@pytest.mark.parametrize(
    "answers",
    [
        [BAD, BAD, GOOD],
        ["I would rather not.", "", GOOD],
        [{"content": GOOD, "stop_reason": "max_tokens"}] * 2,
        [{"content": "No.", "stop_reason": "refusal"}] * 2,
        [[{"type": "tool_use", "name": "Read", "input": {}}]] * 2,
    ],
)
async def test_after_two_refused_answers_the_skeleton_is_used(answers: list[Any]) -> None:
    model = ScriptedModel(answers)
    made = await written(model)
    assert (made.by, made.model_calls, len(made.problems)) == ("local", 2, 2)
    assert "TODO" in made.skill.body
    assert len(model.requests) == 2


async def test_a_model_that_cannot_be_reached_is_asked_once_and_the_skeleton_is_used() -> None:
    model = ScriptedModel([ModelUnavailable("no network"), GOOD])
    made = await written(model)
    assert (made.by, len(model.requests)) == ("local", 1)
    assert made.problems == ("the model gave no answer: no network",)


async def test_a_name_that_is_taken_is_refused_unless_the_user_gave_it() -> None:
    made = await written(ScriptedModel([GOOD, GOOD.replace("mend-", "repair-")]), is_taken=lambda name: "mend" in name)
    assert made.skill.name == "repair-fences"
    assert "exists already" in made.problems[0]
    named = await SkillWriter(ScriptedModel([GOOD]), is_taken=lambda name: True).written(MATERIAL, name="mine")
    assert (named.skill.name, named.problems) == ("mine", ())


async def test_without_a_model_it_is_the_skeleton() -> None:
    made = await SkillWriter(None).written(MATERIAL, name="fences")
    assert (made.by, made.skill.name, made.model_calls) == ("local", "fences", 0)


async def test_a_small_window_gets_a_short_prompt() -> None:
    many = SkillMaterial(Notes({"Workflow": "`make test`\n" * 20_000}), ("Mend the fence",) * 2_000)
    model = ScriptedModel([GOOD], capabilities=Capabilities(window=8_192))
    assert (await SkillWriter(model).written(many)).by == "model"
    assert len(str(model.requests[0]["messages"])) < 8_192 * 3
