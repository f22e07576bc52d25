"""A test names every promise marked built, and tests name only existing promises."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SPECIFICATION = REPOSITORY.parent / "shared" / "SPEC.md"


def manifest(text: str) -> dict[str, dict[str, str]]:
    """Read the manifest as id -> entry."""
    parts: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {name: entry for part in parts.values() for name, entry in part.items() if name != "title"}


def named_in(source: str) -> Iterator[str]:
    """Yield the ids that tests in a module name by ``pytest.mark.requirement``."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark")), args=arguments):
                yield from (str(each.value) for each in arguments if isinstance(each, ast.Constant))
            case _:
                pass


@cache
def named_by_tests() -> set[str]:
    sources = [file.read_text() for file in sorted((REPOSITORY / "tests").rglob("test_*.py"))]
    return {name for source in sources if "mark.requirement" in source for name in named_in(source)}


def unproven(entries: dict[str, dict[str, str]], named: set[str]) -> list[str]:
    """Return the ids marked built that no test names."""
    return [name for name, entry in entries.items() if entry["status"] == "built" and name not in named]


def unknown(entries: dict[str, dict[str, str]], named: set[str]) -> list[str]:
    """Return the ids that tests name and the manifest does not have."""
    return sorted(named - set(entries))


ENTRIES = manifest((REPOSITORY / "requirements.toml").read_text())


@pytest.mark.slow
def test_every_promise_marked_built_is_named_by_a_test() -> None:
    assert unproven(ENTRIES, named_by_tests()) == []


@pytest.mark.slow
def test_tests_name_only_promises_of_the_manifest() -> None:
    assert unknown(ENTRIES, named_by_tests()) == []


def test_every_promise_has_a_known_status_and_a_line_of_its_own() -> None:
    assert {entry["status"] for entry in ENTRIES.values()} <= {"built", "planned"}
    lines = [entry["text"] for entry in ENTRIES.values()]
    assert len(set(lines)) == len(lines)
    assert all(line.endswith(".") and "\n" not in line for line in lines)


def test_the_manifest_has_the_ids_of_the_specification_and_no_others() -> None:
    if not SPECIFICATION.is_file():
        pytest.skip("the specification is not beside the repository")
    lines = SPECIFICATION.read_text().splitlines()
    specified = [found.group(1) for line in lines if (found := re.match(r"- ([A-Z]\d*\.?\d+) ", line))]
    assert sorted(ENTRIES) == sorted(specified)


def test_a_promise_without_a_test_is_caught() -> None:
    twin = manifest(
        '[K]\ntitle = "x"\nK1 = { status = "built", text = "a." }\nK2 = { status = "planned", text = "b." }'
    )
    assert unproven(twin, {"K2"}) == ["K1"]
    assert unproven(twin, {"K1"}) == []


def test_an_id_that_is_no_promise_is_caught() -> None:
    source = '@pytest.mark.requirement("K1", "K99")\ndef test_x() -> None: ...\n'
    assert unknown({"K1": {"status": "built"}}, set(named_in(source))) == ["K99"]


def test_an_id_in_a_comment_or_a_string_names_nothing() -> None:
    assert list(named_in('# requirement("K1")\ntext = \'pytest.mark.requirement("K1")\'\n')) == []
