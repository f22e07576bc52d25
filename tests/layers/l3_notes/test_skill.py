"""A session becomes a skill in the Agent Skills format."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script
from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, CompactionUndone
from reverie.conversation.view import View
from reverie.errors import InputError
from reverie.layers.l3_notes.local import take_notes
from reverie.layers.l3_notes.sections import Notes
from reverie.layers.l3_notes.skill import render_skill, skill_name, skill_of, words_since_compaction
from reverie.memories.store.frontmatter import parse


@pytest.mark.requirement("L3.9")
def test_a_skill_holds_commands_errors_and_the_users_words(worked: Script) -> None:
    skill = skill_of(take_notes(worked.view), words_since_compaction(worked.view))
    assert parse(render_skill(skill)).fields == {"name": skill.name, "description": skill.description}
    assert skill.name == "parser-repo-src-parse-py-accept-empty-input-limit-4-096-bytes"
    assert "Use it for tasks like this one: Please make the parser" in skill.description
    for part in (
        "pytest tests/test_parse.py",
        "IndexError: string index out of range",
        "No, return None for empty input",
    ):
        assert part in skill.body


@pytest.mark.requirement("L3.9")
@given(st.integers(0, 10**6), st.text(max_size=200))
def test_any_session_gives_a_valid_file_or_a_clear_refusal(seed: int, title: str) -> None:
    view = View().fold_all(random_log(Random(seed)))
    notes, words = take_notes(view), words_since_compaction(view)
    if notes.empty and not words:
        with pytest.raises(InputError, match="nothing to make a skill of"):
            skill_of(notes, words)
    else:
        skill = skill_of(notes, words)
        assert parse(render_skill(skill)).fields["name"] == skill.name
        assert len(skill.description) <= 1_024
        assert "\n" not in skill.description
    assert parse(render_skill(skill_of(Notes({"Worklog": "x"}), [title or "x"], name=skill_name(title)))).body.strip()


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


def test_a_name_of_ones_own_is_checked() -> None:
    with pytest.raises(InputError, match="cannot name a skill"):
        skill_of(Notes({"Worklog": "x"}), [], name="Not Valid")
    assert skill_name("Ünïcode & friends! " + "long " * 30) == "n-code-friends" + "-long" * 10
