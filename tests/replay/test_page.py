"""A replay as a page: it holds the report's figures, shows every name as text, and asks for nothing at any width."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import Browser
from reverie.replay.outcome import LayerAction, Point, ReplayBreak, ReplayOutcome, ReplayReport
from reverie.replay.report import figures
from reverie.servers.inspector.page import page
from reverie.servers.inspector.replay_view import buckets, replay_data

Made = Callable[..., ReplayReport]

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "</style><img src=x onerror=\"document.title='owned'\">",
    '"><svg onload=document.title="owned">',
    "a&lt;b &amp; c",
    "\x1b[31m\u202egnp.exe",
)
READY = "return document.documentElement.dataset.ready === 'yes'"


def written(report: ReplayReport) -> str:
    return page({"version": "1", "replay": replay_data(report)})


def named(name: str) -> ReplayReport:
    """Return a small report in which everything that can have a name has this one."""
    points = tuple(Point(at, 100.0 + at, 50 + at, 20, 20, 0, 10 + at, 5, 0.01, 0.01) for at in range(3))
    outcome = ReplayOutcome(
        name, name, name, name, points,
        (LayerAction(1, 101.0, name, name, 1, 9),), (ReplayBreak(2, 102.0, name, 9, 0.1, False),),
        removed_tokens=9, invalid_requests=1, notes=(name,),
    )  # fmt: skip
    return ReplayReport((name,), (name,), (outcome,), name, name, (name,))


@pytest.mark.requirement("B1")
def test_the_page_has_the_figures_of_the_report(made: Made) -> None:
    report = made(sessions=2)
    data = json.loads(msgspec.json.encode(replay_data(report)))
    assert data["policies"] == json.loads(msgspec.json.encode(figures(report)))
    assert [one["file"] for one in data["sessions"]] == list(report.files)
    for one, outcome in zip(data["sessions"][0]["outcomes"], report.of(file=report.files[0]), strict=True):
        assert sum(point[5] for point in one["points"]) + one["beside_usd"] == pytest.approx(outcome.input_usd)
        assert one["usd"] == pytest.approx(outcome.input_usd)
        assert {act["layer"] for act in one["acts"]} == {act.layer for act in outcome.acts}


@pytest.mark.slow
def test_thousands_of_points_and_many_sessions_stay_small(made: Made) -> None:
    assert len(written(made(sessions=1, requests=8_000))) < 600_000
    assert len(written(made(sessions=50, requests=120))) < 3_000_000


@pytest.mark.parametrize(
    "report",
    [
        ReplayReport((), (), (), "", ""),
        ReplayReport(("a",), ("reverie",), (ReplayOutcome("reverie", "a", "s", "", ()),), "m", "5m"),
        ReplayReport(
            ("a",), ("reverie",),
            (ReplayOutcome("reverie", "a", "s", "", (Point(7, float("nan"), 0, 0, 0, 0, 0, 0, 0.0, 0.0),)),), "m", "1h",
        ),
    ],
    ids=["nothing", "no request", "one free request"],
)  # fmt: skip
@pytest.mark.slow
def test_what_is_empty_makes_a_page_too(report: ReplayReport, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(written(report), "utf-8")
    assert browser.visit(tmp_path / "page.html") == ([], [])
    browser.wait(READY)
    assert "NaN" not in browser.run("return document.body.outerHTML.replace(/<script.*<.script>/gs, '')")


@given(st.lists(st.integers(), max_size=200), st.integers(1, 50))
def test_neighbourhoods_keep_everything_in_order(items: list[int], most: int) -> None:
    found = buckets(items, most)
    assert [each for group in found for each in group] == items
    assert len(found) <= most
    assert all(found)


@pytest.mark.slow
@pytest.mark.requirement("B1", "S7")
def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    for name in HOSTILE:
        file.write_text(written(named(name)), "utf-8")
        assert browser.visit(file) == ([], [])
        browser.wait(READY)
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        shown = browser.run("return document.querySelector('main').textContent")
        assert name.replace("\x1b", "\\u001b").replace("\u202e", "\\u202e") in shown
        assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
        assert browser.run("return document.title") != "owned"


@pytest.mark.slow
@pytest.mark.requirement("B1")
@pytest.mark.parametrize("browser", [1280, 400], indirect=True)
def test_a_browser_opens_it_without_a_complaint_a_request_or_a_sideways_scroll(
    made: Made, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    names = ("a" * 120 + ".jsonl", HOSTILE[1], "c.jsonl", "d.jsonl")
    file.write_text(written(made(sessions=4, names=names, unbilled=(0,))), "utf-8")
    assert browser.visit(file) == ([], [])
    browser.wait(READY)
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    drawn = "return [...document.querySelectorAll('main .plot svg')].map(e => e.getAttribute('aria-label'))"
    window, cost = browser.run(drawn)
    assert window.startswith("Window over requests under balanced")
    assert cost == "Input cost so far of 5 policies"  # the first session has no bill
    tables = browser.run("return [...document.querySelectorAll('table')].every(t => t.querySelector('th[scope=row]'))")
    assert tables
    press = "[...document.querySelectorAll('.choice button')].find(b => b.textContent === '{}').click()"
    browser.run(press.format("append-only"))
    browser.run(press.format("by time"))
    assert browser.run(drawn)[0].startswith("Window over time under append-only")
    browser.run("document.querySelector('[aria-label=Sessions] tbody tr:nth-child(2) button').click()")
    assert browser.run("return document.querySelector('main select').value") == "1"
    sizes = browser.run("return [...document.querySelectorAll('.plot svg')].map(e => e.getBoundingClientRect().width)")
    assert max(sizes) > 250


@pytest.mark.parametrize("browser", [400], indirect=True)
def test_a_page_that_complains_asks_and_scrolls_would_be_caught(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><meta name=viewport content='width=device-width'><script>console.error('no')</script>"
        "<img src='http://127.0.0.1:9/x.png'><div style='width:900px'>wide</div>"
    )
    said, asked = browser.visit(file)
    assert any("no" in each for each in said)
    assert asked == ["http://127.0.0.1:9/x.png"]
    assert not browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
