"""The text of a tool call that a person decides on: whole, and with control characters as they are."""

from __future__ import annotations

import json

from .permissions import Approval


def call_text(approval: Approval) -> str:
    """Return the preview of a call, its command or URL with its other inputs, or its input as JSON."""
    if approval.preview:
        return approval.preview
    if approval.access.kind in ("run", "fetch") and approval.access.target:
        return "\n".join([approval.access.target, *other_inputs(approval, approval.access.target)])
    return _as_json(dict(approval.input), indent=2)


def other_inputs(approval: Approval, *shown: str) -> list[str]:
    """Return a line for each input of a call except the values that are shown already."""
    return [f"({key}: {_as_json(one)})" for key, one in approval.input.items() if one not in shown]


def _as_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
