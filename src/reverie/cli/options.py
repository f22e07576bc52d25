"""Options and arguments of several commands: whole numbers, dates, words of a query, the id of a session's person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ..errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def number_option(
    name: str, help: str, least: int, most: int | None = None, *, default: int | None = None, metavar: str = "N"
) -> Callable[[F], F]:
    """Return the option of a command for a whole number in a range; its default, if it has one, is in the help."""
    kind = click.IntRange(least, most)
    return click.option(name, metavar=metavar, type=kind, default=default, show_default=default is not None, help=help)


def subject_option(help: str) -> Callable[[F], F]:
    """Return the option of a command, which is None if it was left out and never empty."""
    return click.option("--subject", metavar="ID", callback=_checked, help=help)


def _checked(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():  # such as a variable of a script that is not set
        raise InputError("--subject is empty: give the id of the person, or leave it out")
    return value


def date_option(name: str, help: str) -> Callable[[F], F]:
    """Return the option of a command for an ISO date or time, in the local time zone if it names none."""
    return click.option(name, metavar="DATE", callback=_moment, help=help)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment.timestamp()
    except (ValueError, OverflowError, OSError):
        given = f"{parameter.opts[0]} {value!r}"
        raise InputError(f"{given} is no date; give one such as 2026-01-31 or 2026-01-31T18:30") from None
    return moment


def query_of(words: tuple[str, ...]) -> str:
    """Return the words of a query as one text; raise ``InputError`` if it is empty."""
    query = " ".join(words)
    if not query.strip():
        raise InputError("the query is empty: pass a few words to search for")
    return query
