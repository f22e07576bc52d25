"""No test depends on a wall clock, which also measures the other load of the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time_ns"}
# Files with an assert that reads a clock, and why that is right.
ALLOWED = {
    "cli/test_chat_pieces.py": "the bound on waiting for a process",
    "memories/test_head_files.py": "the bound on waiting for the file system's clock",
    "runtime/test_dream_process.py": "the stamp of a dream is a time of day",
    "support/tmux_terminal.py": "the bound on waiting for a terminal",
    "storage/test_postgres.py": "the bound on waiting for a heartbeat, and for the end of a lease",
    "storage/test_faults.py": "the bound on waiting for a process",
}


def reads_clock(node: ast.AST, known: set[str]) -> bool:
    """Say whether code reads a clock, or a name that was made from one."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in known | CLOCKS:
            return True
        if isinstance(each, ast.Attribute):
            of = each.value.id if isinstance(each.value, ast.Name) else ""
            if each.attr in CLOCKS or (of, each.attr) == ("time", "time") or of == "timeit":
                return True
    return False


def timed_names(function: ast.AST) -> set[str]:
    """Return the names within a function that hold a reading of a clock, or something made from one."""
    known: set[str] = set()
    while True:
        found = set(known)
        for node in ast.walk(function):
            match node:
                case ast.Assign(value=value, targets=[ast.Name(id=name)]):
                    found |= {name} if reads_clock(value, known) else set()
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                    found |= {name} if reads_clock(value, known) else set()
                case ast.FunctionDef(name=name) if node is not function:
                    returns = [one for one in ast.walk(node) if isinstance(one, ast.Return)]
                    found |= {name} if any(reads_clock(one, known) for one in returns) else set()
                case _:
                    pass
        if found == known:
            return known
        known = found


def clock_asserts(source: str) -> set[int]:
    """Return the lines of asserts that depend on a wall clock."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        node.lineno
        for function in functions
        for known in [timed_names(function)]
        for node in ast.walk(function)
        if isinstance(node, ast.Assert) and reads_clock(node.test, known)
    }


def test_no_assert_depends_on_a_wall_clock() -> None:
    sources = {str(file.relative_to(TESTS)): file.read_text() for file in sorted(TESTS.rglob("*.py"))}
    reading = {
        file: source
        for file, source in sources.items()
        if re.search(r"\b(time|timeit) *import|import (time|timeit)\b", source)
    }
    found = {file: lines for file, source in reading.items() if (lines := clock_asserts(source))}
    new = {file: lines for file, lines in found.items() if file not in ALLOWED}
    assert new == {}, "count steps (steps_of), compare processor time (is_linear), or wait for an event with a bound"
    assert set(ALLOWED) == set(found), "take what no longer reads a clock off the list"


@pytest.mark.parametrize(
    "body",
    [
        "began = time.monotonic(); act(); assert time.monotonic() - began < 2",
        "began = perf_counter(); act(); took = perf_counter() - began; assert took < 2",
        "took = []; took.append(time.time() - before); assert min(took) < 2",
        "best = 1.0; best = min(best, time.perf_counter() - start); assert best < 0.001",
        "seconds = lambda: time.perf_counter() - start; assert seconds() < 2",
        "assert min(timeit.repeat(act)) < 1",
    ],
)
def test_a_test_of_speed_is_caught(body: str) -> None:
    assert clock_asserts(f"def test_it():\n    {body}")


def test_a_test_of_speed_is_caught_through_a_function_of_its_own() -> None:
    body = "    def seconds():\n        return time.monotonic() - began\n    assert seconds() < 2\n"
    assert clock_asserts(f"def test_it():\n{body}")


@pytest.mark.parametrize("body", ["assert time.process_time() < 5", "assert store.time() == 3", "assert wait(60)"])
def test_other_asserts_are_let_through(body: str) -> None:
    assert clock_asserts(f"def test_it():\n    {body}") == set()


def test_a_cost_that_grows_with_the_square_is_caught(
    is_linear: Callable[..., bool], steps_of: Callable[[Callable[[], object]], int]
) -> None:
    def squared(size: int) -> int:
        return sum(1 for _ in range(size) for _ in range(size))

    assert is_linear(lambda size: sum(range(size)), 20_000)
    assert not is_linear(squared, 100)
    assert steps_of(lambda: squared(80)) > 40 * steps_of(lambda: squared(10))
    assert steps_of(lambda: squared(50)) == steps_of(lambda: squared(50))
