"""Flattening: rich entries to alternating messages."""

from __future__ import annotations

from typing import Any

import pytest

from log_script import Script, call, text
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems


@pytest.mark.requirement("K7")
def test_progress_system_and_ephemeral_entries_are_dropped():
    script = Script()
    script.user("hi")
    script.add("progress", {"message": {"role": "user", "content": "50 %"}})
    script.add("system", {"message": {"role": "user", "content": "hook ran"}})
    script.add("attachment", {"ephemeral": True, "content": "spinner"})
    assert script.messages == [{"role": "user", "content": "hi"}]


@pytest.mark.requirement("K7")
def test_consecutive_user_messages_merge():
    script = Script()
    script.user("one")
    script.user([text("two")])
    assert script.messages == [{"role": "user", "content": [text("one"), text("two")]}]


@pytest.mark.requirement("K7")
def test_pieces_of_one_reply_merge_past_attachments():
    script = Script()
    script.user("go")
    script.reply(text("thinking aloud"), id="m")
    script.add("attachment", {"type": "date", "content": "It is Monday."})
    script.reply(call("t1"), id="m")
    script.result("t1")
    messages = script.messages
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == [text("thinking aloud"), call("t1")]
    assert [block["type"] for block in messages[2]["content"]] == ["tool_result", "text"]


@pytest.mark.requirement("K7")
def test_the_search_for_the_first_piece_stops_at_a_user_message_or_another_reply():
    script = Script()
    script.user("go")
    script.reply(call("t1"), id="m")
    script.result("t1")
    script.reply(call("t2"), id="m")
    script.result("t2")
    assert [message["role"] for message in script.messages] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.requirement("K7")
def test_attachments_join_the_user_message_before_them_or_stand_alone():
    script = Script()
    script.user("hello")
    script.add("attachment", {"type": "note", "content": "a note"})
    script.reply(text("hi"))
    script.add("attachment", {"type": "note", "content": "another"})
    assert script.messages[0]["content"] == [text("hello"), text("a note")]
    assert script.messages[2] == {"role": "user", "content": "another"}


@pytest.mark.requirement("K8")
def test_results_come_first_and_a_result_nobody_asked_for_becomes_text():
    script = Script()
    script.user("go")
    script.reply(call("t1"), call("t2"))
    script.user([text("wait"), {"type": "tool_result", "tool_use_id": "lost", "content": "left over"}])
    script.result("t2", "two")
    content = script.messages[2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text", "text"]
    assert [block["tool_use_id"] for block in content[:2]] == ["t2", "t1"]
    assert "left over" in content[3]["text"]
    assert "interrupted" in content[1]["content"]


@pytest.mark.requirement("K8")
def test_a_reply_after_an_unanswered_call_gets_stub_results_in_between():
    script = Script()
    script.user("go")
    script.reply(call("t1"), id="a")
    script.reply(text("never mind"), id="b")
    assert [message["role"] for message in script.messages] == ["user", "assistant", "user", "assistant"]
    assert script.messages[2]["content"][0]["tool_use_id"] == "t1"


@pytest.mark.requirement("K8")
def test_signed_thinking_stays_byte_equal_and_unsigned_thinking_is_absent():
    signed = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    script = Script()
    script.user("go")
    script.reply({"type": "thinking", "thinking": "loose", "signature": ""}, signed, text("so"))
    assert script.messages[1]["content"][0] is signed
    assert len(script.messages[1]["content"]) == 2


@pytest.mark.requirement("V10")
def test_a_reply_that_ends_in_thinking_or_holds_only_a_signature_goes_back_as_it_came():
    empty = {"type": "thinking", "thinking": "", "signature": "sig"}
    hidden = {"type": "redacted_thinking", "data": "opaque"}
    script = Script()
    script.user("go")
    script.reply(text("I was cut off while"), empty, hidden)
    script.user("go on")
    script.reply(empty)
    assert script.messages[1]["content"] == [text("I was cut off while"), empty, hidden]
    assert script.messages[3]["content"] == [empty]


@pytest.mark.requirement("K8")
def test_an_id_used_twice_is_a_call_once():
    script = Script()
    script.user("go")
    script.reply(call("t1"))
    script.result("t1")
    script.reply(call("t1"), text("again"))
    script.result("t1", "second")
    messages = script.messages
    assert [block["type"] for block in messages[3]["content"]] == ["text", "text"]
    assert messages[4]["content"][0]["type"] == "text"
    assert "second" in messages[4]["content"][0]["text"]


SIGNED = {"type": "compaction", "content": "A summary.", "signature": "sig", "tool_changes": None}


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "mcp_tool_listing", "mcp_server_name": "files", "tools": [{"name": "a"}]},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
        {"type": "compaction", "content": "Made at a threshold."},
        {"type": "compaction", "content": None},
    ],
)
def test_a_block_that_a_provider_returned_goes_back_as_it_came(block: dict[str, Any]):
    script = Script()
    script.user("go")
    script.reply(block, text("so"))
    assert script.messages[1]["content"][0] is block
    script.user("more")
    script.reply({**block, "made_up": 1}, text("so"))
    assert script.messages[3]["content"][0] == block


@pytest.mark.requirement("V10")
def test_a_signed_summary_opens_the_conversation_as_a_message_of_its_own():
    script = Script()
    script.reply({**SIGNED, "citations": None}, text("so"))
    script.user("more")
    roles = [(message["role"], message["content"]) for message in build_request(script.view)["messages"]]
    assert roles[0] == ("assistant", [SIGNED])
    assert roles[1] == ("assistant", [text("so")])
    assert problems(build_request(script.view), betas=["compact-2026-09-04"]) == []


@pytest.mark.requirement("V10")
def test_a_signed_summary_behind_another_message_is_text_because_a_provider_would_refuse_it():
    script = Script()
    script.user("go")
    script.reply(SIGNED)
    script.user("more")
    assert script.messages[1]["content"] == [text("[Summary of the conversation so far]\nA summary.")]
    assert problems(build_request(script.view)) == []
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [SIGNED]}]
    misplaced = {**build_request(script.view), "messages": messages}
    assert [found.code for found in problems(misplaced) if found.code] == ["compaction_block_misplaced"]


@pytest.mark.requirement("V10")
def test_citations_stay_in_a_reply_and_leave_the_text_of_a_user():
    cited = text("so") | {"citations": [{"type": "char_location"}]}
    script = Script()
    script.user([cited])
    script.reply(cited)
    assert script.messages[0]["content"] == [text("so")]
    assert script.messages[1]["content"] == [cited]
