"""Requests are compared by the blocks that a provider caches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixes import extends
from reverie.conversation.wire.canonical import canonical

MARK = {"type": "ephemeral", "ttl": "1h"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_tools_come_first_then_system_then_messages() -> None:
    request = {
        "messages": [{"role": "user", "content": "hi"}],
        "system": "be brief",
        "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
    }
    assert canonical(request) == [
        b'tool:{"name":"Read","input_schema":{"type":"object"}}',
        b'system:{"type":"text","text":"be brief"}',
        b'user:{"type":"text","text":"hi"}',
    ]


def test_model_and_options_are_no_blocks() -> None:
    assert canonical({"model": "m", "max_tokens": 3, "messages": []}) == []


def test_a_string_equals_one_text_block() -> None:
    assert canonical({"messages": [{"role": "user", "content": "hi"}]}) == canonical(
        {"messages": [{"role": "user", "content": [text("hi")]}]}
    )


def test_two_messages_of_one_role_equal_one_merged_message() -> None:
    apart = [{"role": "user", "content": "a"}, {"role": "user", "content": [text("b")]}]
    merged = [{"role": "user", "content": [text("a"), text("b")]}]
    assert canonical({"messages": apart}) == canonical({"messages": merged})


def test_the_role_counts() -> None:
    assert canonical({"messages": [{"role": "user", "content": "a"}]}) != canonical(
        {"messages": [{"role": "assistant", "content": "a"}]}
    )


@pytest.mark.requirement("K6")
def test_the_order_of_keys_counts() -> None:
    block = {"type": "tool_use", "id": "a", "name": "n", "input": {"x": 1, "y": 2}}
    swapped = {"type": "tool_use", "id": "a", "name": "n", "input": {"y": 2, "x": 1}}
    first, second = ({"messages": [{"role": "assistant", "content": [item]}]} for item in (block, swapped))
    assert canonical(first) != canonical(second)


@pytest.mark.requirement("K6")
def test_markers_do_not_count_not_even_inside_results_and_the_request_is_untouched() -> None:
    plain = {
        "tools": [{"name": "Read", "input_schema": {}}],
        "system": [text("s")],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": [text("r"), text("t")]}],
            }
        ],
    }
    marked = copy.deepcopy(plain)
    marked["tools"][0]["cache_control"] = MARK
    marked["system"][0]["cache_control"] = MARK
    result: Any = marked["messages"][0]["content"][0]
    result["cache_control"] = MARK
    result["content"][0]["cache_control"] = MARK
    before = copy.deepcopy(marked)
    assert canonical(marked) == canonical(plain)
    assert marked == before


def test_a_key_named_like_the_marker_inside_an_input_is_kept() -> None:
    block = {"type": "tool_use", "id": "a", "name": "n", "input": {"cache_control": 1}}
    assert b'"cache_control":1' in canonical({"messages": [{"role": "assistant", "content": [block]}]})[0]


def test_one_sequence_extends_another_only_when_it_begins_with_all_of_it() -> None:
    assert extends([], [])
    assert extends([b"a"], [b"a", b"b"])
    assert not extends([b"a", b"b"], [b"a"])
    assert not extends([b"a", b"x"], [b"a", b"b", b"c"])


ROLES = st.sampled_from(["user", "assistant"])
MESSAGES = st.lists(st.tuples(ROLES, st.lists(st.text(max_size=3), min_size=1, max_size=3)), max_size=6)


@pytest.mark.requirement("K6")
@given(MESSAGES, MESSAGES, st.integers(0, 5), st.text(max_size=3))
def test_an_appended_request_extends_and_an_edited_one_does_not(
    first: list[tuple[str, list[str]]], more: list[tuple[str, list[str]]], place: int, words: str
) -> None:
    def request(turns: list[tuple[str, list[str]]]) -> dict[str, Any]:
        return {"messages": [{"role": role, "content": [text(item) for item in items]} for role, items in turns]}

    earlier = canonical(request(first))
    assert extends(earlier, canonical(request(first + more)))
    if first:
        role, items = first[place % len(first)]
        edited = list(first)
        edited[place % len(first)] = (role, [items[0] + words + "!", *items[1:]])
        assert not extends(earlier, canonical(request(edited + more)))


@given(st.recursive(st.none() | st.text() | st.binary() | st.floats(), lambda inner: st.lists(inner, max_size=2)))
def test_anything_at_all_has_canonical_blocks(value: Any) -> None:
    for request in ({"messages": value}, {"system": value}, {"messages": [{"role": "user", "content": [value]}]}):
        assert all(isinstance(block, bytes) for block in canonical(request))


def test_lone_surrogates_do_not_raise() -> None:
    assert canonical({"messages": [{"role": "user", "content": "\ud800"}]}) == [b'user:{"type":"text","text":"?"}']
