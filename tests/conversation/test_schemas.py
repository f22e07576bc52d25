"""Tool inputs are checked against the schema of their tool, if the tool is known."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.conversation.wire.schemas import input_problem

READ: dict[str, Any] = {
    "name": "Read",
    "input_schema": {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["file_path"],
        "additionalProperties": False,
    },
}


@pytest.mark.requirement("K7")
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("Read", {"file_path": "/a"}, None),
        ("Read", {"file_path": "/a", "limit": 5}, None),
        ("Read", {}, "file_path"),
        ("Read", {"file_path": 7}, "file_path"),
        ("Read", {"file_path": "/a", "limit": "many"}, "limit"),
        ("Read", {"file_path": "/a", "colour": "red"}, "colour"),
        ("Write", {"anything": 1}, None),
    ],
)
def test_an_input_is_checked_by_its_tools_own_schema(name: str, arguments: dict[str, Any], said: str | None):
    problem = input_problem([READ], name, arguments)
    assert (problem is None) if said is None else (problem is not None and said in problem)


def test_a_schema_that_is_none_checks_nothing():
    assert input_problem([{"name": "Odd", "input_schema": {"type": "objec"}}], "Odd", {}) is None
    assert input_problem([{"name": "Odd"}], "Odd", {}) is None
