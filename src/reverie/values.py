"""Immutable records: ``@record`` makes a class a frozen, slotted dataclass, but faster than ``dataclasses`` does.

``dataclasses.fields``, ``asdict``, ``replace`` and ``match`` work on records. The standard library would load
``inspect`` and compile seven methods per class; a hook must finish in 100 ms and would spend a third of it on that.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, cast, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_):
        """Return a decorator that does nothing; only type checkers use it."""
        return lambda given: given

    def cast(_, value):
        """Return the value unchanged; only type checkers use the type."""
        return value


__all__ = ["cast", "field", "fields_of", "object_of", "record", "replace", "rows_of"]


class _Unset:
    """The marker of a value that was not given, in signatures too."""

    def __repr__(self) -> str:
        return "<factory>"


_UNSET: Any = _Unset()
_UNSUPPORTED = ("__init__", "__post_init__", "__match_args__", "__slots__")


class _DefaultFactory:
    """A field default that ``make`` makes anew for each record."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default: Any = _UNSET, default_factory: Callable[[], Any] = _UNSET) -> Any:
    """Return the default of a record's field: the value, or a marker for a function called for each record."""
    if default_factory is not _UNSET:
        return _DefaultFactory(default_factory)
    if default is _UNSET:
        raise TypeError("a field without a default needs no field(): write only its name and type")
    return default


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Return a frozen, slotted dataclass with the annotated fields and the methods of a class.

    Raise ``TypeError`` for features that records do not support, such as base classes and ``__init__``.
    """
    names = tuple(cls.__annotations__)
    space = dict(vars(cls))
    _refuse_unsupported(cls, space)
    defaults = {name: space.pop(name) for name in names if name in space}
    for made_again in ("__dict__", "__weakref__"):
        space.pop(made_again, None)
    values_of: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: Any) -> Any:
        return values_of(self) == values_of(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values_of(self))

    own = {"__eq__": __eq__, "__hash__": __hash__, **_SHARED, "__match_args__": names}
    new: Any = type(cls)(cls.__name__, cls.__bases__, {**own, **_without_hash(space), "__slots__": names})
    new.__qualname__ = cls.__qualname__
    new.__init__ = _initialiser(new, names, defaults)
    for known_by in ("__dataclass_fields__", "__dataclass_params__"):
        setattr(new, known_by, _DataclassAttribute(known_by, defaults))
    return new


def _refuse_unsupported(cls: type[Any], space: dict[str, Any]) -> None:
    """Raise ``TypeError`` for features of dataclasses that records do not support."""
    others = [name for name in _UNSUPPORTED if name in space]
    others += [name for name, kind in cls.__annotations__.items() if "ClassVar" in str(kind) or "InitVar" in str(kind)]
    others += [base.__name__ for base in cls.__bases__ if base is not object]
    if others:
        raise TypeError(f"a record has no {', '.join(others)}: make {cls.__name__} with dataclasses.dataclass")


def _without_hash(space: dict[str, Any]) -> dict[str, Any]:
    """Return the class body without the empty ``__hash__`` that Python adds to a class with its own ``__eq__``."""
    return {name: value for name, value in space.items() if name != "__hash__" or value is not None}


def _initialiser(cls: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """Return a compiled ``__init__`` that sets the slots directly, since ``__setattr__`` of a record raises."""
    known: dict[str, Any] = {"_unset_": _UNSET}
    parameters, body = ["self"], list[str]()
    for at, name in enumerate(names):
        known[f"_set_{at}_"] = getattr(cls, name).__set__
        value, given = defaults.get(name, _UNSET), name
        if isinstance(value, _DefaultFactory):
            known[f"_make_{at}_"], value = value.make, _UNSET
            given = f"_make_{at}_() if {name} is _unset_ else {name}"
            parameters.append(f"{name}=_unset_")
        elif name in defaults:
            if value.__class__.__hash__ is None:
                raise ValueError(f"every {cls.__name__} would share one {name}: write field(default_factory=...)")
            known[f"_default_{at}_"] = value
            parameters.append(f"{name}=_default_{at}_")
        else:
            parameters.append(name)
        body.append(f" _set_{at}_(self, {given})")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), known)
    made = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {**cls.__annotations__, "return": None}
    return made


def replace(given: T, /, **changes: Any) -> T:
    """Return a copy of a record with these fields changed."""
    kind: Any = given.__class__
    values = {name: getattr(given, name) for name in kind.__match_args__}
    values.update(changes)
    return kind(**values)


def fields_of(given: Any) -> tuple[str, ...]:
    """Return a tuple of the names of the fields of a record, or of a record class."""
    return given.__match_args__


def _shown(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{self.__class__.__qualname__}({fields})"


def _refuse(self: Any, name: str, value: Any = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r} of a record: make another one with replace()")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _take_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


_SHARED: dict[str, Any] = {
    "__repr__": _shown,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _take_state,
    "__replace__": replace,
}


class _DataclassAttribute:
    """A descriptor that makes the attributes by which ``dataclasses`` recognises a class, on first access."""

    __slots__ = ("defaults", "name")

    def __init__(self, name: str, defaults: dict[str, Any]) -> None:
        self.name = name
        self.defaults = defaults

    def __get__(self, instance: Any, owner: Any) -> Any:
        import dataclasses

        owner = next(kind for kind in owner.__mro__ if self.name in vars(kind))
        fields: list[Any] = []
        for name, kind in owner.__annotations__.items():
            value = self.defaults.get(name, dataclasses.MISSING)
            how: Any = {"default_factory": value.make} if isinstance(value, _DefaultFactory) else {"default": value}
            fields.append((name, kind, dataclasses.field(**how)))
        twin = dataclasses.make_dataclass(owner.__name__, fields, frozen=True)
        setattr(owner, self.name, getattr(twin, self.name))
        return getattr(owner, self.name)


def snake_case(name: str) -> str:
    """Return the name of a class in small letters, its words joined by underscores."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def picked(one: object, names: str) -> dict[str, Any]:
    """Return the fields of a record with these names, separated by spaces, as a dict."""
    return {name: getattr(one, name) for name in names.split()}


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def rows_of(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a JSON list; none for any other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
