"""Clear now or carry on: never at a loss, and never before carrying has cost as much as clearing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.cache.economics import (
    CLASSIC,
    ClearingOption,
    Compaction,
    Forecast,
    RelativeRates,
    Verdict,
    call_price,
    choose_ttl,
    turns_ahead,
    weigh_clearing,
    weigh_compaction,
)
from reverie.values import replace

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
    verdict = weigh_clearing(clearing, forecast, ttl=ttl, tail_ttl=tail_ttl)
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
    verdict = weigh_clearing(clearing, forecast, ttl=ttl, tail_ttl="5m")
    longer = weigh_clearing(clearing, replace(forecast, turns=forecast.turns + turns), ttl=ttl, tail_ttl="5m")
    larger = weigh_clearing(replace(clearing, frees=clearing.frees + more), forecast, ttl=ttl, tail_ttl="5m")
    for better in (longer, larger):
        assert better.net >= verdict.net - 1e-6
        assert better.act or not verdict.act


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, st.integers(1, 50_000))
def test_more_to_rewrite_and_a_greater_risk_never_speak_for_it(clearing: ClearingOption, forecast: Forecast, more: int):
    verdict = weigh_clearing(clearing, forecast, ttl="5m", tail_ttl="5m")
    dearer = replace(clearing, settled=clearing.settled + more, settled_live=clearing.settled_live + more)
    riskier = replace(forecast, need=forecast.need + 0.1)
    for worse in (
        weigh_clearing(dearer, forecast, ttl="5m", tail_ttl="5m"),
        weigh_clearing(clearing, riskier, ttl="5m", tail_ttl="5m"),
    ):
        lost = worse.act and not verdict.act
        # What is dead must be written anyway, without what was cleared: only there a rewrite may come for free.
        assert not lost or not (clearing.settled_live or clearing.tail_live)


@pytest.mark.requirement("C7")
@given(frees=st.integers(1_000, 100_000), rest=tokens, turns=st.floats(3, 200))
def test_on_a_cold_cache_it_costs_nothing_and_is_done(frees: int, rest: int, turns: float):
    clearing = ClearingOption(1, frees, rest, 0, 0, 0, carried=0.0)
    verdict = weigh_clearing(clearing, Forecast(turns, 1 / 40, frees), ttl="5m", tail_ttl="5m")
    assert verdict.cost == 0
    assert verdict.act


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("paid", "acts"), [(0.0, False), (1_149.0, False), (1_150.0, True), (9_999.0, True)])
def test_it_waits_until_carrying_has_cost_as_much_as_clearing_would(paid: float, acts: bool):
    clearing = ClearingOption(1, 10_000, 1_000, 0, 1_000, 0, carried=paid)
    verdict = weigh_clearing(clearing, Forecast(100.0, 0.0, 50_000), ttl="5m", tail_ttl="5m")
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
        ClearingOption(1, 10, 9_000, 0, 9_000, 0, 0.0), Forecast(3.0, 0.0, 9_000), ttl="5m", tail_ttl="5m"
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
    assert choose_ttl(pauses=pauses, requests=requests) == ttl


@given(st.integers(0, 50), st.integers(0, 2_000))
def test_more_pauses_never_shorten_the_lifetime(pauses: int, requests: int):
    if choose_ttl(pauses=pauses, requests=requests) == "1h":
        assert choose_ttl(pauses=pauses + 1, requests=requests) == "1h"


def test_a_provider_without_a_dearer_lifetime_keeps_everything_long():
    flat = RelativeRates(write_1h=1.25)
    assert choose_ttl(pauses=0, requests=0, rates=flat) == "1h"


@pytest.mark.requirement("C7")
def test_compacting_is_nearly_free_when_the_cache_is_cold_and_dear_while_it_lives():
    cold = weigh_compaction(Compaction(120_000, 20_000), turns=10, need=0.5, margin=1.5)
    live = weigh_compaction(Compaction(120_000, 20_000, live=120_000), turns=10, need=0.5, margin=1.5)
    assert cold.act
    assert cold.net > 0
    assert not live.act
    called = Compaction(120_000, 20_000, call=call_price(120_000, live=0, output=5_000))
    assert weigh_compaction(called, turns=3, need=0.5, margin=1.5).cost > cold.cost
    assert call_price(120_000, live=120_000, output=0) < 0.1 * call_price(120_000, live=0, output=0)
    assert not weigh_compaction(Compaction(10_000, 10_000), turns=50, need=0.0).act  # nothing leaves, nothing is saved
