"""Messages between processes that are killed at random: none lost, none shown twice, each sender's in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

CROWD = Path(__file__).with_name("mail_crowd.py")


def run_crowd(kind: str, home: Path, *, senders: int, messages: int, readers: int, kills: int, seed: int) -> Any:
    home.mkdir(exist_ok=True)
    numbers = map(str, (senders, messages, readers, kills, seed))
    done = subprocess.run(
        [sys.executable, "-E", str(CROWD), kind, *numbers],
        env={**os.environ, "REVERIE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=1_800,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


def problems(shown: dict[str, list[str]], *, senders: int, messages: int, readers: int) -> dict[str, int]:
    """Count what went wrong, by kind."""
    wrong = {"lost": 0, "twice": 0, "out of order": 0, "astray": 0}
    for name, ids in shown.items():
        reader = int(name.split("-")[1])
        wrong["twice"] += len(ids) - len(set(ids))
        for sender in range(senders):
            wanted = [number for number in range(messages) if (sender + number) % readers == reader]
            got = [int(id.split(":")[1]) for id in ids if id.startswith(f"sender-{sender}:")]
            wrong["lost"] += len(set(wanted) - set(got))
            wrong["astray"] += len(set(got) - set(wanted))
            wrong["out of order"] += sum(after < before for before, after in pairwise(got))
    return wrong


@pytest.mark.requirement("L7.6")
@pytest.mark.slow
def test_every_letter_is_shown_once_in_its_senders_order_though_all_are_killed_at_random(
    home: Path, torture: bool, seed: int
):
    size = {"senders": 16, "messages": 1_000, "readers": 8} if torture else {"senders": 4, "messages": 60, "readers": 2}
    kills = 400 if torture else 14
    done = run_crowd("maildir", home, **size, kills=kills, seed=seed)
    load = os.getloadavg()[0]
    print(f"{size}, killed {done['killed']}, {done['seconds']:.1f} s, load {load:.1f}")
    assert problems(done["shown"], **size) == {"lost": 0, "twice": 0, "out of order": 0, "astray": 0}
    assert done["unlogged"] == 0, "a letter was read before it was logged"
    assert min(done["killed"].values()) > 0


@pytest.mark.slow
def test_an_inbox_that_is_a_json_array_loses_letters(home: Path, seed: int):
    size = {"senders": 4, "messages": 60, "readers": 2}
    tries = (run_crowd("json", home / str(number), **size, kills=6, seed=seed + number) for number in range(10))
    assert any(problems(done["shown"], **size)["lost"] > 0 for done in tries)


def test_what_is_lost_doubled_or_out_of_order_would_be_seen():
    size = {"senders": 1, "messages": 6, "readers": 2}
    right = {"reader-0": ["sender-0:0", "sender-0:2", "sender-0:4"], "reader-1": [f"sender-0:{n}" for n in (1, 3, 5)]}
    assert not any(problems(right, **size).values())
    random = Random(1)
    for _ in range(20):
        ids = list(right["reader-0"])
        at = random.randrange(3)
        assert problems({**right, "reader-0": ids[:at] + ids[at + 1 :]}, **size)["lost"] == 1
        assert problems({**right, "reader-0": [*ids, ids[at]]}, **size)["twice"] == 1
    assert problems({**right, "reader-0": right["reader-0"][::-1]}, **size)["out of order"] == 2
