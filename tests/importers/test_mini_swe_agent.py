from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.wire.blocks import as_blocks
from reverie.importers import read_session

pytestmark = pytest.mark.requirement("D3")


@pytest.mark.parametrize("name", ["mini-swe-agent", "mini-swe-agent-compact"])
def test_usage_time_and_cost_come_from_the_recorded_response(recordings: Any, name: str) -> None:
    [found] = recordings.imported(name)
    assert (found.format, found.session_id, found.system) == ("mini-swe-agent", "shop__till-1", "You are helpful.")
    assert found.cost_usd == 0.5
    assert [entry.kind for entry in found.entries] == ["meta", "user", "assistant", "user", "assistant"]
    reply = found.entries[2]
    assert reply.message == {"role": "assistant", "content": "THOUGHT: look"}
    assert reply.time == "2025-11-18T22:55:08.000Z"
    assert reply.reply["id"] == "gen-1"
    assert reply.reply["usage"] == {
        "input_tokens": 40,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 60,
        "output_tokens": 7,
    }
    assert reply.reply["recorded"]["prompt_tokens"] == 100
    assert reply.reply["stop_reason"] == "end_turn"


def test_derived_ids_are_the_same_on_every_import(recordings: Any) -> None:
    [first], [second] = recordings.imported("mini-swe-agent"), recordings.imported("mini-swe-agent")
    assert first == second


@pytest.mark.parametrize("name", ["mini-swe-agent", "mini-swe-agent-compact"])
def test_a_document_that_no_longer_parses_gives_its_intact_messages(recordings: Any, name: str) -> None:
    """The nested copy of the broken message is not mistaken for a message."""
    broken = recordings.bytes_of(name).replace(b'"content": "Fix it."', b'"content": "Fix it.', 1)
    [found] = recordings.import_bytes(broken, "broken.traj.json")
    assert [entry.message["content"] for entry in found.messages] == [
        "THOUGHT: look",
        "<returncode>0</returncode>",
        "THOUGHT: done",
    ]
    assert len(found.damage) == 1
    assert found.session_id == "shop__till-1"


@pytest.mark.parametrize("name", ["mini-swe-agent", "mini-swe-agent-compact"])
def test_a_document_cut_short_gives_the_messages_before_the_cut(recordings: Any, name: str) -> None:
    data = recordings.bytes_of(name)
    [found] = recordings.import_bytes(data[: data.index(b"<returncode>")], "cut.traj.json")
    assert [entry.kind for entry in found.messages] == ["user", "assistant"]
    assert found.system == "You are helpful."


def test_a_command_in_the_text_of_a_reply_is_a_call_and_the_next_message_its_result(tmp_path: Path):
    fence = "```"
    messages = [
        {"role": "system", "content": "One bash block a reply."},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": f"THOUGHT: look\n\n{fence}bash\nls -la\n{fence}", "extra": {"response": {}}},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py\n</output>"},
        {"role": "assistant", "content": f"{fence}bash\none\n{fence}\nor\n{fence}bash\ntwo\n{fence}"},
        {"role": "user", "content": "Give exactly ONE command."},
    ]
    file = tmp_path / "one.traj.json"
    file.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1", "messages": messages}))
    [session] = read_session(file)
    blocks = [block for entry in session.messages for block in as_blocks(entry.message or {"content": []})]
    assert [block["type"] for block in blocks] == ["text", "text", "tool_use", "tool_result", "text", "text"]
    use, result = blocks[2], blocks[3]
    assert use["input"] == {"command": "ls -la"}
    assert result["tool_use_id"] == use["id"]
    assert blocks[4]["text"].count(fence) == 4, "two commands are none: the program refuses such a reply"
