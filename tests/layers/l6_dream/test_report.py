"""The report of a dream as a page: every change made or refused, with its reason."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.changes import FileChange
from reverie.layers.l6_dream.report import DreamReport, ModelUsage, Question, SkippedChange, change_of, markdown

CHANGES = (
    FileChange("a.md", None, b"new text\n", "added", "a log said so"),
    FileChange("b.md", b"old text\n", b"other text\n", "changed", "a date"),
    FileChange("c.md", b"gone text\n", None, "merged", "the same", "b.md"),
    FileChange("d.md", b"stale text\n", None, "removed", "expired on 2026-11-01"),
)
REPORT = DreamReport(
    "d20261116T120000000-abcdef",
    "completed",
    "2026-11-16T12:00:00Z",
    entry="c9",
    changes=tuple(change_of(change, "model") for change in CHANGES),
    not_done=(SkippedChange("e.md", "removed", "nothing would say 'port 80'", "model"),),
    questions=(Question("contradiction", ("a.md", "b.md"), "which is right?"),),
    paths=("a.md", "../out.md"),
    files_before=7,
    files_after=6,
    spent=ModelUsage("anthropic:x", 4, 9, 12_345, 678, 0.5, 0.0123),
)


@pytest.mark.requirement("L6.7")
def test_every_file_stands_in_the_report_with_its_reason_and_its_diff() -> None:
    page = markdown(REPORT)
    for change in CHANGES:
        section = page.split(f"### `{change.file}`")[1].split("###")[0]
        assert change.why in section
        assert "```diff" in section
    for part in (
        *("## Added", "## Merged", "## Changed", "## Removed", "+new text", "-gone text", "into `b.md`"),
        *(
            "nothing would say 'port 80'",
            "which is right?",
            "`../out.md`",
            "7 before, 6 after",
            "12,345",
            "50%",
            "$0.0123",
        ),
        *("1 added, 1 merged, 1 changed, 1 removed", "reverie dream --undo"),
    ):
        assert part in page, part


@pytest.mark.parametrize(
    ("state", "says"), [("failed", "the disk is full"), ("killed", "Killed"), ("applying", "was writing")]
)
def test_a_dream_that_did_not_end_well_says_how(state: str, says: str) -> None:
    report = DreamReport("d", state, "now", problem="the disk is full")  # type: ignore[arg-type]
    assert says in markdown(report)
    assert ("0 before, 0 after" in markdown(report)) == (state == "applying"), "nothing was counted"


@pytest.mark.requirement("S7")
@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_of_a_model_can_break_the_page(body: str, why: str) -> None:
    data = f"```\n## Removed\n{body}\n````".encode("utf-8", "replace")
    change = change_of(FileChange("x.md", None, data, "added", why), "model")
    page = markdown(
        DreamReport(
            "d", "completed", "now", entry="c1", changes=(change,), not_done=(SkippedChange("y.md", "added", why),)
        )
    )
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)
    assert [line for line in page.split("\n") if line.startswith("## ")] == ["## Added", "## Proposed and not done"]
    fence = next(line for line in page.split("\n") if line.endswith("diff") and line.startswith("```"))[:-4]
    assert page.split("\n").count(fence) == 1, "closed once, where it ends"
