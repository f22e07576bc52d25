"""The generated coding session is realistic, valid, and the same for the same seed."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_session import SYSTEM, TOOLS, as_claude_code_jsonl, coding_session
from coding_session.demo_file import FILE, demo_log
from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.entries import Entry, encode_entry
from reverie.conversation.tokens.accounting import account
from reverie.conversation.tokens.estimate import estimate_block
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request, repairs
from reverie.conversation.wire.validate import problems
from reverie.importers import read_session

SEEDS = st.integers(min_value=0, max_value=10_000)


def blocks(entry: Entry) -> list[dict[str, Any]]:
    content = (entry.message or {}).get("content", [])
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def of_kind(entries: list[Entry], kind: str) -> list[dict[str, Any]]:
    return [block for entry in entries for block in blocks(entry) if block["type"] == kind]


def joined(entries: list[Entry]) -> dict[str, Any]:
    """Put messages together by nothing but their roles: no repair, no stub, no reordering."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        if entry.message is None:
            continue
        if messages and messages[-1]["role"] == entry.message["role"]:
            messages[-1]["content"] += blocks(entry)
        else:
            messages.append({"role": entry.message["role"], "content": list(blocks(entry))})
    return {"model": "m", "max_tokens": 100, "system": SYSTEM, "tools": TOOLS, "messages": messages}


def unquoted(entries: list[Entry]) -> list[str]:
    """Return the edits whose old text no reading still in view showed."""
    shown: dict[str, list[str]] = {}
    read: dict[str, str] = {}
    out: list[str] = []
    for entry in entries:
        if entry.kind == "decision":
            shown.clear()
        for block in blocks(entry):
            if block["type"] == "tool_use" and block["name"] == "Read":
                read[block["id"]] = block["input"]["file_path"]
            elif block["type"] == "tool_result" and block["tool_use_id"] in read:
                lines = [line.split("→", 1)[1] for line in block["content"].split("\n")]
                shown.setdefault(read[block["tool_use_id"]], []).append("\n".join(lines))
            elif block["type"] == "tool_use" and block["name"] == "Edit":
                texts = shown.get(block["input"]["file_path"], [])
                if not any(block["input"]["old_string"] in text for text in texts):
                    out.append(block["input"]["old_string"])
    return out


@settings(max_examples=12)
@given(SEEDS)
@pytest.mark.slow
def test_every_request_of_any_seed_is_valid_and_needs_no_repair(seed: int) -> None:
    view = View()
    entries = coding_session(seed, 120_000, compact_at=60_000)
    asked: set[str] = set()
    for entry in entries:
        if entry.kind == "assistant" and entry.reply["id"] not in asked:
            asked.add(entry.reply["id"])
            assert repairs(view) == []
            assert problems(build_request(view)) == []
        view = view.fold(entry)
    assert len(asked) > 20


@settings(max_examples=12)
@given(SEEDS)
def test_what_is_said_is_valid_as_it_stands(seed: int) -> None:
    entries = coding_session(seed, 100_000, compact_at=None)[:-1]
    while entries[-1].kind == "assistant":
        entries.pop()
    assert problems(joined(entries)) == []


def test_a_lost_result_would_be_caught() -> None:
    entries = coding_session(3, 60_000, compact_at=None)
    at = next(at for at, entry in enumerate(entries) if any(block["type"] == "tool_result" for block in blocks(entry)))
    assert problems(joined([*entries[:at], *entries[at + 1 :]])) != []


@settings(max_examples=12)
@given(SEEDS)
def test_edits_quote_exactly_what_a_reading_in_view_showed(seed: int) -> None:
    entries = coding_session(seed, 200_000, compact_at=70_000)
    assert any(block["name"] == "Edit" for block in of_kind(entries, "tool_use"))
    assert unquoted(entries) == []


def test_an_edit_of_something_never_read_would_be_caught() -> None:
    entries = coding_session(4, 100_000)
    reads = {block["id"] for block in of_kind(entries, "tool_use") if block["name"] == "Read"}
    without = [entry for entry in entries if not any(block.get("tool_use_id") in reads for block in blocks(entry))]
    assert unquoted(without) != []


