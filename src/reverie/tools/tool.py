"""The protocol of a tool and the records it returns; Grep's separate program loads this without other packages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from ..arguments import check_type
from ..conversation.file_reads import FileRead
from ..errors import InputError
from ..values import record

if TYPE_CHECKING:
    from .context import ToolContext

T = TypeVar("T")
AccessKind: TypeAlias = Literal["none", "read", "write", "run", "fetch", "checkout", "own", "other"]


@record
class Access:
    """The effect of a tool call: its kind and its target.

    The kind is ``none``, ``read`` or ``write`` (the target is a path), ``run`` (a command), ``fetch`` (a URL),
    ``checkout`` (a branch and a checkout of the repository are made), ``own`` (an effect that the program allows, of a
    function of its own) or ``other`` (an effect that only the tool knows,
    as of an MCP server). ``doubt`` is a reason to ask a person
    although the target alone needs no permission: a file inside the workspace may have another hard link outside.
    """

    kind: AccessKind
    target: str = ""
    doubt: str = ""


@record
class Output:
    """A tool's result: text or content blocks, whether it is an error, and absolute paths it read or wrote.

    ``found`` names deferred tools that requests declare from now on; ``files`` has the versions of the files that the
    agent may edit from now on; ``lines`` counts the lines of a text of which the content leaves some out.
    """

    content: str | list[dict[str, Any]]
    is_error: bool = False
    read: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    files: tuple[FileRead, ...] = ()
    lines: int | None = None

    @property
    def text(self) -> str:
        """The content as text; a block without text is named by its type."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in self.content)


def error_output(message: object) -> Output:
    """Return an ``Output`` that is an error, with the message as its text."""
    return Output(str(message), is_error=True)


class Tool(Protocol):
    """A tool of an agent; every input is checked against the schema before a method gets it.

    A tool with an attribute ``deferred = True`` is declared only after ToolSearch has found it. An attribute
    ``beside`` has sentences for its description that name other tools: a dict from those names, separated by spaces,
    to the sentence, which is used only if the agent has all of them. A method ``check``, with the arguments of
    ``preview``, returns why the call must fail, or an empty text: such a call fails before a person is asked.
    """

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """The description for the model: the tool's effect and when to use it."""
        ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the tool's input."""
        ...

    @property
    def max_chars(self) -> float | None:
        """Characters above which the tool's result is offloaded; infinite means never, None the default limit."""
        ...

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return the effect that a call would have, without running it; do not change anything and never raise."""
        ...

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return a text, usually a diff, that shows the change to the person who allows the call; may be empty."""
        ...

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Run the call and return its output; return an error output instead of raising; clean up if cancelled."""
        ...


def declaration(tool: Tool, others: Collection[str] = ()) -> dict[str, Any]:
    """Return the declaration of a tool in a request, beside ``others``: name, description and input schema."""
    beside: Mapping[str, str] = getattr(tool, "beside", {})
    told = [sentence for names, sentence in beside.items() if set(names.split()) <= set(others)]
    description = " ".join([tool.description, *told])
    return {"name": tool.name, "description": description, "input_schema": tool.input_schema}


def checked_tools(given: Sequence[T], *, declared: bool = False) -> Sequence[T]:
    """Return a caller's tools; raise ``InputError`` unless each is a tool (``declared``: or a dict)."""
    check_type("tools", given, (list, tuple), "a list of tools")
    for tool in given:
        if not hasattr(tool, "input_schema") and not (declared and isinstance(tool, dict)):
            other = ", or a declaration with name, description and input_schema" if declared else ""
            raise InputError(f"{tool!r} is no tool: pass a function with @tool{other}")
    return given


def object_schema(required: Sequence[str], /, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


class NoPreview:
    """Base class of tools without a preview: their access already says everything, or they change nothing."""

    max_chars: float | None = None

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return an empty text."""
        return ""
