"""Check the types of arguments that a caller of the public API passes."""

from __future__ import annotations

from .errors import InputError


def check_type(argument: str, given: object, kind: type | tuple[type, ...], accepted: str) -> None:
    """Raise ``InputError`` unless an argument has the type; the error names the argument and the values accepted."""
    if not isinstance(given, kind):
        raise InputError(f"{argument} is of type {type(given).__name__}: pass {accepted}")


def check_text(argument: str, given: object) -> None:
    """Raise ``InputError`` unless an argument is text."""
    check_type(argument, given, str, "text")
