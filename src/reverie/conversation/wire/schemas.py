"""Validation of tool inputs against the schemas of their tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

__all__ = ["input_problem"]


def input_problem(tools: Iterable[Mapping[str, Any]], name: str, arguments: Any) -> str | None:
    """Return a text about the first problem of a call's input; None if it is valid or the schema is unknown.

    A call with an invalid input stays unchanged in the conversation, since a provider accepts it and sent bytes never
    change; the code that runs the tool gets the problem instead.
    """
    schema = next((tool.get("input_schema") for tool in tools if tool.get("name") == name), None)
    if not isinstance(schema, dict):
        return None
    checker = _checker(msgspec.json.encode(schema))
    if checker is None:
        return None
    try:
        errors = list(checker.iter_errors(arguments))
    except ValueError as error:
        return str(error)
    if not errors:
        return None
    first = errors[0]
    where = ".".join(str(step) for step in first.instance_path)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}: {first.message}{more}" if where else f"{first.message}{more}"


@lru_cache(maxsize=256)
def _checker(schema: bytes) -> Any:
    """Return the compiled schema, or None if it is not a valid schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema))
    except ValueError:
        return None
