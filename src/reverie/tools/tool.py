"""What a tool is: a name, a schema, what it would touch, and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ..values import record

if TYPE_CHECKING:
    from .context import ToolContext

__all__ = ["Access", "AccessKind", "Output", "Tool", "failed"]

AccessKind: TypeAlias = Literal["none", "read", "write", "run", "fetch", "other"]


@record
class Access:
    """What a call would touch: nothing outside, a path to read or write, a command to run, a URL to fetch, or
    something only the tool knows (a tool of an MCP server).

    ``doubt`` says why a person should be asked even where the target alone would not need it: a file inside the
    workspace that has another name, perhaps outside.
    """

    kind: AccessKind
    target: str = ""
    doubt: str = ""


@record
class Output:
    """What a tool gives back: text or content blocks, and the files it read or wrote (absolute paths)."""

    content: str | list[dict[str, Any]]
    is_error: bool = False
    read: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()


def failed(message: object) -> Output:
    """Return an output that says what went wrong and what to do."""
    return Output(str(message), is_error=True)


class Tool(Protocol):
    """Something an agent can do; input has been checked against the schema before any method sees it."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, for the model."""
        ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of its input."""
        ...

    @property
    def max_chars(self) -> float | None:
        """Characters of a result above which it is offloaded; infinite means never, None the default."""
        ...

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Say what the call would touch; pure, quick and never raising."""
        ...

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return what a person should see before allowing it: a unified diff, or an empty text."""
        ...

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Do it. What goes wrong is an Output with ``is_error`` that says what to do; cancelling cleans up."""
        ...
