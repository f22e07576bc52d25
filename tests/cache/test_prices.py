"""Prices by any spelling of a model; ratios are pinned, not amounts, which a table may change."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reverie.cache.prices import DollarRates, Prices, listed_window, prices_for
from reverie.cache.usage import Usage
from reverie.conversation.tokens.window import window_for

SONNET = "claude-sonnet-4-5"


def priced(model: str) -> Prices:
    found = prices_for(model)
    assert found is not None
    return found


@pytest.mark.parametrize("model", [SONNET, "claude-opus-4-5", "claude-haiku-4-5", "claude-3-5-haiku-latest"])
def test_a_read_costs_a_tenth_a_write_a_quarter_more_and_an_hour_double(model: str) -> None:
    found = priced(model)
    assert found.cache_read == pytest.approx(0.1 * found.input)
    assert found.cache_write_5m == pytest.approx(1.25 * found.input)
    assert found.cache_write_1h == pytest.approx(2 * found.input)
    assert found.output > found.input


@pytest.mark.parametrize(
    "spelling",
    [
        "anthropic:claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5[1m]",
        " Claude-Sonnet-4-5 ",
        "claude-sonnet-4-5@20250929",
        "litellm/anthropic/claude-sonnet-4-5",
    ],
)
def test_a_model_is_known_by_every_spelling(spelling: str) -> None:
    assert priced(spelling).base == priced(SONNET).base
    assert priced(spelling).source.startswith("genai-prices: ")


@pytest.mark.parametrize(
    "spelling", ["us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"]
)
def test_a_cloud_that_resells_a_model_has_its_own_price(spelling: str) -> None:
    assert "aws" in priced(spelling).source


@pytest.mark.parametrize("name", ["nope", "", "claude-test", "<synthetic>", "llama:7b-mine", ":", "/", "x" * 5_000])
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert prices_for(name) is None
    assert listed_window(name) is None


def test_a_provider_without_a_price_for_writes_bills_them_as_input() -> None:
    found = priced("gpt-5")
    assert found.cache_write_5m == found.cache_write_1h == found.input
    assert found.cache_read < found.input


def test_a_call_costs_the_sum_of_its_kinds() -> None:
    prices = Prices(10, 50, 1, 12.5, 20)
    assert prices.cost(1_000_000) == pytest.approx(1)
    assert prices.cost(write_5m=1_000_000, write_1h=1_000_000) == pytest.approx(32.5)
    assert prices.cost_of(Usage(1_000, 1_000, 1_000, 1_000, 1_000)) == pytest.approx(0.0935)


def test_a_long_request_is_priced_whole_at_its_tier() -> None:
    long = DollarRates(6, 20, 0.6, 7.5, 12)
    prices = Prices(3, 15, 0.3, 3.75, 6, tiers=((200_000, long),))
    assert prices.cost(uncached=200_000) == pytest.approx(0.6)
    assert prices.cost(uncached=200_001) == pytest.approx(1.200006)
    assert prices.cost(read=150_000, write_5m=100_000, output=1_000) == pytest.approx(0.09 + 0.75 + 0.02)


def test_the_tables_own_tiers_are_honoured() -> None:
    found = priced("gemini-2.5-pro")
    assert found.tiers
    start, rates = found.tiers[0]
    assert rates.input > found.input
    assert found.cost(uncached=start + 1) > 1.5 * found.cost(uncached=start)


def test_prices_are_those_of_the_time_that_is_asked_for() -> None:
    before, after = prices_for("claude-opus-4-6", at=1_771_000_000.0), prices_for("claude-opus-4-6", at=1_790_000_000.0)
    assert before is not None
    assert after is not None
    assert before.tiers
    assert not after.tiers
    assert after == prices_for("claude-opus-4-6")


@pytest.mark.requirement("T5")
def test_the_price_list_has_the_windows_of_models_that_the_facts_do_not_name() -> None:
    found = window_for("openai:gpt-4", lookup=listed_window)
    assert (found.tokens, found.source) == (8_192, "prices")
    assert window_for("claude-opus-4-6", lookup=listed_window).source == "facts"
    assert window_for("nope", lookup=listed_window).source == "strict"
    assert priced("claude-sonnet-4-5[1m]").window_tokens == 1_000_000


def test_the_table_is_read_only_when_a_price_is_asked_for() -> None:
    code = "import sys, reverie.cache.prices; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
