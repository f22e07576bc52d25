"""Many processes on one store: whole lines, one winner, one holder."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.log import ParsedLog, parse_log
from reverie.errors import SessionBusy
from reverie.storage.files import FileStorage

PATIENCE_SECONDS = 100.0


def append_together(
    start_child: Callable[..., Any], root: Path, kind: str, draw: random.Random, lines: int
) -> ParsedLog:
    """Let eight processes append to one log at the same time."""
    children = [start_child(root) for _ in range(8)]
    for child in children:
        child.do("use", kind=kind)
    for who, child in enumerate(children):
        sizes = [draw.choice((150, 4_096, 70_000, 200_000)) for _ in range(lines)]
        child.tell("append_many", key="log", who=f"child{who}", sizes=sizes)
    for child in children:
        said = child.hear(PATIENCE_SECONDS)
        while "done" in said:
            said = child.hear(PATIENCE_SECONDS)
        assert said == {"ok": None}
    return parse_log((root / "log").read_bytes())


@pytest.mark.requirement("K2")
def test_eight_processes_append_to_one_log_and_no_line_is_torn(
    start_child: Callable[..., Any], tmp_path: Path, seed: int, torture: bool
) -> None:
    lines = 200 if torture else 12
    loaded = append_together(start_child, tmp_path, "FileStorage", random.Random(seed), lines)
    assert loaded.damage == ()
    assert loaded.torn == b""
    found = [entry.uuid for entry in loaded.entries]
    assert sorted(found) == sorted(f"child{who}-{number}" for who in range(8) for number in range(lines))
    for who in range(8):
        own = [uuid for uuid in found if uuid.startswith(f"child{who}-")]
        assert own == [f"child{who}-{number}" for number in range(lines)]


def test_a_writer_that_writes_a_line_in_pieces_is_caught(
    start_child: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    tries = (append_together(start_child, tmp_path / str(number), "Buffered", draw, 40) for number in range(10))
    assert any(loaded.damage for loaded in tries)


def test_compare_and_set_loses_no_update_between_processes(start_child: Callable[..., Any], tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    storage.write("number", b"0")
    children = [start_child(tmp_path) for _ in range(4)]
    for child in children:
        child.tell("count_up", key="number", times=15)
    for child in children:
        assert "ok" in child.hear(PATIENCE_SECONDS)
    assert storage.load("number") == b"60"


def race(start_child: Callable[..., Any], root: Path, kind: str, rounds: int) -> tuple[int, int]:
    """Let sixteen processes race for one lease; return rounds won and rounds in which two were inside."""
    children = [start_child(root) for _ in range(16)]
    for child in children:
        child.do("use", kind=kind)
    for child in children:
        child.tell("race", name="session", rounds=rounds, witness=str(root / "witness"))
    answers = [child.hear(PATIENCE_SECONDS) for child in children]
    return sum(answer["ok"][0] for answer in answers), sum(answer["ok"][1] for answer in answers)


@pytest.mark.requirement("K13")
def test_sixteen_processes_race_for_a_lease_and_never_two_hold_it(
    start_child: Callable[..., Any], tmp_path: Path, torture: bool
) -> None:
    won, crowded = race(start_child, tmp_path, "FileStorage", 2_000 if torture else 60)
    print(f"16 processes: {won} leases won, {crowded} held by two")
    assert won > 0
    assert crowded == 0


@pytest.mark.requirement("K13")
def test_a_killed_holder_frees_the_lease_at_once(start_child: Callable[..., Any], tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    for number in range(5):
        holder = start_child(tmp_path)
        holder.do("lease", name="session", holder=f"child {number}")
        assert storage.holder("session") == f"child {number}"
        with pytest.raises(SessionBusy, match=f"child {number}"):
            storage.lease("session")
        holder.kill()
        assert storage.holder("session") is None
        storage.lease("session", holder="me").release()


def test_a_lease_by_pid_file_is_caught(start_child: Callable[..., Any], tmp_path: Path) -> None:
    holder, next_one = start_child(tmp_path), start_child(tmp_path)
    for child in (holder, next_one):
        child.do("use", kind="PidFile")
    holder.do("lease", name="session")
    holder.kill()
    assert "error" in next_one.ask("lease", name="session"), "its holder is dead, and it is still taken"


@pytest.mark.requirement("K13")
def test_a_killed_holder_frees_the_lease_though_a_forked_child_lives_on(
    start_child: Callable[..., Any], tmp_path: Path
) -> None:
    holder = start_child(tmp_path)
    survivor = holder.do("fork_and_hold", name="session")
    try:
        storage = FileStorage(tmp_path)
        assert storage.holder("session") == "parent"
        holder.kill()
        os.kill(survivor, 0)
        assert storage.holder("session") is None
        storage.lease("session").release()
        storage.append("forked", b"[]")
        assert storage.load("forked") == b"{}\n[]\n"
        storage.close()
    finally:
        os.kill(survivor, signal.SIGKILL)


@pytest.mark.requirement("K13")
def test_a_lock_file_removed_by_hand_does_not_make_two_holders(tmp_path: Path) -> None:
    first, second = FileStorage(tmp_path), FileStorage(tmp_path)
    lease = first.lease("session", holder="first")
    lease.release()
    for file in tmp_path.rglob("*.lock"):
        file.unlink()
    lease = second.lease("session", holder="second")
    with pytest.raises(SessionBusy, match="second"):
        first.lease("session")
    lease.release()


def test_a_folder_that_is_emptied_while_others_write_into_it_loses_nothing(
    start_child: Callable[..., Any], tmp_path: Path
) -> None:
    child = start_child(tmp_path)
    storage = FileStorage(tmp_path)
    child.tell("append_many", key="folder/deep/log", who="child", sizes=[150])
    for number in range(60):
        child.tell("write", key=f"folder/deep/{number}", text="kept")
        storage.write("folder/deep/mine", b"")
        assert storage.delete("folder/deep/mine") is True
    answers = [child.hear() for _ in range(62)]
    assert [answer for answer in answers if "error" in answer] == []
    assert len(list(storage.list("folder"))) == 61
