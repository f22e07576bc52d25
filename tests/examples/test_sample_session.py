"""The sample session is a session as Claude Code writes one, and a consistent one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions" / "sample.jsonl"


def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in SAMPLE.read_text().splitlines()]


def blocks(kind: str) -> list[dict[str, Any]]:
    contents = [entry["message"]["content"] for entry in entries() if "message" in entry]
    return [block for content in contents if isinstance(content, list) for block in content if block["type"] == kind]


def test_every_entry_hangs_on_the_one_before() -> None:
    chain = [entry for entry in entries() if "uuid" in entry]
    assert len(chain) >= 30
    assert [entry["parentUuid"] for entry in chain] == [None, *(entry["uuid"] for entry in chain[:-1])]
    assert [entry["timestamp"] for entry in chain] == sorted(entry["timestamp"] for entry in chain)


def test_every_tool_use_has_its_result() -> None:
    uses, results = blocks("tool_use"), blocks("tool_result")
    assert [block["id"] for block in uses] == [block["tool_use_id"] for block in results]
    assert {block["name"] for block in uses} == {"Bash", "Edit", "Grep", "Read"}


def test_a_file_is_read_twice_and_a_local_command_was_run() -> None:
    paths = [block["input"]["file_path"] for block in blocks("tool_use") if block["name"] == "Read"]
    assert len(paths) > len(set(paths))
    assert "<local-command-stdout>" in SAMPLE.read_text()


def test_each_reply_reads_from_the_cache_what_the_one_before_wrote() -> None:
    usages = {entry["message"]["id"]: entry["message"]["usage"] for entry in entries() if entry["type"] == "assistant"}
    sent = 0
    for usage in usages.values():
        assert usage["cache_read_input_tokens"] == sent
        sent = sum(usage[name] for name in usage if name.endswith("input_tokens"))
