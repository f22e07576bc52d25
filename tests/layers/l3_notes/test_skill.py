"""A session becomes a skill: a model's answer is checked, and a skeleton says what is left to fill in."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import skills_ref
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, text
from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, CompactionUndone, NotesUpdated
from reverie.conversation.tokens.estimate import estimate_text
from reverie.conversation.view import View
from reverie.errors import InputError
from reverie.layers.l3_notes.sections import RESULTS, WORKFLOW, WORKLOG, Notes
from reverie.layers.l3_notes.skill import (
    Skill,
    SkillMaterial,
    checked_name,
    render_skill,
    skill_from_answer,
    skill_material,
    skill_name,
    skill_prompt,
    skill_skeleton,
    words_since_compaction,
)
from reverie.memories.store.frontmatter import parse

GOOD = """---
name: mend-fences
description: "Mend a fence: count the posts, then run the tests. Use it when a fence does not hold."
---

# Mend a fence

1. Count the posts in `fence.py`.
2. Run `make test`; it must end with exit code 0.
"""
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


def problems_of(skill: Skill, folder: Path) -> list[str]:
    """Return what the reference validator says about a skill in a folder of its name."""
    place = folder / skill.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(render_skill(skill))
    return skills_ref.validate(place)


# -- the answer of a model


@pytest.mark.requirement("L3.9")
@pytest.mark.parametrize(
    "wrap",
    ["{}", "```markdown\n{}```\n", "Here is the skill:\n\n{}", "Done.\n\n```\n{}```\n\nShall I go on?", "\n\n{}\n"],
)
def test_an_answer_is_read_with_or_without_words_and_fence_around_it(tmp_path: Path, wrap: str) -> None:
    skill = skill_from_answer(wrap.format(GOOD))
    assert skill.name == "mend-fences"
    assert skill.description.startswith("Mend a fence: count")
    assert skill.body.startswith("# Mend a fence")
    assert "make test" in skill.body
    assert problems_of(skill, tmp_path) == []


@pytest.mark.requirement("L3.9")
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("mend-fences", "Mend Fences", "cannot name a skill"),
        ("mend-fences", "mend--fences", "cannot name a skill"),
        ("mend-fences", "-mend", "cannot name a skill"),
        ("mend-fences", "m" * 65, "cannot name a skill"),
        ("name: mend-fences\n", "", "cannot name a skill"),
        ("Mend a fence: count", "Mend " * 300, "and 1,024 is most"),
        ('"Mend a fence: count the posts, then run the tests. Use it when a fence does not hold."', "", "description"),
        ("1. Count the posts in `fence.py`.\n2. Run `make test`; it must end with exit code 0.\n", "", "instructions"),
        ("2. Run", "\n".join(["go on"] * 600), "500 is most"),
        ("make test", f"TOKEN={TOKEN} make test", "a secret (GitHub token)"),
        ("---\nname", "name", "front matter"),
        ("name:", "  nested: x\nname:", "indented"),
    ],
)
def test_an_answer_that_breaks_a_rule_is_refused_with_the_reason(old: str, new: str, problem: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(InputError) as refused:
        skill_from_answer(GOOD.replace(old, new, 1))
    assert problem in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_fields_that_a_model_adds_are_left_out_and_a_given_name_is_used(tmp_path: Path) -> None:
    skill = skill_from_answer(GOOD.replace("name:", "allowed-tools: Bash\nname:", 1), name="fences")
    assert parse(render_skill(skill)).fields.keys() == {"name", "description"}
    assert skill.name == "fences"
    assert problems_of(skill, tmp_path) == []


@pytest.mark.requirement("L3.9")
@given(st.text(min_size=1, max_size=300).filter(str.strip))
def test_any_description_that_is_accepted_passes_the_reference_validator(
    tmp_path_factory: pytest.TempPathFactory, words: str
) -> None:
    quoted = words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
    answer = f'---\nname: a-b\ndescription: "{quoted}"\n---\nDo this first, and then do that other thing too.\n'
    try:
        skill = skill_from_answer(answer)
    except InputError:
        return
    folder = tmp_path_factory.mktemp("skills")
    assert problems_of(skill, folder) == []
    assert skills_ref.read_properties(folder / "a-b").description == skill.description


def test_the_validator_would_cut_a_description_with_three_hyphens(tmp_path: Path) -> None:
    kept = skill_from_answer(GOOD.replace("Mend a fence:", "Mend --- a fence:", 1))
    assert problems_of(kept, tmp_path) == []
    assert "Mend -- a fence" in skills_ref.read_properties(tmp_path / "mend-fences").description
    assert problems_of(Skill("mend-fences", 'Mend: --- "x"', "body"), tmp_path) != []


# -- the prompt


@pytest.mark.requirement("L3.9")
def test_the_prompt_holds_notes_and_messages_within_its_tokens_and_tags() -> None:
    words = tuple(f"rule {number}: " + "keep the gate closed " * 200 for number in range(40))
    material = SkillMaterial(Notes({WORKFLOW: "run </notes-t> `make test`\n" * 400, "Empty": ""}), words)
    prompt = skill_prompt(material, tag="t0ps3cret", tokens=8_000)
    assert estimate_text(prompt) < 10_000
    assert "rule 0:" in prompt
    assert "rule 39:" in prompt
    assert "messages left out]" in prompt
    assert prompt.count("</notes-t0ps3cret>") == 1
    assert prompt.index("make test") < prompt.index("</notes-t0ps3cret>") < prompt.index("<user-t0ps3cret>")
    assert "{{" not in prompt
    short = skill_prompt(SkillMaterial(Notes({WORKFLOW: "make"}), ("a", "b")), tag="t", tokens=8_000)
    assert "left out" not in short


# -- without a model


@pytest.mark.requirement("L3.9")
def test_a_skeleton_holds_commands_errors_and_the_users_words(worked: Script, tmp_path: Path) -> None:
    skill = skill_skeleton(skill_material(worked.view))
    assert parse(render_skill(skill)).fields == {"name": skill.name, "description": skill.description}
    assert skill.name == "please-make-the-parser-in-repo-src-parse-py-accept-empty-input"
    assert "Use it for tasks like this one: Please make the parser" in skill.description
    for part in (
        "pytest tests/test_parse.py",
        "IndexError: string index out of range",
        "No, return None for empty input",
        "TODO: describe the kind of task",
    ):
        assert part in skill.body
    assert problems_of(skill, tmp_path) == []


@pytest.mark.requirement("L3.9")
def test_a_skeleton_says_what_the_notes_do_not_have(tmp_path: Path) -> None:
    task = "Explain how the gate is oiled before winter comes"
    bare = skill_skeleton(SkillMaterial(Notes({}), (task,)))
    assert "TODO: list the steps" in bare.body
    assert "TODO: name a check" in bare.body
    full = skill_skeleton(SkillMaterial(Notes({WORKFLOW: "`oil gate`", RESULTS: "it swings", "Own": "mine"}), (task,)))
    assert "TODO: list" not in full.body
    assert "> it swings\n\nTODO: name a check" in full.body
    assert "## Own\n\nmine" in full.body
    assert problems_of(bare, tmp_path) == problems_of(full, tmp_path) == []


@pytest.mark.requirement("L3.9")
def test_no_secret_reaches_the_skeleton_or_the_prompt() -> None:
    script = Script()
    script.user(f"Deploy the site to staging with the token {TOKEN} and tell me the address")
    script.reply(text("Done."))
    script.decide(NotesUpdated(Cause("notes", "due"), {WORKFLOW: f"`TOKEN={TOKEN} deploy`"}, None, "model", 9))
    material = skill_material(script.view)
    assert "GitHub token left out" in skill_skeleton(material).body
    assert TOKEN not in render_skill(skill_skeleton(material)) + skill_prompt(material, tag="t", tokens=9_000)
    assert TOKEN in str(script.view.facts.notes)


@pytest.mark.requirement("L3.9")
@pytest.mark.parametrize("said", ["", "hi", "ok, go on!", "???"])
def test_a_session_without_content_is_no_skill(said: str) -> None:
    script = Script()
    if said:
        script.user(said)
        script.reply(text("Hello! How can I help you with your project today?"))
    with pytest.raises(InputError, match="nothing to make a skill of"):
        skill_material(script.view)


def test_a_worklog_alone_is_no_content() -> None:
    script = Script()
    script.decide(NotesUpdated(Cause("notes", "due"), {WORKLOG: "- looked around a good deal"}, None, "model", 9))
    with pytest.raises(InputError, match="nothing to make a skill of"):
        skill_material(script.view)


@pytest.mark.requirement("L3.9")
@given(st.integers(0, 10**6))
def test_any_session_gives_a_valid_file_or_a_clear_refusal(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    view = View().fold_all(random_log(Random(seed)))
    try:
        material = skill_material(view)
    except InputError:  # the only refusal: the session has no content
        return
    skill = skill_skeleton(material)
    assert problems_of(skill, tmp_path_factory.mktemp("skills")) == []
    assert parse(render_skill(skill)).body.count("\n") < 500


@pytest.mark.requirement("L3.9")
def test_only_what_was_said_since_the_last_compaction_counts() -> None:
    script = Script()
    script.user("first of all")
    script.user("second of all")
    cut = script.decide(Compacted(Cause("c", "r"), "manual", "full", "sum", 9, None, None))
    script.user("third of all")
    assert words_since_compaction(script.view) == ["third of all"]
    script.decide(CompactionUndone(Cause("c", "r"), cut))
    assert words_since_compaction(script.view) == ["first of all", "second of all", "third of all"]


@given(st.text(max_size=200))
def test_every_text_gives_a_valid_name(title: str) -> None:
    assert checked_name(skill_name(title))


def test_a_name_of_ones_own_is_checked() -> None:
    with pytest.raises(InputError, match="cannot name a skill"):
        skill_skeleton(SkillMaterial(Notes({WORKFLOW: "x"}), ("Mend the fence",)), name="Not Valid")
    assert skill_name("Ünïcode & friends! " + "long " * 30) == "unicode-friends" + "-long" * 9
    assert skill_name("Größe prüfen") == "grosse-prufen"
