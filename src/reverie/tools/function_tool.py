"""``@tool``, which makes a tool from a typed function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, getdoc, iscoroutinefunction, signature
from typing import Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_type_hints, overload

import msgspec

from ..errors import InputError
from .tool import Access, NoPreview, error_output

P = ParamSpec("P")
R = TypeVar("R")
FunctionAccess: TypeAlias = Literal["none", "own", "other"]
_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


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
