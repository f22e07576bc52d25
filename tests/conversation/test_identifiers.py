"""Exact names, mined in linear time and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.authorship import utterances
from reverie.conversation.identifiers import (
    Identifier,
    TextNames,
    best_identifiers,
    error_lines,
    mine,
    mine_entries,
    mine_groups,
)
from reverie.conversation.tokens.estimate import estimate_text


def names(said: str, kind: str, *, spoken: bool = False) -> set[str]:
    return {one.text for one in mine(said, spoken=spoken) if one.kind == kind}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("see src/app/main.py:120: it", {"src/app/main.py"}),
        ("cmd/cli/hooks.go-964-\tx", {"cmd/cli/hooks.go"}),
        ("`./lib/a-b.ts`, (/etc/hosts) and ~/.claude/projects", {"./lib/a-b.ts", "/etc/hosts", "~/.claude/projects"}),
        ("--config=conf/app.toml", {"conf/app.toml"}),
        ("read README.md and Makefile", {"README.md", "Makefile"}),
        ("and/or n/a 1/2 text/plain // comment console.log this.db", set()),
        ("tests/test_a.py::TestA::test_b", {"tests/test_a.py"}),
        ("MIIGnTCCBIWgAwIBAgICBcYwDQYJKoZI/hvcNAQEFBQAwRTELMAkGA1UEBhMCQk0xGTAX", set()),
    ],
)
def test_paths_are_found_bare_of_what_stands_around_them(said: str, found: set[str]) -> None:
    assert names(said, "path") == found


def test_other_kinds_are_told_apart() -> None:
    said = (
        "commit a4f7a52 (1bc12d35c27d4f0e9a1b2c3d4e5f60718293a4b5), deadbeef is a word, 1234567 a number; "
        "https://x.org/a?b=1#c. test_parse_empty TestParser fooBar foo_bar plain "
        "44df7d08-6bc4-4532-bef8-167ea3797cee"
    )
    assert names(said, "sha") == {"a4f7a52", "1bc12d35c27d4f0e9a1b2c3d4e5f60718293a4b5"}
    assert names(said, "url") == {"https://x.org/a?b=1#c"}
    assert names(said, "test") == {"test_parse_empty", "TestParser"}
    assert names(said, "symbol") == {"fooBar", "foo_bar"}
    assert names(said, "id") == {"44df7d08-6bc4-4532-bef8-167ea3797cee"}


def test_numbers_count_only_where_a_person_gave_them() -> None:
    said = "Raise it to 4,096 on port 8080, by 15%, before 2026-11-20 (#1234, v0.14.2); the id is a1b2-4532-x"
    assert names(said, "number", spoken=True) == {"4,096", "8080", "15%", "2026-11-20", "#1234"}
    assert names(said, "number") == set()


def test_error_lines_are_what_programs_say_and_no_code() -> None:
    output = """Traceback (most recent call last):
  File "a.py", line 3, in <module>
AttributeError: module 'x' has no attribute 'y'
E   AssertionError: assert 1 == 2
src/a.ts(5,6): error TS2304: Cannot find name 'join'.
fatal: not a git repository
--- FAIL: TestThing (0.00s)
    raise ValueError("no: this is code")
} catch (error: unknown) {
    isError: true,
12:    fmt.Errorf("error: %v", err)
"""
    assert list(error_lines(output)) == [
        "AttributeError: module 'x' has no attribute 'y'",
        "AssertionError: assert 1 == 2",
        "src/a.ts(5,6): error TS2304: Cannot find name 'join'.",
        "fatal: not a git repository",
        "--- FAIL: TestThing (0.00s)",
    ]


_LINES = (
    "ok 3 - adds", "not ok 4 - subtracts", "bash: foo: command not found", "cat: a: No such file or directory",
    "Segmentation fault (core dumped)", "rm: Permission denied", "ValueError: wrong", "npm ERR! missing", "FAILED a.py",
    "fatal: bad object", "panic: nil", "error TS2304: none", "at https://h.io/ValueError: a", "words", "größer: x",
)  # fmt: skip


@given(st.lists(st.sampled_from(_LINES), max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_every_error_line_is_mined_however_often_its_words_were_seen(lines: list[str], end: str) -> None:
    said = end.join(lines)
    for _ in range(2):
        assert names(said, "error") == set(error_lines(said))


def test_an_entry_is_mined_in_words_calls_and_results() -> None:
    script = Script()
    script.user("Fix /repo/a.py on port 8080")
    script.reply(
        text("The error: none.\nValueError: quoted"),
        call("t1", "Edit", file_path="/repo/a.py", new_string="import /repo/b.py"),
    )
    script.result("t1", "KeyError: 'port'")
    found = mine_entries(script.entries)
    assert found[Identifier("path", "/repo/a.py")] == 2
    assert found[Identifier("path", "/repo/b.py")] == 1
    assert found[Identifier("number", "8080")] == 1
    assert [one.text for one in found if one.kind == "error"] == ["ValueError: quoted", "KeyError: 'port'"]


@given(st.text(max_size=400))
def test_any_text_can_be_mined_and_every_name_stands_in_it(said: str) -> None:
    for one, count in mine(said, spoken=True).items():
        assert count > 0
        assert one.text in said


def test_mining_is_additive_over_entries() -> None:
    for seed in range(60):
        log = random_log(Random(seed))
        whole: Counter[Identifier] = Counter()
        for one in log:
            whole.update(mine_entries((one,)))
        assert whole == mine_entries(log)


def test_the_last_entry_that_has_a_name_is_known() -> None:
    for seed in range(60):
        log = random_log(Random(seed))
        _, last = mine_groups(map(utterances, log))
        assert last == {name: at for at, one in enumerate(log) for name in mine_entries((one,))}


@given(st.text(st.sampled_from("ab/._: \n(é"), max_size=60), st.text(st.sampled_from("ab/._: \n(é"), max_size=6))
def test_a_search_for_a_name_is_literal(said: str, name: str) -> None:
    assert (name in TextNames(said)) == (name in said)


def test_words_without_a_name_cost_nothing_in_later_texts(steps_of: Callable[[Callable[[], object]], int]) -> None:
    prose = " ".join(f"{chr(97 + one % 26) * (3 + one // 26)}" for one in range(2_000))
    first, second = (steps_of(lambda: mine(prose)) for _ in range(2))
    assert second < first / 20, f"{second} steps after {first}"


@pytest.mark.parametrize(
    "unit",
    ["a/b.py:1: error: x ", "/" * 7, "Error: ", "=" * 9, "x::" * 3, "Test: 1 ", "#L1", "a." * 4, "test_" * 2, "\\# "],
)
@pytest.mark.slow
def test_the_cost_is_linear_on_one_endless_line(unit: str, is_linear: Callable[..., bool]) -> None:
    assert is_linear(lambda times: mine(unit * times, spoken=True), 1_500)


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30), st.integers(1, 99)
    ),
    st.integers(0, 200),
)
def test_what_is_chosen_fits_and_is_worth_most(weights: dict[str, int], budget: int) -> None:
    given_weights = {Identifier("path", word): float(weight) for word, weight in weights.items()}
    found = best_identifiers(given_weights, budget)
    assert sum(estimate_text(one.text) + 1 for one in found) <= budget
    assert len(set(found)) == len(found)
    assert best_identifiers(given_weights, budget, present="\n".join(weights)) == []
    assert found == best_identifiers(dict(reversed(given_weights.items())), budget), (
        "the order of the weights does not matter"
    )
