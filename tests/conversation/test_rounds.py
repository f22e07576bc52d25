"""Only whole rounds are dropped, and a tail never separates a call from its result."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.entries import Entry, rounds


def said(seed: int) -> list[Entry]:
    return [entry for entry in random_log(Random(seed), entries=40) if entry.kind in ("user", "assistant")]


def blocks(entries: list[Entry], kind: str, key: str) -> set[str]:
    found: set[str] = set()
    for entry in entries:
        content: Any = entry.message["content"] if entry.message else []
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(key), str):
                found.add(block[key])
    return found


@pytest.mark.requirement("K9")
def test_a_round_starts_at_each_new_reply_and_rounds_hold_everything_once():
    script = Script()
    script.user("go")
    script.reply(call("t1"), id="a")
    script.result("t1")
    script.reply(call("t2"), id="a")
    script.result("t2")
    script.reply(text("done"), id="b")
    script.user("more")
    assert [[entry.uuid for entry in one] for one in rounds(script.entries)] == [
        ["e0"],
        ["e1", "e2", "e3", "e4"],
        ["e5", "e6"],
    ]
    for seed in range(300):
        entries = said(seed)
        assert [entry for one in rounds(entries) for entry in one] == entries


@pytest.mark.requirement("K9")
def test_dropping_whole_rounds_of_an_orderly_log_never_splits_a_pair():
    for seed in range(300):
        entries = [
            entry for entry in random_log(Random(seed), entries=40, disorder=0.0) if entry.kind in ("user", "assistant")
        ]
        grouped = rounds(entries)
        kept = [entry for one in grouped[len(grouped) // 2 :] for entry in one]
        lost = [entry for one in grouped[: len(grouped) // 2] for entry in one]
        assert not blocks(kept, "tool_result", "tool_use_id") & blocks(lost, "tool_use", "id")
