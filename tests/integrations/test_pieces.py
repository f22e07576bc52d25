"""A host's history becomes pieces that are recognised again in any spelling of the host."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.integrations import history_pieces as pieces
from reverie.integrations.history_pieces import (
    HistoryPiece,
    HistoryReader,
    ReplyIndex,
    common_length,
    content_key,
    detached,
    pieces_of,
    reply_key,
)
from reverie.integrations.session_history import kept_positions

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
    assert content_key("a") != content_key("b")
    assert content_key("a") == content_key([{"type": "text", "text": "a"}])


def test_a_reply_in_two_messages_is_one() -> None:
    pieces = pieces_of([{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}])
    assert [piece.kind for piece in pieces] == ["reply"]


def message(number: int) -> dict[str, Any]:
    """Return one of the messages that hosts send."""
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [{"type": "text", "text": f"{number}"}]}
    said = {"type": "text", "text": f"say {number}"}
    return {"role": "assistant" if number % 3 == 0 else "user", "content": [said] if number % 3 < 2 else [result, said]}


KINDS = ["add", "empty", "write", "mark", "drop", "cut", "fork"]
EDITS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9)), max_size=14)


def read_while_edited(reader: HistoryReader, edits: list[tuple[str, int]]) -> None:
    """Do to a history what hosts do, and hold what is read against what a first reading gives."""
    history: list[dict[str, Any]] = []
    branches: list[list[dict[str, Any]]] = []
    read: list[HistoryPiece] = []
    for number, (kind, at) in enumerate(edits):
        branches.append(deepcopy(history))
        before = deepcopy(read)
        written = history[at % len(history)]["content"] if history else []
        if kind == "write" and written:
            written[-1]["text"] += "!"
        elif kind == "mark" and written:
            written[0]["cache_control"] = MARK
        elif kind == "drop" and history:
            del history[at % len(history)]
        elif kind == "cut":
            del history[at:]
        elif kind == "fork":
            history = branches[at % len(branches)]
        else:
            history.append({"role": "user", "content": []} if kind == "empty" else message(number + at))
        assert read == before, "what was read is out of the host's reach"
        read = reader.pieces(history)
        assert read == pieces_of(history)


@settings(max_examples=60)
@given(EDITS)
def test_a_history_is_read_as_if_for_the_first_time_whatever_the_host_did_to_it(edits: list[tuple[str, int]]) -> None:
    """``read_while_edited`` asserts it after each edit; the twin below shows that it can fail."""
    read_while_edited(HistoryReader(), edits)


def test_a_reader_that_trusts_the_host_not_to_write_into_its_messages_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "detached", lambda value: value)
    with pytest.raises(AssertionError):
        read_while_edited(HistoryReader(), [("add", 1), ("add", 1), ("write", 0)])


def test_a_reader_that_keeps_a_reply_which_goes_on_past_an_empty_message_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HistoryReader, "_ends_a_piece", lambda self, at: self._messages[at]["role"] != "assistant")
    with pytest.raises(AssertionError):
        read_while_edited(HistoryReader(), [("add", 1), ("add", 2), ("empty", 0), ("add", 3), ("cut", 3)])


def test_what_is_held_apart_does_not_change_with_the_hosts_and_equals_it_until_then() -> None:
    @dataclass
    class Picture:
        url: str

    class Locked:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot be copied")

    given = {"many": ("a", [Picture("a.png")]), "data": b"x"}
    kept = detached(given)
    assert kept == given
    given["many"][1][0].url = "b.png"
    assert kept != given
    thing = Locked()
    assert detached(thing) != thing


def test_equal_replies_are_found_in_their_order_and_what_cannot_be_compared_is_new() -> None:
    known: ReplyIndex[str] = ReplyIndex()
    for key, reply in ((b"yes", "first"), (b"no", "only"), (b"yes", "second")):
        known.add(key, reply)
    assert known.found([b"yes", b"no", b"yes"]) == ["first", "only", "second"]
    assert known.found([b"no", b"yes"]) == ["only", "second"]
    assert known.found([b"yes", b"yes", b"yes", b"maybe"]) == [None, "first", "second", None]

    class Stubborn:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    assert common_length([1, Stubborn()], [1, Stubborn()]) == 0


WORDS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12)


@given(WORDS, WORDS)
def test_what_is_kept_and_what_is_new_give_the_hosts_history(known: list[bytes], host: list[bytes]) -> None:
    kept = kept_positions(known, host)
    assert kept == sorted(set(kept))
    assert [known[at] for at in kept] + host[len(kept) :] == host


@given(WORDS, st.integers(0, 12))
def test_a_history_whose_past_was_dropped_is_known_whole(tail: list[bytes], dropped: int) -> None:
    known = [b"old-%d" % number for number in range(dropped)] + tail
    assert len(kept_positions(known, tail)) == len(tail)
