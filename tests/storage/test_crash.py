"""Kill -9 at any moment loses nothing that was acknowledged and leaves a log that loads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.log import ParsedLog, parse_log
from reverie.storage.files import FileStorage

LINES_A_LIFE = 400
LIVES_A_LOG = 10


class Tally:
    """What was acknowledged, and what the log holds of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.acknowledged: dict[str, set[str]] = {}
        self.kills = self.torn = 0

    def losses(self) -> list[str]:
        """Name every acknowledged entry that does not load, and everything else that is wrong."""
        wrong: list[str] = []
        storage = FileStorage(self.root)
        for key, acknowledged in self.acknowledged.items():
            data = storage.load(key)
            loaded = parse_log(data or b"")
            found = [entry.uuid for entry in loaded.entries]
            wrong += [f"{key}: lost {uuid}" for uuid in sorted(acknowledged - set(found))]
            if len(found) != len(set(found)):
                wrong.append(f"{key}: an entry twice")
            if len(loaded.damage) > LIVES_A_LOG:
                wrong.append(f"{key}: more damage than kills: {loaded.damage}")
            self.torn += len(loaded.damage) + bool(loaded.torn)
        storage.close()
        return wrong


def live_and_die(start_child: Callable[..., Any], root: Path, draw: random.Random, kills: int, kind: str) -> Tally:
    """Let process after process append to a log and kill each at a moment of chance."""
    tally = Tally(root)
    for life in range(kills):
        key = f"logs/{life // LIVES_A_LOG}.jsonl"
        acknowledged = tally.acknowledged.setdefault(key, set())
        child = start_child(root)
        child.do("use", kind=kind)
        sizes = [draw.choice((150, 150, 150, 5_000, 60_000)) for _ in range(LINES_A_LIFE)]
        child.tell("append_many", key=key, who=f"life{life}", sizes=sizes)
        _let_it_live(child, acknowledged, draw)
        child.kill()
        acknowledged |= {said["done"] for said in child.hear_rest() if "done" in said}
        child.close()
        tally.kills += 1
    return tally


def _let_it_live(child: Any, acknowledged: set[str], draw: random.Random) -> None:
    for _ in range(draw.randrange(12)):
        said = child.hear()
        assert said is not None
        if "done" in said:
            acknowledged.add(said["done"])
    threading.Event().wait(draw.random() * 0.002)


@pytest.mark.requirement("K2", "K3")
@pytest.mark.slow
def test_no_acknowledged_entry_is_lost_to_kill_9(
    start_child: Callable[..., Any], tmp_path: Path, torture: bool, seed: int
) -> None:
    kills = 2_000 if torture else 60
    started = time.monotonic()
    tally = live_and_die(start_child, tmp_path, random.Random(seed), kills, "FileStorage")
    wrong = tally.losses()
    total = sum(map(len, tally.acknowledged.values()))
    print(f"{kills} kills, {total} entries acknowledged, {tally.torn} torn, {time.monotonic() - started:.0f} s")
    assert wrong == []
    assert total > kills


def test_a_store_that_acknowledges_before_it_writes_is_caught(
    start_child: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    tally = live_and_die(start_child, tmp_path, random.Random(seed), 5, "Eager")
    assert any("lost" in wrong for wrong in tally.losses())


@pytest.mark.requirement("K2", "K3")
@pytest.mark.parametrize("cut", [1, 60, 149, 150])
def test_what_a_killed_writer_left_torn_costs_the_next_one_nothing(
    start_child: Callable[..., Any], tmp_path: Path, cut: int
) -> None:
    loaded = _append_after_a_short_write(start_child, tmp_path, "FileStorage", cut)
    assert [entry.uuid for entry in loaded.entries if entry.uuid != "cut"] == ["before", "after", "last"]
    assert len(loaded.damage) == (cut < 150)


def test_a_writer_that_does_not_look_for_a_torn_tail_is_caught(start_child: Callable[..., Any], tmp_path: Path) -> None:
    loaded = _append_after_a_short_write(start_child, tmp_path, "Careless", 60)
    assert "after" not in [entry.uuid for entry in loaded.entries]


def _append_after_a_short_write(start_child: Callable[..., Any], root: Path, kind: str, cut: int) -> ParsedLog:
    """Let the kernel cut one process's line short while another has the log open; then let that one append."""
    other, victim = start_child(root), start_child(root)
    for child in (other, victim):
        child.do("use", kind=kind)
    other.do("append", key="log", uuid="before")
    victim.do("limit_file_size", size=(root / "log").stat().st_size + cut)
    assert "error" in victim.ask("append", key="log", uuid="cut")
    victim.kill()
    for uuid in ("after", "last"):
        other.do("append", key="log", uuid=uuid)
    return parse_log((root / "log").read_bytes())


@pytest.mark.requirement("K2")
@pytest.mark.slow
def test_a_document_is_whole_after_kill_9_old_or_new(
    start_child: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    storage = FileStorage(tmp_path)
    storage.write("d", b"0" * 300_000)
    written = "0"
    for life in range(1, 16):
        child = start_child(tmp_path)
        letters = "abcdefgh"
        child.do("load", key="d")
        for letter in letters:
            child.tell("write", key="d", text=letter * 300_000)
        answers = [child.hear() for _ in range(draw.randrange(len(letters)))]
        threading.Event().wait(draw.random() * 0.002)
        child.kill()
        answers += child.hear_rest()
        child.close()
        data = storage.load("d")
        assert data is not None
        assert len(data) == 300_000
        assert len(set(data)) == 1, f"life {life}: a mixture"
        reached = len([answer for answer in answers if answer is not None and "ok" in answer])
        allowed = {letters[reached - 1] if reached else written, letters[min(reached, 7)]}
        assert chr(data[0]) in allowed, f"life {life}: an acknowledged document went back"
        written = chr(data[0])
    assert list(storage.list()) == ["d"]
