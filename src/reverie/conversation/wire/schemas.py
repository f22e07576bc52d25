"""Tool inputs against the schemas their tools declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

__all__ = ["input_problem"]


def input_problem(tools: Iterable[Mapping[str, Any]], name: str, arguments: Any) -> str | None:
    """Say what is wrong with a call's input; None where nothing is, or where the tool or its schema is not known.

    A call with a wrong input is sent back as it came, since a provider accepts it and bytes once said do not change;
    whoever runs the tool is told instead.
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
    """Compile a schema once; one that is no schema checks nothing."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema))
    except ValueError:
        return None
