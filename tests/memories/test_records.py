"""A memory file is read whatever is in it, and what is rewritten loses no line that was not changed."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reverie.errors import InputError
from reverie.memories.store.frontmatter import FrontMatter, parse, render
from reverie.memories.store.records import front_matter, read_record, revised_text
from reverie.memories.store.store import MemoryStore

CLAUDE_CODE = """---
name: Testing policy
description: integration tests must hit a real database, not mocks
metadata: 
  node_type: memory
  type: feedback
  originSessionId: 5f0c-11
---

Integration tests must hit a real database.

**Why:** mocks hid a broken migration.
"""

WORDS = st.one_of(
    st.text(st.sampled_from("ab c:#\"'\\\t\r\u00a0\u2028é—7-[]{}&*"), max_size=12),
    st.sampled_from(
        ["feedback", '"quoted: text"', '"a #b"', "a  b", "'single'", "[a, b]", "{}", "|", "2026-01-01", '""']
    ),
)
LINES = st.one_of(
    st.builds("{}: {}".format, st.sampled_from(["name", "type", "x-y", "a.b", "description", "trust"]), WORDS),
    st.builds("{}:{}".format, st.sampled_from(["metadata", "name"]), st.sampled_from(["", " ", "  "])),
    st.builds("  {}: {}".format, st.sampled_from(["type", "deep"]), WORDS),
    WORDS,
)
HEADS = st.builds(
    lambda lines, rest: "---\n" + "\n".join(lines) + rest,
    st.lists(LINES, max_size=7),
    st.sampled_from(["\n---\nbody\n", "\n---\n", "\n---", "\n"]),
)


def strictly(text: str) -> FrontMatter | str:
    try:
        return parse(text)
    except InputError:
        return "refused"


def quickly(text: str) -> FrontMatter | str:
    try:
        return front_matter(text)
    except InputError:
        return "refused"


@pytest.mark.requirement("S6")
@given(HEADS)
@example("---\nname: a\n---\n")
@example('---\nname: "a\x85b"\n---\nx')
@example("---\nmetadata:\n  type: user\nname: b\n---\n")
@example("---\nname: a\nname: b\n---\n")
@example('---\nname: "a"b"\n---\n')
@example("---\nname: a\u2028\n---\n")
def test_the_quick_reading_reads_what_the_strict_one_reads(text: str) -> None:
    strict, quick = strictly(text), quickly(text)
    assert quick == strict
    if isinstance(strict, FrontMatter):
        data = text.encode()
        whole, head = read_record("f.md", data), read_record("f.md", data, head_only=True)
        assert (whole.name, whole.description, whole.type, whole.trust, whole.extra) == (
            head.name,
            head.description,
            head.type,
            head.trust,
            head.extra,
        )


@pytest.mark.requirement("M3", "D2")
def test_a_memory_of_claude_code_is_read_and_its_own_fields_stay_when_it_is_changed() -> None:
    found = read_record("feedback_testing.md", CLAUDE_CODE.encode())
    assert (found.name, found.type, found.trust) == ("Testing policy", "feedback", "agent")
    assert found.source == ("5f0c-11",)
    assert found.extra["metadata"] == {"node_type": "memory", "type": "feedback", "originSessionId": "5f0c-11"}
    changed = revised_text(CLAUDE_CODE, {"description": "real database in integration tests", "modified": "2026-11-16"})
    kept = [line for line in CLAUDE_CODE.splitlines(keepends=True) if not line.startswith("description")]
    assert [line for line in changed.splitlines(keepends=True) if line in kept] == kept
    assert parse(changed).fields["description"] == "real database in integration tests"


@pytest.mark.requirement("M3")
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]))
    ),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["name", "trust", "zz"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_setting_one_field_leaves_all_others_and_the_body_as_they_were(
    fields: dict[str, str], body: str, key: str, value: str
) -> None:
    text = render(FrontMatter(dict(fields), body))
    revised = parse(revised_text(text, {key: value}))
    if parse(text).fields:
        assert revised.fields == {**fields, key: value}
        assert revised.body == body
        assert list(revised.fields)[: len(fields)] == list(fields), "in their order"


def test_comments_and_unusual_spacing_survive_a_change() -> None:
    text = "---\n# mine\nname:   spaced\n\n# about tags\ntags:\n  - a\n  - b  # why\ntype: user\n---\nbody"
    changed = revised_text(text, {"type": "project"})
    assert changed == text.replace("type: user", "type: project")
    assert revised_text(text, {"tags": None}) == text.replace("tags:\n  - a\n  - b  # why\n", "")


def test_windows_line_ends_stay() -> None:
    text = "---\r\nname: a\r\ntype: user\r\n---\r\nbody\r\n"
    assert revised_text(text, {"type": "project"}) == text.replace("user", "project")


def malformed(chance: random.Random, number: int) -> bytes:
    """Return front matter that is broken in one of many ways."""
    seeds = [
        b"---\nname: a\n",
        b"---\nname: &x a\nother: *x\n---\n",
        b"---\nname: a\nname: b\n---\n",
        b"---\nname: [a, [b]]\n---\n",
        b"---\n\tname: a\n---\n",
        b'---\nname: "open\n---\n',
        b"---\nname: !!python/object:os.system a\n---\n",
        b"---\na:\n  b:\n    c: d\n---\n",
        b"---\nname: \xff\xfe\n---\n",
        b"---\n" + b"k" * 70_000 + b"\n---\n",
        b"---\nname: |\n  block\n---\n",
        b"---\n: a\n---\n",
        b"---\n{}\n---\n",
        b"---\nx: \x00\n y\n---\n",
    ]
    data = bytearray(seeds[number % len(seeds)])
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = bytes(chance.randrange(256) for _ in range(chance.randrange(3)))
    return bytes(data) + b"text %d\n" % number


@pytest.mark.requirement("S6", "M3")
@pytest.mark.slow
def test_a_thousand_malformed_files_hide_no_other_and_are_named(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(1_000):
        (tmp_path / f"bad_{number}.md").write_bytes(malformed(chance, number))
        (tmp_path / f"good_{number}.md").write_text(f"---\nname: good {number}\ntype: user\n---\nfine\n")
    scan = MemoryStore(str(tmp_path)).scan()
    assert len(scan.memories) == 2_000
    assert sum(memory.name.startswith("good ") and not memory.problem for memory in scan.memories) == 1_000
    assert len(scan.problems) > 500
    for number in range(1_000):
        data = (tmp_path / f"bad_{number}.md").read_bytes()
        refused = False
        with suppress(UnicodeDecodeError):
            refused = strictly(data.decode()) == "refused"
        if refused:
            assert f"bad_{number}.md" in scan.problems


@given(st.binary())
def test_no_bytes_at_all_raise(data: bytes) -> None:
    assert read_record("f.md", data).file == "f.md"
    assert read_record("f.md", b"---\n" + data, head_only=True).file == "f.md"
