"""Windows and their thresholds: the source of the window, each threshold, and overrides that can only lower it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.tokens.window import (
    WINDOW_VARIABLE,
    Thresholds,
    Window,
    WindowPolicy,
    capped,
    thresholds,
    window_for,
)
from reverie.errors import InputError
from reverie.model_facts import facts_of
from reverie.values import replace

ENVIRONMENT = {WINDOW_VARIABLE: "300_000"}
BETAS = ["oauth-2025-04-20,context-1m-2025-08-07"]
Draw = Callable[[Window, WindowPolicy], Thresholds]


def lookup(model: str) -> int | None:
    return 400_000 if model == "listed" else None


def window(tokens: int, max_output_tokens: int | None = None) -> Window:
    return Window(tokens, "strict", max_output_tokens)


def draw(window: Window, policy: WindowPolicy) -> Thresholds:
    return thresholds(window, policy=policy)


@pytest.mark.requirement("T5")
@pytest.mark.parametrize(
    ("model", "betas", "reported", "environment", "tokens", "source"),
    [
        ("claude-sonnet-4-5[1m]", BETAS, 500_000, ENVIRONMENT, 1_000_000, "suffix"),
        ("other [1M] ", [], None, {}, 1_000_000, "suffix"),
        ("claude-sonnet-4-5", BETAS, 500_000, ENVIRONMENT, 1_000_000, "beta"),
        ("claude-sonnet-4-5", [], 500_000, ENVIRONMENT, 500_000, "provider"),
        ("claude-sonnet-4-5", ["context-2m"], None, ENVIRONMENT, 200_000, "facts"),
        ("anthropic:claude-opus-5-5-20260801", [], None, {}, 1_000_000, "facts"),
        ("listed", [], None, ENVIRONMENT, 300_000, "environment"),
        ("listed", [], None, {WINDOW_VARIABLE: " "}, 400_000, "prices"),
        ("other", [], None, {}, 200_000, "strict"),
        ("claude-fable-9", [], None, {}, 200_000, "strict"),
        ("", [], None, {}, 200_000, "strict"),
    ],
)
def test_the_first_answer_in_order_is_the_window(
    model: str, betas: list[str], reported: int | None, environment: dict[str, str], tokens: int, source: str
) -> None:
    found = window_for(model, reported=reported, lookup=lookup, betas=betas, environment=environment)
    assert (found.tokens, found.source) == (tokens, source)


@pytest.mark.requirement("T5")
def test_a_correction_of_the_window_is_used_before_the_price_list() -> None:
    facts = facts_of("listed", {"list*": {"window_tokens": 16_000, "max_output_tokens": 4_000}})
    found = window_for("listed", facts=facts, lookup=lookup, environment=ENVIRONMENT)
    assert (found.tokens, found.source, found.max_output_tokens) == (16_000, "facts", 4_000)


@pytest.mark.requirement("T5")
def test_the_largest_output_is_that_of_the_facts() -> None:
    assert window_for("claude-opus-5-5").max_output_tokens == 128_000
    assert window_for("claude-haiku-4-5[1m]").max_output_tokens == 64_000
    assert window_for("claude-3-5-haiku-latest").max_output_tokens == 8_192


@pytest.mark.requirement("T5")
@pytest.mark.parametrize("value", ["many", "-5", "0", "1e6", "²"])
def test_an_environment_that_makes_no_sense_is_refused_by_name(value: str) -> None:
    with pytest.raises(InputError, match=WINDOW_VARIABLE):
        window_for("other", environment={WINDOW_VARIABLE: value})


@pytest.mark.requirement("T6")
@pytest.mark.parametrize(
    ("tokens", "max_output", "effective", "compact", "blocking", "warning"),
    [
        (200_000, 64_000, 180_000, 167_000, 177_000, 147_000),
        (200_000, None, 180_000, 167_000, 177_000, 147_000),
        (200_000, 8_192, 191_808, 178_808, 188_808, 158_808),
        (1_000_000, 64_000, 980_000, 967_000, 977_000, 947_000),
    ],
)
def test_the_lines_of_ordinary_windows(
    tokens: int, max_output: int | None, effective: int, compact: int, blocking: int, warning: int
) -> None:
    lines = thresholds(window(tokens), max_output)
    assert (lines.effective, lines.auto_compact, lines.blocking) == (effective, compact, blocking)
    assert lines.warning == lines.error == warning
    assert thresholds(window(tokens, max_output)) == lines


@pytest.mark.requirement("T6")
def test_reaching_a_line_counts_not_only_passing_it() -> None:
    lines = thresholds(window(200_000))
    assert [lines.should_compact(used) for used in (166_999, 167_000, 167_001)] == [False, True, True]
    levels = [lines.level(used) for used in (146_999, 147_000, 167_000, 177_000)]
    assert levels == ["fine", "error", "compact", "blocked"]


@pytest.mark.requirement("T6")
def test_without_auto_compact_lines_and_percents_hang_from_the_effective_window() -> None:
    lines = thresholds(window(200_000), policy=WindowPolicy(auto_compact=False))
    assert (lines.warning, lines.error, lines.base) == (160_000, 160_000, 180_000)
    assert not lines.should_compact(179_999)
    assert lines.percent_left(90_000) == 50


@pytest.mark.requirement("T6")
def test_percent_left_is_a_whole_number_that_stops_at_zero() -> None:
    lines = thresholds(window(200_000))
    assert [lines.percent_left(used) for used in (0, 83_500, 165_330, 167_000, 500_000)] == [100, 50, 1, 0, 0]


def check_only_lowers(draw: Draw, tokens: int, policy: WindowPolicy) -> None:
    plain = draw(window(tokens), WindowPolicy())
    lowered = draw(window(tokens), policy)
    assert lowered.window <= plain.window
    assert lowered.effective <= plain.effective
    assert lowered.auto_compact <= plain.auto_compact
    assert lowered.blocking <= plain.blocking


policies = st.builds(
    WindowPolicy,
    window_tokens=st.none() | st.integers(1, 3_000_000),
    compact_percent=st.none() | st.floats(0, 100, exclude_min=True),
)


@pytest.mark.requirement("T7")
@given(st.integers(1, 2_000_000), policies)
def test_overrides_only_lower(tokens: int, policy: WindowPolicy) -> None:
    check_only_lowers(draw, tokens, policy)


@pytest.mark.requirement("T7")
def test_the_override_check_catches_a_percent_taken_at_its_word() -> None:
    def obeying(window: Window, policy: WindowPolicy) -> Thresholds:
        lines = thresholds(window)
        percent = policy.compact_percent
        return lines if percent is None else replace(lines, auto_compact=int(lines.effective * percent / 100))

    with pytest.raises(AssertionError):
        check_only_lowers(obeying, 200_000, WindowPolicy(compact_percent=99))


@pytest.mark.requirement("T7")
def test_overrides_by_example() -> None:
    assert thresholds(window(200_000), policy=WindowPolicy(compact_percent=50)).auto_compact == 90_000
    assert thresholds(window(200_000), policy=WindowPolicy(window_tokens=100_000)).effective == 80_000
    assert thresholds(window(200_000), policy=WindowPolicy(window_tokens=500_000)) == thresholds(window(200_000))


@pytest.mark.requirement("T7")
@pytest.mark.parametrize(
    "policy", [WindowPolicy(compact_percent=0), WindowPolicy(compact_percent=100.5), WindowPolicy(window_tokens=0)]
)
def test_an_override_out_of_range_is_refused(policy: WindowPolicy) -> None:
    with pytest.raises(InputError):
        thresholds(window(200_000), policy=policy)


def check_order(lines: Thresholds) -> None:
    assert 0 <= lines.warning <= lines.auto_compact <= lines.blocking <= lines.effective <= lines.window
    assert lines.effective * 4 >= lines.window * 3
    assert lines.auto_compact >= lines.effective * 0.9


@pytest.mark.requirement("T8")
@given(st.integers(1, 2_000_000), st.none() | st.integers(0, 200_000))
def test_the_lines_of_any_window_stand_in_order_and_leave_room_to_work(tokens: int, max_output: int | None) -> None:
    check_order(thresholds(window(tokens), max_output))


@pytest.mark.requirement("T8")
def test_the_order_check_catches_constants_that_do_not_shrink() -> None:
    rigid = WindowPolicy(output_reserve=(20_000, 1), auto_compact_buffer=(13_000, 1), warning_buffer=(20_000, 1))
    with pytest.raises(AssertionError):
        check_order(thresholds(window(24_000), policy=rigid))


@pytest.mark.requirement("T8")
def test_a_small_window_scales_every_constant() -> None:
    lines = thresholds(window(32_000), 8_000)
    assert lines.effective == 24_000
    assert (lines.auto_compact, lines.blocking, lines.warning) == (22_080, 23_520, 19_200)


@pytest.mark.requirement("T8")
def test_a_number_of_tokens_is_at_most_its_share_of_a_window() -> None:
    assert [capped(10_000, 0.06, size) for size in (-1, 24_000, 180_000, 980_000)] == [0, 1_440, 10_000, 10_000]
