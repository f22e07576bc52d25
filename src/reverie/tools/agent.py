"""Agent and AgentStop: give a task to another agent, and stop one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import ReverieError
from ..ports import AgentRequest
from .context import ToolContext
from .tool import Access, NoPreview, Output, error_output, object_schema

_NONE_HERE: Final = "no agents can be started from here: do the work yourself, and list the steps that remain"
_INPUT: Final = object_schema(
    ("description", "prompt"),
    description={"type": "string", "minLength": 1, "description": "The task in three to five words"},
    prompt={
        "type": "string",
        "minLength": 1,
        "description": "The whole task. An agent of a type knows nothing else; a fork knows this conversation",
    },
    kind={"type": "string", "description": "The type, as it is listed; left out: a fork of this conversation"},
    background={
        "type": "boolean",
        "description": "Return at once; the result comes by itself in a later turn. Never wait by polling",
    },
    isolation={
        "type": "string",
        "enum": ["none", "worktree"],
        "description": "worktree: a checkout of its own, kept on a branch if it changes something",
    },
    model={"type": "string", "description": "One of the user's names for models, where another one is wanted"},
)


class AgentTool(NoPreview):
    """The tool Agent: starts another agent and returns its result, or its id if it runs in the background."""

    name = "Agent"
    description = (
        "Hand a task to another agent and get back its result. With a kind it begins with a context of its own and "
        "knows only the prompt: for searches through much text, and for tasks with a complete description. Without a "
        "kind it is a fork: it knows all of this conversation, which costs little, and answers one thing beside it. "
        "Several in one reply run at the same time; do not give two of them the same files to change. Its result is "
        "a claim, not a fact: check the important parts. An agent can do nothing that you could not do."
    )
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return the kind ``checkout`` for an agent in a worktree, else ``none``: its own tool calls are checked."""
        kind = str(input.get("kind", "")).strip()
        is_apart = input.get("isolation") == "worktree" or (
            context.agents is not None and context.agents.works_apart(kind)
        )
        return Access("checkout" if is_apart else "none", kind)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Start an agent and return its result as text, as an error if it failed; do not wait if in background."""
        if context.agents is None:
            return error_output(_NONE_HERE)
        try:
            request = AgentRequest(
                str(input["prompt"]),
                kind=str(input.get("kind") or "").strip(),
                description=str(input.get("description") or ""),
                background=bool(input.get("background")),
                worktree=input.get("isolation") == "worktree",
                model=str(input.get("model") or "").strip(),
            )
            started = await context.agents.start(request)
        except ReverieError as error:
            return error_output(error)
        return Output(started.text, is_error=started.status in ("failed", "killed"))


_STOP_INPUT: Final = object_schema(
    ("agent",), agent={"type": "string", "minLength": 1, "description": "The id that Agent returned"}
)


class AgentStop(NoPreview):
    """The tool AgentStop: stops an agent and everything that agent started."""

    name = "AgentStop"
    description = "Stop an agent that runs in the background, with everything it started. Its changes stay."
    input_schema = _STOP_INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: an agent can stop only agents below itself in its team."""
        return Access("none", str(input.get("agent", "")))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Stop the agent with the given id and return a text about its end; an error output if that fails."""
        if context.agents is None:
            return error_output("there are no agents to stop from here")
        try:
            return Output(await context.agents.stop(str(input["agent"]).strip()))
        except ReverieError as error:
            return error_output(error)
