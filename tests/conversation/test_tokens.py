"""Estimates: tokens of a text, a block and a message, and changes that must not affect them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pictures import image_block, png
from reverie.conversation.tokens import estimate as tokens
from reverie.conversation.tokens.estimate import (
    CLASSES,
    MEDIA_TOKENS,
    NOTHING,
    estimate_block,
    estimate_message,
    estimate_request,
    estimate_text,
    measure_block,
    measure_message,
    measure_messages,
)

PROSE = (
    "The harbour was quiet when she arrived, and the boats lay still under a grey sky. Nobody had told her which of "
    "them belonged to the old man, so she walked along the wall and read the names painted on their bows. "
) * 4
CODE = (
    "def fold(entries: list[Entry]) -> View:\n    view = View()\n    for entry in entries:\n"
    "        if entry.kind == 'user' and entry.message is not None:\n            view = view.with_message(entry)\n"
    "    return view\n\n\n"
) * 5
JSON_TEXT = json.dumps([{"id": at, "name": f"item {at}", "tags": ["a", "b"], "price": at * 1.5} for at in range(30)])
CHINESE = "会话日志只追加，是唯一的状态。各层向它追加决定，模型看到的是纯粹的折叠。" * 8
BASE64 = base64.b64encode(random.Random(7).randbytes(900)).decode()

texts = st.text(st.characters(), max_size=400) | st.sampled_from([PROSE, CODE, JSON_TEXT, CHINESE])
plain_texts = st.text("abcdefgh XYZ 0123 .,:;()[]{}\"'\n\t-_/éß漢字🎉", max_size=300)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def text_class(text: str) -> str:
    return tokens.CLASSES[tokens._measured(text)[1]]


def spelled_out(text: str) -> float:
    """Weigh a text one byte at a time, the slow way."""
    weights = [tokens._WEIGHTS[byte] for byte in text.encode("utf-8", "surrogatepass")]
    units, at = sum(weights), 0
    while at < len(weights):
        pair = weights[at : at + 2] == [tokens._MARK, tokens._MARK]
        units -= tokens._MARK if pair else 0
        at += 2 if pair else 1
    return units / tokens._UNIT


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(
    ("text", "kind", "bytes_a_token"),
    [
        (PROSE, "prose", (3.6, 4.8)),
        (CODE, "code", (3.0, 4.8)),
        (JSON_TEXT, "json", (2.0, 3.4)),
        (CHINESE, "cjk", (2.5, 3.6)),
        (BASE64, "base64", (1.2, 1.6)),
    ],
)
def test_each_class_of_text_is_told_and_priced_by_its_own_rate(
    text: str, kind: str, bytes_a_token: tuple[float, float]
) -> None:
    low, high = bytes_a_token
    assert text_class(text) == kind
    assert low <= len(text.encode()) / estimate_text(text) <= high


@pytest.mark.requirement("T2")
def test_four_bytes_a_token_would_miss_json_and_base64() -> None:
    for text in (JSON_TEXT, BASE64):
        assert len(text) / 4 < 0.8 * estimate_text(text)


@pytest.mark.requirement("T2")
@given(texts)
def test_the_quick_sum_is_the_slow_sum(text: str) -> None:
    if text and text_class(text) != "base64":
        assert tokens._measured(text)[0] == pytest.approx(spelled_out(text))


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("char", ["9", "~", "漢", "🎉", "é", "\x00", "\ud800", "z"])
def test_the_quick_sum_does_not_overflow_on_the_heaviest_text(char: str) -> None:
    for size in (1_399, 1_400, 1_401, 20_000):
        assert tokens._measured(char * size)[0] == pytest.approx(spelled_out(char * size))


def check_concatenation(estimate: Callable[[str], float], left: str, right: str) -> None:
    together = estimate(left + right)
    assert together >= 0
    assert together <= estimate(left) + estimate(right) + 1
    assert together + 1 >= max(estimate(left), estimate(right))


@pytest.mark.requirement("T2")
@given(plain_texts, plain_texts)
def test_more_text_is_never_fewer_tokens_and_never_more_than_its_parts(left: str, right: str) -> None:
    if "base64" not in {text_class(part) for part in (left, right, left + right)}:
        check_concatenation(estimate_text, left, right)


@pytest.mark.requirement("T2")
def test_the_concatenation_check_catches_an_estimate_by_first_character() -> None:
    with pytest.raises(AssertionError):
        check_concatenation(lambda text: len(text) * (2 if text[:1] == "{" else 0.25), "plain words", "{}" * 20)


@pytest.mark.requirement("T2")
def test_a_huge_text_is_sampled_and_comes_out_nearly_the_same() -> None:
    whole = (PROSE + CODE + JSON_TEXT) * 200
    parts = sum(estimate_text(whole[at : at + 50_000]) for at in range(0, len(whole), 50_000))
    assert len(whole) > tokens.WHOLE_CHARS
    assert estimate_text(whole) == pytest.approx(parts, rel=0.1)


@pytest.mark.requirement("T2")
def test_an_estimate_takes_as_many_steps_for_a_huge_text_as_for_a_long_one(
    steps_of: Callable[[Callable[[], object]], int],
) -> None:
    long, huge = (CODE * 1_200, CODE * 12_000)
    assert len(long) > tokens.WHOLE_CHARS
    assert steps_of(lambda: estimate_text(huge)) <= 2 * steps_of(lambda: estimate_text(long))


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("kind", ["image", "document"])
def test_media_cost_a_flat_price_also_inside_tool_results_whatever_their_size(kind: str) -> None:
    media = {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": BASE64 * 500}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [media, media]}
    assert estimate_block(media) == MEDIA_TOKENS
    assert estimate_block(result) == 2 * MEDIA_TOKENS + tokens.TOOL_RESULT_TOKENS


@pytest.mark.requirement("T2", "V8")
def test_an_image_costs_what_its_pixels_cost() -> None:
    small, large = (estimate_block(image_block(png(*size))) for size in ((280, 280), (2000, 2000)))
    assert small == 100
    assert large == 4_761
    assert estimate_block(image_block("broken base64")) == MEDIA_TOKENS


def check_signature(estimate: Callable[[Any], float], signature: str) -> None:
    bare = {"type": "thinking", "thinking": PROSE, "signature": ""}
    assert estimate({**bare, "signature": signature}) == estimate(bare) > 0


@pytest.mark.requirement("T2")
@given(st.text(max_size=500))
@pytest.mark.slow
def test_thinking_counts_and_its_signature_does_not(signature: str) -> None:
    check_signature(estimate_block, signature)


@pytest.mark.requirement("T2")
def test_the_signature_check_catches_an_estimate_of_the_serialised_block() -> None:
    with pytest.raises(AssertionError):
        check_signature(lambda block: estimate_text(json.dumps(block)), BASE64)


@pytest.mark.requirement("T2")
def test_a_tool_use_counts_its_name_and_input_and_an_unknown_block_its_serialised_form() -> None:
    small = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    large = {**small, "input": {"command": PROSE}}
    assert estimate_block(large) - estimate_block(small) == pytest.approx(estimate_text(PROSE), rel=0.2)
    assert estimate_block({**small, "name": "a_much_longer_name_of_a_tool"}) > estimate_block(small)
    assert estimate_block({"type": "novelty", "payload": PROSE}) >= estimate_text(PROSE)


@pytest.mark.requirement("T2")
@given(values)
def test_no_content_at_all_makes_an_estimate_fail_or_go_below_zero(value: Any) -> None:
    nested: Any = value
    for _ in range(20):
        nested = {"type": "tool_result", "content": [nested]}
    for content in (
        value,
        [value],
        [nested],
        [{"type": "text", "text": value}],
        [{"type": "thinking", "thinking": value}],
    ):
        assert estimate_message({"role": "user", "content": content}) > 0
    for kind in ("tool_use", "tool_result", "redacted_thinking"):
        assert estimate_block({"type": kind, "name": value, "input": value, "content": value, "data": value}) >= 0
    assert estimate_request([{"content": value}], system=value, tools=[value]) >= 0
    assert estimate_block(object()) > 0


@pytest.mark.requirement("T2")
@given(st.lists(plain_texts, max_size=6))
def test_the_measure_of_messages_is_the_sum_of_their_measures(contents: list[str]) -> None:
    messages = [{"role": "user", "content": content} for content in contents]
    total = NOTHING
    for message in messages:
        total += measure_message(message)
    assert measure_messages(messages) == total
    assert total.total == pytest.approx(sum(total.by_class))
    assert len(total.by_class) == len(CLASSES)


@pytest.mark.requirement("T2")
def test_a_request_counts_its_system_prompt_and_tools() -> None:
    messages = [{"role": "user", "content": "hello"}]
    tool = {"name": "Read", "description": PROSE, "input_schema": {"type": "object"}}
    assert estimate_request(messages) == estimate_message(messages[0])
    with_system = estimate_request(messages, system=[{"type": "text", "text": PROSE}])
    assert with_system == pytest.approx(estimate_message(messages[0]) + estimate_text(PROSE), abs=2)
    assert estimate_request(messages, system=PROSE, tools=[tool]) > with_system + estimate_text(PROSE) * 0.9


@pytest.mark.requirement("T2")
def test_a_measure_keeps_its_classes_apart() -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": CODE}, {"type": "image"}]}
    by_class = dict(zip(CLASSES, measure_block(block).by_class, strict=True))
    assert {kind for kind, amount in by_class.items() if amount} == {"code", "frame", "media"}
