"""Notes as a document: its structure survives or the document is refused, and budgets hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.tokens.estimate import estimate_text
from reverie.errors import InputError
from reverie.layers.l3_notes.sections import (
    CURRENT,
    HEADINGS,
    WORKLOG,
    Notes,
    Template,
    budget_excesses,
    changed_sections,
    clean_content,
    condense_request,
    cut_text,
    fit_notes,
    parse_notes,
    parse_template,
    problems,
    render_notes,
)

LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
        st.sampled_from(
            ["# Worklog", "\\# Worklog", "\\\\# x", "# Current State ", "_italic_", "```", "", "- `a/b.py`: 2x"]
        ),
    ),
    max_size=6,
).map("\n".join)
NOTES = st.dictionaries(st.sampled_from(HEADINGS), LINES).map(Notes)


@pytest.mark.requirement("L3.2")
def test_the_template_has_ten_sections_in_their_order_each_with_one_italic_line(template: Template) -> None:
    assert template.headings == HEADINGS
    assert len(HEADINGS) == 10
    assert all(section.about.startswith("_") and section.about.endswith("_") for section in template.sections)
    assert render_notes(Notes(), template).count("\n# ") == 9


@pytest.mark.requirement("L3.2")
def test_a_template_of_ones_own_may_have_other_sections() -> None:
    own = parse_template("# Plot\n_What happens._\n\n# People\n*Who is who.*\n")
    assert own.headings == ("Plot", "People")
    assert parse_notes(render_notes(Notes({"Plot": "a"}), own), own) == Notes({"Plot": "a"})


@pytest.mark.parametrize("text", ["", "no heading", "# A\ntext", "# A\n_x_\n# A\n_x_\n", "# A"])
def test_a_template_without_structure_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_template(text)


@given(NOTES)
def test_a_document_reads_back_as_it_was_written(notes: Notes) -> None:
    template = parse_template("".join(f"# {name}\n_{name} says so._\n\n" for name in HEADINGS))
    text = render_notes(notes, template)
    assert problems(text, template) == []
    back = parse_notes(text, template)
    assert changed_sections(notes, back, template) == {}
    assert render_notes(back, template) == text


@pytest.mark.requirement("L3.5")
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("# Learnings\n", ""),
        lambda text: text.replace("# Learnings", "## Learnings"),
        lambda text: text.replace("_What worked, what did not, what to avoid._", "_Things._"),
        lambda text: text + "\n# Workflow\n_again_\n",
        lambda text: "# Worklog\n" + text.replace("# Worklog\n", ""),
        lambda text: "",
    ],
)
def test_a_document_that_lost_its_structure_is_refused(template: Template, damage: object) -> None:
    text = render_notes(Notes({CURRENT: "working"}), template)
    assert problems(text, template) == []
    broken = damage(text)  # type: ignore[operator]
    assert problems(broken, template)
    with pytest.raises(InputError, match="damaged"):
        parse_notes(broken, template)


@pytest.mark.requirement("L3.1")
def test_only_sections_that_changed_are_named(template: Template) -> None:
    before = Notes({CURRENT: "a", WORKLOG: "b"})
    assert changed_sections(before, Notes({CURRENT: "a  \n", WORKLOG: "c"}), template) == {WORKLOG: "c"}
    assert changed_sections(before, Notes({CURRENT: "a"}), template) == {WORKLOG: ""}


@pytest.mark.requirement("L3.6")
def test_what_is_over_its_budget_is_said_with_by_how_much() -> None:
    notes = Notes({CURRENT: "word " * 400, WORKLOG: "word " * 100})
    found = budget_excesses(notes, 200, 300)
    assert [(over.section, over.budget) for over in found] == [(CURRENT, 200), ("all", 300)]
    said = condense_request(found)
    assert "`Current State`" in said
    assert str(estimate_text("word " * 400) - 200) in said
    assert condense_request(budget_excesses(notes, 2_000, 12_000)) == ""


@pytest.mark.requirement("L3.6")
@given(NOTES, st.integers(1, 300), st.integers(1, 900))
def test_what_is_put_into_a_view_holds_both_budgets(notes: Notes, section: int, total: int) -> None:
    cut = fit_notes(notes, section, total)
    assert budget_excesses(cut, section, total) == []
    for name, content in cut.sections.items():
        if clean_content(content) != clean_content(notes[name]):
            assert "shortened from about" in content


@pytest.mark.requirement("L3.6")
def test_a_cut_section_says_so_and_a_worklog_keeps_its_end() -> None:
    lines = "\n".join(f"- step {number}" for number in range(200))
    cut = fit_notes(Notes({CURRENT: lines, WORKLOG: lines}), 120, 1_000)
    assert cut[CURRENT].startswith("- step 0\n")
    assert "[shortened from about" in cut[CURRENT].splitlines()[-1]
    assert cut[WORKLOG].endswith("- step 199")
    assert cut_text("short", 100) == "short"
