"""Plan: write the plan of the session for approval, and end it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import ReverieError
from .context import ToolContext
from .tool import Access, NoPreview, Output, error_output, object_schema

MAX_PLAN_CHARS: Final = 50_000
_INPUT: Final = object_schema(
    ("action",),
    action={"enum": ["write", "done"]},
    text={
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_PLAN_CHARS,
        "description": "With write: the whole plan in Markdown, its steps as a list of boxes (- [ ] step)",
    },
)


class PlanTool(NoPreview):
    """The tool Plan: writes the plan of the session, asks for its approval, and ends it."""

    name = "Plan"
    description = (
        "Write the plan of this session; also allowed in plan mode. The action write gives the whole plan: it "
        "replaces the one before and is shown for approval, and the result is the answer. Ticking boxes of an approved "
        "plan needs no new approval. The action done ends the plan when all of it is done. "
        "Use it in plan mode, or when the user asks for a plan."
    )
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: only the session's own plan changes."""
        return Access("none")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Write or end the plan, and return its state; an error output where there is no plan to end."""
        if context.plan is None:
            return error_output("There is no plan here. Describe the plan in your answer.")
        try:
            if input["action"] == "done":
                return Output(await context.plan.finish())
            text = str(input.get("text", ""))
            if not text.strip():
                return error_output("The action write needs the whole plan as text.")
            return Output(await context.plan.propose(text))
        except ReverieError as error:
            return error_output(error)
