"""The plan of a session is folded from its decisions."""

from __future__ import annotations

import pytest

from reverie.conversation.decisions import Cause, PlanChanged, body_of, decision_of
from reverie.conversation.plans import Plan, is_known_text, plan_after, without_ticks

CAUSE = Cause("plan", "test")


def folded(*changes: PlanChanged) -> Plan:
    plan: Plan | None = None
    for change in changes:
        plan = plan_after(plan, change)
    assert plan is not None
    return plan


@pytest.mark.requirement("W9")
def test_an_answer_keeps_the_text_and_a_new_text_needs_a_new_answer() -> None:
    plan = folded(
        PlanChanged(CAUSE, "proposed", "- a"),
        PlanChanged(CAUSE, "approved", by="user", words="quickly"),
    )
    assert (plan.state, plan.text, plan.by, plan.words, plan.changes) == ("approved", "- a", "user", "quickly", 2)
    again = plan_after(plan, PlanChanged(CAUSE, "proposed", "- b"))
    assert (again.state, again.text, again.words) == ("proposed", "- b", "")
    assert again.request_id != plan.request_id


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("state", "is_open"), [("proposed", True), ("approved", True), ("rejected", False), ("done", False)]
)
def test_a_plan_is_open_until_it_is_rejected_or_done(state: str, is_open: bool) -> None:
    body = {**body_of(PlanChanged(CAUSE, "proposed", "- a")), "state": state}
    change = decision_of(body)
    assert isinstance(change, PlanChanged)
    assert folded(change).is_open is is_open


def test_only_a_text_that_the_log_never_had_is_an_edit() -> None:
    plan = folded(PlanChanged(CAUSE, "proposed", "- a"), PlanChanged(CAUSE, "proposed", "- b"))
    assert is_known_text(plan, "- a\n")
    assert is_known_text(plan, "- b")
    assert not is_known_text(plan, "- c")


def test_a_persons_edit_stays_marked_until_the_text_changes_again() -> None:
    edit = PlanChanged(CAUSE, "proposed", "- mine", edited=True)
    approved = folded(PlanChanged(CAUSE, "proposed", "- a"), edit, PlanChanged(CAUSE, "approved", by="user"))
    assert approved.edited
    assert not plan_after(approved, PlanChanged(CAUSE, "proposed", "- b")).edited


def test_progress_is_no_change_of_a_plan_and_every_other_change_is() -> None:
    text = "# Boat\n- [ ] paint\n  1. [ ] sand\n* [x] buy [x]"
    assert without_ticks(text) == without_ticks(text.replace("- [ ]", "- [x]").replace("1. [ ]", "1. [X]"))
    assert without_ticks(text) != without_ticks(text.replace("paint", "burn"))
    assert without_ticks(text) != without_ticks(text.replace("buy [x]", "buy [ ]"))
