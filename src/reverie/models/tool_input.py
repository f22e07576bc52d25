"""JSON of a provider as plain values, above all the arguments a model wrote for a tool, as a ``tool_use`` block.

Arguments that are not a JSON object are kept whole under one key: the block is valid, the model sees its own text,
and the caller can refuse to run the tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from ..cache.usage import usage_of
from ..conversation.entries import clean
from ..values import object_of

INVALID_JSON: Final = "INVALID_JSON"


def read_json(text: str | bytes) -> Any:
    """Return JSON from outside as plain values that can be encoded again; raise ``ValueError`` for other text."""
    try:
        return clean(json.loads(text, parse_constant=_no_constant))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def tool_input(text: str) -> dict[str, Any]:
    """Return a call's arguments, given as JSON text; {} for blank text, and other text under ``INVALID_JSON``."""
    if not text.strip():
        return {}
    try:
        value = read_json(text)
    except ValueError:
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {INVALID_JSON: clean(text)}


def malformed_input(block: Mapping[str, Any]) -> str | None:
    """Return the model's text if a call's arguments were not a JSON object; None if they were."""
    fields = object_of(block.get("input"))
    text = fields.get(INVALID_JSON)
    return text if len(fields) == 1 and isinstance(text, str) else None


def with_usage(body: dict[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a reply with the usage that another API reported, if it reported any."""
    usage = usage_of(reported)
    return {**body, "usage": usage.body()} if usage.input or usage.output else body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
