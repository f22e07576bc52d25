"""A recording as its requests, with the billed sizes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coding_session import as_claude_code_jsonl, coding_session
from log_script import Script, call, text
from reverie.cache.prices import prices_for
from reverie.conversation.decisions import Cause, Compacted
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.importers import read_session
from reverie.importers.import_result import ImportedSession
from reverie.replay.compare import compare, recordings_in
from reverie.replay.policies import AppendOnlyPolicy
from reverie.replay.recording import recording_of
from reverie.replay.run import replay_recording


def imported(script: Script) -> ImportedSession:
    return ImportedSession("script", "s", "", "", "claude-test", tuple(script.entries))


def usage(read: int = 0, written: int = 0, uncached: int = 0, output: int = 5) -> dict[str, int]:
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }


def input_of(bill: dict[str, int]) -> int:
    return bill["input_tokens"] + bill["cache_creation_input_tokens"] + bill["cache_read_input_tokens"]


@pytest.mark.requirement("B1")
def test_a_recording_is_cut_at_its_requests_and_sized_by_its_bills():
    script = Script()
    script.user("hello there, how are you today my friend")
    script.reply(call("t1"), usage=usage(written=5_000), id="a")
    script.result("t1", "word " * 1_000)
    script.reply(text("done"), usage=usage(read=5_000, written=1_200), id="b")
    recording = recording_of(imported(script), "file")
    assert [step.number for step in recording.steps] == [0, 1]
    assert recording.billed
    view, total = View(), 0
    for step in recording.steps:
        view = view.fold_all(step.entries)
        shown = sum(recording.sizes.of(block) for message in view.messages() for block in as_blocks(message))
        total = sum(recording.prefix) + shown
        assert step.billed is not None
        assert abs(total - step.billed.input) <= 3


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("is_cut", [True, False])
def test_the_lost_past_of_a_recording_that_starts_in_the_middle_is_no_system_prompt(is_cut: bool):
    script = Script()
    script.user("go on")
    script.reply(text("done"), usage=usage(read=90_000, written=10_000), id="a")
    if is_cut:
        script.decide(Compacted(Cause("layer 4", "nearly full"), "auto", "notes", "a summary", 100_000, None, None))
    script.user("and now")
    script.reply(text("there"), usage=usage(read=11_000, written=1_000) if is_cut else usage(read=100_000), id="b")
    recording = recording_of(imported(script), "file")
    if not is_cut:  # nothing shows that the past was not a system prompt, and the report says so
        assert sum(recording.prefix) > 99_000
        assert recording.lost is None
        notes = compare([recording], policies=("append-only",)).skipped
        assert any("sent more than 60,000 tokens before the first recorded message" in note for note in notes)
        return
    assert 11_000 < sum(recording.prefix) < 12_000
    lost = [entry.message for entry in recording.steps[0].entries if entry.body.get("type") == "unrecorded"]
    assert sum(recording.sizes.of(block) for message in lost if message for block in as_blocks(message)) > 85_000
    view = View().fold_all((*recording.steps[0].entries, *recording.steps[0].reply))
    assert view.token_count.overhead < 25_000  # of which 10,000 were new content
    prices = prices_for("claude-opus-5")
    assert prices is not None
    outcome = replay_recording(recording, AppendOnlyPolicy(), prices, model="claude-opus-5")
    assert 85_000 < outcome.points[0].read <= 90_000  # the cache had the past


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("pause", ["", "10 minutes", "10 minutes in an hour's cache"])
def test_the_past_of_a_session_without_its_first_lines_is_no_system_prompt(tmp_path: Path, share: float, pause: str):
    """Without a compaction the missing parent tells that there is a past, and a read after a pause what it is not."""
    rows = [json.loads(line) for line in as_claude_code_jsonl(coding_session(3, 120_000, compact_at=None)).splitlines()]
    late = rows[int(len(rows) * share) :]
    replies = [row for row in late if row["type"] == "assistant"]
    last = replies[-1]["message"]["id"]
    for row in late:
        bill = row.get("message", {}).get("usage", {})
        if bill and bill["cache_read_input_tokens"] < 20_000:  # pauses of the generated session, with nothing in common
            bill |= {"cache_read_input_tokens": 0, "cache_creation_input_tokens": input_of(bill)}
        if pause and row.get("message", {}).get("id") == last:
            bill |= {"cache_read_input_tokens": 12_000, "cache_creation_input_tokens": input_of(bill) - 12_000}
        if bill and "hour" in pause:
            bill["cache_creation"] = {"ephemeral_1h_input_tokens": bill["cache_creation_input_tokens"]}
    for row in reversed(late):
        if pause and "timestamp" in row:
            row["timestamp"] = (datetime.fromisoformat(row["timestamp"]) + timedelta(minutes=10)).isoformat()
        if row["type"] == "user":
            break
    file = tmp_path / "late.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in late))
    (recording,), _ = recordings_in([file])
    assert sum(recording.prefix) == (12_000 if pause == "10 minutes" else 20_000)  # an hour's cache was not cold
    first = input_of(replies[0]["message"]["usage"])
    assert recording.lost is not None
    assert 0.6 * first < sum(recording.prefix) + recording.lost <= first
    report = compare([recording], policies=("recorded", "append-only", "balanced"))
    assert report.simulator is not None
    assert abs(report.simulator.cost_ratio - 1) < 0.05 or "hour" in pause
    assert any("begins in the middle" in note and "late.jsonl" in note for note in report.skipped)


def test_a_session_begins_late_if_its_parent_or_its_call_is_missing(tmp_path: Path):
    rows = [json.loads(line) for line in as_claude_code_jsonl(coding_session(3, 30_000)).splitlines()]
    file = tmp_path / "one.jsonl"

    def begins_late(kept: list[dict[str, Any]]) -> bool:
        file.write_text("".join(json.dumps(row) + "\n" for row in kept))
        return read_session(file)[0].begins_late

    assert not begins_late(rows)
    starts = [at for at, row in enumerate(rows) if row["type"] in ("user", "assistant")]
    assert all(begins_late(rows[at:]) for at in starts[1:])
    answer = next(at for at in starts if "tool_result" in json.dumps(rows[at]))
    assert begins_late([{**rows[answer], "parentUuid": None}, *rows[answer + 1 :]])
    assert not begins_late([rows[starts[0]], rows[answer], *rows[starts[0] + 1 : answer], *rows[answer + 1 :]])
    first = rows[starts[0]]
    assert not begins_late([{**first, "parentUuid": None}, *rows[starts[0] + 1 :]])


@pytest.mark.requirement("B1")
def test_what_a_recording_does_not_hold_becomes_an_attachment_of_the_billed_size():
    script = Script()
    script.user("hello")
    script.reply(text("hi"), usage=usage(written=5_000), id="a")
    script.user("and now")
    script.reply(text("there"), usage=usage(read=5_000, written=4_000), id="b")
    recording = recording_of(imported(script), "file")
    (unseen,) = [entry for entry in recording.steps[1].entries if entry.body.get("type") == "unrecorded"]
    assert unseen.message is not None
    assert recording.sizes.of(unseen.message["content"][0]) > 3_800


@pytest.mark.requirement("B1")
def test_tokens_that_leave_without_a_decision_are_noticed():
    script = Script()
    script.user("go")
    script.reply(call("t1"), usage=usage(written=5_000), id="a")
    script.result("t1", "word " * 8_000)
    script.reply(text("hm"), usage=usage(read=5_000, written=9_000), id="b")
    script.user("more")
    script.reply(text("ok"), usage=usage(written=6_000), id="c")
    assert [step.removed for step in recording_of(imported(script), "file").steps] == [False, False, True]


def test_a_recording_without_usage_keeps_the_estimates():
    script = Script()
    script.user("hello")
    script.reply(text("hi"))
    recording = recording_of(imported(script), "file")
    assert not recording.billed
    assert recording.timed


def test_a_generated_session_survives_export_import_and_cutting(tmp_path: Path):
    file = tmp_path / "s.jsonl"
    file.write_bytes(as_claude_code_jsonl(coding_session(3, 60_000)))
    (one,) = read_session(file)
    recordings, skipped = recordings_in([tmp_path])
    assert [recording.session for recording in recordings] == [one.session_id]
    assert skipped == []
    assert all(step.reply for step in recordings[0].steps)
