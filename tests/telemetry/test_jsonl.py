"""Every event is a line of a file, and a file that cannot be written stops nothing."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.events import Event, FellBack, ReplyObserved, SessionClosed, event_body
from reverie.telemetry import JsonLines

Live = Callable[..., list[Event]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.requirement("F3")
def test_every_event_of_a_session_is_a_line_in_order(watched_life: Live, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with JsonLines(path, clock=lambda: 1_767_225_600.0) as writer:
        heard = watched_life(writer)
    assert [{key: value for key, value in line.items() if key != "time"} for line in lines(path)] == [
        json.loads(json.dumps(event_body(event))) for event in heard
    ]
    assert {line["time"] for line in lines(path)} == {"2026-01-01T00:00:00.000Z"}
    assert len(heard) > 8
    assert (writer.lost, writer.error) == (0, "")


@pytest.mark.requirement("D1", "F3")
def test_the_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with JsonLines(tmp_path / "events.jsonl") as writer:
            writer(SessionClosed("s"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600


@pytest.mark.requirement("F3")
def test_a_file_that_cannot_be_written_stops_nothing_and_is_tried_again(watched_life: Live, tmp_path: Path) -> None:
    path = tmp_path / "not yet" / "events.jsonl"
    writer = JsonLines(path)
    heard = watched_life(writer)
    assert heard[-1] == SessionClosed("watched")
    assert writer.lost == len(heard)
    assert "not yet" in writer.error
    path.parent.mkdir()
    writer(SessionClosed("s"))
    writer.close()
    assert [line["event"] for line in lines(path)] == ["session_closed"]


def test_a_pipe_that_nobody_reads_does_not_hold_a_session_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = JsonLines(tmp_path / "pipe")
    writer(SessionClosed("s"))
    assert writer.lost == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_counted() -> None:
    writer = JsonLines("/dev/full")
    writer(SessionClosed("s"))
    writer.close()
    assert (writer.lost, "No space left" in writer.error) == (1, True)


def test_what_json_has_no_form_for_is_written_in_the_nearest_one(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "events.jsonl") as writer:
        writer(FellBack("s", "half a pair \ud800", "x"))
        writer(ReplyObserved("s", "m", "model", {"input_tokens": 2**70}))
    first, second = lines(tmp_path / "events.jsonl")
    assert first["what"].startswith("half a pair")
    assert int(second["usage"]["input_tokens"]) == 2**70
    assert writer.lost == 0


def test_two_writers_of_one_file_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with JsonLines(path) as one, JsonLines(path) as other:
        for number in range(50):
            one(FellBack("one", str(number), "x" * 500))
            other(FellBack("other", str(number), "y" * 500))
    assert len(lines(path)) == 100
