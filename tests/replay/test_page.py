"""The page is self-contained, escapes every name, and is readable in a real browser at any width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from browser import Browser, opened_browser
from reverie.replay.outcome import LayerAction, Point, ReplayBreak, ReplayOutcome, ReplayReport
from reverie.replay.page import page
from reverie.replay.scales import buckets, by_number, by_time, nice_ticks

Made = Callable[..., ReplayReport]

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'--><!--<iframe src=//evil.example>",
    "a&lt;b &amp; c",
    "\ud800\x00\x1b[31m\u202egnp.exe",
    "javascript:alert(1)",
)
REACHING = {
    "src",
    "srcset",
    "href",
    "xlink:href",
    "action",
    "formaction",
    "poster",
    "data",
    "background",
    "ping",
    "manifest",
}
VOID = {"meta", "input", "path"}


class Reader(HTMLParser):
    """Gathers the shape of a page, its text, and whatever could reach out of it."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.shape: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.reaching: list[str] = []
        self.acting: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"script", "link", "base", "iframe", "object", "embed", "img", "image", "form"}:
            self.acting.append(tag)
        for name, value in attrs:
            if name in REACHING and not (value or "").startswith("#"):
                self.reaching.append(f"{name}={value}")
            if name.startswith("on"):
                self.acting.append(f"{name}={value}")
            if name == "style":
                self.reaching += re.findall(r"url\(|@import|image\(", value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.shape.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.reaching += re.findall(r"url\([^)]*\)|@import[^;]*|@font-face", data)
        else:
            self.text.append(data)


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
@pytest.mark.parametrize("sessions", [1, 3, 12])
def test_nothing_in_the_page_reaches_out_of_it(made: Made, sessions: int) -> None:
    source = page(made(sessions=sessions, requests=40, unbilled=(0,)))
    found = Reader(source)
    assert found.reaching == []
    assert found.acting == []
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert "http://" not in source
    assert "https://" not in source
    [policy] = [each["content"] for tag, each in found.attributes if each.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy


@pytest.mark.parametrize(
    "source",
    [
        '<img src="https://example.org/a.png">',
        "<style>@import 'x.css';</style>",
        "<style>a{background:url(x.png)}</style>",
        '<a href="//example.org">x</a>',
        '<p style="background:url(x)">x</p>',
    ],
)
def test_what_reaches_out_would_be_caught(source: str) -> None:
    assert Reader(source.replace("<img", "<input")).reaching


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    source = page(named(name))
    source.encode("utf-8")
    found = Reader(source)
    assert found.acting == []
    assert found.reaching == []
    assert found.shape == Reader(page(named("plain"))).shape
    shown = re.sub("[\x00-\x1f]", "", name).replace("\ud800", "?")
    assert any(shown in text for text in found.text)


@settings(max_examples=60)
@given(st.text(st.characters(), min_size=1, max_size=30))
@example("<b>")
@example("&")
@pytest.mark.slow
def test_no_name_changes_the_shape_of_the_page(name: str) -> None:
    assert Reader(page(named(name))).shape == Reader(page(named("plain"))).shape


def test_a_name_taken_as_markup_would_be_caught() -> None:
    source = page(named("plain")).replace("plain", "<b>bold</b>", 3)
    assert Reader(source).shape != Reader(page(named("plain"))).shape


def test_every_chart_says_what_it_shows_and_every_table_has_headers(made: Made) -> None:
    source = page(made())
    assert source.count("<svg") == source.count("<title id=") == source.count("<desc id=") > 0
    tables = re.findall(r"<table>.*?</table>", source, re.DOTALL)
    assert tables
    assert all('scope="col"' in table and 'scope="row"' in table for table in tables)


@pytest.mark.requirement("B1")
def test_it_has_window_acts_costs_and_breaks(made: Made) -> None:
    report = made(sessions=2)
    text = " ".join(Reader(page(report)).text)
    for word in (
        *report.policies,
        *report.files,
        "Window",
        "Input cost so far",
        "Breaks",
        "offload",
        "trim",
        "idle over 5 min",
    ):
        assert word in text
    assert "tools[3].description changed" in text


@pytest.mark.slow
def test_thousands_of_points_and_many_sessions_stay_small(made: Made) -> None:
    long = page(made(sessions=1, requests=8_000))
    many = page(made(sessions=50, requests=120))
    assert len(long) < 600_000
    assert len(many) < 6_000_000
    assert many.count("<details") >= 50
    assert len(re.findall(r"<details[^>]* open", many)) == 1


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
def test_what_is_empty_makes_a_page_too(report: ReplayReport) -> None:
    found = Reader(page(report))
    assert found.open == []
    assert "nan" not in page(report).lower().replace("announced", "")


@given(st.lists(st.floats(0, 1e9) | st.just(float("nan")), max_size=40))
def test_every_request_has_a_place_within_the_chart(times: list[float]) -> None:
    points = [Point(at + 1, time, 1, 1, 0, 0, 0, 0, 0.0, 0.0) for at, time in enumerate(times)]
    for axis in (by_number(points), by_time(points)):
        assert len(axis.places) == len(points)
        assert all(0 <= place <= 1 for place in axis.places)
        assert list(axis.places) == sorted(axis.places)
        assert 1 <= len(axis.ticks) <= 12


@given(st.floats(1e-6, 1e12), st.integers(2, 9))
def test_ticks_are_few_and_within(largest: float, most: int) -> None:
    ticks = nice_ticks(largest, most)
    assert ticks[0] == 0
    assert 1 <= len(ticks) - 1 <= most
    assert ticks[-1] <= largest * 1.000001


@given(st.lists(st.integers(), max_size=200), st.integers(1, 50))
def test_neighbourhoods_keep_everything_in_order(items: list[int], most: int) -> None:
    found = buckets(items, most)
    assert [each for group in found for each in group] == items
    assert len(found) <= most
    assert all(found)


@pytest.fixture
def browser(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Browser]:
    yield from opened_browser(tmp_path / "profile", request.param)


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("browser", [1280, 400], indirect=True)
def test_a_browser_opens_it_without_a_complaint_a_request_or_a_sideways_scroll(
    made: Made, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    names = ("a" * 120 + ".jsonl", HOSTILE[1], "c.jsonl", "d.jsonl")
    file.write_text(page(made(sessions=4, names=names, unbilled=(0,))), "utf-8")
    said, asked = browser.visit(file)
    assert (said, asked) == ([], [])
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.run("return window.innerWidth") in (1280, 400)
    visible = (
        "return [...document.querySelectorAll('.session[open] .chart svg')].filter(e => e.checkVisibility())"
        ".map(e => e.querySelector('title').textContent)"
    )
    assert browser.run(visible) == ["Window over request: balanced", "Input cost over request, summed up"]
    browser.run(
        "document.querySelector('label[for=axis-time]').click(); document.querySelector('label[for=pick-2]').click()"
    )
    assert browser.run(visible) == ["Window over time: append-only", "Input cost over time, summed up"]
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
