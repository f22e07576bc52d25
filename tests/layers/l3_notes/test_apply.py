"""A model's answer is applied under the rules, or refused as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.conversation.tokens.estimate import estimate_text
from reverie.errors import InputError, SettingsError
from reverie.layers.l3_notes.plan import notes_limits
from reverie.layers.l3_notes.policy import NotesPolicy
from reverie.layers.l3_notes.prompts import directive, fill_prompt, notes_from_answer, prompt_of, template_of
from reverie.layers.l3_notes.sections import CURRENT, HEADINGS, WORKLOG, Notes, Template, render_notes

POLICY = NotesPolicy()
LIMITS = notes_limits(POLICY, 180_000)


@pytest.mark.requirement("L3.4")
def test_sections_that_are_sent_change_and_others_stay(template: Template) -> None:
    before = Notes({CURRENT: "old", WORKLOG: "- began"})
    answer = 'Sure:\n<section name="Current State">\nNew `a/b.py`\n\n## Next\nship\n</section>\nand that is all.'
    assert notes_from_answer(before, answer, template, LIMITS) == Notes(
        {CURRENT: "New `a/b.py`\n\n## Next\nship", WORKLOG: "- began"}
    )


@pytest.mark.requirement("L3.5")
@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I have brought the notes up to date.",
        '<section name="My thoughts">\nhm\n</section>',
        '<section name="Current State">\nx\n# Worklog\ny\n</section>',
        '<section name="Current State">\n_Step by step what was tried and done, one terse line each._\n</section>',
        '<section name="Current State">\nnever closed',
        '<section name="Worklog">\nfine\n</section><section name="Nowhere">\nbad\n</section>',
    ],
)
def test_an_answer_that_damages_the_structure_is_refused_whole(template: Template, answer: str) -> None:
    with pytest.raises(InputError):
        notes_from_answer(Notes({CURRENT: "old"}), answer, template, LIMITS)


@pytest.mark.requirement("L3.6")
def test_a_section_far_over_its_budget_is_cut_at_once(template: Template) -> None:
    steps = "- a step\n" * 40_000
    answer = f'<section name="Worklog">\n{steps}</section>'
    notes = notes_from_answer(Notes(), answer, template, LIMITS)
    assert LIMITS.section < estimate_text(notes[WORKLOG]) <= 2 * LIMITS.section


@pytest.mark.requirement("L3.4", "L3.6")
def test_the_directive_holds_path_content_budgets_and_what_is_over(template: Template) -> None:
    notes = Notes({CURRENT: "working {{path}} on it", WORKLOG: "word " * 3_000})
    text = directive(notes, template, POLICY, LIMITS, path="/home/x/summary.md")
    assert "/home/x/summary.md" in text
    assert render_notes(notes, template) in text, "what stands in the notes is not filled in again"
    assert "2000 tokens" in text
    assert "12000" in text
    assert "`Worklog` holds about" in text
    short = directive(Notes(), template, POLICY, LIMITS, path="p")
    assert "condense in this update" not in short
    assert all(f"# {heading}" in short for heading in HEADINGS)


@pytest.mark.requirement("L3.2")
def test_both_files_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "template.md").write_text("# Plot\n_What happens._\n")
    (tmp_path / "prompt.md").write_text("Write {{notes}} now{{over}}")
    policy = NotesPolicy(template_file=str(tmp_path / "template.md"), prompt_file=str(tmp_path / "prompt.md"))
    assert template_of(policy).headings == ("Plot",)
    text = directive(Notes({"Plot": "a"}), template_of(policy), policy, LIMITS, path="p")
    assert text == "Write # Plot\n_What happens._\n\na\n now"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        template_of(NotesPolicy(template_file="/nowhere/template.md"))
    with pytest.raises(SettingsError, match="nowhere"):
        prompt_of(NotesPolicy(prompt_file="/nowhere/prompt.md"))


def test_places_that_are_unknown_stay() -> None:
    assert fill_prompt("{{a}} {{b}} {c}", {"a": "{{b}}"}) == "{{b}} {{b}} {c}"
