"""Clear now or carry on: never at a loss, and never before carrying has cost as much as clearing."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reverie.cache.economics import (
    CarryingMeter,
    ClearingOption,
    Compaction,
    Forecast,
    RelativeRates,
    SessionBill,
    Verdict,
    call_price,
    compaction_due,
    compaction_price,
    expected_loss,
    max_pings,
    turns_ahead,
    weigh_clearing,
    weigh_compaction,
)
from reverie.cache.prices import prices_for, rates_of
from reverie.cache.usage import Usage
from reverie.model_facts import facts_of
from reverie.values import replace

CLASSIC = rates_of(None, facts_of("claude-sonnet-4-5"))
OPUS = rates_of(None, facts_of("claude-opus-5-5"))
FABLE = rates_of(None, facts_of("claude-fable-5-1"))
"""They read the cache at 0.1, 0.05 and 0.025 of the input price."""
HAIKU = rates_of(prices_for("claude-haiku-5-5"), facts_of("claude-haiku-5-5"))
"""Above 100,000 tokens every kind of token costs five times as much."""

tokens = st.integers(0, 200_000)
shares = st.floats(0, 1)


@st.composite
def clearings(draw: st.DrawFn) -> ClearingOption:
    return ClearingOption(
        items=draw(st.integers(1, 50)), frees=draw(tokens), live=draw(tokens), carried=draw(st.floats(0, 1e6))
    )


forecasts = st.builds(Forecast, turns=st.floats(3, 500), need=st.floats(0, 0.2), window=tokens)


@pytest.mark.requirement("C7")
@given(clearings(), forecasts)
def test_a_clearing_is_done_only_where_it_saves_more_than_it_costs(clearing: ClearingOption, forecast: Forecast):
    verdict = weigh_clearing(clearing, forecast, rates=CLASSIC)
    assert verdict.cost >= 0
    if verdict.act:
        assert verdict.saves > verdict.cost
        assert clearing.carried >= verdict.cost
    else:
        assert verdict.saves <= verdict.cost or clearing.carried < verdict.cost


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, st.integers(0, 50_000), st.floats(0, 300))
def test_more_to_free_and_more_turns_to_come_never_speak_against_it(
    clearing: ClearingOption, forecast: Forecast, more: int, turns: float
):
    verdict = weigh_clearing(clearing, forecast, rates=CLASSIC)
    longer = weigh_clearing(clearing, replace(forecast, turns=forecast.turns + turns), rates=CLASSIC)
    larger = weigh_clearing(replace(clearing, frees=clearing.frees + more), forecast, rates=CLASSIC)
    for better in (longer, larger):
        assert better.net >= verdict.net - 1e-6
        assert better.act or not verdict.act


@pytest.mark.requirement("C7")
@given(clearings(), forecasts, st.integers(1, 50_000))
def test_more_to_rewrite_and_a_greater_risk_never_speak_for_it(clearing: ClearingOption, forecast: Forecast, more: int):
    verdict = weigh_clearing(clearing, forecast, rates=CLASSIC)
    dearer = replace(clearing, live=clearing.live + more)
    riskier = replace(forecast, need=forecast.need + 0.1)
    for worse in (
        weigh_clearing(dearer, forecast, rates=CLASSIC),
        weigh_clearing(clearing, riskier, rates=CLASSIC),
    ):
        lost = worse.act and not verdict.act
        # What is dead must be written anyway, without what was cleared: only there a rewrite may come for free.
        assert not lost or not clearing.live


@pytest.mark.requirement("C7")
@given(frees=st.integers(1_000, 100_000), turns=st.floats(3, 200))
def test_on_a_cold_cache_it_costs_nothing_and_is_done(frees: int, turns: float):
    clearing = ClearingOption(1, frees, 0, carried=0.0)
    verdict = weigh_clearing(clearing, Forecast(turns, 1 / 40, frees), rates=CLASSIC)
    assert verdict.cost == 0
    assert verdict.act


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("paid", "acts"), [(0.0, False), (1_149.0, False), (1_150.0, True), (9_999.0, True)])
def test_it_waits_until_carrying_has_cost_as_much_as_clearing_would(paid: float, acts: bool):
    clearing = ClearingOption(1, 10_000, 1_000, carried=paid)
    verdict = weigh_clearing(clearing, Forecast(100.0, 0.0, 50_000), rates=CLASSIC)
    assert verdict.cost == pytest.approx(1_150.0)  # (1.25 - 0.1) x 1,000
    assert verdict.act is acts


@pytest.mark.requirement("C7")
def test_a_clearing_never_risks_more_than_the_session_has_saved():
    clearing, forecast = ClearingOption(1, 10_000, 1_000, carried=9_999.0), Forecast(100.0, 0.0, 50_000)
    acts = [weigh_clearing(clearing, forecast, rates=CLASSIC, room=room).act for room in (0.0, 1_149.0, 1_150.1)]
    assert acts == [False, False, True]


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
        ClearingOption(1, 10, 9_000, 0.0),
        Forecast(3.0, 0.0, 9_000),
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


def lifetimes(
    pauses: list[bool], *, rates: RelativeRates, growth: list[int], seen: float = 1.0
) -> tuple[list[str], float, float]:
    """Play requests that pause or not; return the lifetimes, and the price with them and with the short one alone.

    The new tokens of a request are estimated as this share ``seen`` of the billed ones.
    """
    account, window, paid, short = SessionBill(), 40_000, 0.0, 0.0
    chosen: list[str] = []
    for at, (paused, grown) in enumerate(zip(pauses, growth, strict=False)):
        life = "cold" if not at or (paused and not account.kept) else "tail dead" if paused else "live"
        window += grown
        held = {"live": account.cached, "tail dead": account.kept, "cold": 0}[life]
        new = window - held
        ttl = account.lifetime(held + round(seen * new), life, rates)
        used = Usage(read=held, **{"write_1h" if ttl == "1h" else "write_5m": new})
        short_held = 0 if paused else account.cached
        paid += rates.read * held + rates.write(ttl) * new
        short += rates.read * short_held + rates.write_5m * (window - short_held)
        account = account.after(used, is_late=paused, pauses=sum(pauses[: at + 1]), requests=at + 1, rates=rates)
        chosen.append(ttl)
    return chosen, paid, short


grown = st.lists(st.integers(0, 20_000), min_size=90, max_size=90)


@pytest.mark.requirement("C3", "C7")
@given(
    pauses=st.lists(st.booleans(), min_size=1, max_size=90),
    growth=grown,
    rates=st.sampled_from([CLASSIC, FABLE]),
    seen=st.sampled_from([0.8, 1.0, 1.2]),
)
@example(pauses=[False] * 40, growth=[0] * 20 + [800] * 20, rates=FABLE, seen=0.8)
def test_the_long_lifetime_never_costs_a_session_more_than_a_hundredth(
    pauses: list[bool], growth: list[int], rates: RelativeRates, seen: float
):
    _, paid, short = lifetimes(pauses, rates=rates, growth=growth, seen=seen)
    assert paid <= 1.01 * short


@pytest.mark.requirement("C3", "C7")
def test_the_long_lifetime_saves_the_rewrites_of_those_who_pause():
    pauses = [at % 10 == 9 for at in range(60)]
    for rates in (CLASSIC, OPUS, FABLE):
        chosen, paid, short = lifetimes(pauses, rates=rates, growth=[300, 2_000] * 30)
        assert "1h" in chosen
        assert chosen.count("1h") < len(chosen) / 2, "now and then, where it writes little"
        assert paid < 0.8 * short


@pytest.mark.requirement("C7")
def test_savings_of_a_compaction_may_be_risked_and_a_prefix_of_another_session_is_no_saving():
    first = SessionBill().after(Usage(read=40_000, write_5m=10_000), is_late=False, pauses=0, requests=1, rates=CLASSIC)
    assert first.spent == first.plain == pytest.approx(0.1 * 40_000 + 1.25 * 10_000)
    assert first.room == pytest.approx(0.0075 * first.plain)
    cut = first.summarised(2_000, CLASSIC)
    assert cut.spent - first.spent == pytest.approx(0.1 * 50_000 + 5 * 2_000)
    cut = cut.after(Usage(read=10_000, write_5m=5_000), is_late=False, pauses=0, requests=2, rates=CLASSIC)
    assert (cut.removed, cut.room < 0) == (35_000, True)
    for at in range(20):
        cut = cut.after(Usage(read=15_000), is_late=False, pauses=0, requests=3 + at, rates=CLASSIC)
    assert cut.room > 35_000, "each request reads 35,000 tokens less"
    assert cut.plain - cut.spent == pytest.approx(21 * 0.1 * 50_000 - 20 * 1_500 - 7_250 - 15_000)
    back = cut.after(
        Usage(write_5m=52_000), is_late=False, pauses=0, requests=23, rates=CLASSIC, is_changed=True
    )  # an undo: the 35,000 tokens come back, with 2,000 new ones
    assert back.removed == 0
    assert back.plain - cut.plain == pytest.approx(0.1 * 50_000 + 1.25 * 2_000)


@pytest.mark.requirement("C7", "V15")
def test_the_price_of_the_long_lifetime_is_that_of_the_window():
    ready = SessionBill(spent=1e6, plain=1e6, risk=3_000.0, cached=119_000)
    assert ready.lifetime(120_000, "live", CLASSIC) == "1h"
    assert ready.lifetime(120_000, "live", HAIKU) == "5m"  # 1,000 tokens at 0.75, five times as dear up here


@pytest.mark.requirement("C7", "V15")
def test_the_first_request_is_not_written_with_the_long_lifetime_although_its_messages_are_empty():
    """A recording may begin with a reply: its first request has an unknown prefix and no messages."""
    assert SessionBill().lifetime(0, "cold", CLASSIC) == "5m"


def test_a_long_lifetime_from_the_first_request_on_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SessionBill, "lifetime", lambda *_: "1h")
    _, paid, short = lifetimes([False] * 5, rates=CLASSIC, growth=[500] * 5)
    assert paid > 1.01 * short


def test_a_provider_without_a_dearer_lifetime_keeps_everything_long():
    flat = replace(CLASSIC, write_1h=1.25)
    assert SessionBill().lifetime(50_000, "cold", flat) == "1h"


@pytest.mark.requirement("C7", "L4.18")
def test_the_price_of_a_compaction_follows_from_the_cache_and_its_summary_call():
    window, after, prefix, output = 150_000, 56_000, 40_000, 6_000
    for rates in (CLASSIC, OPUS, FABLE):
        called = call_price(window, live=window, output=output, rates=rates)
        live = compaction_price(Compaction(window, after, window, prefix, called), rates=rates)
        # While the cache lives, reading the window for the summary replaces reading it for the next request.
        assert live == pytest.approx(5 * output + 1.25 * (after - prefix) + rates.read * prefix)
        asked = call_price(window, live=0, output=output, rates=rates)
        cold = compaction_price(Compaction(window, after, 0, prefix, asked), rates=rates)
        assert cold == pytest.approx(5 * output + 1.25 * after - 0.25 * window)
    # From notes there is no call; the new part must be written all the same.
    assert compaction_price(Compaction(window, after, window, prefix), rates=CLASSIC) == pytest.approx(1.25 * 16_000)
    assert not weigh_compaction(Compaction(10_000, 10_000), turns=50, rates=CLASSIC).act  # nothing leaves


@pytest.mark.requirement("L4.18")
@given(growths=st.lists(st.integers(0, 20_000), min_size=1, max_size=60), rates=st.sampled_from([CLASSIC, OPUS, FABLE]))
def test_the_meter_counts_only_the_part_of_the_window_that_a_compaction_would_remove(
    growths: list[int], rates: RelativeRates
):
    compacted, window, meter, carried = 50_000, 30_000, CarryingMeter(), 0.0
    for grown in growths:
        read, window = window, window + grown
        meter = meter.after(read=read, total=window, output=0, compacted=compacted, rates=rates)
        carried += rates.read * max(0, read - compacted)
    assert meter.spent == pytest.approx(carried)
    # A cold start writes all old content again; only the part above the compacted size counts.
    cold = meter.after(read=0, total=window, output=0, compacted=compacted, rates=rates)
    assert cold.spent - meter.spent == pytest.approx(1.25 * max(0, window - compacted))


@pytest.mark.requirement("L4.18")
def test_a_compaction_is_due_when_carrying_has_cost_enough_and_the_session_is_long_enough():
    option = Compaction(150_000, 56_000, 150_000, 40_000, call_price(150_000, live=150_000, output=6_000, rates=OPUS))
    price = compaction_price(option, rates=OPUS)
    almost, enough = CarryingMeter(2.99 * price, 150_000), CarryingMeter(3.01 * price, 150_000)

    def is_due(
        meter: CarryingMeter,
        requests: int,
        compaction: Compaction = option,
        rates: RelativeRates = OPUS,
        room: float = inf,
    ) -> bool:
        verdict = compaction_due(
            meter, compaction, requests=requests, growth=1_000, patience=3.0, rates=rates, room=room
        )
        return verdict.act

    assert is_due(enough, 100)
    assert not is_due(almost, 100)
    assert not is_due(enough, 5)  # five more requests would not pay for it
    # The room covers the loss to expect if the session ends; in a short one, which ends sooner, the whole price.
    expected = expected_loss(price, 31 * OPUS.read * 94_000)
    far = CarryingMeter(9.0 * price, 150_000)
    assert [is_due(far, requests, room=expected) for requests in (30, 31, 100)] == [False, True, True]
    assert not is_due(far, 31, room=0.99 * expected)
    assert is_due(far, 30, room=price)
    before_step, seen = Compaction(99_500, 56_000, 99_500, 40_000), CarryingMeter(0.0, 98_000)
    assert is_due(seen, 10, before_step, HAIKU)  # the next request would cost five times as much
    assert not is_due(seen, 10, before_step, replace(HAIKU, steps=()))
    assert not is_due(seen, 10, replace(before_step, window=90_000, live=90_000), HAIKU)
    # Results of more tokens than stay would be cut before the model has seen them.
    assert not is_due(CarryingMeter(0.0, 99_500 - 56_001), 10, before_step, HAIKU)
    assert not is_due(replace(far, window=150_000 - 56_001), 100)


@pytest.mark.requirement("C7", "L4.18")
@given(requests=st.integers(1, 300), price=st.floats(1, 1e6), each=st.floats(1, 1e6))
def test_the_expected_loss_is_the_mean_over_sessions_that_end_before_the_price_has_paid(
    requests: int, price: float, each: float
):
    loss, paid_after = expected_loss(price, requests * each), price / each
    # The inverse of the chance requests / (requests + t) gives evenly spread ends of the session.
    ends = (requests / ((at + 0.5) / 20_000) - requests for at in range(20_000))
    mean = sum(max(0.0, price - each * end) for end in ends) / 20_000
    assert loss == pytest.approx(mean, rel=0.01, abs=2e-4 * price)
    assert 0 <= loss <= price
    assert loss <= price * paid_after / requests / 2 + 1e-6 * price


def test_a_price_that_never_pays_is_lost_whole():
    assert expected_loss(100.0, 0.0) == 100.0
    assert expected_loss(0.0, 50.0) == 0.0


@pytest.mark.requirement("C9")
def test_pings_end_when_they_have_cost_a_third_of_the_rewrite_or_an_hour():
    assert [max_pings(rates) for rates in (CLASSIC, OPUS, FABLE)] == [3, 8, 12]
    assert max_pings(replace(CLASSIC, read=0.0)) == 12


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
        clearing = ClearingOption(1, 10_000, 10_000, carried=1e9)
        acts = [weigh_clearing(clearing, Forecast(n, 0.0, 50_000), rates=rates).act for n in (turns - 1, turns + 1)]
        assert acts == [False, True], model


@pytest.mark.requirement("V15", "C7")
def test_a_step_of_the_price_is_in_the_rates():
    assert HAIKU.at(100_000).read == pytest.approx(0.1)
    assert HAIKU.at(100_001).read == pytest.approx(0.5)
    assert HAIKU.carrying(100_001) == pytest.approx(50_000.5)
    assert call_price(120_000, live=0, output=0, rates=HAIKU) == pytest.approx(5 * 120_000)


@pytest.mark.requirement("V15", "C7")
def test_crossing_a_price_step_back_pays_where_the_same_clearing_does_not_without_it():
    clearing = ClearingOption(1, 30_000, 60_000, carried=0.1 * 30_000 * 4)
    forecast = Forecast(5.0, 0.0, 120_000, growth=1_000)
    plain = replace(HAIKU, steps=())
    assert not weigh_clearing(clearing, forecast, rates=plain).act
    assert weigh_clearing(clearing, forecast, rates=HAIKU).act
    compaction = Compaction(120_000, 40_000, live=120_000)
    assert not weigh_compaction(compaction, turns=5, growth=1_000, rates=plain).act
    assert weigh_compaction(compaction, turns=5, growth=1_000, rates=HAIKU).act


@pytest.mark.requirement("V15", "C7")
@given(
    window=st.integers(10_000, 300_000),
    share=st.floats(0.01, 0.99),
    turns=st.floats(1, 60),
    growth=st.floats(0, 20_000),
)
def test_saved_reads_equal_the_sum_of_every_turn(window: int, share: float, turns: float, growth: float):
    frees = int(window * share)
    clearing = ClearingOption(1, frees, 1, carried=0.0)
    forecast = Forecast(turns, 0.0, window, growth)
    saves = weigh_clearing(clearing, forecast, rates=HAIKU).saves
    slices = 4_000
    exact = sum(
        HAIKU.carrying(window + growth * at) - HAIKU.carrying(window - frees + growth * at)
        for at in ((number + 0.5) * turns / slices for number in range(slices))
    )
    assert saves == pytest.approx(exact * turns / slices, rel=0.01, abs=HAIKU.carrying(window + growth * turns) * 0.01)


@pytest.mark.requirement("C7")
def test_lost_thinking_is_priced_as_output():
    clearing = ClearingOption(1, 30_000, 10_000, carried=1e9)
    forecast = Forecast(10.0, 0.0, 80_000)
    kept = weigh_clearing(clearing, forecast, rates=CLASSIC)
    lost = weigh_clearing(replace(clearing, lost_thinking=4_000), forecast, rates=CLASSIC)
    assert (kept.act, lost.act) == (True, False)
    assert lost.cost - kept.cost == pytest.approx(5.0 * 4_000)
    compaction = Compaction(120_000, 20_000)
    cheap = weigh_compaction(compaction, turns=10, rates=CLASSIC)
    dear = weigh_compaction(replace(compaction, lost_thinking=50_000), turns=10, rates=CLASSIC)
    assert dear.cost - cheap.cost == pytest.approx(5.0 * 50_000)
    assert (cheap.act, dear.act) == (True, False)
