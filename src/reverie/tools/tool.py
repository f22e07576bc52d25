"""The protocol of a tool, and the records it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ..values import record

if TYPE_CHECKING:
    from .context import ToolContext

__all__ = ["Access", "AccessKind", "NoPreview", "Output", "Tool", "error_output"]

AccessKind: TypeAlias = Literal["none", "read", "write", "run", "fetch", "other"]


@record
class Access:
    """The effect of a call: none, a path to read or write, a command to run, a URL to fetch, or something that only
    the tool knows (a tool of an MCP server).

    ``doubt`` is a reason to ask a person although the target alone needs no permission: a file inside the workspace
    may have another hard link outside.
    """

    kind: AccessKind
    target: str = ""
    doubt: str = ""


@record
class Output:
    """The result of a tool: text or content blocks, and the absolute paths of files it read or wrote."""

    content: str | list[dict[str, Any]]
    is_error: bool = False
    read: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()


def error_output(message: object) -> Output:
    """Return an error output with a message and advice."""
    return Output(str(message), is_error=True)


class Tool(Protocol):
    """A tool of an agent; every input is checked against the schema before a method gets it."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """The description for the model: its effect and when to use it."""
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
        """Return the effect of a call, before it runs; pure, quick and never raising."""
        ...

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return a unified diff for the person who allows the call, or an empty text."""
        ...

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Run the call; return an error output instead of raising, and clean up when cancelled."""
        ...


class NoPreview:
    """Gives a tool an empty preview: its access already says all, or it changes nothing."""

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return no preview."""
        return ""
