"""Recorded sessions under policies: the bill, the breaks, and that every request is valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reverie.cache.prices import prices_for, rates_of
from reverie.conversation.decisions import Decision
from reverie.conversation.view import View
from reverie.model_facts import facts_of
from reverie.replay import compare as compare_module
from reverie.replay.compare import SHOWN, compare, recordings_in, settings_named
from reverie.replay.outcome import ReplayReport, totals
from reverie.replay.policies import ClearEveryTurnPolicy, ReveriePolicy
from reverie.replay.recording import RecordedRequest, Recording
from reverie.replay.run import replay_recording
from reverie.testing.coding_session import as_claude_code_jsonl, coding_session

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    folder = tmp_path_factory.mktemp("sessions")
    for seed in (1, 2):
        (folder / f"{seed}.jsonl").write_bytes(as_claude_code_jsonl(coding_session(seed, 200_000)))
    return recordings_in([folder])[0]


@pytest.fixture(scope="module")
def report(made: list[Recording]) -> ReplayReport:
    return compare(made)


@pytest.fixture(scope="module")
def corpus_report(corpus: Path) -> ReplayReport:
    return compare(recordings_in([corpus / "claude-code"])[0])


def money(report: ReplayReport, policy: str) -> float:
    return totals(report.of(policy=policy))["input_usd"]


@pytest.mark.requirement("B1", "C8")
def test_on_recorded_sessions_the_simulator_bills_what_was_billed(corpus_report: ReplayReport):
    simulator = corpus_report.simulator
    assert simulator is not None
    assert abs(simulator.read_share - simulator.billed_read_share) <= 0.01
    assert abs(simulator.cost_ratio - 1) <= 0.03


@pytest.mark.requirement("B1", "C7")
def test_on_recorded_sessions_balanced_is_a_fifth_below_append_only_and_below_other_policies(
    corpus_report: ReplayReport,
):
    ours = money(corpus_report, "balanced")
    assert ours <= 0.80 * money(corpus_report, "append-only")
    theirs = set(corpus_report.policies) - {"faithful", "balanced", "thrifty", "recorded"}
    assert all(ours < money(corpus_report, name) for name in theirs)


@pytest.mark.requirement("B1")
def test_no_policy_sends_an_invalid_request(report: ReplayReport, corpus_report: ReplayReport):
    for found in (report, corpus_report):
        assert set(found.policies) == set(SHOWN)
        assert all(outcome.invalid_requests == 0 for outcome in found.outcomes)


@pytest.mark.requirement("C1", "C5")
def test_every_break_of_a_live_cache_was_announced_by_a_decision(report: ReplayReport, corpus_report: ReplayReport):
    for found in (report, corpus_report):
        for outcome in found.outcomes:
            if outcome.policy != "recorded":
                assert [one for one in outcome.breaks if not one.registered] == [], outcome.policy


def test_a_policy_that_moves_the_prefix_without_saying_so_is_caught(made: list[Recording]):
    """Known-bad twin: it clears results every turn and its decisions deny that the prefix moves."""

    class Denying(ClearEveryTurnPolicy):
        def prepare(self, view: View, step: RecordedRequest) -> list[Decision]:
            made = super().prepare(view, step)
            return [replace(one, cause=replace(one.cause, moves_prefix=False)) for one in made]

    prices = prices_for("claude-sonnet-4-5")
    assert prices is not None
    outcome = replay_recording(made[0], Denying(), prices, check=False)
    assert [one for one in outcome.breaks if not one.registered]


@pytest.mark.requirement("B1")
def test_money_adds_up_and_reading_back_is_charged(report: ReplayReport, made: list[Recording]):
    prices = prices_for(made[0].model)
    assert prices is not None
    for outcome in report.outcomes:
        for point in outcome.points:
            assert point.window == point.read + point.write_5m + point.write_1h + point.uncached
        assert outcome.input_usd == pytest.approx(
            sum(point.input_usd for point in outcome.points)
            + outcome.read_back_usd
            + outcome.summary_usd
            + outcome.ping_usd
        )
        assert bool(outcome.compactions) == (outcome.summary_usd > 0)
    charged = [outcome for outcome in report.outcomes if outcome.read_backs]
    for outcome in charged:
        assert outcome.read_back_usd > prices.cost(write_5m=outcome.read_back_tokens)


@pytest.mark.requirement("B1")
def test_a_settings_file_is_a_policy(made: list[Recording], tmp_path: Path):
    file = tmp_path / "careful.toml"
    file.write_text("[trim]\nkeep_priced = 50\nkeep_cold = 50\n")
    report = compare(made[:1], policies=("append-only", "reverie"), extra=settings_named([file]))
    assert report.policies == ("append-only", "reverie", "careful")
    freed = {name: totals(report.of(policy=name))["removed_tokens"] for name in report.policies}
    assert freed["careful"] < freed["reverie"]


def test_a_replay_of_the_mode_in_which_the_provider_clears_leaves_no_results_out(made: list[Recording], tmp_path: Path):
    file = tmp_path / "provider.toml"
    file.write_text('[trim]\nmode = "provider"\n')
    report = compare(made[:1], policies=("reverie",), extra=settings_named([file]))
    freed = {name: totals(report.of(policy=name))["removed_tokens"] for name in report.policies}
    assert freed["provider"] < freed["reverie"]


def test_the_same_replay_gives_the_same_figures(made: list[Recording]):
    prices = prices_for("claude-sonnet-4-5")
    assert prices is not None
    rates = rates_of(prices, facts_of("claude-sonnet-4-5"))
    first, second = (
        replay_recording(
            made[0], ReveriePolicy(compact_at=167_000, rates=rates, least_cached=1_024), prices, check=False
        )
        for _ in range(2)
    )
    assert first == second


@pytest.mark.requirement("V15")
@pytest.mark.parametrize(
    ("model", "read", "least", "window"),
    [("claude-haiku-4-5", 0.1, 4_096, 200_000), ("claude-fable-5-1", 0.025, 512, 1_000_000)],
)
def test_a_replay_decides_by_the_prices_the_prefix_and_the_window_of_the_model(
    made: list[Recording], monkeypatch: pytest.MonkeyPatch, model: str, read: float, least: int, window: int
) -> None:
    decided: list[dict[str, Any]] = []

    class Seen(ReveriePolicy):
        def __init__(self, **given: Any) -> None:
            decided.append(given)
            super().__init__(**given)

    monkeypatch.setattr(compare_module, "ReveriePolicy", Seen)
    report = compare(made[:1], policies=("append-only", "reverie"), model=model, check=False)
    assert [(one["rates"].read, one["least_cached"]) for one in decided] == [(pytest.approx(read), least)]
    assert 0.8 * window < decided[0]["compact_at"] < window
    prices = prices_for(model)
    assert prices is not None
    spent = report.of(policy="append-only")[0].points[-1]
    assert spent.input_usd == pytest.approx(prices.cost(spent.read, spent.write_5m, spent.write_1h, spent.uncached))
