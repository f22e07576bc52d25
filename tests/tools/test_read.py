"""Read: numbered lines within limits, images, refusals, and results that left the view."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pictures import image_block, png
from reverie.conversation.tokens.estimate import estimate_text
from reverie.settings import AgentPolicy
from reverie.tools import Output, ToolContext
from reverie.tools.files.text_files import MAX_EDIT_BYTES
from reverie.tools.read import MAX_LINE_CHARS, Read, show_lines


def read(context: ToolContext, path: str, **more: Any) -> Output:
    return anyio.run(Read().run, {"file_path": path, **more}, context)


def text(output: Output) -> str:
    assert isinstance(output.content, str)
    return output.content


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(cwd=tmp_path)


def test_lines_are_numbered_like_cat_does(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\n\n  three\n")
    output = read(context, "a.txt")
    assert output.content == "     1\tone\n     2\t\n     3\t  three"
    assert output.read == (str(context.cwd / "a.txt"),)


def test_a_range_is_shown_with_its_own_numbers_and_says_what_it_is(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    output = text(read(context, "a.txt", offset=10, limit=2))
    assert output == "    10\tline 10\n    11\tline 11\n[lines 10 to 11 of 100]"


@pytest.mark.requirement("L1.2")
def test_a_long_file_is_cut_at_the_limits_and_reads_on_from_there(context: ToolContext) -> None:
    (context.cwd / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 5_001)))
    output = text(read(context, "long.txt"))
    assert output.count("\n") == 2_000
    assert "offset=2001" in output.rsplit("\n", 1)[1]
    assert text(read(context, "long.txt", offset=2_001)).startswith("  2001\tline 2001\n")


@pytest.mark.requirement("L1.2")
@given(
    st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=300), max_size=80),
    st.integers(0, 100),
    st.none() | st.integers(1, 100),
)
def test_what_is_shown_stays_within_every_limit_and_counts_right(
    lines: list[str], offset: int, limit: int | None
) -> None:
    policy = AgentPolicy(read_max_lines=20, read_max_tokens=400, read_max_bytes=3_000)
    shown = show_lines("".join(f"{line}\n" for line in lines), offset, limit, policy)
    rows = shown.text.split("\n") if shown.text else []
    count = shown.last - shown.first + 1
    assert count <= 20
    assert len(shown.text.encode()) <= 3_000 or count == 1
    assert estimate_text(shown.text) <= 400 or count == 1
    assert shown.total == len(lines)
    for number, row in zip(range(shown.first, shown.last + 1), rows, strict=False):
        assert row == f"{number:6}\t{lines[number - 1]}".removesuffix("\r")
    if shown.whole:
        assert count == len(lines)
    elif count > 0 and not (offset > 1 or limit is not None):
        assert f"offset={shown.last + 1}" in shown.note


@pytest.mark.requirement("L1.2")
def test_read_declares_that_it_is_never_offloaded() -> None:
    assert Read().max_chars == inf


def test_a_very_long_line_is_cut_and_its_rest_is_read_by_bytes(context: ToolContext) -> None:
    whole = "x" * 10_000 + "needle" + "y" * 10_000
    (context.cwd / "min.js").write_text(whole)
    first = text(read(context, "min.js"))
    assert f"{len(whole) - MAX_LINE_CHARS:,} more characters" in first
    assert "needle" not in first
    part = text(read(context, "min.js", byte_offset=9_990, byte_limit=30))
    assert part.startswith("x" * 10 + "needle")
    assert "byte_offset=10020 reads on" in part


def test_every_byte_can_be_reached_by_byte_offsets_without_cutting_a_character(context: ToolContext) -> None:
    whole = "für Straße 日本語 🎈 " * 50
    (context.cwd / "a.txt").write_text(whole)
    found, at = "", 0
    while at < len(whole.encode()):
        answer = text(read(context, "a.txt", byte_offset=at, byte_limit=17))
        part, _, tail = answer.rpartition("\n[bytes ")
        found += part
        at = int(tail.split(" to ")[1].split(" of ")[0].replace(",", ""))
    assert found == whole


def test_a_huge_file_is_read_in_parts_without_reading_all_of_it(context: ToolContext) -> None:
    line = "0123456789" * 10 + "\n"
    with (context.cwd / "huge.log").open("w") as file:
        for number in range(300_000):
            file.write(f"{number + 1} {line}")
    output = text(read(context, "huge.log", offset=299_999, limit=2))
    assert output.startswith("299999\t299999 0123")
    assert "300000\t300000 0123" in output
    first = text(read(context, "huge.log"))
    assert first.startswith("     1\t1 0123")
    assert "reads on" in first
    assert read(context, "huge.log", offset=300_002).is_error


def test_an_image_is_shown_as_an_image(context: ToolContext) -> None:
    (context.cwd / "dot.png").write_bytes(png(1, 1))
    output = read(context, "dot.png")
    assert output.content == [image_block(png(1, 1))]
    assert output.read == (str(context.cwd / "dot.png"),)


@pytest.mark.parametrize(
    ("magic", "media"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp")],
)
def test_images_are_known_by_what_they_are_not_by_their_name(context: ToolContext, magic: bytes, media: str) -> None:
    (context.cwd / "picture.dat").write_bytes(magic + bytes(100))
    output = read(context, "picture.dat")
    assert isinstance(output.content, list)
    assert output.content[0]["source"]["media_type"] == media


def test_an_image_that_is_too_large_is_refused(context: ToolContext) -> None:
    with (context.cwd / "big.png").open("wb") as file:
        file.write(png(1, 1))
        file.truncate(MAX_EDIT_BYTES + 1)
    output = read(context, "big.png")
    assert output.is_error
    assert "smaller" in text(output)


@pytest.mark.parametrize(
    ("name", "says"),
    [("data.bin", "binary"), ("folder", "directory"), ("missing.txt", "does not exist"), ("no/such/dir", "Glob")],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(context: ToolContext, name: str, says: str) -> None:
    (context.cwd / "data.bin").write_bytes(b"\x7fELF\0\1\2\3")
    (context.cwd / "folder").mkdir()
    output = read(context, name)
    assert output.is_error
    assert says in text(output)


def test_a_name_that_is_nearly_right_is_suggested(context: ToolContext) -> None:
    (context.cwd / "Settings.py").write_text("x")
    assert str(context.cwd / "Settings.py") in text(read(context, "settings.py"))


def test_an_empty_file_says_so_and_an_offset_past_the_end_is_an_error(context: ToolContext) -> None:
    (context.cwd / "empty").write_text("")
    assert text(read(context, "empty")) == "[the file is empty]"
    (context.cwd / "short").write_text("one\n")
    output = read(context, "short", offset=5)
    assert output.is_error
    assert "at most 1" in text(output)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("ä\r\nb\r\n".encode(), "ä"),
        (b"\xef\xbb\xbf\xc3\xa4\n", "ä"),
        ("ä\n".encode("utf-16"), "ä"),
        (b"\xe4\n", "ä"),
    ],
)
def test_text_is_text_in_whatever_encoding(context: ToolContext, data: bytes, shown: str) -> None:
    (context.cwd / "a.txt").write_bytes(data)
    assert text(read(context, "a.txt")).split("\n")[0] == f"     1\t{shown}"


@pytest.mark.requirement("L1.4")
def test_a_stored_result_is_read_by_the_handle_or_path_that_the_view_names(tmp_path: Path) -> None:
    stored = "".join(f"row {number}\n" for number in range(1, 5_001)).encode()
    names = {"toolu_0123abc", "/home/x/projects/p/s/tool-results/toolu_0123abc.txt"}
    context = ToolContext(cwd=tmp_path, read_back=lambda handle: stored if handle in names else None)
    for name in names:
        assert Read().access({"file_path": name}, context).kind == "none"
        assert text(read(context, name, offset=4_000, limit=1)).startswith("  4000\trow 4000")
        assert "row 2" in text(read(context, name, byte_offset=6, byte_limit=5))
    assert not context.reads.known.count


def test_a_file_goes_before_a_handle_of_the_same_name(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path, read_back=lambda handle: b"stored")
    (tmp_path / "toolu_0123abc").write_text("file\n")
    assert "file" in text(read(context, "toolu_0123abc"))


def test_reading_again_is_always_a_real_read(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("same\n")
    assert text(read(context, "a.txt")) == text(read(context, "a.txt"))
