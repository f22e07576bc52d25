"""The read state has limits, forgets files that leave the view, and is copied for forks."""

from __future__ import annotations

from pathlib import Path

import anyio
from hypothesis import given
from hypothesis import strategies as st

from reverie.tools import ToolContext
from reverie.tools.edit import Edit
from reverie.tools.files.read_state import MAX_BYTES, MAX_ENTRIES, FileRead, ReadState
from reverie.tools.read import Read


def reading(
    path: str, text: str = "x", version: str = "v", spans: tuple[tuple[int, int], ...] | None = None
) -> FileRead:
    return FileRead(path, version, 1, text, spans)


@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 60), st.booleans()), max_size=80))
def test_it_holds_the_most_recent_within_both_bounds(steps: list[tuple[str, int, bool]]) -> None:
    state = ReadState(max_entries=4, max_bytes=100)
    order: list[str] = []
    sizes: dict[str, int] = {}
    for number, (path, size, looks) in enumerate(steps):
        if looks:
            if state.get(path) is not None:
                order.remove(path)
                order.append(path)
            continue
        state.note(reading(path, "x" * size, version=str(number)))
        if path in order:
            order.remove(path)
        order.append(path)
        sizes[path] = size
        while len(order) > 4 or sum(sizes[each] for each in order) > 100:
            order.pop(0)
        assert [each.path for each in state.snapshot()] == order
        assert state.size_bytes == sum(sizes[each] for each in order)


def test_the_bounds_are_a_hundred_entries_and_25_megabytes() -> None:
    assert (MAX_ENTRIES, MAX_BYTES) == (100, 25_000_000)
    state = ReadState()
    for number in range(150):
        state.note(reading(str(number)))
    assert len(state) == 100
    for number in range(4):
        state.note(reading(f"big{number}", "x" * 8_000_000))
    assert [each.path for each in state.snapshot()] == ["big1", "big2", "big3"]
    state.note(reading("too big", "x" * 25_000_001))
    assert "too big" not in state


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), min_size=1, max_size=10), st.integers(1, 45))
def test_parts_of_one_version_add_up_to_exactly_the_lines_that_were_shown(
    parts: list[tuple[int, int]], line: int
) -> None:
    state = ReadState()
    for first, more in parts:
        state.note(reading("a", spans=((first, first + more),)))
    known = state.get("a")
    assert known is not None
    assert known.shows(line, line) == any(first <= line <= first + more for first, more in parts)


def test_a_part_of_another_version_replaces_what_was_known() -> None:
    state = ReadState()
    state.note(reading("a", version="old"))
    state.note(reading("a", version="new", spans=((5, 9),)))
    known = state.get("a")
    assert known is not None
    assert not known.shows(1, 1)


def test_a_file_whose_read_was_forgotten_must_be_read_again_before_it_is_edited(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    context = ToolContext(cwd=tmp_path)
    change = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}

    async def steps() -> None:
        await Read().run({"file_path": "a.txt"}, context)
        context.reads.forget([str(tmp_path / "a.txt")])
        refused = await Edit().run(change, context)
        assert refused.is_error
        assert "read it first" in str(refused.content)
        assert "one" in str((await Read().run({"file_path": "a.txt"}, context)).content)
        assert not (await Edit().run(change, context)).is_error

    anyio.run(steps)


def test_a_fork_has_read_the_same_and_what_it_reads_stays_its_own(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path)
    context.reads.note(reading("a"))
    fork = context.forked(restricted=True)
    fork.reads.note(reading("b"))
    fork.reads.forget(["a"])
    assert [each.path for each in context.reads.snapshot()] == ["a"]
    assert [each.path for each in fork.reads.snapshot()] == ["b"]
    kept = context.reads.snapshot()
    context.reads.clear()
    assert len(context.reads) == 0
    assert context.reads.size_bytes == 0
    assert [each.path for each in kept] == ["a"]
