"""Check the types of arguments that a caller of the public API passes."""

from __future__ import annotations

from math import isfinite

from .errors import InputError


def check_type(argument: str, given: object, kind: type | tuple[type, ...], accepted: str) -> None:
    """Raise ``InputError`` unless an argument has the type; the error names the argument and the values accepted."""
    if not isinstance(given, kind):
        raise InputError(f"{argument} is of type {type(given).__name__}: pass {accepted}")


def check_text(argument: str, given: object) -> None:
    """Raise ``InputError`` unless an argument is text."""
    check_type(argument, given, str, "text")


def check_callable(argument: str, given: object) -> None:
    """Raise ``InputError`` unless an argument can be called; None means that it was left out."""
    if given is not None and not callable(given):
        raise InputError(f"{argument} is of type {type(given).__name__}: pass a function")


def check_number(argument: str, given: object, least: int, *, is_whole: bool = False) -> None:
    """Raise ``InputError`` unless an argument is a finite number from ``least`` on; None means that it was left out."""
    if given is None:
        return
    kind = "a whole number" if is_whole else "a number"
    check_type(argument, given, int if is_whole else (int, float), f"{kind} that is at least {least}")
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given < least:
        raise InputError(f"{argument} is {given!r}: pass {kind} that is at least {least}")


def check_parts(argument: str, given: object, parts: tuple[str, ...], accepted: str) -> None:
    """Raise ``InputError`` unless an argument has these attributes; None means that it was left out."""
    if given is not None and not all(hasattr(given, part) for part in parts):
        raise InputError(f"{argument} is of type {type(given).__name__}: pass {accepted}")
