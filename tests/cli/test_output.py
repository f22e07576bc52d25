"""Printed text cannot control a terminal, and pipes get plain text."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reverie.cache.watch import IDLE_SHORT, losses_by_cause
from reverie.cli.costs.losses import draw_causes
from reverie.cli.output import bar, counted, emit_json, folded, printable, say, table
from reverie.values import record

from .conftest import Reverie

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = st.text(
    st.one_of(
        st.characters(max_codepoint=0x9F),
        st.characters(),
        st.sampled_from("\x1b\x9b\x9d\x07\x7f\r\b[]0;m\\" + BIDI),
        st.characters(categories=["Cs", "Cf", "Cc"]),
    )
)


def drives_terminal(text: str) -> list[str]:
    """Return the characters in a text that a terminal would act on or that reorder what is read."""
    return [
        each
        for each in text
        if (unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} and each not in "\n\t") or each in BIDI
    ]


def strip_colours(text: str) -> str:
    """Strip the way many programs do: the known-bad twin."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.requirement("S7")
@given(HOSTILE)
@example("\x1b[31mred\x1b[0m")
@example("\x9b31mred")
@example("\x1b]0;title\x07after")
@example("a\u202eb")
@example("\ud800")
def test_nothing_printable_drives_a_terminal(text: str) -> None:
    assert drives_terminal(printable(text)) == []


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x9b2J", "\x1b[2J", "back\bspace", "a\u202eb", "\x85"])
def test_stripping_colours_alone_would_be_caught(text: str) -> None:
    assert drives_terminal(strip_colours(text)) != []
    assert drives_terminal(printable(text)) == []


@given(HOSTILE)
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    once = printable(text)
    assert printable(once) == once


@given(st.text(st.one_of(st.characters(categories=["L", "N", "P", "S", "Zs"]), st.sampled_from("\n\t\u200d\ufe0f"))))
def test_ordinary_text_passes_untouched(text: str) -> None:
    deceptive_letters = "\u115f\u1160\u3164\uffa0"
    assert printable(text) == text or any(each in text for each in deceptive_letters)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x07", "link"),
        ("one\r\ntwo\tthree", "one\ntwo\tthree"),
        ("user\u202etxt.exe", "user<U+202E>txt.exe"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("half \ud83d", "half <U+D83D>"),
        ("tag\U000e0041", "tag<U+E0041>"),
        ("family 👩\u200d👧 é 漢字", "family 👩\u200d👧 é 漢字"),
        ("\x1b]never ended\nnext", "never ended\nnext"),
    ],
)
def test_sequences_go_whole_and_what_hides_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("unit", ["\x9d", "\x1b]", "\x1b[", "\x9b0", "\x1bP;", "\x90a"])
def test_a_long_hostile_text_takes_time_in_proportion(unit: str, is_linear: Callable[..., bool]) -> None:
    assert is_linear(lambda count: printable(unit * count), 5_000)


@pytest.mark.requirement("S7")
@given(HOSTILE)
def test_text_and_tables_and_json_reach_the_terminal_harmless(text: str) -> None:
    for act in (
        lambda: say(text),
        lambda: table(["name"], [[text]]),
        lambda: say(folded(text, "  ")),
        lambda: emit_json({text: [text]}),
    ):
        assert drives_terminal(printed_by(act)) == []


@pytest.mark.requirement("U5")
def test_a_narrow_screen_breaks_lines_between_words_and_cuts_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Paid for a long session with very many words that go on and on and on"
    assert printed_by(lambda: say(folded(line, "  "))) == f"  {line}\n"
    monkeypatch.setenv("COLUMNS", "60")
    shown = printed_by(lambda: say(folded(line, "  ")))
    assert all(len(one) < 60 and one.startswith("  ") for one in shown.splitlines())
    assert shown.split() == line.split()
    losses = [(IDLE_SHORT, 6.91), ("messages", 1.02)]
    causes = printed_by(lambda: draw_causes(losses))
    for cause, _ in losses_by_cause(losses):
        assert set(cause.remedy.split()) <= set(causes.split())
    assert max(map(len, causes.splitlines())) <= 60


@given(st.recursive(st.none() | st.integers() | HOSTILE, st.lists, max_leaves=5))
def test_json_means_what_was_given(value: object) -> None:
    printed = printed_by(lambda: emit_json(value))
    assert json.loads(printed) == value
    assert printed.isascii()


@record
class Pair:
    left: int
    right: Path


def test_records_and_paths_have_a_form_in_json() -> None:
    assert json.loads(printed_by(lambda: emit_json([Pair(1, Path("a/b"))]))) == [{"left": 1, "right": "a/b"}]


def test_a_table_in_a_pipe_is_plain_unfolded_and_not_padded() -> None:
    long = "x" * 500
    printed = printed_by(lambda: table(["name", "tokens"], [["[bold]a[/bold]", 7], [long, 1_000]], right=(1,)))
    lines = printed.splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["name", "tokens"]
    assert lines[1].split() == ["[bold]a[/bold]", "7"]
    assert lines[2].split() == [long, "1000"]
    assert printed == "".join(line.rstrip() + "\n" for line in lines)


def test_a_table_in_a_pipe_fits_the_columns_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    printed = printed_by(lambda: table(["name", "tokens"], [["x" * 500, 7]], right=(1,), cut=0))
    assert max(map(len, printed.splitlines())) == 60
    assert printed.splitlines()[1].endswith("x…       7")
    monkeypatch.setenv("COLUMNS", "wide")
    assert "x" * 500 in printed_by(lambda: table(["name", "tokens"], [["x" * 500, 7]], right=(1,), cut=0))


def test_a_bar_is_as_long_as_its_share() -> None:
    assert len(bar(50, 100, width=40)) == 20
    assert len(bar(0.001, 100, width=40)) == 1
    assert len(bar(200, 100, width=40)) == 40
    assert bar(0, 100) == bar(1, 0) == ""


def test_a_bar_is_drawn_in_what_the_encoding_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert bar(1, 1, width=3) == "###"


def printed_by(act: Callable[[], object]) -> str:
    """Return what an act writes to a stdout that is no terminal."""
    stream, before = io.StringIO(), sys.stdout
    sys.stdout = stream
    try:
        act()
    finally:
        sys.stdout = before
    return stream.getvalue()


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        (1, "section", "1 section"),
        (0, "section", "0 sections"),
        (1_200, "memory", "1,200 memories"),
        (30, "day", "30 days"),
    ],
)
def test_a_count_agrees_with_its_noun(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown


@pytest.mark.parametrize("columns", [40, 50, 58])
def test_bars_of_a_table_shrink_together_where_the_table_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    def draw() -> None:
        rows = [("a-project", bar(part, 30, width=30), "$1.1706", "242,333") for part in (30, 15, 3, 0)]
        table(["", "", "", ""], rows, right=(2, 3), cut=0)

    printed = printed_by(draw)
    lines = printed.splitlines()
    assert len(lines) == 4, printed
    assert max(map(len, lines)) <= columns
    first, half, least, none = (line.count("#") for line in lines)
    assert 8 <= first < 30
    assert first / 2 <= half <= first / 2 + 1
    assert 1 <= least <= first / 10 + 1
    assert none == 0


@pytest.mark.parametrize("columns", ["1", "2", "19"])
def test_a_screen_too_narrow_for_anything_gets_output_of_a_least_width(
    monkeypatch: pytest.MonkeyPatch, reverie: Reverie, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("stats", "config", "sessions"):
        code, out, err = reverie(command)
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) > 10
    assert max(map(len, folded("one word after another " * 5).splitlines())) < 20
