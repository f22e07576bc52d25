"""The arguments a model wrote for a tool, as the object that a ``tool_use`` block needs.

Arguments that are not a JSON object are kept whole under one key: the block is valid, the model sees its own text,
and the caller can refuse to run the tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from ..conversation.entries import clean

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
    given: Any = block.get("input")
    if not isinstance(given, dict):
        return None
    fields = cast("dict[str, Any]", given)
    text = fields.get(INVALID_JSON)
    return text if len(fields) == 1 and isinstance(text, str) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