@settings(max_examples=8)
@given(SEEDS)
def test_it_has_what_makes_sessions_hard(seed: int) -> None:
    entries = coding_session(seed)
    results = of_kind(entries, "tool_result")
    assert max(len(block["content"]) for block in results) > 60_000
    assert any(block.get("is_error") for block in results)
    assert of_kind(entries, "thinking")
    assert any("Stopped by the user" in block["text"] for block in of_kind(entries, "text"))
    gaps = [later.at - earlier.at for earlier, later in pairwise(entries)]
    assert min(gaps) >= 0
    assert any(360 < gap < 3_000 for gap in gaps)
    assert any(gap > 6_000 for gap in gaps)
    calls: dict[str, int] = {}
    for entry in entries:
        if any(block["type"] == "tool_use" for block in blocks(entry)):
            calls[entry.reply["id"]] = calls.get(entry.reply["id"], 0) + 1
    assert max(calls.values()) >= 2
    reads = [block["input"] for block in of_kind(entries, "tool_use") if block["name"] == "Read"]
    assert any("offset" in read for read in reads)
    assert len({read["file_path"] for read in reads}) < len(reads)
    assert {block["name"] for block in of_kind(entries, "tool_use")} == {"Read", "Grep", "Bash", "Edit", "Write"}
    assert (
        sum(1 for entry in entries if entry.kind == "user" and isinstance((entry.message or {})["content"], str)) >= 5
    )


@settings(max_examples=8)
@given(SEEDS, st.sampled_from([80_000, 200_000, 350_000]))
def test_it_says_about_as_much_as_was_asked_for_and_fills_the_window(seed: int, tokens: int) -> None:
    entries = coding_session(seed, tokens)
    said = sum(estimate_block(block) for entry in entries for block in blocks(entry))
    assert tokens <= said <= tokens * 1.1 + 45_000
    inputs = [usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] for usage in usages(entries)]
    if tokens == 350_000:
        assert 120_000 < max(inputs) < 200_000
        assert any(isinstance(decision_of(entry.body), Compacted) for entry in entries if entry.kind == "decision")
    assert account(joined(entries)["messages"]).duplicate_reads


def usages(entries: list[Entry]) -> list[dict[str, int]]:
    return list({entry.reply["id"]: entry.reply["usage"] for entry in entries if entry.kind == "assistant"}.values())


def test_the_bill_reads_what_the_request_before_sent_unless_the_cache_went_cold() -> None:
    entries = coding_session(1)
    bills = usages(entries)
    cold = [bill for bill in bills if bill["cache_read_input_tokens"] == 0]
    assert 3 <= len(cold) < len(bills) / 4
    for earlier, later in pairwise(bills):
        sent = earlier["cache_read_input_tokens"] + earlier["cache_creation_input_tokens"]
        assert later["cache_read_input_tokens"] <= sent


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = ([encode_entry(entry) for entry in coding_session(seed, 90_000)] for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_an_unbounded_window_is_never_compacted() -> None:
    assert not any(entry.kind == "decision" for entry in coding_session(1, 250_000, compact_at=None))


@pytest.mark.requirement("D3")
@settings(max_examples=8)
@given(SEEDS)
def test_it_can_be_written_as_claude_code_does_and_read_again(tmp_path_factory: Any, seed: int) -> None:
    entries = coding_session(seed, 180_000, compact_at=80_000)
    file: Path = tmp_path_factory.mktemp("claude") / "session.jsonl"
    file.write_bytes(as_claude_code_jsonl(entries))
    [found] = read_session(file)
    assert (found.format, found.title, found.cwd) == ("claude-code", entries[0].body["title"], entries[0].body["cwd"])
    assert (found.damage, found.session_id) == ((), entries[0].session)
    assert [one for one in found.skipped if not one.startswith("bookkeeping")] == []
    said = [entry for entry in found.entries if entry.message is not None]
    assert [(one.uuid, one.time, one.body) for one in said] == [
        (one.uuid, one.time, one.body) for one in entries if one.message is not None
    ]
    assert View().fold_all(found.entries).messages() == View().fold_all(entries).messages()


def test_results_of_parallel_calls_hang_on_their_own_call() -> None:
    rows = [json.loads(line) for line in as_claude_code_jsonl(coding_session(1, 60_000)).splitlines()]
    by_uuid = {row["uuid"]: row for row in rows if "uuid" in row}
    results = [row for row in rows if row["type"] == "user" and isinstance(row["message"]["content"], list)]
    answers = [row for row in results if row["message"]["content"][0]["type"] == "tool_result"]
    assert answers
    for row in answers:
        call = by_uuid[row["parentUuid"]]["message"]["content"][0]
        assert call["id"] == row["message"]["content"][0]["tool_use_id"]


def test_the_demo_plays_the_session_of_the_first_seed():
    assert gzip.decompress(FILE.read_bytes()) == demo_log(), "write it again: see coding_session/demo_file.py"
