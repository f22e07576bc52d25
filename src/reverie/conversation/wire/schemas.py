"""Validation of tool inputs against the schemas of their tools, and of schemas that a provider enforces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

_MAX_OPTIONAL: Final = 24
_MAX_UNIONS: Final = 16
_MAX_DEPTH: Final = 50
_BOUNDS: Final = frozenset(
    [
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "minProperties", "maxProperties"),
    ]
)

_NOTES: Final = frozenset({"description", "title", "default", "examples"})
"""Keywords that allow and refuse nothing."""


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


def takes_inputs_of(schema: Any, older: Any) -> bool:
    """Return whether a schema surely takes every input that an older one takes."""
    if not isinstance(schema, dict) or not isinstance(older, dict):
        return schema == older
    new, old = cast("dict[str, Any]", schema), cast("dict[str, Any]", older)
    for keyword, value in new.items():
        before: Any = old.get(keyword)
        if keyword in _NOTES:
            taken = True
        elif keyword == "properties":
            closed = new.get("additionalProperties", True) is not True
            known = cast("dict[str, Any]", value)
            parts = cast("dict[str, Any]", before or {}).items()
            taken = all(takes_inputs_of(known[name], part) if name in known else not closed for name, part in parts)
            taken = taken and (old.get("additionalProperties") is False or set(known) <= set(before or {}))
        elif keyword == "required":
            taken = set(value) <= set(before or ())
        elif keyword == "enum":
            taken = before is not None and all(one in value for one in before)
        elif keyword == "anyOf":
            taken = before is not None and len(before) == len(value) and all(map(takes_inputs_of, value, before))
        else:
            taken = takes_inputs_of(value, before)
        if not taken:
            return False
    return True


@lru_cache(maxsize=256)
def _checker(schema: bytes) -> Any:
    """Return the compiled schema, or None if it is not a valid schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema))
    except ValueError:
        return None


def strict_faults(schemas: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the faults of schemas that a provider enforces as (path, message); their limits hold over all of them."""
    optional = unions = 0
    for path, schema in schemas:
        for where, part in _parts(schema, path):
            bounds = sorted(_BOUNDS.intersection(part))
            if bounds:
                yield where, f"For '{part.get('type')}' type, property '{bounds[0]}' is not supported"
            if isinstance(part.get("$ref"), str) and _is_recursive(schema, part["$ref"]):
                yield where, "Recursive schemas are not supported"
            properties = part.get("properties")
            if isinstance(properties, dict):
                required: Any = part.get("required")
                needed = cast("list[Any]", required) if isinstance(required, list) else []
                optional += sum(name not in needed for name in cast("dict[str, Any]", properties))
            unions += "anyOf" in part or isinstance(part.get("type"), list)
    if optional > _MAX_OPTIONAL:
        yield "", f"Schemas contain too many optional parameters ({optional}), the limit is {_MAX_OPTIONAL}"
    if unions > _MAX_UNIONS:
        yield "", f"Schemas contain too many parameters with union types ({unions}), the limit is {_MAX_UNIONS}"


def _parts(schema: Any, path: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and every schema inside it, each with its path."""
    if isinstance(schema, list):
        for index, inner in enumerate(cast("list[Any]", schema)):
            yield from _parts(inner, f"{path}.{index}", depth + 1)
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    found = cast("dict[str, Any]", schema)
    yield path, found
    for name in ("items", "anyOf", "allOf", "additionalProperties"):
        yield from _parts(found.get(name), f"{path}.{name}", depth + 1)
    for name in ("properties", "$defs", "definitions"):
        named = found.get(name)
        for key, inner in cast("dict[str, Any]", named).items() if isinstance(named, dict) else ():
            yield from _parts(inner, f"{path}.{name}.{key}", depth + 1)


def _is_recursive(schema: Any, reference: str) -> bool:
    """Say whether a local reference leads back to itself."""
    seen: set[str] = set()
    waiting = [reference]
    while waiting:
        found = _resolved(schema, waiting.pop())
        for _, part in _parts(found, ""):
            inner = part.get("$ref")
            if inner == reference:
                return True
            if isinstance(inner, str) and inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return reference == "#"


def _resolved(schema: Any, reference: str) -> Any:
    found = schema
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            found = cast("dict[str, Any]", found).get(step) if isinstance(found, dict) else None
    return found
