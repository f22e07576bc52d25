from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.entries import Entry, decode_entry, encode_entry
from reverie.importers import ImportedSession

pytestmark = pytest.mark.requirement("D3")


def blocks(found: ImportedSession, kind: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for entry in found.messages:
        content = (entry.message or {})["content"]
        out += [block for block in content if block["type"] == kind] if isinstance(content, list) else []
    return out


def uses(found: ImportedSession) -> list[str]:
    return [block["id"] for block in blocks(found, "tool_use")]


def answers(found: ImportedSession) -> list[str]:
    return [block["tool_use_id"] for block in blocks(found, "tool_result")]


def compactions(found: ImportedSession) -> list[Compacted]:
    made = [decision_of(entry.body) for entry in found.entries if entry.kind == "decision"]
    return [one for one in made if isinstance(one, Compacted)]


def said(found: ImportedSession) -> list[str]:
    return [entry.message["content"] for entry in found.messages if isinstance((entry.message or {})["content"], str)]  # type: ignore[index]


def plain_leaf_walk(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The known-bad twin: follow parents from the last line and keep nothing else."""
    by_uuid = {row["uuid"]: row for row in rows}
    out, at = [], rows[-1]["uuid"]
    while at in by_uuid:
        out.append(by_uuid[at])
        at = by_uuid[at]["parentUuid"]
    return out[::-1]


def test_messages_keep_the_wire_shape_and_replies_keep_what_the_provider_said(recordings: Any) -> None:
    [found] = recordings.imported("claude-code")
    assert found.format == "claude-code"
    assert (found.session_id, found.title, found.cwd) == (recordings.session, "Till repairs", "/home/ada/shop")
    assert found.model == "claude-opus-4-5"
    for entry in found.messages:
        assert set(entry.message or {}) == {"role", "content"}
    reply = next(entry.reply for entry in found.entries if entry.uuid == "uuid-3")
    assert reply["id"] == "msg_a"
    assert reply["request_id"] == "req_3"
    assert reply["usage"]["cache_read_input_tokens"] == 100


def test_the_first_entry_is_metadata_and_each_entry_is_the_parent_of_the_next(recordings: Any) -> None:
    [found] = recordings.imported("claude-code")
    meta = found.entries[0]
    assert meta.kind == "meta"
    assert meta.body["source"] == {"format": "claude-code", "name": "session.jsonl"}
    assert meta.body["schema"] == 1
    assert [entry.parent for entry in found.entries] == [None, *(entry.uuid for entry in found.entries[:-1])]
    assert all(decode_entry(encode_entry(entry)) == entry for entry in found.entries)


def test_parallel_results_that_hang_on_a_sibling_are_not_lost(recordings: Any) -> None:
    [found] = recordings.imported("claude-code")
    assert uses(found) == ["toolu_1", "toolu_2"]
    assert answers(found) == ["toolu_1", "toolu_2"]


@given(st.data())
def test_no_shape_of_parallel_calls_loses_a_use_or_a_result(recordings: Any, data: st.DataObject) -> None:
    """One reply of n calls, results in any order, the next turn hanging on any of the results."""
    count = data.draw(st.integers(1, 6))
    order = data.draw(st.permutations(range(count)))
    rows = [recordings.line(0, "user", None, "go")]
    rows += [recordings.line(1 + at, "assistant", at, [recordings.use(f"t{at}")], id="msg_x") for at in range(count)]
    for place, at in enumerate(order):
        row = recordings.line(100 + at, "user", 1 + at, [recordings.result(f"t{at}")])
        rows.insert(data.draw(st.integers(max(2 + at, len(rows) - place), len(rows))), row)
    rows.append(recordings.line(200, "assistant", 100 + data.draw(st.sampled_from(order)), [recordings.text("ok")]))
    [found] = recordings.import_rows(rows)
    assert sorted(uses(found)) == sorted(answers(found)) == sorted(f"t{at}" for at in range(count))
    kinds = [entry.kind for entry in found.messages]
    assert kinds == ["user", *["assistant"] * count, *["user"] * count, "assistant"]


def test_a_plain_leaf_walk_would_lose_siblings_and_the_check_above_sees_it(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "go"),
        recordings.line(1, "assistant", 0, [recordings.use("t0")], id="msg_x"),
        recordings.line(2, "assistant", 1, [recordings.use("t1")], id="msg_x"),
        recordings.line(3, "user", 1, [recordings.result("t0")]),
        recordings.line(4, "user", 2, [recordings.result("t1")]),
        recordings.line(5, "assistant", 4, [recordings.text("ok")]),
    ]
    kept = [row["message"]["content"] for row in plain_leaf_walk(rows)]
    assert [recordings.result("t0")] not in kept
    [found] = recordings.import_rows(rows)
    assert answers(found) == ["t0", "t1"]


def test_a_result_that_came_while_the_reply_still_streamed_follows_the_whole_reply(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "go"),
        recordings.line(1, "assistant", 0, [recordings.use("t0")], id="msg_x"),
        recordings.line(2, "user", 1, [recordings.result("t0")]),
        recordings.line(3, "assistant", 2, [recordings.use("t1")], id="msg_x"),
        recordings.line(4, "user", 3, [recordings.result("t1")]),
        recordings.line(5, "assistant", 4, [recordings.text("ok")]),
    ]
    [found] = recordings.import_rows(rows)
    assert [entry.uuid for entry in found.messages] == [f"uuid-{at}" for at in (0, 1, 3, 2, 4, 5)]


def test_what_was_rewound_is_counted_and_not_imported(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "go"),
        recordings.line(1, "assistant", 0, [recordings.text("which way?")]),
        recordings.line(2, "user", 1, "left"),
        recordings.line(3, "assistant", 2, [recordings.use("t_left")]),
        recordings.line(4, "user", 3, [recordings.result("t_left")]),
        recordings.line(5, "user", 1, "right"),
        recordings.line(6, "assistant", 5, [recordings.text("right it is")]),
    ]
    [found] = recordings.import_rows(rows)
    assert [entry.uuid for entry in found.messages] == [f"uuid-{at}" for at in (0, 1, 5, 6)]
    assert found.skipped["abandoned branch"] == 3


def test_a_compaction_becomes_a_decision_and_its_summary_is_said_once(recordings: Any) -> None:
    [found] = recordings.imported("claude-code")
    [made] = compactions(found)
    assert (made.trigger, made.method, made.tokens_before) == ("manual", "full", 4321)
    assert made.summary == "They fixed half of the till."
    assert (made.last_before, made.first_kept) == ("uuid-8", None)
    assert made.summary not in said(found)
    assert said(found) == ["fix the till", "now the other half"]


def test_the_summary_would_be_said_twice_if_the_mark_were_not_read(recordings: Any) -> None:
    """The known-bad twin: the same file without the mark keeps the summary as an ordinary message."""
    data = recordings.bytes_of("claude-code").replace(b'"isCompactSummary": true', b'"isCompactSummary": false')
    [found] = recordings.import_bytes(data)
    assert "They fixed half of the till." in said(found)
    assert compactions(found) == []
    assert found.skipped["compaction without a readable summary"] == 1


def test_the_segment_a_compaction_preserved_stays(recordings: Any) -> None:
    data = recordings.bytes_of("claude-code").replace(
        b'"preTokens": 4321', b'"preTokens": 4321, "preservedSegment": {"headUuid": "uuid-8", "tailUuid": "uuid-8"}'
    )
    [found] = recordings.import_bytes(data)
    assert compactions(found)[0].first_kept == "uuid-8"


def test_a_boundary_whose_parent_was_never_written_is_joined_to_what_came_before(recordings: Any) -> None:
    data = recordings.bytes_of("claude-code").replace(
        b'"logicalParentUuid": "uuid-8"', b'"logicalParentUuid": "uuid-lost"'
    )
    [found] = recordings.import_bytes(data)
    assert said(found) == ["fix the till", "now the other half"]
    assert found.skipped["lost parent (joined to the message before it)"] == 1


def test_side_chains_are_sessions_of_their_own(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "go"),
        recordings.line(1, "assistant", 0, [recordings.use("t0", "Task")]),
        recordings.line(2, "user", None, "look into it", isSidechain=True, agentId="a1"),
        recordings.line(3, "assistant", 2, [recordings.text("looked")], isSidechain=True, agentId="a1"),
        recordings.line(4, "user", 1, [recordings.result("t0")]),
        recordings.line(5, "user", None, "another", isSidechain=True),
        recordings.line(6, "assistant", 5, [recordings.text("done")], isSidechain=True),
    ]
    main, *sides = recordings.import_rows(rows)
    assert [entry.uuid for entry in main.messages] == ["uuid-0", "uuid-1", "uuid-4"]
    assert main.agent is None
    assert [side.agent for side in sides] == ["a1", "uuid-5"]
    assert [len(side.messages) for side in sides] == [2, 2]
    assert sides[0].session_id == f"{recordings.session}.agent-a1"


def test_replies_that_were_made_up_locally_are_never_sent(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "go"),
        recordings.line(
            1, "assistant", 0, [recordings.text("API Error: 529")], model="<synthetic>", isApiErrorMessage=True
        ),
        recordings.line(2, "user", 1, "again"),
        recordings.line(3, "user", 2, "<local-command-stdout>ok</local-command-stdout>", isMeta=True),
        recordings.line(4, "system", 3, subtype="turn_duration", durationMs=3),
        recordings.line(5, "system", 4, "switched model", subtype="informational"),
        recordings.line(6, "attachment", 5, attachment={"type": "file", "filename": "a", "content": "A"}),
    ]
    [found] = recordings.import_rows(rows)
    assert [entry.kind for entry in found.entries[1:]] == ["user", "system", "user", "user", "system", "attachment"]
    assert found.entries[2].message is None
    assert found.entries[4].body["meta"] is True
    assert found.entries[6].message == {"role": "user", "content": "a:\nA"}
    assert found.skipped == {"bookkeeping: turn_duration": 1}


def test_two_sessions_spliced_into_one_file_are_both_read(recordings: Any) -> None:
    rows = [recordings.line(0, "user", None, "one"), recordings.line(1, "assistant", 0, [recordings.text("1")])]
    other = [
        recordings.line(10, "user", None, "two", sessionId="other"),
        recordings.line(11, "assistant", 10, [recordings.text("2")], sessionId="other"),
    ]
    found = recordings.import_rows([*rows, *other])
    assert {one.session_id: len(one.messages) for one in found} == {"other": 2, recordings.session: 2}


def test_parents_that_go_round_in_circles_end(recordings: Any) -> None:
    rows = [recordings.line(0, "user", 1, "a"), recordings.line(1, "user", 0, "b"), recordings.line(2, "user", 2, "c")]
    [found] = recordings.import_rows(rows)
    assert [entry.uuid for entry in found.messages] == ["uuid-0", "uuid-1", "uuid-2"]


def test_a_session_name_cannot_leave_its_directory(recordings: Any) -> None:
    [found] = recordings.import_rows([recordings.line(0, "user", None, "a", sessionId="../../etc/passwd")])
    assert "/" not in found.session_id
    assert not found.session_id.startswith(".")


def test_every_line_of_a_large_session_is_accounted_for(recordings: Any, seed: int) -> None:
    """Entries, counted lines and damage together are the lines of the file."""
    chance = random.Random(seed)
    rows = [recordings.line(0, "user", None, "go")]
    for at in range(1, 400):
        kind = chance.choice(["user", "assistant", "progress", "strange"])
        content = "more" if kind == "user" else [recordings.text("ok")]
        rows.append(recordings.line(at, kind, chance.randrange(max(0, at - 3), at), content))
    [found] = recordings.import_rows(rows)
    entries: list[Entry] = list(found.entries[1:])
    assert len(entries) + sum(found.skipped.values()) == len(rows)
