"""Clear now or carry on: never at a loss, and never before carrying has cost as much as clearing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.cache.economics import (
    ClearingOption,
    Compaction,
    Forecast,
    Verdict,
    call_price,
    choose_ttl,
    turns_ahead,
    weigh_clearing,
    weigh_compaction,
)
from reverie.cache.prices import prices_for, rates_of
from reverie.model_facts import facts_of
from reverie.values import replace

CLASSIC = rates_of(None, facts_of("claude-sonnet-4-5"))

tokens = st.integers(0, 200_000)
shares = st.floats(0, 1)
ttls = st.sampled_from(["5m", "1h"])


@st.composite
def clearings(draw: st.DrawFn) -> ClearingOption:
    settled, tail = draw(tokens), draw(tokens)
    return ClearingOption(
        items=draw(st.integers(1, 50)),
        frees=draw(tokens),
        settled=settled,
        tail=tail,
        settled_live=round(settled * draw(shares)),
        tail_live=round(tail * draw(shares)),
        carried=draw(st.floats(0, 1e6)),
    )


forecasts = st.builds(Forecast, turns=st.floats(3, 500), need=st.floats(0, 0.2), window=tokens)


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, ttls, ttls)
def test_a_clearing_is_done_only_where_it_saves_more_than_it_costs(
    clearing: ClearingOption, forecast: Forecast, ttl: str, tail_ttl: str
):
    verdict = weigh_clearing(clearing, forecast, ttl=ttl, tail_ttl=tail_ttl, rates=CLASSIC)
    assert verdict.cost >= 0
    if verdict.act:
        assert verdict.saves > verdict.cost
        assert clearing.carried >= verdict.cost
    else:
        assert verdict.saves <= verdict.cost or clearing.carried < verdict.cost


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, ttls, st.integers(0, 50_000), st.floats(0, 300))
def test_more_to_free_and_more_turns_to_come_never_speak_against_it(
    clearing: ClearingOption, forecast: Forecast, ttl: str, more: int, turns: float
):
    verdict = weigh_clearing(clearing, forecast, ttl=ttl, tail_ttl="5m", rates=CLASSIC)
    longer = weigh_clearing(
        clearing, replace(forecast, turns=forecast.turns + turns), ttl=ttl, tail_ttl="5m", rates=CLASSIC
    )
    larger = weigh_clearing(
        replace(clearing, frees=clearing.frees + more), forecast, ttl=ttl, tail_ttl="5m", rates=CLASSIC
    )
    for better in (longer, larger):
        assert better.net >= verdict.net - 1e-6
        assert better.act or not verdict.act


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, st.integers(1, 50_000))
def test_more_to_rewrite_and_a_greater_risk_never_speak_for_it(clearing: ClearingOption, forecast: Forecast, more: int):
    verdict = weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m", rates=CLASSIC)
    dearer = replace(clearing, settled=clearing.settled + more, settled_live=clearing.settled_live + more)
    riskier = replace(forecast, need=forecast.need + 0.1)
    for worse in (
        weigh_clearing(dearer, forecast, ttl="5m", tail_ttl="5m", rates=CLASSIC),
        weigh_clearing(clearing, riskier, ttl="5m", tail_ttl="5m", rates=CLASSIC),
    ):
        lost = worse.act and not verdict.act
        # What is dead must be written anyway, without what was cleared: only there a rewrite may come for free.
        assert not lost or not (clearing.settled_live or clearing.tail_live)


@pytest.mark.requirement("C7")
@given(frees=st.integers(1_000, 100_000), rest=tokens, turns=st.floats(3, 200))
def test_on_a_cold_cache_it_costs_nothing_and_is_done(frees: int, rest: int, turns: float):
    clearing = ClearingOption(1, frees, rest, 0, 0, 0, carried=0.0)
    verdict = weigh_clearing(clearing, Forecast(turns, 1 / 40, frees), ttl="5m", tail_ttl="5m", rates=CLASSIC)
    assert verdict.cost == 0
    assert verdict.act


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("paid", "acts"), [(0.0, False), (1_149.0, False), (1_150.0, True), (9_999.0, True)])
def test_it_waits_until_carrying_has_cost_as_much_as_clearing_would(paid: float, acts: bool):
    clearing = ClearingOption(1, 10_000, 1_000, 0, 1_000, 0, carried=paid)
    verdict = weigh_clearing(clearing, Forecast(100.0, 0.0, 50_000), ttl="5m", tail_ttl="5m", rates=CLASSIC)
    assert verdict.cost == pytest.approx(1_150.0)  # (1.25 - 0.1) x 1,000
    assert verdict.act is acts


def played(*, arrives: int, rest: int, turns: int) -> tuple[float, float]:
    """Carry results as they come, clear by the rule; return what that cost and what the best plan would."""
    price = (CLASSIC.write_5m - CLASSIC.read) * rest
    paid = carried = 0.0
    held = 0
    for _ in range(turns):
        held += arrives
        if carried >= price:
            paid += price
            held, carried = 0, 0.0
        paid += CLASSIC.read * held
        carried += CLASSIC.read * held
    batches = (_batched(arrives, price, turns, size) for size in range(1, turns + 1))
    return paid, min(batches)


def _batched(arrives: int, price: float, turns: int, size: int) -> float:
    """Return what it costs to clear after every so many turns."""
    cost, held = 0.0, 0
    for turn in range(turns):
        held += arrives
        if turn and turn % size == 0:
            cost += price
            held = 0
        cost += CLASSIC.read * held
    return cost


@pytest.mark.requirement("C7")
@given(arrives=st.integers(100, 5_000), rest=st.integers(100, 60_000), turns=st.integers(1, 150))
def test_renting_until_it_has_cost_the_price_is_never_more_than_twice_the_best_batch(
    arrives: int, rest: int, turns: int
):
    paid, best = played(arrives=arrives, rest=rest, turns=turns)
    assert paid <= 2.0 * best + 1e-6


def test_a_rule_that_clears_every_turn_is_caught():
    price = (CLASSIC.write_5m - CLASSIC.read) * 60_000
    paid, best = price * 100, played(arrives=100, rest=60_000, turns=100)[1]
    assert paid > 2.0 * best


def test_a_verdict_says_why_in_words():
    keep = weigh_clearing(
        ClearingOption(1, 10, 9_000, 0, 9_000, 0, 0.0),
        Forecast(3.0, 0.0, 9_000),
        ttl="5m",
        tail_ttl="5m",
        rates=CLASSIC,
    )
    assert isinstance(keep, Verdict)
    assert "carrying on is cheaper" in keep.reason


@pytest.mark.parametrize(
    ("turns", "window", "limit", "expected"),
    [(0, 10, 100_000, 3.0), (40, 30_000, 1_000_000, 40.0), (40, 50_000, 60_000, 10.0), (40, 70_000, 60_000, 3.0)],
)
def test_as_many_turns_are_expected_as_there_were_until_the_window_is_full(
    turns: int, window: int, limit: int, expected: float
):
    assert turns_ahead(turns=turns, window=window, opening=10_000, limit=limit) == expected


@given(st.integers(0, 500), st.integers(0, 300_000), st.integers(0, 300_000), st.integers(1, 300_000))
def test_there_is_always_a_little_to_come_and_never_more_than_there_was(
    turns: int, window: int, opening: int, limit: int
):
    assert 3.0 <= turns_ahead(turns=turns, window=window, opening=opening, limit=limit) <= max(3.0, turns)


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    ("pauses", "requests", "ttl"), [(0, 0, "5m"), (0, 500, "5m"), (1, 3, "1h"), (3, 30, "1h"), (1, 400, "1h")]
)
def test_the_long_lifetime_is_for_those_who_pause(pauses: int, requests: int, ttl: str):
    assert choose_ttl(pauses=pauses, requests=requests, rates=CLASSIC) == ttl


@given(st.integers(0, 50), st.integers(0, 2_000))
def test_more_pauses_never_shorten_the_lifetime(pauses: int, requests: int):
    if choose_ttl(pauses=pauses, requests=requests, rates=CLASSIC) == "1h":
        assert choose_ttl(pauses=pauses + 1, requests=requests, rates=CLASSIC) == "1h"


def test_a_provider_without_a_dearer_lifetime_keeps_everything_long():
    flat = replace(CLASSIC, write_1h=1.25)
    assert choose_ttl(pauses=0, requests=0, rates=flat) == "1h"


@pytest.mark.requirement("C7")
def test_compacting_is_nearly_free_when_the_cache_is_cold_and_dear_while_it_lives():
    cold = weigh_compaction(Compaction(120_000, 20_000), turns=10, need=0.5, margin=1.5, rates=CLASSIC)
    live = weigh_compaction(Compaction(120_000, 20_000, live=120_000), turns=10, need=0.5, margin=1.5, rates=CLASSIC)
    assert cold.act
    assert cold.net > 0
    assert not live.act
    called = Compaction(120_000, 20_000, call=call_price(120_000, live=0, output=5_000, rates=CLASSIC))
    assert weigh_compaction(called, turns=3, need=0.5, margin=1.5, rates=CLASSIC).cost > cold.cost
    assert call_price(120_000, live=120_000, output=0, rates=CLASSIC) < 0.1 * call_price(
        120_000, live=0, output=0, rates=CLASSIC
    )
    assert not weigh_compaction(
        Compaction(10_000, 10_000), turns=50, need=0.0, rates=CLASSIC
    ).act  # nothing leaves, nothing is saved


HAIKU = rates_of(prices_for("claude-haiku-5-5"), facts_of("claude-haiku-5-5"))
"""Above 100,000 tokens every kind of token costs five times as much."""


@pytest.mark.requirement("V15", "C7")
@pytest.mark.parametrize(
    ("model", "read"), [("claude-sonnet-4-5", 0.1), ("claude-opus-5-5", 0.05), ("claude-fable-5-1", 0.025)]
)
def test_ratios_are_those_of_the_model_with_and_without_a_price_list(model: str, read: float):
    for prices in (prices_for(model), None):
        rates = rates_of(prices, facts_of(model))
        assert (rates.read, rates.write_5m, rates.write_1h, rates.output) == pytest.approx((read, 1.25, 2.0, 5.0))


@pytest.mark.requirement("V15", "C7")
def test_the_turns_after_which_a_clearing_pays_follow_from_the_read_price():
    # A token written again for each token freed: 12 turns at 0.1, 24 at 0.05, 49 at 0.025.
    for model, turns in (("claude-sonnet-4-5", 12), ("claude-opus-5-5", 24), ("claude-fable-5-1", 49)):
        rates = rates_of(None, facts_of(model))
        clearing = ClearingOption(1, 10_000, 10_000, 0, 10_000, 0, carried=1e9)
        acts = [
            weigh_clearing(clearing, Forecast(n, 0.0, 50_000), ttl="5m", tail_ttl="5m", rates=rates).act
            for n in (turns - 1, turns + 1)
        ]
        assert acts == [False, True], model


@pytest.mark.requirement("V15", "C7")
def test_a_step_of_the_price_is_in_the_rates():
    assert HAIKU.at(100_000).read == pytest.approx(0.1)
    assert HAIKU.at(100_001).read == pytest.approx(0.5)
    assert HAIKU.carrying(100_001) == pytest.approx(50_000.5)
    assert call_price(120_000, live=0, output=0, rates=HAIKU) == pytest.approx(5 * 1.25 * 120_000)


@pytest.mark.requirement("V15", "C7")
def test_crossing_a_price_step_back_pays_where_the_same_clearing_does_not_without_it():
    clearing = ClearingOption(1, 30_000, 60_000, 0, 60_000, 0, carried=0.1 * 30_000 * 4)
    forecast = Forecast(5.0, 0.0, 120_000, growth=1_000)
    plain = replace(HAIKU, steps=())
    assert not weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m", rates=plain).act
    assert weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m", rates=HAIKU).act
    compaction = Compaction(120_000, 40_000, live=120_000)
    assert not weigh_compaction(compaction, turns=5, need=0.1, growth=1_000, rates=plain).act
    assert weigh_compaction(compaction, turns=5, need=0.1, growth=1_000, rates=HAIKU).act


@pytest.mark.requirement("V15", "C7")
@given(
    window=st.integers(10_000, 300_000),
    share=st.floats(0.01, 0.99),
    turns=st.floats(1, 60),
    growth=st.floats(0, 20_000),
)
def test_saved_reads_equal_the_sum_of_every_turn(window: int, share: float, turns: float, growth: float):
    frees = int(window * share)
    clearing = ClearingOption(1, frees, 0, 0, 1, 0, carried=0.0)
    forecast = Forecast(turns, 0.0, window, growth)
    saves = weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m", rates=HAIKU).saves
    slices = 4_000
    exact = sum(
        HAIKU.carrying(window + growth * at) - HAIKU.carrying(window - frees + growth * at)
        for at in ((number + 0.5) * turns / slices for number in range(slices))
    )
    assert saves == pytest.approx(exact * turns / slices, rel=0.01, abs=HAIKU.carrying(window + growth * turns) * 0.01)


@pytest.mark.requirement("C7")
def test_lost_thinking_is_priced_as_output():
    clearing = ClearingOption(1, 30_000, 10_000, 0, 10_000, 0, carried=1e9)
    forecast = Forecast(10.0, 0.0, 80_000)
    kept = weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m", rates=CLASSIC)
    lost = weigh_clearing(replace(clearing, lost_thinking=4_000), forecast, ttl="5m", tail_ttl="5m", rates=CLASSIC)
    assert (kept.act, lost.act) == (True, False)
    assert lost.cost - kept.cost == pytest.approx(5.0 * 4_000)
    compaction = Compaction(120_000, 20_000)
    cheap = weigh_compaction(compaction, turns=10, need=0.1, rates=CLASSIC)
    dear = weigh_compaction(replace(compaction, lost_thinking=50_000), turns=10, need=0.1, rates=CLASSIC)
    assert dear.cost - cheap.cost == pytest.approx(5.0 * 50_000)
    assert (cheap.act, dear.act) == (True, False)
