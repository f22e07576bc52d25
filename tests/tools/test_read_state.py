"""The read state joins parts of one version, forgets nothing, and is copied for forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.file_reads import FileRead, FileReads, logged_reads, named_files
from reverie.tools import ToolContext
from reverie.tools.files.read_state import ReadState

SPANS = st.none() | st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), min_size=1, max_size=4).map(
    lambda found: tuple((first, first + more) for first, more in found)
)
READS = st.lists(st.builds(FileRead, st.sampled_from("abcdef"), st.sampled_from(["old", "new"]), SPANS), max_size=30)


def reading(path: str, version: str = "v", spans: tuple[tuple[int, int], ...] | None = None) -> FileRead:
    return FileRead(path, version, spans)


@given(READS)
def test_it_holds_the_last_version_of_every_file_newest_first(reads: list[FileRead]) -> None:
    state = ReadState()
    for one in reads:
        state.note(one)
    last = {one.path: (at, one.version) for at, one in enumerate(reads)}
    found = state.known.newest_first()
    assert [one.path for one in found] == sorted(last, key=lambda path: -last[path][0])
    assert all(one.version == last[one.path][1] for one in found)


def test_no_number_of_files_drops_an_older_one() -> None:
    state = ReadState()
    for number in range(3_000):
        state.note(reading(str(number)))
    assert state.get("0") is not None


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


def test_a_part_of_another_version_replaces_the_earlier_read() -> None:
    state = ReadState()
    state.note(reading("a", version="old"))
    state.note(reading("a", version="new", spans=((5, 9),)))
    known = state.get("a")
    assert known is not None
    assert not known.shows(1, 1)


def test_a_fork_has_read_the_same_files_and_its_own_reads_stay_its_own(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path)
    context.reads.note(reading("a"))
    fork = context.forked(restricted=True)
    fork.reads.note(reading("b"))
    assert [one.path for one in context.reads.known.newest_first()] == ["a"]
    assert [one.path for one in fork.reads.known.newest_first()] == ["b", "a"]


@pytest.mark.requirement("W7")
@given(READS, st.integers(0, 30))
def test_the_log_gives_the_same_state_whole_or_in_steps(reads: list[FileRead], at: int) -> None:
    assert logged_reads(named_files(reads).get("files")) == reads
    once = FileReads().after(reads)
    assert FileReads().after(reads[:at]).after(reads[at:]) == once
    assert not named_files([])


@pytest.mark.requirement("W7")
@pytest.mark.parametrize(
    "listed", [None, "x", 3, [3], [{}], [{"path": "a"}], [{"path": 1, "version": "v"}], [{"path": "a", "version": 2}]]
)
def test_a_damaged_list_of_files_in_the_log_counts_for_nothing(listed: Any) -> None:
    assert logged_reads(listed) == []


@pytest.mark.requirement("W7")
@pytest.mark.parametrize("lines", [None, 3, "x", [3], [["a", "b"]], [[1]]])
def test_damaged_lines_of_a_read_in_the_log_show_no_line(lines: Any) -> None:
    (found,) = logged_reads([{"path": "a", "version": "v", "lines": lines}])
    assert not found.shows(1, 1)
