from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.requirement("D3")


def test_calls_find_their_results_even_where_an_id_is_used_twice(recordings: Any) -> None:
    [found] = recordings.imported("swe-agent")
    assert (found.system, found.model, found.cwd, found.cost_usd) == ("SETTING", "gpt-4o", "/testbed", 1.5)
    uses = [entry.message["content"][1] for entry in found.messages if entry.kind == "assistant"]
    results = [entry.message["content"][0] for entry in found.messages if isinstance(entry.message["content"], list)]
    results = [block for block in results if block["type"] == "tool_result"]
    assert [use["id"] for use in uses] == ["call_x", "call_x-2"]
    assert [(one["tool_use_id"], one["content"]) for one in results] == [("call_x", "a.py"), ("call_x-2", "b.py")]
    assert uses[0]["input"] == {"command": "ls"}


def test_demonstrations_are_kept_and_flagged(recordings: Any) -> None:
    [found] = recordings.imported("swe-agent")
    assert found.entries[1].body["demo"] is True
    assert found.title == "Solve it"


def test_the_older_generation_says_observations_as_user_messages(recordings: Any) -> None:
    history = [
        {"role": "system", "content": "S", "agent": "primary"},
        {"role": "user", "content": "Solve", "agent": "primary"},
        {"role": "assistant", "content": "ls", "thought": "t", "action": "ls", "agent": "primary"},
        {"role": "user", "content": "a.py", "agent": "primary"},
    ]
    document = {"environment": "e", "trajectory": [], "history": history, "info": {}}
    [found] = recordings.import_bytes(json.dumps(document, indent=2).encode(), "old.traj")
    assert [entry.message["content"] for entry in found.messages] == ["Solve", "ls", "a.py"]


def test_other_agents_and_attempts_are_sessions_of_their_own(recordings: Any) -> None:
    history = [
        {"role": "user", "content": "Solve", "agent": "main"},
        {"role": "user", "content": "Judge", "agent": "reviewer"},
    ]
    attempt = {"trajectory": [], "history": history, "info": {}}
    found = recordings.import_bytes(json.dumps({"attempts": [attempt, attempt]}).encode(), "many.traj")
    assert [one.session_id for one in found] == [
        "many",
        "many.agent-reviewer",
        "many.attempt-2.agent-main",
        "many.attempt-2.agent-reviewer",
    ]


def test_a_file_cut_before_its_history_is_rebuilt_from_its_steps(recordings: Any) -> None:
    data = recordings.bytes_of("swe-agent")
    [found] = recordings.import_bytes(data[: data.index(b'"history"')], "cut.traj")
    assert [entry.message["content"] for entry in found.messages] == ["Look.", "a.py"]
    assert found.damage
