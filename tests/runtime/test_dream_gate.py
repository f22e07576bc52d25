"""The gate on disk: one stat if the hours close it, sessions counted by their logs, scans recorded for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.runtime.dream.control import stop_hung
from reverie.runtime.dream.gate import DreamGate, GateClosed
from reverie.runtime.dream.lock import DreamLock

NOW = 1_800_000_000.0
HOUR, DAY = 3_600.0, 86_400.0


class Place:
    """A home with sessions, a memory directory and a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.memory = folder / "home", folder / "memory"
        self.logs = self.home / "projects" / "app"
        self.logs.mkdir(parents=True)
        self.memory.mkdir()
        self.now = NOW

    def gate(self, **policy: Any) -> DreamGate:
        return DreamGate(
            self.memory, home=self.home, project="app", policy=DreamPolicy(**policy), clock=lambda: self.now
        )

    def touch(self, name: str, when: float) -> None:
        (self.logs / f"{name}.jsonl").write_text("{}\n")
        os.utime(self.logs / f"{name}.jsonl", (when, when))

    def stamp(self, when: float) -> None:
        stamp = self.memory / ".consolidate-lock"
        stamp.write_text('{"pid": 1}')
        os.utime(stamp, (when, when))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a place whose last dream was 25 hours ago, with five sessions since."""
    place = Place(tmp_path)
    place.stamp(NOW - 25 * HOUR)
    for number in range(5):
        place.touch(f"s{number}", NOW - number * HOUR)
    return place


def reason(closed: GateClosed | None) -> str:
    return closed.reason if closed is not None else ""


def calls_of(act: Callable[[], object]) -> list[str]:
    """Return the calls into the operating system that an act makes."""
    seen: list[str] = []

    def watch(_frame: object, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__module__", "") == "posix" and called.__name__ != "fspath":
            seen.append(called.__name__)

    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.requirement("L6.1")
def test_a_gate_closed_by_the_hours_costs_one_stat(place: Place) -> None:
    gate = place.gate()
    place.stamp(NOW - HOUR)
    found = gate.check("now")
    assert isinstance(found, GateClosed)
    assert found.reason == "too_soon"
    assert found.wait_seconds == pytest.approx(23 * HOUR)
    assert calls_of(lambda: gate.check("now")) == ["lstat"]


@pytest.mark.requirement("L6.1")
def test_switched_off_nothing_is_looked_at(place: Place) -> None:
    gate = place.gate()
    assert calls_of(lambda: gate.check(enabled=False)) == []
    assert reason(gate.check(enabled=False)) == "off"


@pytest.mark.requirement("L6.1")
def test_the_session_that_asks_and_what_is_older_than_the_last_dream_do_not_count(place: Place) -> None:
    assert reason(place.gate(scan_minutes=0).check("s3")) == "few_sessions"
    assert place.gate(scan_minutes=0).check("other") is None
    place.touch("s4", NOW - 26 * HOUR)
    assert reason(place.gate(scan_minutes=0).check("other")) == "few_sessions"
    (place.logs / "s5.jsonl").mkdir()
    (place.logs / "s6.txt").write_text("no log")
    os.symlink(place.logs / "s1.jsonl", place.logs / "s7.jsonl")
    assert reason(place.gate(scan_minutes=0).check("other")) == "few_sessions"


@pytest.mark.requirement("L6.1")
def test_sessions_are_looked_at_once_in_ten_minutes_by_all_processes_together(place: Place) -> None:
    gate = place.gate()
    assert reason(gate.check("s3")) == "few_sessions"
    place.touch("s9", NOW)
    assert reason(gate.check("s3")) == "just_scanned"
    assert calls_of(lambda: gate.check("s3")) == ["lstat"]
    assert reason(place.gate().check("s3")) == "just_scanned", "another process knows it from the disk"
    place.now += 601
    assert place.gate().check("s3") is None
    place.now -= 300
    assert place.gate().check("s3") is None, "a scan in the future, by a clock that was set, says nothing"


@pytest.mark.requirement("L6.2")
@pytest.mark.parametrize("when", [0.0, 1.0, NOW + 1.0, NOW + DAY])
def test_a_stamp_in_the_future_or_of_1970_opens_the_gate(place: Place, when: float) -> None:
    place.stamp(when)
    assert place.gate().check("now") is None


@pytest.mark.requirement("L6.2")
def test_a_deleted_stamp_opens_the_gate_and_not_the_lock(place: Place) -> None:
    held = DreamLock(place.memory).take(NOW)
    assert held is not None
    os.unlink(place.memory / ".consolidate-lock")
    found = place.gate().check("now")
    assert isinstance(found, GateClosed)
    assert found.reason == "running"
    assert str(os.getpid()) in found.detail
    held.succeed()
    assert reason(place.gate(scan_minutes=0).check("now")) == "too_soon"


def test_a_holder_that_hangs_keeps_nobody_out_and_is_not_ended_by_looking(place: Place) -> None:
    held = DreamLock(place.memory).take(NOW)
    assert held is not None
    assert place.gate(hung_minutes=0.0).check("now") is None
    assert stop_hung(place.memory, DreamPolicy()) is None
    held.fail()


def test_where_there_are_no_memories_nothing_is_made(place: Place) -> None:
    gate = DreamGate(place.memory / "none", home=place.home, project="app", clock=lambda: NOW)
    assert reason(gate.check("now")) == "no_memories"
    assert not (place.memory / "none").exists()


def test_without_any_session_the_gate_is_closed(place: Place) -> None:
    gate = DreamGate(place.memory, home=place.home, project="other", clock=lambda: NOW)
    assert reason(gate.check("now")) == "few_sessions"


def test_a_path_is_no_project(place: Place) -> None:
    with pytest.raises(InputError, match="slug"):
        DreamGate(place.memory, home=place.home, project="/some/where")


def test_a_memory_directory_that_cannot_be_written_is_only_looked_at_more_often(place: Place) -> None:
    (place.memory / ".journal").write_text("a file where a folder should be")
    gate = place.gate(min_sessions=9)
    assert reason(gate.check("now")) == "few_sessions"
    assert reason(gate.check("now")) == "just_scanned"
    assert reason(place.gate(min_sessions=9).check("now")) == "few_sessions"


@given(st.one_of(st.none(), st.floats(-1e11, 1e11), st.floats(NOW - 100 * HOUR, NOW + 100 * HOUR)))
def test_waiting_as_long_as_one_is_told_makes_a_dream_due_and_waiting_less_does_not(dreamt: float | None) -> None:
    policy = DreamPolicy()
    left = policy.seconds_until_due(NOW, dreamt)
    assert 0.0 <= left <= 24 * HOUR
    if left > 0.01:
        assert policy.seconds_until_due(NOW + left + 0.001, dreamt) == 0.0
        assert policy.seconds_until_due(NOW + left - 0.001, dreamt) > 0.0
