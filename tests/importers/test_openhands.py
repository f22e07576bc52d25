from __future__ import annotations

import json
from typing import Any

import pytest

from reverie.conversation.decisions import Collapsed, decision_of

pytestmark = pytest.mark.requirement("D3")


def test_one_line_is_one_session_and_calls_of_one_response_are_one_reply(recordings: Any) -> None:
    first, second = recordings.imported("openhands")
    assert [first.session_id, second.session_id] == ["shop__till-1", "shop__till-2"]
    assert (first.model, first.system, first.cost_usd) == ("openai/llama", "You are OpenHands.", 0.75)
    assert first.tools == [{"name": "execute_bash", "description": "Run.", "input_schema": {"type": "object"}}]
    replies = [entry for entry in first.messages if entry.kind == "assistant"]
    assert [reply.reply["id"] for reply in replies] == ["gen-1", "gen-2"]
    assert [block["type"] for block in replies[0].message["content"]] == ["text", "tool_use", "tool_use"]
    assert replies[0].reply["usage"]["input_tokens"] == 50


def test_call_ids_that_start_anew_in_every_reply_are_told_apart(recordings: Any) -> None:
    first, _ = recordings.imported("openhands")
    results = [entry.message["content"][0] for entry in first.messages if isinstance(entry.message["content"], list)]
    found = [(one["tool_use_id"], one["content"]) for one in results if one["type"] == "tool_result"]
    assert found == [("toolu_01", "a.py"), ("toolu_02", "b.py"), ("toolu_01-2", "c.py")]


def test_an_observation_without_a_call_is_a_message(recordings: Any) -> None:
    first, _ = recordings.imported("openhands")
    assert first.messages[-1].message == {"role": "user", "content": "the model could not be reached"}
    assert first.skipped == {"bookkeeping: recall": 2}


def test_a_condensation_folds_the_span_it_names(recordings: Any) -> None:
    run = recordings.openhands_run("x")
    forgotten = {"forgotten_events_start_id": 4, "forgotten_events_end_id": 7, "summary": "looked around"}
    run["history"].append({"id": 11, "source": "agent", "action": "condensation", "args": forgotten})
    [found] = recordings.import_rows([run])
    made = decision_of(found.entries[-1].body)
    assert isinstance(made, Collapsed)
    assert made.text == "looked around"
    assert (made.first, made.last) == (found.entries[2].uuid, found.entries[4].uuid)


def test_pairs_of_the_older_generation_are_read_in_order(recordings: Any) -> None:
    run = recordings.openhands_run("x")
    run["history"] = [run["history"][at : at + 2] for at in range(0, 10, 2)] + [[run["history"][10]]]
    [found] = recordings.import_rows([run])
    [same] = recordings.import_rows([recordings.openhands_run("x")])
    assert found.entries == same.entries


def test_a_run_whose_line_is_broken_gives_its_intact_events(recordings: Any) -> None:
    whole = recordings.openhands_run("x")
    cut = json.dumps(recordings.openhands_run("y")).encode()
    cut = cut[: cut.index(b'"c.py"')]
    found = recordings.import_bytes(json.dumps(whole).encode() + b"\n" + cut, "output.jsonl")
    assert [one.session_id for one in found] == ["x", "y"]
    assert len(found[1].messages) == 5
    assert found[0].damage[0].line == 2
