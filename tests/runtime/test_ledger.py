"""The ledger's store has one row per call, from many processes at once, and its failures stop nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reverie.cache.ledger import LedgerAxis, LedgerCall, Totals
from reverie.cache.usage import Usage
from reverie.errors import StorageError
from reverie.events import Event, FellBack
from reverie.runtime.session.ledger import FILE_NAME, LedgerStore

NOON = 1_763_208_000.0  # 2025-11-15 12:00 UTC


def call(number: int, **changed: Any) -> LedgerCall:
    rng = Random(number)
    actual = Usage(*(rng.randrange(10_000) for _ in range(5)))
    given: dict[str, Any] = {
        "session": rng.choice(("one", "two")),
        "project": rng.choice(("app-1", "lib-2")),
        "at": NOON + rng.randrange(4) * 86_400 + number,
        "model": "claude-sonnet-4-5",
        "source": "main",
        "layer": rng.choice(("request", "notes")),
        "reason": "turn",
        "actual": actual,
        "expected": Usage(actual.read + actual.write_5m, 0, actual.write_1h, actual.uncached, actual.output),
        "usd": rng.random(),
        "expected_usd": 0.0,
        "broke": rng.choice(("", "server", "idle over 1 h")),
        "id": f"call-{number}",
    }
    return LedgerCall(**{**given, **changed})


def totals_by(calls: list[LedgerCall], axis: LedgerAxis) -> dict[str, Totals]:
    """Sum calls by session, day, project or layer, in the order in which they first appear.

    Both projects have sessions of the same names.
    """
    found: dict[str, Totals] = {}
    for call in calls:
        key: str = f"{call.project}/{call.session}" if axis == "session" else getattr(call, axis)
        found[key] = found.get(key, Totals()).plus(call)
    return found


@pytest.mark.requirement("C6", "B7")
def test_what_is_entered_comes_back_and_sums_as_the_pure_ledger_does(tmp_path: Path) -> None:
    calls = sorted((call(number) for number in range(60)), key=lambda one: one.at)
    with LedgerStore(tmp_path) as store:
        assert store.enter_all(calls)
        assert store.calls() == calls
        for axis in ("session", "day", "project", "layer"):
            found, pure = store.by(axis), totals_by(calls, axis)
            assert set(found) == set(pure)
            for key, one in found.items():
                assert (one.calls, one.actual, one.expected, one.breaks) == (
                    pure[key].calls,
                    pure[key].actual,
                    pure[key].expected,
                    pure[key].breaks,
                )
                assert one.usd == pytest.approx(pure[key].usd)
                assert one.lost_usd == pytest.approx(pure[key].lost_usd)
                assert one.lost_by_reason == pytest.approx(pure[key].lost_by_reason)
                assert one.hit_rate == pytest.approx(pure[key].hit_rate)
        assert list(store.by("day")) == sorted(store.by("day"))
        mine = [one for one in calls if one.session == "one" and one.project == "app-1"]
        assert store.calls(session="one", project="app-1") == mine
        assert (
            store.by("session", session="one", project="app-1")["app-1/one"].actual
            == totals_by(mine, "session")["app-1/one"].actual
        )


def test_a_call_is_entered_once_however_often_it_is_given(tmp_path: Path) -> None:
    with LedgerStore(tmp_path) as store:
        assert all(store.enter(call(1)) for _ in range(3))
    with LedgerStore(tmp_path) as again:
        assert again.enter(call(1))
        assert len(again.calls()) == 1


@pytest.mark.requirement("D1")
def test_the_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with LedgerStore(tmp_path / "home") as store:
            store.enter(call(1))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "home").iterdir()}
    finally:
        os.umask(before)
    assert FILE_NAME in modes
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


@pytest.mark.requirement("F5")
@pytest.mark.parametrize("obstacle", ["folder", "link", "file as home"])
def test_a_ledger_that_cannot_be_written_is_an_event_and_nothing_more(tmp_path: Path, obstacle: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    match obstacle:
        case "folder":
            (home / FILE_NAME).mkdir()
        case "link":
            (home / FILE_NAME).symlink_to(tmp_path / "elsewhere")
        case _:
            home.rmdir()
            home.write_text("in the way")
    events: list[Event] = []
    with LedgerStore(home, session="s", listener=events.append) as store:
        assert store.enter(call(1)) is False
    assert [type(event) for event in events] == [FellBack]
    assert isinstance(events[0], FellBack)
    assert (events[0].session, events[0].what) == ("s", "ledger")
    assert FILE_NAME in events[0].why
    assert not (tmp_path / "elsewhere").exists()


def test_a_listener_that_fails_stops_nothing(tmp_path: Path) -> None:
    def broken(_event: Event) -> None:
        raise RuntimeError("no")

    (tmp_path / FILE_NAME).mkdir()
    assert LedgerStore(tmp_path, listener=broken).enter(call(1)) is False


def test_a_ledger_that_cannot_be_read_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with LedgerStore(tmp_path) as store, pytest.raises(StorageError, match="cannot be used"):
        store.by("session")


def test_a_damaged_ledger_takes_the_next_call(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and longer than a header would be" * 40)
    events: list[Event] = []
    with LedgerStore(tmp_path, session="s", listener=events.append) as store:
        assert store.enter(call(1)) is True
        assert len(store.calls()) == 1
    assert ["rebuilt from the logs" in event.why for event in events if isinstance(event, FellBack)] == [True]


def test_reading_an_empty_home_makes_nothing(tmp_path: Path) -> None:
    with LedgerStore(tmp_path) as store:
        assert store.by("session") == {}
        assert store.calls() == []
        assert store.forget("one") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("K14")
def test_a_session_can_be_forgotten(tmp_path: Path) -> None:
    with LedgerStore(tmp_path) as store:
        store.enter_all(call(number) for number in range(20))
        mine = len(store.calls(session="one"))
        assert store.forget("one") == mine > 0
        assert {one.session for one in store.calls()} == {"two"}
        for ending in ("", "-wal", "-shm"):  # a damaged ledger is set aside with its journal
            (tmp_path / f"{FILE_NAME}.damaged{ending}").write_bytes(b"calls of the session one")
        assert store.forget("one") == 0
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


CHILD = """
import sys
from pathlib import Path
from reverie.cache.ledger import LedgerCall
from reverie.cache.usage import Usage
from reverie.runtime.session.ledger import LedgerStore
name, count = sys.argv[2], int(sys.argv[3])
usage = Usage(1, 2, 3, 4, 5)
with LedgerStore(Path(sys.argv[1])) as store:
    for at in range(count):
        one = LedgerCall(name, "p", float(at), "m", "main", "request", "", usage, usage, 0.5, 0.5, "", f"{name}-{at}")
        if not store.enter(one):
            sys.exit(1)
"""


@pytest.mark.requirement("C6")
@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(tmp_path: Path, torture: bool) -> None:
    writers, count = (8, 300) if torture else (4, 50)
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "new"), f"s{number}", str(count)])
        for number in range(writers)
    ]
    try:
        assert [child.wait(timeout=100) for child in children] == [0] * writers
    finally:
        for child in children:
            child.kill()
            child.wait()
    with LedgerStore(tmp_path / "new") as store:
        found = store.by("session")
    assert {key: one.calls for key, one in found.items()} == {f"s{number}": count for number in range(writers)}
    assert sum(one.usd for one in found.values()) == pytest.approx(0.5 * writers * count)


def test_a_writer_that_cannot_get_in_says_so_instead_of_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.runtime.session.ledger._BUSY_SECONDS", 0.05)
    events: list[Event] = []
    with LedgerStore(tmp_path, listener=events.append) as store:
        assert store.enter(call(1))
        other = sqlite3.connect(tmp_path / FILE_NAME)
        try:
            other.execute("BEGIN IMMEDIATE")
            assert store.enter(call(2)) is False
        finally:
            other.close()
        assert store.enter(call(3))
    assert len(events) == 1
