"""Write and Edit: only files that were read and are unchanged, atomically, with everything else preserved."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.tools import Output, ToolContext
from reverie.tools.edit import Edit
from reverie.tools.files.replacement import text_edit
from reverie.tools.read import Read
from reverie.tools.write import Write, unified_diff


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(cwd=tmp_path)


def read(context: ToolContext, path: str, **more: Any) -> Output:
    return anyio.run(Read().run, {"file_path": path, **more}, context)


def write(context: ToolContext, path: str, content: str) -> Output:
    return anyio.run(Write().run, {"file_path": path, "content": content}, context)


def edit(context: ToolContext, path: str, old: str, new: str, **more: Any) -> Output:
    return anyio.run(Edit().run, {"file_path": path, "old_string": old, "new_string": new, **more}, context)


def test_a_new_file_is_written_with_its_directories(context: ToolContext) -> None:
    output = write(context, "a/b/c.txt", "text\n")
    assert output.wrote == (str(context.cwd / "a/b/c.txt"),)
    assert (context.cwd / "a/b/c.txt").read_text() == "text\n"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((context.cwd / "a/b/c.txt").stat().st_mode) == 0o666 & ~umask


def test_what_was_written_may_be_edited_without_reading_it(context: ToolContext) -> None:
    write(context, "a.txt", "one\ntwo\n")
    assert not edit(context, "a.txt", "two", "three").is_error
    assert not edit(context, "a.txt", "three", "four").is_error
    assert (context.cwd / "a.txt").read_text() == "one\nfour\n"
    assert not write(context, "a.txt", "five\n").is_error


@pytest.mark.parametrize("tool", ["write", "edit"])
def test_a_file_that_was_not_read_is_left_alone(context: ToolContext, tool: str) -> None:
    (context.cwd / "a.txt").write_text("one\n")
    output = write(context, "a.txt", "new") if tool == "write" else edit(context, "a.txt", "one", "two")
    assert output.is_error
    assert "read it first" in str(output.content)
    assert (context.cwd / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("tool", ["write", "edit"])
def test_a_file_that_changed_since_it_was_read_is_left_alone(context: ToolContext, tool: str) -> None:
    path = context.cwd / "a.txt"
    path.write_text("one\n")
    read(context, "a.txt")
    before = path.stat()
    path.write_text("0ne one\n"[:4])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the time alone would not tell
    output = write(context, "a.txt", "new") if tool == "write" else edit(context, "a.txt", "ne", "two")
    assert output.is_error
    assert "changed on disk since you read it" in str(output.content)
    assert path.read_text() == "0ne "


def test_a_file_that_was_only_touched_may_be_edited(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\n")
    read(context, "a.txt")
    os.utime(context.cwd / "a.txt")
    assert not edit(context, "a.txt", "one", "two").is_error


def test_only_lines_that_were_read_may_be_edited(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("".join(f"line {number:03}\n" for number in range(1, 101)))
    read(context, "a.txt", offset=10, limit=5)
    refused = edit(context, "a.txt", "line 050", "changed")
    assert refused.is_error
    assert "offset=50" in str(refused.content)
    assert edit(context, "a.txt", "line 014\nline 015", "changed").is_error
    assert not edit(context, "a.txt", "line 012", "one\ntwo\nthree").is_error
    assert not edit(context, "a.txt", "line 014", "fourteen").is_error  # now two lines further down
    assert edit(context, "a.txt", "line 015", "changed").is_error
    assert write(context, "a.txt", "new").is_error
    assert edit(context, "a.txt", "line", "row", replace_all=True).is_error


def test_a_passage_that_is_not_unique_is_refused_or_replaced_everywhere(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("a = 1\nb = 1\na = 1\n")
    read(context, "a.txt")
    refused = edit(context, "a.txt", "a = 1", "a = 2")
    assert refused.is_error
    assert "2 times" in str(refused.content)
    assert "lines 1, 3" in str(refused.content)
    output = edit(context, "a.txt", "a = 1", "a = 2", replace_all=True)
    assert "2 places" in str(output.content)
    assert (context.cwd / "a.txt").read_text() == "a = 2\nb = 1\na = 2\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("     1\tdef f(x):", "line numbers"),
        ("def f(x):\n      return x", "white space"),
        ("s = 'quoted'", "quotes"),
        ("def f(y):", "nearest is at line 1"),
        ("zzzzzzzzzz", "read the file again"),
    ],
)
def test_a_passage_that_is_not_found_comes_with_what_was_perhaps_meant(
    context: ToolContext, old: str, hint: str
) -> None:
    (context.cwd / "a.py").write_text("def f(x):\n    return x\ns = ‘quoted’\n")
    read(context, "a.py")
    refused = edit(context, "a.py", old, "new")
    assert refused.is_error
    assert hint in str(refused.content)


def test_nothing_to_change_an_empty_passage_and_notebooks_are_refused(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\n")
    (context.cwd / "a.ipynb").write_text("{}")
    (context.cwd / "a.bin").write_bytes(b"\0one")
    for path in ("a.txt", "a.ipynb"):
        read(context, path)
    assert "the same" in str(edit(context, "a.txt", "one", "one").content)
    assert "Write" in str(edit(context, "a.txt", "", "one").content)
    assert "notebook" in str(edit(context, "a.ipynb", "{", "[").content)
    assert "notebook" in str(write(context, "a.ipynb", "{}").content)
    assert "binary" in str(edit(context, "a.bin", "one", "two").content)
    assert "binary" in str(write(context, "a.bin", "two").content)


def test_a_protected_file_is_not_replaced(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\n")
    (context.cwd / "a.txt").chmod(0o444)
    read(context, "a.txt")
    assert "write-protected" in str(edit(context, "a.txt", "one", "two").content)


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o640])
def test_rights_are_kept(context: ToolContext, mode: int) -> None:
    (context.cwd / "run.sh").write_text("echo one\n")
    (context.cwd / "run.sh").chmod(mode)
    read(context, "run.sh")
    edit(context, "run.sh", "one", "two")
    assert stat.S_IMODE((context.cwd / "run.sh").stat().st_mode) == mode


@given(
    st.lists(st.text("abcäß日 ", max_size=8), min_size=1, max_size=8),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
@pytest.mark.slow
def test_encoding_line_ends_and_every_other_byte_are_kept(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], encoding: str, newline: str, ends: bool
) -> None:
    context = ToolContext(cwd=tmp_path_factory.mktemp("edit"))
    before = newline.join([*lines, "MARK one", *lines]) + (newline if ends else "")
    if encoding == "latin-1":
        before = before.replace("日", "é")
    path = context.cwd / "a.txt"
    path.write_bytes(before.encode(encoding))
    read(context, "a.txt")
    output = edit(context, "a.txt", "MARK one", "MARK two\nand three")
    assert not output.is_error, output.content
    assert path.read_bytes() == before.replace("MARK one", f"MARK two{newline}and three").encode(encoding)


def test_a_file_that_mixes_line_ends_keeps_each(context: ToolContext) -> None:
    path = context.cwd / "a.txt"
    path.write_bytes(b"a\r\nb\nc\r\nd\n")
    read(context, "a.txt")
    assert not edit(context, "a.txt", "a\nb", "A\nB").is_error
    assert path.read_bytes() == b"A\r\nB\nc\r\nd\n"


def test_a_letter_the_encoding_cannot_hold_changes_nothing(context: ToolContext) -> None:
    path = context.cwd / "a.txt"
    path.write_bytes(b"caf\xe9 one\n")
    read(context, "a.txt")
    refused = edit(context, "a.txt", "one", "日")
    assert refused.is_error
    assert "latin-1" in str(refused.content)
    assert path.read_bytes() == b"caf\xe9 one\n"


def test_a_failed_write_leaves_the_file_and_nothing_beside_it(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\n")
    read(context, "a.txt")
    assert edit(context, "a.txt", "one", "\ud800").is_error
    assert os.listdir(context.cwd) == ["a.txt"]
    assert (context.cwd / "a.txt").read_text() == "one\n"


@given(st.text("ab\n", max_size=30), st.text("ab\n", min_size=1, max_size=3), st.text("ab\n", max_size=3))
def test_an_edit_is_what_replacing_text_gives(text: str, old: str, new: str) -> None:
    if old not in text:
        return
    change = text_edit(text, old, new, everywhere=True, path="a")
    assert change.text == text.replace(old, new)
    assert len(change.places) == text.count(old)
    assert change.text.count("\n") - text.count("\n") == sum(more for _, _, more in change.places)


def test_the_preview_is_a_diff_of_what_would_be_done(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    read(context, "a.txt")
    shown = anyio.run(
        Edit().preview, {"file_path": "a.txt", "old_string": "line 50\n", "new_string": "changed\n"}, context
    )
    assert "@@ -47,7 +47,7 @@" in shown
    assert "-line 50\n+changed\n" in shown
    created = anyio.run(Write().preview, {"file_path": "new.txt", "content": "one\ntwo\n"}, context)
    assert "+one\n+two\n" in created
    assert os.listdir(context.cwd) == ["a.txt"]


def test_a_preview_of_a_change_that_cannot_be_made_is_empty(context: ToolContext) -> None:
    assert anyio.run(Edit().preview, {"file_path": "x", "old_string": "a", "new_string": "b"}, context) == ""


def test_a_preview_is_whole_however_large_the_change() -> None:
    lines = [f"line {number}" for number in range(3_000)]
    shown = unified_diff("", "\n".join(lines) + "\n", "a").splitlines()
    assert [row[1:] for row in shown[2:] if row.startswith("+")] == lines
    assert not [row for row in shown[2:] if row.startswith("-")]
    assert "y" * 1_000_000 in unified_diff("x" * 1_000_000, "y" * 1_000_000, "a")


def test_a_new_file_does_not_replace_one_that_appears_meanwhile(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("mine\n")
    assert write(context, "a.txt", "theirs\n").is_error
    assert (context.cwd / "a.txt").read_text() == "mine\n"


def test_a_file_that_a_killed_write_left_in_the_users_folder_goes_with_a_later_one(
    context: ToolContext, tmp_path: Path
) -> None:
    killed = f"""
import os, signal
from pathlib import Path
import anyio
from reverie.tools import ToolContext
from reverie.tools.write import Write
os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
anyio.run(Write().run, {{"file_path": "a.txt", "content": "half"}}, ToolContext(cwd=Path({str(tmp_path)!r})))
"""
    assert subprocess.run([sys.executable, "-c", killed], timeout=60).returncode == -9
    [left] = tmp_path.iterdir()
    theirs = tmp_path / ".tmp-1"
    theirs.write_text("of the user")
    write(context, "b.txt", "text")
    assert left.exists(), "its writer may still be at it"
    for one in (left, theirs):
        os.utime(one, (1, 1))
    write(context, "b.txt", "again")
    assert {one.name for one in tmp_path.iterdir()} == {".tmp-1", "b.txt"}
