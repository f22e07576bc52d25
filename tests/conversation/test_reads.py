"""The read state: which files the view shows whole, and when they leave it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from random_logs import random_log
from reverie.conversation.decisions import (
    CacheEdits,
    Cause,
    Compacted,
    Replacement,
    ResultsCleared,
    ResultsClearedByProvider,
    ResultsRestored,
)
from reverie.conversation.reads import files_in_view, forgotten_files
from reverie.conversation.view import View

CAUSE = Cause("test", "asked")
A = {"file_path": "/a"}


def turn(script: Script, id: str, tool: str = "Read", content: Any = "text", **arguments: Any) -> None:
    script.reply(call(id, tool, **arguments), id=f"m-{id}")
    script.result(id, content)


@pytest.fixture
def script() -> Script:
    made = Script()
    made.user("begin")
    return made


@pytest.mark.requirement("L2.7")
def test_a_file_read_whole_is_known_by_its_last_read(script: Script):
    turn(script, "t1", **A)
    turn(script, "t2", file_path="/b")
    turn(script, "t3", **A)
    assert files_in_view(script.view) == {"/a": "t3", "/b": "t2"}


@pytest.mark.requirement("L2.7")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Read", {**A, "offset": 3}),
        ("Read", {**A, "limit": 3}),
        ("Grep", {"path": "/a"}),
        ("Bash", {"command": "cat /a"}),
        ("Read", {}),
    ],
)
def test_a_part_or_another_tool_counts_for_nothing(script: Script, tool: str, arguments: dict[str, Any]):
    turn(script, "t1", tool, **arguments)
    assert files_in_view(script.view) == {}


@pytest.mark.requirement("L2.7")
def test_a_read_that_failed_counts_for_nothing(script: Script):
    script.reply(call("t1", **A))
    script.user([{"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True}])
    assert files_in_view(script.view) == {}


@pytest.mark.requirement("L2.7")
@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_file_written_since_is_no_longer_shown_as_it_is_unless_the_write_failed(script: Script, tool: str):
    turn(script, "t1", **A)
    script.reply(call("t2", tool, **A))
    script.user([{"type": "tool_result", "tool_use_id": "t2", "content": "not found", "is_error": True}])
    assert files_in_view(script.view) == {"/a": "t1"}
    turn(script, "t3", tool, **A)
    assert files_in_view(script.view) == {}


@pytest.mark.requirement("L2.7")
def test_clearing_deleting_and_cutting_forget_and_bringing_back_remembers(script: Script):
    turn(script, "t1", **A)
    turn(script, "t2", file_path="/b")
    before = script.view
    script.decide(ResultsCleared(CAUSE, [Replacement("t1", "[cleared]", "t1")]))
    assert files_in_view(script.view) == {"/b": "t2"}
    assert forgotten_files(before, script.view) == ["/a"]
    script.decide(ResultsRestored(CAUSE, ["t1"]))
    assert files_in_view(script.view) == {"/a": "t1", "/b": "t2"}
    script.decide(CacheEdits(CAUSE, ["t1"], "e1"))
    assert files_in_view(script.view) == {"/b": "t2"}
    script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 9, None, None))
    assert files_in_view(script.view) == {}
    assert forgotten_files(before, script.view) == ["/a", "/b"]


@pytest.mark.requirement("L2.7", "V3")
def test_a_read_that_the_provider_cleared_is_out_of_view_though_every_request_contains_it(script: Script):
    turn(script, "t1", **A)
    turn(script, "t2", file_path="/b")
    before = script.view
    script.decide(ResultsClearedByProvider(CAUSE, ["t1"], "handle: t1", count=1, computed=1))
    assert files_in_view(script.view) == {"/b": "t2"}
    assert forgotten_files(before, script.view) == ["/a"]
    assert script.view.messages()[: before.length - 1] == before.messages()[:-1]
    assert "handle: t1" in str(script.view.messages()[-1])
    turn(script, "t3", **A)
    assert files_in_view(script.view) == {"/a": "t3", "/b": "t2"}
    script.decide(ResultsClearedByProvider(CAUSE, [], count=0, shown_again=["t1"]))
    assert script.view.facts.cleared_by_provider == frozenset()


@pytest.mark.requirement("L2.7", "L2.10")
def test_a_reference_to_an_earlier_read_leaves_that_one_in_place(script: Script):
    turn(script, "t1", **A)
    script.reply(call("t2", **A))
    script.decide(ResultsCleared(CAUSE, [Replacement("t2", "[identical to t1]", "t2")]))
    script.result("t2", "text")
    assert files_in_view(script.view) == {"/a": "t1"}
    script.decide(ResultsCleared(CAUSE, [Replacement("t1", "[cleared]", "t1")]))
    assert files_in_view(script.view) == {}


@given(seed=st.integers(0, 2**32))
def test_whatever_the_log_every_file_named_is_shown_by_its_call(seed: int):
    view = View().fold_all(random_log(Random(seed), entries=40))
    shown = {one.tool_use_id for one in view.results}
    for called in files_in_view(view).values():
        assert called in shown
        assert called not in view.overrides.results
