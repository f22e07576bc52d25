"""The protocol of a tool, the records it returns, and ``@tool``, which makes a tool from a typed function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from inspect import Parameter, getdoc, iscoroutinefunction, signature
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_type_hints,
    overload,
)

import msgspec

from ..conversation.file_reads import FileRead
from ..errors import InputError
from ..values import record

if TYPE_CHECKING:
    from .context import ToolContext

P = ParamSpec("P")
R = TypeVar("R")
FunctionAccess: TypeAlias = Literal["none", "own", "other"]
_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
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


class NoPreview:
    """Base class of tools without a preview: their access already says everything, or they change nothing."""

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return an empty text."""
        return ""


class FunctionTool(NoPreview, Generic[P, R]):
    """A tool that runs a typed function; calling it calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str = "",
        description: str = "",
        access: FunctionAccess = "own",
        max_chars: float | None = None,
    ) -> None:
        """Read name, description and schema from the function; raise ``InputError`` if its types have no schema."""
        self.name = name or function.__name__
        self.description = description or getdoc(function) or ""
        self.max_chars = max_chars
        self._function, self._effect = function, Access(access, self.name)
        try:
            self._type = _input_type(self.name, function)
            _, found = msgspec.json.schema_components([self._type])
        except (TypeError, NameError) as error:
            raise InputError(f"the function {self.name} cannot be a tool: {error}") from None
        own = {key: value for key, value in found.pop(self.name).items() if key != "title"}
        self.input_schema: dict[str, Any] = {**own, "$defs": found} if found else own

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self._function(*args, **kwargs)

    def access(self, input: Mapping[str, Any], context: object) -> Access:
        """Return the effect that the function was declared with."""
        return self._effect

    async def run(self, input: Mapping[str, Any], context: object = None) -> Any:
        """Call the function, in a thread unless it is async, and return its value; an error output for a bad input."""
        try:
            checked = msgspec.convert(input, self._type, strict=False)
        except msgspec.ValidationError as error:
            return error_output(f"The input does not fit {self.name}: {error}")
        given = {key: getattr(checked, key) for key in input}
        function: Callable[..., Any] = self._function
        if iscoroutinefunction(function):
            return await function(**given)
        from anyio import to_thread

        return await to_thread.run_sync(lambda: function(**given), abandon_on_cancel=True)


def _input_type(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    """Return a record with a field for each parameter; raise ``TypeError`` for one that has no name for a caller."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for given in signature(function).parameters.values():
        if given.kind not in _NAMED:
            raise TypeError(f"give the parameter {given} a name that can be passed")
        default: Any = given.default
        field = (given.name, hints.get(given.name, Any))
        if default is Parameter.empty:
            fields.append(field)
        elif isinstance(default, str | int | float | bool | None):
            fields.append((*field, default))
        else:
            fields.append((*field, msgspec.field(default_factory=lambda: None)))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *, name: str = "", description: str = "", access: FunctionAccess = "own", max_chars: float | None = None
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool from a typed function: its name, its docstring, and a JSON schema from its type hints.

    ``access`` is ``own`` for an effect that the program allows, except in plan mode; ``none`` for a function that only
    reads; ``other`` for an effect that a person must allow. ``max_chars`` is the longest result that stays in view.
    """
    made = partial(FunctionTool[..., Any], **options)
    return made if function is None else made(function)
