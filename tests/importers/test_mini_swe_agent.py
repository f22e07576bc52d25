from __future__ import annotations

from typing import Any

import pytest

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
