"""Recorded sessions of other agents, if there are any: every file imports and loses nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.entries import encode_entry
from reverie.errors import InputError
from reverie.importers import ImportedSession, find_sessions, read_session

pytestmark = pytest.mark.requirement("D3")

FOLDERS = ("claude-code", "mini-swe-agent", "openhands", "pi", "swe-agent")


def ids(found: ImportedSession, kind: str, name: str) -> list[str]:
    out: list[str] = []
    for entry in found.messages:
        content = (entry.message or {})["content"]
        out += [block[name] for block in content if block["type"] == kind] if isinstance(content, list) else []
    return out


@pytest.mark.slow
def test_every_file_is_recognised_and_imports(corpus: Path) -> None:
    found = list(find_sessions(corpus))
    assert {path.parent.name for path in found} == set(FOLDERS)
    assert len(found) == sum(1 for folder in FOLDERS for path in (corpus / folder).iterdir() if path.is_file())
    for path in found:
        for one in read_session(path):
            assert one.format == path.parent.name
            assert len(one.messages) >= 20
            assert one.damage == ()
            assert not any(reason.startswith("unknown") for reason in one.skipped)
            assert all(encode_entry(entry) for entry in one.entries)


def test_every_call_and_every_recorded_result_of_a_claude_code_session_arrives(corpus: Path) -> None:
    for path in sorted((corpus / "claude-code").iterdir()):
        uses, results, compactions = set[str](), set[str](), 0
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            compactions += row.get("subtype") == "compact_boundary"
            content = (row.get("message") or {}).get("content")
            for block in content if isinstance(content, list) else []:
                if block["type"] == "tool_use":
                    uses.add(block["id"])
                if block["type"] == "tool_result":
                    results.add(block["tool_use_id"])
        [found] = read_session(path)
        assert set(ids(found, "tool_use", "id")) == uses
        assert set(ids(found, "tool_result", "tool_use_id")) == results
        assert sum(entry.kind == "decision" for entry in found.entries) == compactions


def test_the_pieces_of_a_reply_stand_together(corpus: Path) -> None:
    for path in sorted((corpus / "claude-code").iterdir()):
        [found] = read_session(path)
        order = [entry.reply["id"] for entry in found.messages if entry.kind == "assistant"]
        runs = [id for at, id in enumerate(order) if at == 0 or order[at - 1] != id]
        assert len(runs) == len(set(runs))
        kinds = [entry.kind for entry in found.messages]
        for at, entry in enumerate(found.messages[1:], 1):
            if entry.kind == "assistant" and kinds[at - 1] == "user":
                assert entry.reply["id"] != next(
                    (one.reply["id"] for one in reversed(found.messages[:at]) if one.kind == "assistant"), None
                )


def test_messages_of_the_other_formats_are_all_there(corpus: Path) -> None:
    for path in sorted((corpus / "mini-swe-agent").iterdir()):
        document = json.loads(path.read_bytes())
        [found] = read_session(path)
        assert len(found.messages) == sum(message["role"] != "system" for message in document["messages"])
        assert all("usage" in entry.reply for entry in found.messages if entry.kind == "assistant")
        assert found.cost_usd == document["info"]["model_stats"]["instance_cost"]
    for path in sorted((corpus / "swe-agent").iterdir()):
        history = json.loads(path.read_bytes())["history"]
        [found] = read_session(path)
        assert len(found.messages) == sum(message["role"] != "system" for message in history)
        uses = ids(found, "tool_use", "id")
        assert len(uses) == len(set(uses))
        assert set(uses) == set(ids(found, "tool_result", "tool_use_id"))
    for path in sorted((corpus / "openhands").iterdir()):
        for line, found in zip(path.read_bytes().splitlines(), read_session(path), strict=True):
            history = json.loads(line)["history"]
            answered = sum("observation" in event and "tool_call_metadata" in event for event in history)
            assert len(ids(found, "tool_result", "tool_use_id")) == answered
            assert set(ids(found, "tool_result", "tool_use_id")) <= set(ids(found, "tool_use", "id"))


def test_a_pi_session_keeps_its_calls_and_the_tails_its_compactions_name(corpus: Path) -> None:
    [path] = (corpus / "pi").iterdir()
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    said = [row["message"] for row in rows if row["type"] == "message"]
    calls = {part["id"] for one in said if one["role"] == "assistant" for part in one["content"] if "arguments" in part}
    [found] = read_session(path)
    assert set(ids(found, "tool_use", "id")) == calls
    assert len(ids(found, "tool_result", "tool_use_id")) == sum(one["role"] == "toolResult" for one in said)
    by_uuid = {entry.uuid: entry for entry in found.entries}
    kept = [by_uuid[entry.body["first_kept"]].message for entry in found.entries if entry.kind == "decision"]
    recorded = [rows[row["firstKeptEntryIndex"]]["message"]["content"] for row in rows if row["type"] == "compaction"]
    assert [message["content"] for message in kept if message] == recorded


@pytest.mark.slow
def test_damaged_corpus_files_never_raise_and_keep_what_is_intact(
    corpus: Path, tmp_path: Path, seed: int, torture: bool
) -> None:
    chance = random.Random(seed)
    files = [path for folder in FOLDERS for path in sorted((corpus / folder).iterdir())]
    for turn in range(5_000 if torture else 66):
        path = files[turn % len(files)]
        data = bytearray(path.read_bytes())
        kind = chance.choice(["truncate", "flip", "splice", "nul", "crlf"])
        at, span = chance.randrange(len(data)), chance.randrange(1, 20_000)
        if kind == "truncate":
            del data[at:]
        elif kind == "flip":
            for _ in range(chance.randrange(1, 40)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == "splice":
            other = files[chance.randrange(len(files))].read_bytes()
            data[at : at + span] = other[at : at + span] if chance.random() < 0.5 else b""
        elif kind == "nul":
            data[at : at + span] = bytes(min(span, len(data) - at))
        else:
            data = data.replace(b"\n", b"\r\n")
        broken = tmp_path / path.name
        broken.write_bytes(data)
        try:
            found = read_session(broken)
        except InputError:
            found = []
        if path.parent.name == "claude-code" and kind != "splice":
            _check_claude(path, bytes(data), found)


def _check_claude(path: Path, data: bytes, found: list[ImportedSession]) -> None:
    """Lines that are still whole are imported as they were from the whole file, unless a changed one moved them."""
    originals = set(path.read_bytes().split(b"\n"))
    lines = [line.strip(b"\0\r") for line in data.split(b"\n")]
    if any(line not in originals and _record(line) for line in lines):
        return
    before = {entry.uuid for one in read_session(path) for entry in one.entries if entry.message is not None}
    intact = {(_record(line) or {}).get("uuid") for line in lines if line in originals}
    after = {entry.uuid for one in found for entry in one.entries}
    assert (before & intact) <= after


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
