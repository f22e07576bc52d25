"""A report's figures add up, compare like with like, and read well on any terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.cli.costs.replay_table import show
from reverie.model_facts import default_model
from reverie.replay.outcome import AS_RECORDED, Point, ReplayOutcome, ReplayReport, SimulatorAccuracy, totals
from reverie.replay.report import (
    cheapest,
    costs_by_reason,
    count_text,
    figures,
    headline,
    losses,
    money_text,
    places,
    report_json,
    summary_line,
)
from reverie.values import replace

Made = Callable[..., ReplayReport]

NAMED = {
    "input_usd", "output_usd", "cache_read", "cache_write", "uncached", "requests", "invalid_requests", "breaks",
    "read_backs", "cost_vs_uncached",
}  # fmt: skip


class Screen(io.StringIO):
    """A stdout that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown_on(report: ReplayReport, monkeypatch: pytest.MonkeyPatch, *, columns: int | None, **environment: str) -> str:
    """Return what is printed on a terminal so wide, or into a pipe."""
    out = Screen() if columns else io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setenv("TERM", "xterm-256color")
        if columns:
            patch.setenv("COLUMNS", str(columns))
        else:
            patch.delenv("COLUMNS", raising=False)
        patch.delenv("NO_COLOR", raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        show(report)
    return out.getvalue()


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.requirement("B1")
def test_the_json_has_what_the_command_promises_for_all_and_for_each_file(made: Made) -> None:
    report = made(sessions=3)
    found = report_json(report)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["sessions"], found["model"], found["ttl"]) == (3, "claude-sonnet-4-5", "5m")
    assert set(found["policies"]) == set(report.policies)
    assert [each["file"] for each in found["files"]] == list(report.files)
    for part in [found, *found["files"]]:
        for figures_of_one in part["policies"].values():
            assert figures_of_one.keys() >= NAMED


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_files_add_up_to_the_whole(made: Made, seed: int, sessions: int) -> None:
    found = report_json(made(seed, sessions=sessions, requests=30))
    for policy, whole in found["policies"].items():
        for name in NAMED - {"cost_vs_uncached"}:
            parts = sum(each["policies"][policy][name] for each in found["files"])
            assert whole[name] == pytest.approx(parts)
        assert whole["cost_vs_uncached"] == pytest.approx(
            whole["input_usd"] / found["policies"]["uncached"]["input_usd"]
        )
    assert found["policies"]["append-only"]["cost_vs_append_only"] == 1.0


def test_a_policy_known_for_some_sessions_is_compared_on_those(made: Made) -> None:
    report = made(sessions=3, unbilled=(1, 2))
    one = figures(report)["recorded"]
    [recorded] = report.of(policy="recorded")
    [bare] = report.of(policy="uncached", file=report.files[0])
    assert one["sessions"] == 1
    assert one["cost_vs_uncached"] == pytest.approx(recorded.input_usd / bare.input_usd)
    naive = one["input_usd"] / figures(report)["uncached"]["input_usd"]
    assert one["cost_vs_uncached"] > 2 * naive
    assert cheapest(report) != "recorded"


def test_nothing_to_compare_with_is_said_as_nothing(made: Made) -> None:
    report = made(policies=("reverie",))
    assert figures(report)["reverie"]["cost_vs_uncached"] is None
    assert figures(report)["reverie"]["cost_vs_append_only"] is None
    assert report_json(ReplayReport((), (), (), "", "5m"))["policies"] == {}


def test_the_cheapest_is_the_one_with_the_least_input_cost(made: Made) -> None:
    report = made()
    costs = {policy: totals(report.of(policy=policy))["input_usd"] for policy in report.policies}
    assert cheapest(report) == min(costs, key=lambda policy: costs[policy])


