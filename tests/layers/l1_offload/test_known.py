"""The index of earlier results finds the same duplicates as a full comparison, at lower cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from reverie.conversation.decisions import (
    Cause,
    Compacted,
    Replacement,
    ResultOffloaded,
    ResultsCleared,
    ResultsRestored,
)
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.layers.l1_offload import OffloadPolicy, ResultStore, SeenResults, offload_result
from reverie.storage.in_memory import InMemoryStorage

CAUSE = Cause("test", "because")
CONTENTS = ["a" * 300, "b" * 300, [{"type": "text", "text": "c" * 300}]]
FOLDER = "projects/app/s"


def looked_through(view: View, content: Any) -> str | None:
    """Return the first call whose result is shown whole and is exactly this, by looking at all of them."""
    for one in view.results:
        block = as_blocks(one.piece.message)[0]
        if block["content"] == content and one.tool_use_id not in view.overrides.results:
            return one.tool_use_id
    return None


class Session:
    """A session as it goes on: results come, leave, come back, and the past is cut."""

    def __init__(self) -> None:
        self.script = Script()
        self.script.user("begin")
        self.known = SeenResults()
        self.calls = 0

    def act(self, act: tuple[str, int]) -> None:
        kind, number = act
        view = self.script.view
        if kind == "result":
            self.calls += 1
            called = f"toolu_{self.calls}"
            self.script.reply(call(called))
            self.script.result(called, CONTENTS[number % len(CONTENTS)])
        elif kind == "cut":
            last = view.history[-1].uuid
            self.script.decide(Compacted(CAUSE, "manual", "full", "what was done", 1_000, last, None))
            self.script.user("go on")
        elif view.results:
            called = view.results[number % len(view.results)].tool_use_id
            if kind == "clear":
                self.script.decide(ResultsCleared(CAUSE, [Replacement(called, "[gone]")]))
            elif kind == "offload":
                self.script.decide(ResultOffloaded(CAUSE, called, "<preview>", f"{FOLDER}/tool-results/x", "h", 300))
            else:
                self.known.restart()
                self.script.decide(ResultsRestored(CAUSE, [called]))


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["result", "result", "result", "clear", "offload", "restore", "cut"]), st.integers(0, 40)
    ),
    max_size=25,
)


def differences(acts: list[tuple[str, int]], follow: Any) -> list[Any]:
    session = Session()
    found: list[Any] = []
    for act in acts:
        session.act(act)
        view = session.script.view
        follow(session.known, view)
        for content in CONTENTS:
            expected = looked_through(view, content)
            if session.known.first(view, content) != expected:
                found.append((act, expected))
    return found


@pytest.mark.requirement("L1.10")
@given(acts=ACTS)
def test_the_index_finds_what_looking_through_the_whole_view_finds(acts: list[tuple[str, int]]) -> None:
    assert differences(acts, lambda known, view: known.follow(view)) == []


def test_an_index_that_forgets_to_follow_is_caught() -> None:
    assert differences([("result", 0)], lambda known, view: None) != []


def test_an_index_that_is_not_rebuilt_when_results_come_back_is_caught() -> None:
    session = Session()
    for act in (("result", 0), ("clear", 0)):
        session.act(act)
        session.known.follow(session.script.view).first(session.script.view, CONTENTS[0])
    session.script.decide(ResultsRestored(CAUSE, ["toolu_1"]))
    view = session.script.view
    assert session.known.follow(view).first(view, CONTENTS[0]) is None
    session.known.restart()
    assert session.known.follow(view).first(view, CONTENTS[0]) == "toolu_1"


class Counting(SeenResults):
    """An index that counts the results it takes in."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def follow(self, view: View) -> SeenResults:
        before = self._seen
        super().follow(view)
        self.taken += self._seen - before
        return self


def test_taking_results_in_looks_at_each_of_them_once() -> None:
    session, known, storage = Session(), Counting(), InMemoryStorage()
    for number in range(60):
        called = f"toolu_{number}"
        session.script.reply(call(called))
        output = f"{number}" * 200
        offload_result(
            ResultStore(storage, FOLDER), "Bash", called, output, OffloadPolicy(), session.script.view, known=known
        )
        session.script.result(called, output)
    assert known.taken == 59


@pytest.mark.requirement("L1.10")
def test_the_same_bytes_are_stored_once_also_when_an_index_is_kept_and_the_past_was_cut() -> None:
    session, storage, output = Session(), InMemoryStorage(), "x" * 60_000
    paths: list[str] = []
    for number in range(3):
        called = f"toolu_{number}"
        session.script.reply(call(called))
        view = session.script.view
        made = offload_result(
            ResultStore(storage, FOLDER), "Bash", called, output, OffloadPolicy(), view, known=session.known
        )
        decision = made.before[0]
        assert isinstance(decision, ResultOffloaded)
        paths.append(decision.path)
        session.script.decide(decision)
        session.script.result(called, made.content)
        session.act(("cut", 0))
    assert len(set(paths)) == 1
    resumed = SeenResults().follow(session.script.view)
    assert resumed.path(f"{FOLDER}/tool-results", decision.sha256) == paths[0]
