"""Standing context over random histories: the newest value of each item is in every request, exactly once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from reverie.conversation import cuts
from reverie.conversation.standing_context import StandingItem, StandingRow, items_to_say, said_in
from reverie.runtime.session import standing_context
from standing_worlds import StandingWorld

ACTS = 14


def played(count: int) -> Iterator[StandingWorld]:
    first = int(os.environ["REVERIE_TEST_SEED"])
    for seed in range(first, first + count):
        yield StandingWorld(seed).play(ACTS)


@pytest.mark.requirement("W8", "W1", "W3", "W4", "W5")
@pytest.mark.slow
def test_in_every_request_the_newest_value_of_each_item_stands_exactly_once(torture: bool) -> None:
    count, done, wrong = 100_000 if torture else 2_000, Counter[str](), list[str]()
    for world in played(count):
        done.update(world.done)
        wrong += world.violations
    print(f"{count} histories: {dict(done)}, {len(wrong)} violations")
    assert wrong[:3] == []


SAY = standing_context.items_to_say


def without_cuts(table: Any, fallen: Any, items: Any, **rest: Any) -> Any:
    """The known-bad twin: once said, it is never said again, as before standing context."""
    return SAY(table, {}, items, **rest)


@pytest.mark.requirement("W8")
def test_the_twin_that_never_says_anything_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_context, "items_to_say", without_cuts)
    assert sum(bool(world.violations) for world in played(40)) > 10


@pytest.mark.requirement("W8")
def test_the_twin_that_repeats_after_an_undone_cut_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_without_repeats", lambda item, before: item)
    assert any("times" in wrong for world in played(400) for wrong in world.violations)


@pytest.mark.requirement("W8")
def test_a_note_that_comes_back_while_the_view_shows_it_survives_the_next_cut() -> None:
    world = StandingWorld(1)
    world.truth["note:x"] = "<note:x 1>"
    world.hold("note:x")
    world.cut_all()
    world.release("note:x")
    world.undo_last()
    world.truth["note:x"] = "<note:x 1>"
    world.hold("note:x")
    world.cut_all()
    world.request()
    assert world.violations == []


@pytest.mark.requirement("W8")
def test_the_opening_of_an_old_log_is_said_before_what_sources_say_now() -> None:
    opening = said_in({"type": "user_context", "content": "The rules were old."})[0]
    rules = StandingItem("instructions:/AGENTS.md", "instructions", "the rules", "The rules are new.")
    table, fallen = {opening.key: StandingRow(opening, "u1")}, {opening.key: None}
    _, said = items_to_say(table, fallen, [rules], attached={"instructions"}, room=1_000, limits={})
    assert [one.value for one in said] == ["The rules were old.", "The rules are new."]
