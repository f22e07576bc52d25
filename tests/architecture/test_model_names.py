"""Names of models stand in one data file; prices and facts know the same models, or the difference is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reverie.cache.prices import prices_for
from reverie.model_facts import ModelFacts, facts_of, known_facts
from reverie.values import fields_of

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"
NAME = re.compile(
    r"\b(?:claude-(?!code\b)[a-z]*-?\d|claude-(?:opus|sonnet|haiku|fable|mythos|instant)|gpt-\d|gemini-\d|o[1-9]-[a-z]|"
    r"deepseek-[a-z]|kimi-(?!code\b)[a-z]|(?:sonnet|opus|haiku)-\d)",
    re.IGNORECASE,
)
# Models of the price list that get the strict row of their family on purpose.
ONLY_PRICED = frozenset({"claude-v1"})  # retired long ago
# Known models without a price: the price list does not have them yet.
ONLY_KNOWN = frozenset({"claude-mythos-5", "claude-mythos-5-1"})


def names_in(text: str) -> list[str]:
    """Return the beginnings of model names in a text."""
    return NAME.findall(text)


def priced_models(provider: str = "anthropic") -> set[str]:
    """Return the names of a provider's models in the price list."""
    from genai_prices.data_snapshot import get_snapshot

    found = next(one for one in get_snapshot().providers if one.id == provider)
    return {model.id.removesuffix("-latest") for model in found.models}


@pytest.mark.requirement("V1")
def test_no_code_names_a_model() -> None:
    named = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if names_in(line)
    ]
    assert named == []


@pytest.mark.requirement("V1")
@pytest.mark.parametrize("line", ['MODEL = "claude-opus-5-5"', "gpt-5.5", "o3-mini", "claude-3-5-haiku", "gemini-2.5"])
def test_a_model_name_in_code_is_found(line: str) -> None:
    assert names_in(line)
    assert not names_in('NAME = "claude-code"  # and the prefixes claude- and gpt-')


@pytest.mark.requirement("V1")
def test_facts_and_prices_know_the_same_models_or_the_difference_is_listed() -> None:
    priced = priced_models()
    only_priced = {name for name in priced if facts_of(name).strict}
    named = {name for row in known_facts() if row.name.startswith("claude") for name in row.match if "*" not in name}
    only_known = {name for name in named if prices_for(name) is None}
    print("priced, and only the strict row:", ", ".join(sorted(only_priced)) or "none")
    print("known, without a price:", ", ".join(sorted(only_known)) or "none")
    assert only_priced == ONLY_PRICED
    assert only_known == ONLY_KNOWN


@pytest.mark.requirement("V1")
def test_every_row_has_its_page_and_date_and_is_reached_by_its_own_names() -> None:
    for row in known_facts():
        assert row.source
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)
        for name in row.match:
            if "*" not in name:
                assert facts_of(name) == row, name


@pytest.mark.requirement("V1")
def test_every_fact_is_explained_in_the_documents() -> None:
    page = (SOURCE.parents[1] / "docs" / "reference" / "model-facts.md").read_text()
    frame = {"name", "match", "source", "date", "strict"}
    assert [fact for fact in fields_of(ModelFacts) if fact not in frame and f"`{fact}`" not in page] == []


@pytest.mark.requirement("V1", "V15")
def test_the_ratios_of_facts_and_price_list_agree() -> None:
    for name in sorted(priced_models() | priced_models("openai")):
        prices, facts = prices_for(name), facts_of(name)
        if prices is None or facts.strict or facts.name == "claude-older" or "-image" in name:
            continue
        if prices.cache_read < prices.input:  # a model without a price for the cache has none
            assert prices.cache_read / prices.input == pytest.approx(facts.cache_read), name
        if name.startswith("claude"):
            assert prices.output / prices.input == pytest.approx(facts.output_price), name


@pytest.mark.requirement("V1")
@pytest.mark.parametrize(
    "spelling",
    [
        "claude-opus-5-5",
        " Claude-Opus-5-5 ",
        "anthropic:claude-opus-5-5-20260801",
        "anthropic/claude-opus-5.5",
        "openrouter/anthropic/claude-opus-5.5",
        "claude-opus-5-5[1m]",
        "claude-opus-5-5-latest",
    ],
)
def test_a_model_is_known_by_every_spelling(spelling: str) -> None:
    assert facts_of(spelling).name == "claude-opus-5-5"


@pytest.mark.requirement("V1")
def test_a_cloud_has_limits_of_its_own() -> None:
    direct, bedrock = facts_of("claude-opus-5-5"), facts_of("us.anthropic.claude-opus-5-5-v1:0")
    assert bedrock.name == direct.name
    assert (direct.max_image_bytes, bedrock.max_image_bytes) == (10_000_000, 5_000_000)
    assert direct.reads("claude-haiku-5-5")
    assert not bedrock.reads("claude-haiku-5-5")
    assert {facts_of(f"anthropic.{row.name}").binding_fields[0] for row in known_facts() if row.checks_thinking} == {
        "mismatch_behavior"
    }
    assert facts_of("vertex:claude-opus-5-5@20260801").max_image_bytes == 5_000_000


@pytest.mark.requirement("V1")
def test_an_unknown_model_gets_the_strict_side_of_its_family() -> None:
    strict = facts_of("claude-fable-9")
    known = [row for row in known_facts() if row.name.startswith("claude-") and row.checks_thinking]
    assert strict.strict
    assert strict.prefix_check == "all"
    assert strict.window_tokens <= min(row.window_tokens for row in known)
    assert strict.least_cached_tokens >= max(row.least_cached_tokens for row in known)
    for able in ("system_messages", "turn_scoped_messages", "tool_changes", "message_effort", "sampling", "prefill"):
        assert not getattr(strict, able)
    assert strict.forced_tool_choice == "no"
    assert facts_of("anything-else").name == "other"
