"""Outputs of commands in the invented repository: test runs, logs, diffs, type checks."""

from __future__ import annotations

from random import Random
from typing import Final

from .project import InventedProject, SourceFile

HUGE_CHARS: Final = 60_000
_LEVELS: Final = ("INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "ERROR")
_EVENTS: Final = (
    "request served",
    "cache refreshed",
    "lease renewed",
    "row locked, waiting",
    "upstream answered late",
    "page cut",
    "retrying after conflict",
    "session resumed",
)


def test_run(rng: Random, project: InventedProject, failing: SourceFile | None, cases: int) -> str:
    """Return the output of a test run with up to ``cases`` tests; up to 3 tests of a failing file's thing fail."""
    tests = [source for source in project.files if source.short.startswith("tests/")]
    names = [
        (source, line.split("(")[0].removeprefix("def "))
        for source in tests
        for line in source.lines
        if line.startswith("def test_")
    ]
    chosen = names if len(names) <= cases else rng.sample(names, cases)
    chosen.sort(key=lambda pair: pair[0].short)
    broken = [pair for pair in chosen if failing is not None and pair[0].thing == failing.thing][:3]
    lines = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.12.3, pytest-8.3.4, pluggy-1.5.0 -- /home/noor/harbour/.venv/bin/python",
        f"rootdir: /home/noor/harbour\nconfigfile: pyproject.toml\ncollected {len(chosen)} items\n",
    ]
    for at, (source, name) in enumerate(chosen, start=1):
        verdict = "FAILED" if (source, name) in broken else "PASSED"
        lines.append(f"{source.short}::{name} {verdict} [{at * 100 // len(chosen):>3}%]")
    for source, name in broken:
        lines += ["", f"_____ {name} _____", *_traceback(rng, failing or source, source, name)]
    took = rng.randrange(300, 9_000) / 100
    tail = f"{len(broken)} failed, {len(chosen) - len(broken)} passed" if broken else f"{len(chosen)} passed"
    return "\n".join([*lines, "", f"============ {tail} in {took:.2f}s ============"])


def _traceback(rng: Random, code: SourceFile, test: SourceFile, name: str) -> list[str]:
    at = rng.randrange(30, max(31, len(code.lines) - 12))
    shown = [f"    {line}" for line in code.lines[at : at + 10]]
    case = next((number for number, line in enumerate(test.lines) if line.startswith(f"def {name}(")), 0)
    return [
        *(f"    {line}" for line in test.lines[case : case + 5]),
        "",
        f"{test.short}:{case + 3}:",
        "_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _",
        *shown,
        f"E   AssertionError: assert Decimal('{rng.randrange(10, 99)}.50') == Decimal('{rng.randrange(10, 99)}.00')",
        f"{code.short}:{at + 9}: AssertionError",
    ]


def server_log(rng: Random, project: InventedProject, chars: int) -> str:
    """Return a service's log of about the given number of characters."""
    lines: list[str] = []
    size, second = 0, 8 * 3600
    things = project.things()
    while size < chars:
        second += rng.randrange(0, 4)
        clock = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.{rng.randrange(1000):03}"
        thing = rng.choice(things).lower()
        line = (
            f"2026-03-02T{clock}Z {rng.choice(_LEVELS):<5} harbour.{thing} {rng.choice(_EVENTS)} "
            f"id={thing[:2]}-{rng.getrandbits(32):08x} depot={rng.choice(('oslo', 'gdansk', 'porto', 'varna'))} "
            f"took_ms={rng.randrange(2, 900)} trace={rng.getrandbits(64):016x}"
        )
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def diff(rng: Random, sources: list[SourceFile]) -> str:
    """Return a diff that changes four lines in each of the files."""
    lines: list[str] = []
    for source in sources:
        lines += [f"diff --git a/{source.short} b/{source.short}", f"--- a/{source.short}", f"+++ b/{source.short}"]
        for at in sorted(rng.sample(range(8, max(12, len(source.lines) - 8)), 4)):
            part = source.lines[at - 4 : at + 5]
            lines.append(f"@@ -{at - 3},{len(part)} +{at - 3},{len(part) + 1} @@")
            lines += [f" {line}" for line in part[:4]]
            lines += [f"-{line}" for line in part[4:5]]
            lines += [f"+{line}  # reviewed" for line in part[4:5]]
            lines += [f" {line}" for line in part[5:]]
    return "\n".join(lines)


def type_check(rng: Random, project: InventedProject, errors: int) -> str:
    """Return the output of a type checker that found so many errors in random files."""
    lines: list[str] = []
    for _ in range(errors):
        source = rng.choice(project.files)
        at = rng.randrange(1, len(source.lines))
        kind = rng.choice(("str", "Decimal", "int"))
        lines.append(
            f'  {source.path}:{at}:{rng.randrange(5, 60)} - error: Argument of type "{kind} | None" cannot be assigned '
            f'to parameter "{source.thing.lower()}_id"'
        )
    lines.append(f"{errors} errors, 0 warnings, 0 informations" if errors else "0 errors, 0 warnings, 0 informations")
    return "\n".join(lines)
