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
from standing_worlds import SKILL, StandingWorld

ACTS = 14


def played(count: int) -> Iterator[StandingWorld]:
    first = int(os.environ["REVERIE_TEST_SEED"])
    for seed in range(first, first + count):
        yield StandingWorld(seed).play(ACTS)


@pytest.mark.requirement("W8", "W1", "W3", "W4", "W5")
@pytest.mark.slow
def test_in_every_request_the_newest_value_of_each_item_stands_exactly_once(torture: bool) -> None:
    count, done, wrong = 100_000 if torture else 800, Counter[str](), list[str]()
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
    monkeypatch.setattr(cuts, "_without_repeats", lambda item, *_: item)
    assert any("times" in wrong for world in played(400) for wrong in world.violations)


@pytest.mark.requirement("W8")
def test_the_twin_that_repeats_what_a_tool_call_shows_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_place_of", lambda *_: -1)
    found = (wrong for world in played(8_000) for wrong in world.violations if "times" in wrong)
    assert any(one.startswith("steps") for one in found)


def with_undone_cuts(*, shown: bool = True, cleared: bool = False) -> StandingWorld:
    """A skill whose result a cut removed, and brings back when it is undone."""
    world = StandingWorld(3)
    world.load()
    world.cut_all()
    world.request()
    if cleared:
        world.clear(world.calls[SKILL])
    if shown:
        world.undo_last()
    world.request()
    return world


@pytest.mark.requirement("W8")
def test_after_an_undone_cut_a_skill_stands_in_its_result_alone() -> None:
    world = with_undone_cuts()
    assert (world.copies(SKILL), world.violations) == (["result"], [])
    assert with_undone_cuts(shown=False).copies(SKILL) == ["said"]


@pytest.mark.requirement("W8")
def test_after_an_undone_cut_a_skill_whose_result_was_cleared_stays_said() -> None:
    world = with_undone_cuts(cleared=True)
    assert (world.copies(SKILL), world.violations) == (["said"], [])


@pytest.mark.requirement("W8")
def test_a_skill_is_said_again_when_its_result_is_cleared_after_the_undo() -> None:
    world = with_undone_cuts()
    world.clear(world.calls[SKILL])
    world.request()
    assert (world.copies(SKILL), world.violations) == (["said"], [])


def with_returned_skill() -> StandingWorld:
    """A skill that was said after a cut, and loaded with another text behind that."""
    world = StandingWorld(3)
    world.load()
    world.cut_all()
    world.request()
    world.load()
    return world


@pytest.mark.requirement("W8")
def test_a_skill_whose_earlier_text_is_back_stands_once_if_the_later_text_was_never_sent() -> None:
    world = with_returned_skill()
    world.clear(world.calls[SKILL])
    world.edit_back()
    world.request()
    assert (world.copies(SKILL), world.violations) == (["said"], [])


@pytest.mark.requirement("W8")
def test_a_skill_whose_earlier_text_is_back_is_said_behind_the_later_text_that_a_result_shows() -> None:
    world = with_returned_skill()
    world.edit_back()
    world.request()
    assert (world.copies(SKILL), world.violations) == (["said", "said"], [])
    world.snip([world.entries[8].uuid])  # a cut before both leaves them: the later text stands between
    world.request()
    assert (world.copies(SKILL), world.violations) == (["said", "said"], [])


@pytest.mark.requirement("W8")
def test_a_skill_whose_earlier_text_is_back_stands_once_when_a_cut_took_the_later_text() -> None:
    world = with_returned_skill()
    world.edit_back()
    world.request()
    loaded = next(at for at, one in enumerate(world.entries) if world.calls[SKILL] in str(one.body))
    world.snip([one.uuid for one in world.entries[loaded : loaded + 2]])
    world.request()
    assert (world.copies(SKILL), world.violations) == (["said"], [])


@pytest.mark.requirement("W8")
def test_the_result_of_an_earlier_load_shows_a_text_that_is_back() -> None:
    world = StandingWorld(3)
    world.load()
    world.load()
    world.edit_back()
    world.snip([one.uuid for one in world.entries if world.calls[SKILL] in str(one.body)])
    world.request()
    assert (world.copies(SKILL), world.violations) == (["result"], [])


def with_returned_value() -> StandingWorld:
    """A note that changed and came back, after a cut took only the change."""
    world = StandingWorld(5)
    said: list[str] = []
    for value in ("<note:x a>", "<note:x b>", "<note:x a>"):
        world.truth["note:x"] = value
        world.hold("note:x")
        said.append(world.entries[-1].uuid)
    world.snip(said[1:2])
    return world


@pytest.mark.requirement("W8")
def test_a_value_that_came_back_stands_once_when_a_cut_took_all_between() -> None:
    world = with_returned_value()
    world.request()
    assert (world.copies("note:x"), world.violations) == (["said"], [])


@pytest.mark.requirement("W8")
def test_the_twin_that_leaves_a_value_that_came_back_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_without_returned", lambda items, *_: list(items))
    world = with_returned_value()
    world.request()
    assert world.copies("note:x") == ["said", "said"]
    assert any("stands 2 times" in one for one in world.violations)


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