def test_bills_by_the_rules_of_another_provider_are_no_match_for_the_others(made: Made) -> None:
    report = made()
    free = tuple(replace(one, points=()) if one.policy == "recorded" else one for one in report.outcomes)
    best = cheapest(replace(report, policies=tuple(name for name in report.policies if name != "recorded")))
    for foreign, wanted in ((), "recorded"), (("file",), best):
        judged = replace(report, outcomes=free, simulator=SimulatorAccuracy(1.0, 1.0, 1.0, (), foreign))
        said = " ".join(losses(judged, figures(judged)))
        assert cheapest(judged) == wanted
        assert ("recorded (100%)" in said) is not bool(foreign)


def test_the_cost_of_cache_breaks_names_the_bill_also_where_the_headline_is_about_something_else(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = replace(made(), simulator=SimulatorAccuracy(1.0, 1.0, 1.0, (), ("file",)))
    shown = shown_on(judged, monkeypatch, columns=100, NO_COLOR="1")
    assert "of the bill was lost to cache breaks" in shown
    assert "of it was lost" not in shown


def test_sessions_of_one_file_are_judged_apart(made: Made) -> None:
    report = made(policies=("append-only", "balanced"), sessions=2)
    outcomes = tuple(
        replace(
            one, file="both", read_back_usd=50.0 if one.policy == "balanced" and one.file == report.files[0] else 0.0
        )
        for one in report.outcomes
    )
    judged = replace(report, files=("both",), outcomes=outcomes)
    assert "dearer than append-only in 1 of 2 sessions" in " ".join(losses(judged, figures(judged)))


def test_the_headline_compares_with_the_bills_that_followed_the_same_rules(made: Made) -> None:
    report = made(sessions=3)
    judged = replace(report, simulator=SimulatorAccuracy(1.0, 1.0, 1.0, (), report.files[2:]))
    said, alone = headline(judged, figures(judged)), made(sessions=3)
    assert said is not None
    assert " for 2 of 3 sessions at the prices of " in said[0]
    kept = tuple(one for one in alone.outcomes if one.file != report.files[2])
    alone = replace(alone, files=report.files[:2], outcomes=kept)
    assert headline(alone, figures(alone)) == (said[0].replace(" for 2 of 3 sessions", ""), *said[1:])


def test_several_models_are_named_as_those_of_the_recordings(made: Made) -> None:
    report = replace(made(), model=AS_RECORDED)
    said = headline(report, figures(report))
    assert said is not None
    assert "at the prices of the recorded models" in said[0]


def test_a_model_without_a_price_is_named_with_the_model_whose_prices_stand_in(made: Made) -> None:
    report = replace(made(0, sessions=1), model="nobody/llama-x")
    line = summary_line(report, figures(report))
    assert f"nobody/llama-x at the prices of {default_model()}" in line
    assert "at the prices of" not in summary_line(replace(report, model="claude-opus-5"), figures(report))
    said = headline(report, figures(report))
    assert said is not None
    assert "prices of nobody/llama-x" not in said[0]


def test_what_breaks_cost_adds_up_by_reason(made: Made) -> None:
    report = made()
    rows = costs_by_reason(report)
    breaks = [one for outcome in report.outcomes for one in outcome.breaks]
    assert sum(row.count for row in rows) == len(breaks)
    assert sum(row.usd for row in rows) == pytest.approx(sum(one.usd for one in breaks))
    assert sum(row.unannounced for row in rows) == sum(1 for one in breaks if not one.registered) > 0


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_it_fits_the_screen(made: Made, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    printed = without_escapes(shown_on(made(unbilled=(1,)), monkeypatch, columns=columns))
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= columns
    for policy in ("uncached", "recorded (2 of 3)", "append-only", "sliding-window", "balanced"):
        row = next(line for line in printed.splitlines() if line.startswith(policy))
        assert "$" in row
        assert "█" in row
    assert "Actions of the layers under balanced" in printed
    assert "Cache breaks" in printed
    assert printed.count(" * ") == 1


def test_a_table_that_is_folded_would_be_caught(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-settings-file-with-a-name-that-is-far-too-long-for-any-table.toml"
    printed = without_escapes(shown_on(made(policies=("uncached", "reverie", name)), monkeypatch, columns=60))
    assert not any(line.startswith(name) and "$" in line for line in printed.splitlines())
    piped = shown_on(made(policies=("uncached", "reverie", name)), monkeypatch, columns=None)
    assert any(line.startswith(name) and "$" in line for line in piped.splitlines())


def test_a_pipe_gets_plain_text_that_is_never_folded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown_on(made(), monkeypatch, columns=None)
    assert "\x1b" not in printed
    assert all(line == line.rstrip() for line in printed.splitlines())
    heading = next(line for line in printed.splitlines() if line.startswith("policy"))
    assert heading.split() == [
        "policy", "input", "/uncached", "/append", "read", "written", "uncached", "breaks", "backs", "peak", "mean",
    ]  # fmt: skip


COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|9[0-7]|38;)[0-9;]*m")


def test_no_color_means_no_colour(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOURS.search(shown_on(made(), monkeypatch, columns=100))
    assert not COLOURS.search(shown_on(made(), monkeypatch, columns=100, NO_COLOR="1"))


def test_hostile_names_do_not_drive_the_terminal(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    report = made(skipped=["\x1b]0;owned\x07 is empty", "two\nlines"], policies=("uncached", "re\x1b[2Jverie"))
    printed = shown_on(report, monkeypatch, columns=None)
    assert "\x1b" not in printed
    assert "note: two lines" in printed


@pytest.mark.requirement("U5")
@pytest.mark.parametrize(
    ("factor", "said"),
    [(1.5, "keep_warm would cost $"), (1.0, "keep_warm would change nothing"), (0.5, "reverie config keep_warm true")],
)
def test_keep_warm_is_advised_only_where_the_simulation_says_that_it_saves(
    made: Made, monkeypatch: pytest.MonkeyPatch, factor: float, said: str
) -> None:
    report = made(policies=("recorded", "balanced"))
    warm = [
        replace(
            one,
            policy="balanced-warm",
            points=tuple(replace(point, input_usd=point.input_usd * factor) for point in one.points),
        )
        for one in report.of(policy="balanced")
    ]
    alone = shown_on(report, monkeypatch, columns=None)
    more = replace(report, policies=(*report.policies, "balanced-warm"), outcomes=(*report.outcomes, *warm))
    both = shown_on(more, monkeypatch, columns=None)
    assert "pauses of 5 to 60 minutes" in both
    assert said in both
    assert ("config keep_warm true" in both) == (factor < 1)
    assert "config keep_warm true" not in alone
    assert "balanced-warm" in alone  # the remedy names the simulation that would tell


def test_refused_requests_are_said_aloud(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point(0, 0.0, 10, 0, 0, 0, 10, 1, 0.1, 0.1)
    report = ReplayReport(
        ("a",), ("reverie",), (ReplayOutcome("reverie", "a", "s", "m", (point,), invalid_requests=1),), "m", "5m"
    )
    assert "a provider would refuse 1 request of 1" in shown_on(report, monkeypatch, columns=80)
    assert "refuse" not in shown_on(made(), monkeypatch, columns=80)


def test_an_empty_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown_on(ReplayReport((), (), (), "", "5m", ("x is empty",)), monkeypatch, columns=80)
    assert "Nothing was replayed." in printed
    assert "x is empty" in printed


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.00k"),
        (12_345, "12.3k"),
        (999_600, "1.00M"),
        (4.2e9, "4.20G"),
        (165_000, "165k"),
    ],
)
def test_counts_are_short(count: float, said: str) -> None:
    assert count_text(count) == said


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=5))
def test_money_never_hides_the_largest_amount(amounts: list[float]) -> None:
    decimals = places(amounts)
    digits = money_text(max(amounts), decimals).strip("$").replace(",", "")
    assert max(amounts) < 0.00005 or float(digits) > 0


def test_the_figures_are_those_of_the_outcomes(made: Made) -> None:
    found: dict[str, Any] = figures(made())
    for policy, one in found.items():
        outcomes = made().of(policy=policy)
        assert one["input_usd"] == pytest.approx(sum(each.input_usd for each in outcomes))
        assert one["requests"] == sum(len(each.points) for each in outcomes)
