"""The preview of a long text: a limited number of bytes, whole characters, whole lines if that keeps half."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l1_offload.content import persisted_text, preview_of


@pytest.mark.requirement("L1.3")
@pytest.mark.parametrize(
    ("text", "limit", "preview"),
    [
        ("", 10, ""),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "0123456789"),
        ("01234567\n9a", 10, "01234567"),
        ("01234\n6789a", 10, "01234"),
        ("0123\n56789a", 10, "0123\n56789"),
        ("\n123456789a", 10, "\n123456789"),
        ("ab\ncd\nef\ngh\nij", 10, "ab\ncd\nef"),
        ("0123456789\n", 10, "0123456789"),
        ("éééééé", 11, "ééééé"),
        ("漢字漢字", 10, "漢字漢"),
        ("012345678\U0001f600", 10, "012345678"),
        ("a\r\nb\r\nc\r\nde", 9, "a\r\nb\r\nc\r"),
        ("\ud800" * 20, 10, "?" * 10),
    ],
)
def test_the_cut(text: str, limit: int, preview: str) -> None:
    assert preview_of(text, limit) == preview


def rules_broken(text: str, limit: int, preview: str) -> list[str]:
    """Say which rules of the cut a preview breaks, written anew from the specification."""
    whole, cut = text.encode(), preview.encode()
    if len(whole) <= limit:
        return [] if cut == whole else ["a short text is shown whole"]
    broken: list[str] = []
    if not whole.startswith(cut):
        broken.append("it is the beginning")
    if len(cut) > limit:
        broken.append("it is not longer than allowed")
    newline = whole[:limit].rfind(b"\n")
    if newline * 2 >= limit and len(cut) != newline:
        broken.append("it ends at the last newline")
    if newline * 2 < limit and not limit - 3 <= len(cut) <= limit:
        broken.append("a newline before half does not count")
    return broken


@pytest.mark.requirement("L1.3")
@given(text=st.text(alphabet=st.sampled_from("ab\n\r\té漢\U0001f600\0\x1b")), limit=st.integers(1, 40))
def test_every_cut_keeps_the_rules(text: str, limit: int) -> None:
    assert rules_broken(text, limit, preview_of(text, limit)) == []


def test_a_cut_at_any_newline_and_a_cut_through_a_character_would_be_seen() -> None:
    assert rules_broken("a\n" + "b" * 20, 10, "a")
    assert rules_broken("b" * 8 + "\nabc", 10, "b" * 8 + "\na")
    assert rules_broken("é" * 10, 5, "é\N{REPLACEMENT CHARACTER}")


@pytest.mark.requirement("L1.3")
def test_the_wrapper_names_size_path_and_handle_and_shows_the_beginning() -> None:
    text = "first line\n" + "x" * 5_000
    said = persisted_text(text, size_bytes=5_011, path="/home/u/r/toolu_1.txt", handle="toolu_1", preview_bytes=2_000)
    assert said.startswith("<persisted-output>\n")
    assert said.endswith("\n</persisted-output>")
    for part in ("5.0 kB", "5,011 bytes", "/home/u/r/toolu_1.txt", "toolu_1", "first 2,000 bytes", "first line\nxxx"):
        assert part in said
    assert len(said) < 2_500
