"""The estimator learns from bills, within bounds, and ignores an outlier."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.tokens.estimate import CLASSES, Measure
from reverie.conversation.tokens.learning import Estimator, model_key

MODEL = "claude-opus-4-5"

measures = st.tuples(*[st.floats(0, 20_000) for _ in CLASSES]).map(Measure)
bills = st.floats(-1e7, 1e9)
Learn = Callable[[Estimator, Measure, float], Estimator]


def of(**amounts: float) -> Measure:
    return Measure(tuple(float(amounts.get(kind, 0)) for kind in CLASSES))


def check_bounds(learn: Learn, lessons: list[tuple[Measure, float]]) -> None:
    estimator = Estimator()
    for measure, actual in lessons:
        estimator = learn(estimator, measure, actual)
    factors = estimator.factors(MODEL)
    assert all(0.5 <= factors[kind] <= 2 for kind in ("prose", "code", "json", "cjk", "base64"))
    assert all(0.25 <= factors[kind] <= 4 for kind in ("thinking", "frame"))
    assert factors["media"] == 1


def learned(estimator: Estimator, measure: Measure, actual: float) -> Estimator:
    return estimator.learned(MODEL, measure, actual)


@pytest.mark.requirement("T2")
@given(st.lists(st.tuples(measures, bills), max_size=20))
def test_no_bills_at_all_push_a_factor_out_of_its_bounds(lessons: list[tuple[Measure, float]]) -> None:
    check_bounds(learned, lessons)


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(("times", "settles"), [(5.0, 2.0), (0.1, 0.5)])
def test_bills_that_are_always_absurd_stop_at_the_bound(times: float, settles: float) -> None:
    lessons = [(of(code=1_000), times * 1_000)] * 300
    check_bounds(learned, lessons)
    estimator = Estimator()
    for measure, actual in lessons:
        estimator = learned(estimator, measure, actual)
    assert estimator.factors(MODEL)["code"] == settles


@pytest.mark.requirement("T2")
def test_the_bounds_check_catches_a_plain_ratio() -> None:
    from reverie.conversation.tokens.learning import Correction

    def ratio(estimator: Estimator, measure: Measure, actual: float) -> Estimator:
        factors = (actual / measure.total,) * len(CLASSES)
        return Estimator({model_key(MODEL): Correction(factors)})

    with pytest.raises(AssertionError):
        check_bounds(ratio, [(of(prose=100), 5_000.0)])


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(("code", "prose"), [(1.3, 0.9), (0.8, 1.1), (1.6, 1.4), (1.0, 1.0)])
def test_it_learns_each_class_from_mixed_bills(code: float, prose: float) -> None:
    estimator = Estimator()
    for step in range(40):
        some, other = 300 + 97 * (step % 7), 200 + 131 * (step % 5)
        estimator = estimator.learned(MODEL, of(code=some, prose=other), code * some + prose * other)
    factors = estimator.factors(MODEL)
    assert factors["code"] == pytest.approx(code, abs=0.06)
    assert factors["prose"] == pytest.approx(prose, abs=0.06)


def check_outlier(learn: Learn) -> None:
    estimator = Estimator()
    for _ in range(20):
        estimator = learn(estimator, of(code=1_000), 1_100)
    before = estimator.corrected(of(code=10_000), MODEL)
    after = learn(estimator, of(code=1_000), 60_000).corrected(of(code=10_000), MODEL)
    assert after == pytest.approx(before, rel=0.05)


@pytest.mark.requirement("T2")
def test_one_bill_for_something_unseen_hardly_moves_it() -> None:
    check_outlier(learned)


@pytest.mark.requirement("T2")
def test_the_outlier_check_catches_a_running_mean() -> None:
    seen: list[float] = []

    def running_mean(estimator: Estimator, measure: Measure, actual: float) -> Estimator:
        from reverie.conversation.tokens.learning import Correction

        seen.append(actual / measure.total)
        return Estimator({model_key(MODEL): Correction((sum(seen) / len(seen),) * len(CLASSES))})

    with pytest.raises(AssertionError):
        check_outlier(running_mean)


@pytest.mark.requirement("T2")
def test_learning_leaves_the_old_estimator_and_other_models_as_they_were() -> None:
    fresh = Estimator()
    taught = fresh.learned(MODEL, of(code=1_000), 1_500)
    message = {"role": "user", "content": "for entry in entries:\n    print(entry, end='; ')\n" * 20}
    assert fresh == Estimator()
    assert taught.tokens(message, MODEL) > fresh.tokens(message, MODEL)
    assert taught.tokens(message, "gemini-3-pro") == fresh.tokens(message, "gemini-3-pro")
    assert taught.tokens_of([message, message], MODEL) == pytest.approx(2 * taught.tokens(message, MODEL), abs=2)


@pytest.mark.requirement("T2")
@pytest.mark.parametrize("actual", [0, -500])
def test_a_bill_that_shrank_teaches_nothing(actual: float) -> None:
    assert Estimator().learned(MODEL, of(code=100), actual).factors(MODEL) == Estimator().factors(MODEL)


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(
    "name",
    ["claude-opus-4-5-20251101", "anthropic/claude-opus-4-5", "Claude-Opus-4-5[1m]", "anthropic:claude-opus-4-5"],
)
def test_spellings_of_one_model_share_what_was_learned(name: str) -> None:
    assert model_key(name) == MODEL


@pytest.mark.requirement("T2")
def test_a_practised_estimator_still_learns_that_the_bills_have_changed() -> None:
    estimator = Estimator()
    for _ in range(60):
        estimator = estimator.learned(MODEL, of(code=900, prose=300), 1_200)
    assert estimator.factors(MODEL)["code"] == pytest.approx(1.0, abs=0.02)
    for _ in range(200):
        estimator = estimator.learned(MODEL, of(code=900, prose=300), 1_500)
    assert estimator.corrected(of(code=900, prose=300), MODEL) == pytest.approx(1_500, rel=0.03)
