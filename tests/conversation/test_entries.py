"""One line of the log: its content, and that nothing in it is lost."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.entries import Entry, decode_entry, encode_entry, iso, new_uuid, seconds

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("K1")
@given(
    kind=st.text(min_size=1, max_size=12),
    body=st.dictionaries(st.text(max_size=8), JSON, max_size=5),
    extra=st.dictionaries(st.text(min_size=1, max_size=8).map("x_".__add__), JSON, max_size=3),
)
def test_unknown_kinds_and_fields_survive_a_round_trip(kind: str, body: dict[str, object], extra: dict[str, object]):
    entry = Entry(new_uuid(), None, iso(1.5), "s", kind, body, extra)
    line = encode_entry(entry)
    again = decode_entry(line)
    assert again == entry
    assert encode_entry(again) == line
    assert b"\n" not in line


@pytest.mark.requirement("K1")
def test_a_line_of_a_later_version_keeps_what_this_one_does_not_know():
    line = (
        b'{"uuid":"u","parent":"p","time":"2030-01-01T00:00:00.000Z","session":"s","kind":"hologram",'
        b'"body":{"a":[1,{"b":null}]},"schema":9}'
    )
    entry = decode_entry(line)
    assert (entry.kind, entry.body, dict(entry.extra)) == ("hologram", {"a": [1, {"b": None}]}, {"schema": 9})
    assert json.loads(encode_entry(entry)) == json.loads(line)


@pytest.mark.parametrize(
    "value", ["\ud800 lone", math.nan, math.inf, 2**80, {1: 2}, (1, 2), b"\xff", {"deep": {"er": {"\udfff"}}}]
)
def test_what_json_cannot_carry_is_made_plain_and_never_raises(value: object):
    line = encode_entry(Entry("u", None, "", "s", "user", {"value": value}))
    assert decode_entry(line).uuid == "u"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "not an entry"),
        (b"{", "not JSON"),
        (b'{"kind":"user","uuid":"u"}', "no 'body'"),
        (b'{"kind":1,"uuid":"u","body":{}}', "strings"),
        (b'{"kind":"user","uuid":"u","body":{},"time":5}', "strings"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_entry_says_why(line: bytes, reason: str):
    with pytest.raises(ValueError, match=reason.replace("[", r"\[")):
        decode_entry(line)


@given(st.floats(0, 4e9))
def test_times_are_written_to_the_millisecond(at: float):
    assert abs(seconds(iso(at)) - at) <= 0.0011


def test_a_time_that_cannot_be_read_is_zero():
    assert seconds("yesterday") == 0.0
