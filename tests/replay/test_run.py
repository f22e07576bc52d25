"""Recorded sessions under policies: the bill, the breaks, and that every request is valid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coding_session import as_claude_code_jsonl, coding_session
from log_script import Script, call
from reverie.cache.prices import prices_for, rates_of
from reverie.conversation.decisions import Decision
from reverie.conversation.view import View
from reverie.conversation.wire.validate import problems
from reverie.importers.import_result import ImportedSession
from reverie.model_facts import facts_of
from reverie.replay import compare as compare_module
from reverie.replay.compare import SHOWN, compare, preset_costs, recordings_in, settings_named
from reverie.replay.outcome import ReplayReport, totals
from reverie.replay.policies import ClearEveryTurnPolicy, ReveriePolicy
from reverie.replay.recording import RecordedRequest, Recording, SharedWork, recording_of
from reverie.replay.report import since_line
from reverie.replay.run import RequestChecks, replay_recording
from reverie.runtime.session.cache_plan import CachePlan
from reverie.settings import PRESETS, load_settings

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
    presets = {"faithful", "balanced", "thrifty"}
    theirs = set(corpus_report.policies) - {"recorded"} - presets - {f"{name}-warm" for name in presets}
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
        assert all(act.tokens > 0 for act in outcome.acts if act.layer == "compact")
    charged = [outcome for outcome in report.outcomes if outcome.read_backs]
    for outcome in charged:
        assert outcome.read_back_usd > prices.cost(write_5m=outcome.read_back_tokens)


@pytest.mark.requirement("B1")
def test_a_settings_file_is_a_policy(made: list[Recording], tmp_path: Path):
    file = tmp_path / "careful.toml"
    file.write_text("[compact]\npatience = 50\n")
    report = compare(made[:1], policies=("append-only", "reverie"), extra=settings_named([file]))
    assert report.policies == ("append-only", "reverie", "careful")
    freed = {name: totals(report.of(policy=name))["removed_tokens"] for name in report.policies}
    assert freed["careful"] < freed["reverie"]


def test_the_same_replay_gives_the_same_figures(made: list[Recording]):
    prices = prices_for("claude-sonnet-4-5")
    assert prices is not None
    rates = rates_of(prices, facts_of("claude-sonnet-4-5"))
    first, second = (
        replay_recording(
            made[0],
            ReveriePolicy(cache=CachePlan(compact_at=167_000, rates=rates, least_cached=1_024)),
            prices,
            check=False,
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
    [cache] = [one["cache"] for one in decided]
    assert (cache.rates.read, cache.least_cached) == (pytest.approx(read), least)
    assert 0.8 * window < cache.compact_at < window
    prices = prices_for(model)
    assert prices is not None
    spent = report.of(policy="append-only")[0].points[-1]
    assert spent.input_usd == pytest.approx(prices.cost(spent.read, spent.write_5m, spent.write_1h, spent.uncached))


def faulty(seed: int) -> list[dict[str, Any]]:
    """Return requests that grow, change and lose messages, some of them so that a provider refuses them."""
    rng, messages, requests = Random(seed), [{"role": "user", "content": "begin"}], list[dict[str, Any]]()
    for number in range(30):
        use = {"type": "tool_use", "id": f"c{number}", "name": "Look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"result {number}"}
        messages = [*messages, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        at = rng.randrange(1, len(messages))
        kind = rng.random()
        if kind < 0.1:
            messages = [
                *messages[:at],
                {**messages[at], "content": [{"type": "text", "text": ""}]},
                *messages[at + 1 :],
            ]
        elif kind < 0.2:
            messages = messages[:1] + messages[1 + 2 * (at // 2) :] or messages
        elif kind < 0.25:
            messages = messages[:at] + messages[at + 1 :]
        elif kind < 0.35:
            messages = [{"role": "user", "content": "again"}, *messages[len(messages) // 2 * 2 :]]
        requests.append({"model": "m", "max_tokens": 9, "messages": messages})
    return requests


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("seed", range(12))
def test_requests_checked_by_new_messages_are_judged_as_whole_ones(seed: int) -> None:
    requests = faulty(seed)
    checks = RequestChecks()
    for request in requests:
        checks.add(request)
    assert checks.invalid() == sum(1 for request in requests if problems(request))


def test_a_check_that_trusts_the_length_alone_is_caught() -> None:
    """Known-bad twin: it checks only the last two messages of each request."""
    wrong = [
        seed
        for seed in range(12)
        if sum(1 for one in faulty(seed) if problems({**one, "messages": [one["messages"][0], *one["messages"][-2:]]}))
        != sum(1 for one in faulty(seed) if problems(one))
    ]
    assert wrong


def test_a_session_in_two_files_counts_once(tmp_path: Path) -> None:
    recorded = as_claude_code_jsonl(coding_session(3, 20_000))
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_bytes(recorded)
    found, skipped = recordings_in([tmp_path])
    assert [one.name for one in found] == ["one.jsonl"]
    assert any("two.jsonl" in note and "counts once" in note for note in skipped)


def test_a_copy_under_another_name_counts_once(tmp_path: Path) -> None:
    recorded = as_claude_code_jsonl(coding_session(3, 20_000))
    session = next(row["sessionId"] for row in map(json.loads, recorded.splitlines()) if "sessionId" in row)
    (tmp_path / "one.jsonl").write_bytes(recorded)
    (tmp_path / "two.jsonl").write_bytes(recorded.replace(session.encode(), b"another-session"))
    steps = [{"action": "ls\n", "observation": "a.py\n", "response": "", "state": "{}", "thought": ""}]
    history = [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Look.\n```\nls\n```"}]
    run = {"environment": "swe_main", "trajectory": steps, "history": history, "info": {}}
    for name in ("run.traj", "copy.traj"):
        (tmp_path / name).write_text(json.dumps(run))
    found, skipped = recordings_in([tmp_path])
    assert sorted(one.name for one in found) == ["copy.traj", "one.jsonl"]
    assert any("run.traj" in note and "two.jsonl" in note for note in skipped)


def test_runs_of_one_task_with_other_replies_all_count(tmp_path: Path) -> None:
    steps = [{"action": "ls\n", "observation": "a.py\n", "response": "", "state": "{}", "thought": ""}]
    for name, thought in (("one", "I look around."), ("two", "First the files.")):
        history = [
            {"role": "system", "content": "You fix code."},
            {"role": "user", "content": "Fix the bug."},
            {"role": "assistant", "content": f"{thought}\n```\nls\n```", "thought": thought, "action": "ls\n"},
            {"role": "user", "content": "a.py"},
        ]
        run = {"environment": "swe_main", "trajectory": steps, "history": history, "info": {}}
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.traj").write_text(json.dumps(run))
    found, skipped = recordings_in([tmp_path])
    assert (len(found), skipped) == (2, [])
    assert len({one.session for one in found}) == 1


def test_several_processes_give_the_same_outcomes_as_one(
    made: list[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = compare(made, policies=("recorded", "balanced"))
    monkeypatch.setattr(compare_module, "_LEAST_WORK", 1)
    assert compare(made, policies=("recorded", "balanced"), cores=2) == alone


def test_policies_that_share_the_work_on_a_recording_give_the_outcomes_of_each_alone(made: list[Recording]) -> None:
    names = ("append-only", "append-only-1h", "clear-every-turn", "sliding-window", "balanced", "balanced-warm")
    shared = compare([replace(made[0], shared=SharedWork())], policies=names).outcomes
    for name, outcome in zip(names, shared, strict=True):
        assert compare([replace(made[0], shared=SharedWork())], policies=[name]).outcomes == (outcome,)
    assert sum(outcome.compactions for outcome in shared) > 2


def test_a_program_with_threads_starts_no_processes(made: list[Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a fork of a process with threads may hang")

    monkeypatch.setattr(compare_module, "ProcessPoolExecutor", refuse)
    monkeypatch.setattr(compare_module, "_LEAST_WORK", 1)
    entries = [entry for step in made[0].steps[:5] for entry in step.entries]
    assert preset_costs(entries, "claude-sonnet-4-5", load_settings())
    with pytest.raises(AssertionError, match="fork"):
        compare(made[:1], policies=("uncached", "append-only"), cores=2)


@pytest.mark.requirement("B1")
def test_bills_after_a_date_are_compared_with_the_prediction_from_before(made: list[Recording]) -> None:
    steps = tuple(replace(step, at=step.at + 1e7) for step in made[0].steps)
    later = replace(made[0], name="later", session="later", steps=steps)
    report = compare([made[0], later], policies=("uncached", "recorded", "balanced"), check=False)
    since = made[0].steps[0].at + 5e6
    assert "Since then you paid" in since_line(report, since)
    assert "no billed session since" in since_line(report, 1e12)
    foreign = replace(later, name="foreign", session="foreign", model="gemini-3-pro-preview")
    mixed = compare([made[0], later, foreign], policies=("uncached", "recorded", "balanced"), check=False)
    assert since_line(mixed, since) == since_line(report, since)
    assert mixed.simulator is not None
    assert report.simulator is not None
    assert mixed.simulator.foreign == ("foreign",)
    assert mixed.simulator.cost_ratio == report.simulator.cost_ratio


@pytest.mark.requirement("U7")
def test_the_presets_of_a_running_session_have_a_price(made: list[Recording]) -> None:
    entries = [entry for step in made[0].steps for entry in step.entries]
    costs = preset_costs(entries, "claude-sonnet-4-5", load_settings())
    assert set(costs) == {"faithful", "balanced", "thrifty"}
    assert all(usd > 0 for usd in costs.values())
    assert preset_costs([], "claude-sonnet-4-5", load_settings()) == {}
    assert preset_costs(entries, "no-such-model", load_settings()) == {}


@pytest.mark.requirement("U7")
def test_no_preset_keeps_a_prompt_too_short_to_be_cached() -> None:
    script = Script()
    script.user("look at everything")
    for turn in range(16):
        script.reply(call(f"c{turn}", "Bash", n=turn))
        script.result(f"c{turn}", f"word{turn} " * 300)
    session = ImportedSession("script", "s", "", "", "", tuple(script.entries))
    report = compare([recording_of(session, "file")], policies=("append-only", *PRESETS), model="gemini-3-pro-preview")
    plain, *presets = (outcome.input_usd for outcome in report.outcomes)
    assert max(presets) <= 1.01 * plain
