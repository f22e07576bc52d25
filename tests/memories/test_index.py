"""The index holds one line a memory, keeps what others wrote in it, is shown up to its caps, and can be rebuilt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.memories.store.index import changed, hunk_between, line_for, lines_of, load, merged, patched, rebuilt
from reverie.memories.store.records import MemoryRecord

FILES = st.sampled_from(["a.md", "b.md", "sub/c.md", "with (odd) name.md", "d.md"])
TITLES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30).filter(str.strip)
MEMORIES = st.dictionaries(FILES, st.tuples(TITLES, TITLES), max_size=5).map(
    lambda found: [MemoryRecord(file, name, about) for file, (name, about) in found.items()]
)
FOREIGN = st.sampled_from(
    ["# Memory index", "", "A note of mine.", "- a plain item", "- [web](https://x.org/y) link", "   "]
)
TEXTS = st.lists(st.one_of(FOREIGN, st.builds(line_for, st.builds(MemoryRecord, FILES, TITLES))), max_size=8).map(
    lambda lines: "\n".join(lines)
)


@pytest.mark.requirement("M2")
def test_a_line_names_the_memory_and_is_about_150_characters_long() -> None:
    line = line_for(MemoryRecord("feedback_db.md", "Use the real [database]", "word " * 80))
    assert line.startswith("- [Use the real \\[database\\]](feedback_db.md) — word word")
    assert 120 <= len(line) <= 150
    assert [(one.title, one.file) for one in lines_of(line)] == [("Use the real [database]", "feedback_db.md")]


@pytest.mark.requirement("M6")
@given(TEXTS, MEMORIES)
def test_rebuilt_from_the_files_the_index_is_what_the_files_are(text: str, memories: list[MemoryRecord]) -> None:
    index = rebuilt(text, memories)
    pointed = [line.file for line in lines_of(index) if line.file.endswith(".md")]
    assert sorted(pointed) == sorted(memory.file for memory in memories)
    assert rebuilt(index, memories) == index, "once is enough"
    foreign = [line for line in text.split("\n") if not any(one.file.endswith(".md") for one in lines_of(line))]
    kept = iter(index.split("\n"))
    assert all(line in kept for line in foreign), "what others wrote stays, in its order"


@given(TEXTS, FILES, TITLES)
def test_adding_and_taking_away_a_line_touches_no_other(text: str, file: str, title: str) -> None:
    bare = changed(text, {file: None})
    added = changed(bare, {file: line_for(MemoryRecord(file, title))})
    assert [line.file for line in lines_of(added)].count(file) == 1
    assert changed(added, {file: None}).rstrip("\n") == bare.rstrip("\n")


@given(TEXTS, TEXTS)
def test_a_hunk_goes_forth_and_back_byte_for_byte(old: str, new: str) -> None:
    hunk = hunk_between(old, new)
    assert patched(old, hunk) == new
    assert patched(new, hunk, backwards=True) == old


@given(TEXTS, FILES, TITLES, TEXTS)
def test_a_hunk_meant_for_another_text_still_brings_its_lines(old: str, file: str, title: str, other: str) -> None:
    line = line_for(MemoryRecord(file, title))
    after = merged(other, hunk_between(changed(old, {file: None}), changed(changed(old, {file: None}), {file: line})))
    assert [one.file for one in lines_of(after)].count(file) == 1


def test_line_ends_of_windows_stay() -> None:
    assert changed("# x\r\n- [A](a.md) — old\r\n", {"a.md": "- [A](a.md) — new", "b.md": "- [B](b.md)"}) == (
        "# x\r\n- [A](a.md) — new\r\n- [B](b.md)\r\n"
    )


@pytest.mark.requirement("M2")
@pytest.mark.parametrize("count", [1, 199, 200, 201, 500])
def test_two_hundred_lines_are_shown_and_a_warning_names_the_rest(count: int) -> None:
    text = "".join(f"- [Memory {number}](m{number}.md) — what\n" for number in range(count))
    shown = load(text)
    assert shown.text == "".join(text.splitlines(keepends=True)[:200])
    assert shown.left_out == tuple(f"m{number}.md" for number in range(200, count))
    if count > 200:
        assert "m200.md" in shown.warning
        assert shown.warning in shown.shown
        assert str(count) in shown.warning
    else:
        assert shown.shown == text
        assert shown.warning == ""


@pytest.mark.requirement("M2")
@given(st.lists(st.text(st.sampled_from("aé— x"), max_size=400), max_size=300))
def test_what_is_shown_is_a_beginning_within_both_caps_cut_at_a_newline(lines: list[str]) -> None:
    text = "\n".join(lines)
    shown = load(text, max_lines=20, max_bytes=1_000)
    assert text.startswith(shown.text)
    assert shown.text.count("\n") <= 20
    assert len(shown.text.encode()) <= 1_000
    cut = shown.text != text
    assert bool(shown.warning) == cut
    if cut and "\n" in text.encode()[:1_000].decode("utf-8", "ignore"):
        assert shown.text.endswith("\n")
