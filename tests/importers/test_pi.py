from __future__ import annotations

from typing import Any

import pytest

from reverie.conversation.decisions import Compacted, decision_of

pytestmark = pytest.mark.requirement("D3")


def test_calls_results_thinking_and_usage_take_the_shape_of_the_wire(recordings: Any) -> None:
    [found] = recordings.imported("pi")
    assert (found.session_id, found.cwd, found.model) == (recordings.session, "/home/ada", "m2")
    reply, result = found.entries[2], found.entries[3]
    assert reply.message == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig=="},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
        ],
    }
    assert reply.reply["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 90,
        "output_tokens": 5,
    }
    assert reply.reply["stop_reason"] == "tool_use"
    assert result.message is not None
    assert result.message["content"][0]["is_error"] is True
    assert found.cost_usd == 0.5


def test_a_reply_that_was_aborted_before_a_word_is_not_sent(recordings: Any) -> None:
    [found] = recordings.imported("pi")
    assert [entry.kind for entry in found.entries] == [
        "meta", "user", "assistant", "user", "assistant", "user", "system", "decision", "user", "user",
    ]  # fmt: skip


def test_a_compaction_keeps_the_tail_it_names_by_place(recordings: Any) -> None:
    [found] = recordings.imported("pi")
    made = next(decision_of(entry.body) for entry in found.entries if entry.kind == "decision")
    assert isinstance(made, Compacted)
    assert (made.summary, made.tokens_before) == ("They read a.", 112)
    assert made.first_kept == found.entries[5].uuid
    assert found.entries[5].message == {"role": "user", "content": "and b?"}


def test_a_tree_is_read_along_its_newest_branch(recordings: Any) -> None:
    def said(id: str, parent: str | None, words: str) -> dict[str, Any]:
        message = {"role": "user", "content": words}
        return {"type": "message", "id": id, "parentId": parent, "timestamp": "t", "message": message}

    rows = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"},
        said("a", None, "one"),
        said("b", "a", "two"),
        said("c", "a", "another two"),
        {
            "type": "compaction", "id": "d", "parentId": "c", "timestamp": "t",
            "summary": "so far", "firstKeptEntryId": "c", "tokensBefore": 9,
        },
        said("e", "d", "three"),
    ]  # fmt: skip
    [found] = recordings.import_rows(rows)
    assert [entry.uuid for entry in found.entries[1:]] == ["a", "c", "d", "e"]
    assert found.skipped["abandoned branch"] == 1
    made = decision_of(found.entries[3].body)
    assert isinstance(made, Compacted)
    assert made.first_kept == "c"
