"""The list of steps of an agent, read from its log."""

from __future__ import annotations

from typing import Any, cast

from ...conversation.authorship import utterances
from ...conversation.view import View
from ...tools.context import Todo

__all__ = ["todos_in"]


def todos_in(view: View) -> list[Todo]:
    """Return the steps of the last TodoWrite call in a view's history; an empty list if there is none."""
    for entry in reversed(view.history):
        for one in utterances(entry):
            given: Any = one.input
            if one.kind == "call" and one.tool == "TodoWrite" and isinstance(given, dict):
                return _todos(cast("dict[str, Any]", given).get("todos"))
    return []


def _todos(given: Any) -> list[Todo]:
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    steps = [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]
    return [Todo(str(one.get("content", "")), str(one.get("status", "pending"))) for one in steps]
