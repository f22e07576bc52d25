"""The open steps of the agent's list stand until they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import pytest

from log_script import Script, call, text
from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.cuts import Item, LoggedCut
from reverie.conversation.decisions import Cause, Compacted, CompactionUndone, Snipped
from reverie.conversation.standing_context import StandingItem
from reverie.conversation.tool_calls import steps_in
from reverie.conversation.view import View
from reverie.runtime.session.plan.keeper import StepsSource

CAUSE = Cause("compact", "test")
HEAD = "Your list of steps, those that are not completed:"


def todo(id: str, *steps: str) -> dict[str, Any]:
    """Return a call that replaces the list; a step with the mark ``*`` is completed."""
    rows = [{"content": one.strip("*"), "status": "completed" if one[-1] == "*" else "pending"} for one in steps]
    return call(id, "TodoWrite", todos=rows)


def listed(script: Script, id: str, *steps: str, is_error: bool = False) -> str:
    """Add a call that replaces the list, and its result; return the uuid of the reply."""
    uuid = script.reply(text("ok"), todo(id, *steps))
    block = {"type": "tool_result", "tool_use_id": id, "content": "x"}
    script.user([{**block, "is_error": True} if is_error else block])
    return uuid


def items(source: StepsSource, view: View) -> Sequence[StandingItem]:
    return anyio.run(source.items, view)


def begun() -> Script:
    script = Script()
    script.user("go")
    return script


def cut(script: Script, first_kept: str) -> str:
    return script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 10, None, first_kept, handle="h"))


@pytest.mark.requirement("W2")
def test_open_steps_stand_while_their_call_is_in_view_and_are_said_after_a_cut() -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint", "sand*")
    (shown,) = items(source, script.view)
    assert (shown.key, shown.stands, shown.value) == ("steps", True, f"{HEAD}\n- [pending] paint")
    undone = cut(script, script.user("more"))
    (said,) = items(source, script.view)
    assert (said.stands, said.value) == (False, f"{HEAD}\n- [pending] paint")
    script.decide(CompactionUndone(CAUSE, undone))
    assert items(source, script.view)[0].stands


@pytest.mark.requirement("W2")
def test_a_finished_list_is_no_item() -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    listed(script, "t2", "paint*")
    assert items(source, script.view) == ()
    cut(script, script.user("more"))
    assert items(source, script.view) == ()


@pytest.mark.requirement("W2")
@pytest.mark.parametrize("newest", [("sand",), ("paint*",)])
def test_an_older_list_in_view_does_not_hide_that_the_newest_was_cut(newest: tuple[str, ...]) -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    gone = listed(script, "t2", *newest)
    script.user("more")
    script.decide(Snipped(CAUSE, [gone, script.entries[-2].uuid]))
    view = script.view
    assert view.tool_call("t1") is not None
    assert view.tool_call("t2") is None
    (said,) = items(source, view)
    assert not said.stands
    assert "paint" not in said.value
    assert ("sand" in said.value) is (newest == ("sand",))


def test_the_same_steps_written_again_are_another_value() -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    first = items(source, script.view)[0]
    listed(script, "t2", "sand")
    listed(script, "t3", "paint")
    third = items(source, script.view)[0]
    assert first.value == third.value
    assert first.digest != third.digest


def test_a_refused_list_changes_nothing() -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    listed(script, "t2", "sand", is_error=True)
    assert items(source, script.view)[0].value == f"{HEAD}\n- [pending] paint"


def test_a_foreseen_cut_does_not_hide_entries_that_come_instead_of_it() -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    kept = script.user("more")
    real = list(script.entries)
    cut(script, kept)
    assert not items(source, script.view)[0].stands  # foreseen only
    script.entries = real
    listed(script, "t2", "sand")
    assert items(source, script.view)[0].value == f"{HEAD}\n- [pending] sand"


def test_each_entry_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script, source = begun(), StepsSource()
    listed(script, "t1", "paint")
    items(source, script.view)
    read: list[str] = []
    real = View.each

    def counted(self: View, start: int = 0) -> Iterator[Item | LoggedCut]:
        for one in real(self, start):
            read.append(one.uuid)
            yield one

    monkeypatch.setattr(View, "each", counted)
    for number in range(20):
        script.user(f"more {number}")
        view = script.view
        read.clear()
        items(source, view)
        assert len(read) == 2  # the new entry, and the last one known


def test_steps_of_other_programs_are_read_too() -> None:
    assert steps_in({"plan": [{"step": "paint", "status": "in_progress"}]}) == [("paint", "in_progress")]
    assert steps_in({"todos": "none"}) is None
    assert steps_in(None) is None


@pytest.mark.requirement("W2")
@pytest.mark.parametrize("is_bad", [False, True])
def test_a_bare_session_says_its_open_steps_again_after_a_compaction(
    is_bad: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_bad:  # known bad: nothing but the messages has the steps

        async def nothing(self: StepsSource, view: View) -> Sequence[StandingItem]:
            return ()

        monkeypatch.setattr(StepsSource, "items", nothing)

    async def main() -> dict[str, Any]:
        settings = Settings(home=tmp_path)
        async with Session.open("s", storage=InMemoryStorage(), settings=settings) as session:
            await session.say("go")
            await session.prepare(model="claude-test", max_tokens=100)
            await session.observe({"role": "assistant", "content": [todo("t1", "paint the hull")]})
            await session.result("t1", "ok")
            for number in range(4):
                words = f"The sea is wide {number}. " * 600
                await session.observe({"role": "assistant", "content": words, "id": f"m{number}"})
                await session.say("more")
            await session.compact()
            return await session.prepare(model="claude-test", max_tokens=100)

    request = anyio.run(main)
    assert str(request["messages"]).count("- [pending] paint the hull") == (0 if is_bad else 1)
