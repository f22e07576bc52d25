"""The loaded skills are folded from the log: failed loads do not count, and a result that left the view is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from log_script import Script, call, text
from reverie.conversation.boundary import CLEARS
from reverie.conversation.decisions import (
    CacheEdits,
    Cause,
    ClearingBoundaryMoved,
    Compacted,
    CompactionUndone,
    PrefixRendered,
    Replacement,
    ResultsCleared,
    ResultsClearedByProvider,
    ResultsRestored,
)
from reverie.conversation.view import View
from reverie.tools.loaded_skills import LoadedSkills

CAUSE = Cause("test", "test")
TEXT = "Skill deploy, in /s/deploy:\n\n1. Run `make ship`."


def called(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Skill", "input": {"name": name}}


def load(script: Script, id: str, name: str, said: str = TEXT, *, failed: bool = False) -> None:
    script.reply(called(id, name))
    block = {"type": "tool_result", "tool_use_id": id, "content": said}
    script.user([{**block, "is_error": True} if failed else block])


def names(script: Script) -> list[str]:
    return [skill.name for skill in LoadedSkills().follow(script.view)]


@pytest.fixture
def script() -> Script:
    made = Script()
    made.user("Ship it.")
    load(made, "t1", "deploy")
    return made


def test_the_newest_comes_first_and_a_failed_load_does_not_count(script: Script) -> None:
    load(script, "t2", "/review")
    load(script, "t3", "missing", "there is no skill", failed=True)
    assert names(script) == ["review", "deploy"]
    load(script, "t4", "deploy")
    assert names(script) == ["deploy", "review"]
    script.reply(called("t5", "unanswered"), call("t6", "Read", file_path="/a"))
    script.result("t6", "x")
    assert names(script) == ["deploy", "review"]
    script.decide(Compacted(CAUSE, "manual", "full", "sum", 9, None, None))
    assert names(script) == ["deploy", "review"]


def test_following_reads_only_new_entries_and_equals_reading_anew(script: Script) -> None:
    followed, view = LoadedSkills(), View()
    load(script, "t2", "review")
    load(script, "t3", "deploy")
    for entry in script.entries:
        view = view.fold(entry)
        assert followed.follow(view) == LoadedSkills().follow(view)
    other = Script()
    other.user("Something else.")
    assert followed.follow(other.view) == []


@pytest.mark.requirement("W2")
def test_it_is_known_whether_the_view_still_shows_a_skill(script: Script) -> None:
    script.reply(text("Shipped."))

    def is_shown(said: str = TEXT) -> bool:
        load = LoadedSkills().follow(script.view)[0].shown_load(script.view)
        return load is not None and load.has(said)

    assert is_shown()
    assert not is_shown("Skill deploy, in /s/deploy:\n\n1. Run `make better`.")
    script.decide(ResultsCleared(CAUSE, [Replacement("t1", "[cleared]")]))
    assert not is_shown()
    script.decide(ResultsRestored(CAUSE, ["t1"]))
    assert is_shown()
    cut = script.decide(Compacted(CAUSE, "manual", "full", "sum", 9, None, None))
    assert not is_shown()
    script.decide(CompactionUndone(CAUSE, cut))
    assert is_shown()


def test_a_boundary_of_clearing_leaves_out_the_skills_before_it_unless_their_tool_is_excluded(script: Script) -> None:
    capabilities = [CLEARS]
    script.decide(PrefixRendered(CAUSE, "m", "", [], {"max_tokens": 9}, capabilities=capabilities))
    load(script, "t2", "review")
    script.decide(ClearingBoundaryMoved(CAUSE, "t1", []))
    review, deploy = LoadedSkills().follow(script.view)
    assert (review.shown_load(script.view) is None, deploy.shown_load(script.view)) == (False, None)
    script.decide(ClearingBoundaryMoved(CAUSE, "t1", ["Skill"]))
    assert deploy.shown_load(script.view) is not None


@pytest.mark.parametrize("by", ["provider", "edits"])
def test_a_skill_whose_result_the_provider_leaves_out_is_not_shown(script: Script, by: str) -> None:
    script.reply(text("Shipped."))
    gone = {"provider": ResultsClearedByProvider(CAUSE, tool_use_ids=["t1"]), "edits": CacheEdits(CAUSE, ["t1"], "e0")}
    script.decide(gone[by])
    assert LoadedSkills().follow(script.view)[0].shown_load(script.view) is None


def test_following_a_long_session_costs_only_its_new_entries(
    script: Script, steps_of: Callable[[Callable[[], object]], int]
) -> None:
    costs: list[int] = []
    for length in (200, 2_000):
        for number in range(length):
            script.user(f"{length}: {number}")
            script.reply(text("Yes."))
        followed, view = LoadedSkills(), script.view
        followed.follow(view)
        load(script, f"t-{length}", "review")
        grown = view.fold_all(script.entries[-2:])
        costs.append(steps_of(lambda followed=followed, grown=grown: followed.follow(grown)))
    assert costs[1] <= costs[0] * 1.5 + 50
