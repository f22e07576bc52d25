"""A small strict parser with limits reads front matter, and written front matter reads back the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reverie.errors import InputError
from reverie.memories.store.frontmatter import LIMIT_BYTES, FrontMatter, parse, render

KEYS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from("\"'\\#:,[]{}-&*!|>%@` \n\t\r\x00\u2028\ufeffaé")),
    st.sampled_from(["no", "yes", "~", "null", "007", "1e3", "2026-01-01", "", " x ", "---", "- a", "a: b", "a #b"]),
)
PLAIN = st.one_of(TEXTS, st.lists(TEXTS, max_size=4))
VALUES = st.one_of(PLAIN, st.dictionaries(KEYS, PLAIN, max_size=4))
MATTERS = st.builds(FrontMatter, st.dictionaries(KEYS, VALUES, max_size=5), TEXTS)

MEMORY = """---
# written by hand
name: use-the-real-database
description: "Tests run against the real database: a mock hid a broken migration"
type: feedback
confirmed: no
version: 007
tags: [testing, 'it''s fine', "a, b"]   # a list
sources:
  - session-1
  - "session: 2"
metadata:
  trust: user
  seen: [a, b]
x-unknown: kept
empty:
---
Body with --- inside.
---
and more
"""


@pytest.mark.requirement("S6")
def test_a_memory_is_read_as_it_was_meant_and_every_value_is_text() -> None:
    found = parse(MEMORY)
    assert found.fields == {
        "name": "use-the-real-database",
        "description": "Tests run against the real database: a mock hid a broken migration",
        "type": "feedback",
        "confirmed": "no",
        "version": "007",
        "tags": ["testing", "it's fine", "a, b"],
        "sources": ["session-1", "session: 2"],
        "metadata": {"trust": "user", "seen": ["a", "b"]},
        "x-unknown": "kept",
        "empty": "",
    }
    assert found.body == "Body with --- inside.\n---\nand more\n"
    assert list(found.fields) == list(parse(render(found)).fields)


@pytest.mark.requirement("S6")
@given(MATTERS)
@example(FrontMatter({}, "---\nname: x\n---\n"))
@example(FrontMatter({}, "\ufeffhello"))
@example(FrontMatter({"a": {}, "b": [], "c": [""]}, ""))
def test_what_is_written_reads_back_the_same(matter: FrontMatter) -> None:
    assert parse(render(matter)) == matter


def naive(matter: FrontMatter) -> str:
    """Write values as they are, the way quick scripts do: the known-bad twin."""
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in matter.fields.items()) + f"---\n{matter.body}"


@pytest.mark.parametrize("value", ["a #b", "*x", '"', "[a", " x ", "two\nlines", "|"])
def test_writing_values_as_they_are_would_be_caught(value: str) -> None:
    matter = FrontMatter({"key": value}, "")
    try:
        survived = parse(naive(matter)) == matter
    except InputError:
        survived = False
    assert not survived
    assert parse(render(matter)) == matter


ALIAS_BOMB = """---
a: &a ["lol", "lol", "lol", "lol", "lol", "lol", "lol", "lol", "lol"]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]
d: [*c, *c, *c, *c, *c, *c, *c, *c, *c]
---
"""


@pytest.mark.requirement("S6")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ALIAS_BOMB, "line 2 .*an anchor"),
        ("---\na: [*b]\n---\n", "an alias"),
        ("---\na: !!python/object/apply:os.system [x]\n---\n", "a tag"),
        ("---\na: |\n  text\n---\n", "a block scalar"),
        ("---\na: {b: c}\n---\n", "an inline table"),
        ("---\n<<: x\n---\n", "not 'key: value'"),
        ("---\na: 1\na: 2\n---\n", "a second time"),
        ("---\na:\n  b: 1\n  b: 2\n---\n", "a second time"),
        ("---\na:\n  b:\n    c: 1\n---\n", "indented"),
        ("---\na:\n  - b: 1\n---\n", "nested too deeply"),
        ("---\na: [[b]]\n---\n", "nested"),
        ("---\na: [b\n---\n", "not closed"),
        ('---\na: "b\n---\n', "not closed"),
        ('---\na: "b" c\n---\n', "something after"),
        ('---\na: "\\q"\n---\n', "unknown escape"),
        ('---\na: "\\ud800"\n---\n', "no character"),
        ("---\n\ta: b\n---\n", "tab"),
        ("---\n  a: b\n---\n", "indented under nothing"),
        ("---\njust text\n---\n", "not 'key: value'"),
        ("---\na b: c\n---\n", "not 'key: value'"),
        ("---\na:b\n---\n", "not 'key: value'"),
        ("---\na: b\n", "not closed"),
        ("---", "not closed"),
        ("---\na: - b\n---\n", "put the value in quotes"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse(text)


def refusal(text: str) -> bool:
    """Say whether a text is refused for its length."""
    with pytest.raises(InputError, match="longer than 65536 bytes"):
        parse(text)
    return True


@pytest.mark.requirement("S6")
@pytest.mark.slow
def test_no_more_than_64_kb_is_read(steps_of: Callable[[Callable[[], object]], int]) -> None:
    fits = "---\n" + "a: " + "x" * (LIMIT_BYTES - 4) + "\n---\n"
    assert len(parse(fits + "y" * 1_000_000).body) == 1_000_000
    assert refusal(fits.replace("x\n", "xx\n", 1))
    for unit in ("x", "#\n"):
        long, huge = ("---\n" + unit * count for count in (100_000, 10_000_000))
        assert steps_of(lambda long=long: refusal(long)) == steps_of(lambda huge=huge: refusal(huge))
    with pytest.raises(InputError, match="65536"):
        render(FrontMatter({"a": "é" * LIMIT_BYTES}, ""))


@given(st.text(st.sampled_from("ab:-#[]{}\"'\\,&*! \t\n\r|>\u2028\ud800")))
def test_any_text_is_read_or_refused_and_nothing_else_happens(text: str) -> None:
    for candidate in (text, f"---\n{text}\n---\nbody", f"---\nkey: {text}\n---\n"):
        with suppress(InputError):
            assert candidate.endswith(parse(candidate).body)


@pytest.mark.parametrize(
    "text", ["", "no front matter", "# heading\n---\na: b\n---\n", "--- \nx"[4:], " ---\na: b\n---\n"]
)
def test_a_file_without_front_matter_is_all_body(text: str) -> None:
    assert parse(text) == FrontMatter({}, text)


def test_windows_line_ends_and_a_byte_order_mark_are_no_trouble() -> None:
    assert parse("\ufeff---\r\na: b\r\nc:\r\n- d\r\n---\r\nbody\r\n") == FrontMatter({"a": "b", "c": ["d"]}, "body\r\n")


@pytest.mark.parametrize("key", ["", "a b", "a:b", "<<", "é", "a\n"])
def test_a_key_that_could_not_be_read_back_is_not_written(key: str) -> None:
    with pytest.raises(InputError, match="cannot be a key"):
        render(FrontMatter({key: "x"}, ""))
