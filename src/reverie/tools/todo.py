"""TodoWrite: replace the agent's list of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .context import Todo, ToolContext
from .tool import Access, NoPreview, Output, error_output, object_schema

MAX_TODOS: Final = 100
_MARKS: Final = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_INPUT: Final = object_schema(
    ("todos",),
    todos={
        "type": "array",
        "maxItems": MAX_TODOS,
        "items": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The step"},
                "status": {"enum": list(_MARKS)},
            },
            "required": ["content", "status"],
            "additionalProperties": False,
        },
    },
)


class TodoWrite(NoPreview):
    """The tool TodoWrite: replaces the agent's to-do list."""

    name = "TodoWrite"
    description = (
        "Keep a list of steps for work that has three or more of them. Give the whole list each time: it replaces the "
        "one before. At most one step is in_progress; mark a step completed as soon as it is done. Not for small tasks."
    )
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``."""
        return Access("none")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Replace the items of ``context.todos`` and return the list as text; refuse two steps in progress.

        The list object stays the same, because the terminal shows it.
        """
        todos = [Todo(str(one["content"]), str(one["status"])) for one in input["todos"]]
        active = [one for one in todos if one.status == "in_progress"]
        if len(active) > 1:
            names = "; ".join(one.content for one in active[:3])
            return error_output(
                f"{len(active)} steps are in_progress ({names}); keep one and set the others to pending"
            )
        context.todos[:] = todos
        return Output("\n".join(f"{_MARKS[one.status]} {one.content}" for one in todos) or "The list is empty.")
