"""A host's history becomes pieces that are known again however the host spells them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reverie.integrations.pieces import digest_of, pieces_of, reply_key
from reverie.integrations.seams import aligned

MARK = {"type": "ephemeral"}


def test_results_come_before_what_is_said_in_the_same_message() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
    pieces = pieces_of([{"role": "user", "content": [{"type": "text", "text": "and now?"}, result]}])
    assert [(piece.kind, piece.id) for piece in pieces] == [("result", "t1"), ("said", "")]


def test_markers_thinking_and_empty_fields_do_not_count() -> None:
    bare = [{"type": "text", "text": "Hi."}, {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}}]
    worn = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "text", "text": "Hi.", "citations": None, "cache_control": MARK},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}, "caller": None},
    ]
    assert reply_key(bare) == reply_key(worn)
    (one,) = pieces_of([{"role": "user", "content": "hello"}])
    (other,) = pieces_of([{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": MARK}]}])
    assert one.key == other.key
    assert "cache_control" not in other.content[0]


def test_a_changed_word_an_edited_call_and_another_id_do_count() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}}
    keys = {reply_key([one]) for one in (call, {**call, "input": {"a": 2}}, {**call, "id": "t2"})}
    assert len(keys) == 3
    assert digest_of("a") != digest_of("b")
    assert digest_of("a") == digest_of([{"type": "text", "text": "a"}])


def test_a_reply_in_two_messages_is_one() -> None:
    pieces = pieces_of([{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}])
    assert [piece.kind for piece in pieces] == ["reply"]


WORDS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12)


@given(WORDS, WORDS)
def test_what_is_kept_and_what_is_new_give_the_hosts_history(known: list[bytes], host: list[bytes]) -> None:
    kept = aligned(known, host)
    assert kept == sorted(set(kept))
    assert [known[at] for at in kept] + host[len(kept) :] == host


@given(WORDS, st.integers(0, 12))
def test_a_history_whose_past_was_dropped_is_known_whole(tail: list[bytes], dropped: int) -> None:
    known = [b"old-%d" % number for number in range(dropped)] + tail
    assert len(aligned(known, tail)) == len(tail)
