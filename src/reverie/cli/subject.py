"""The option ``--subject``: the user's id of the person that sessions are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def subject_option(help: str) -> Callable[[F], F]:
    """Return the option of a command, which is None if it was left out and never empty."""
    return click.option("--subject", metavar="ID", callback=_checked, help=help)


def _checked(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():  # such as a variable of a script that is not set
        raise InputError("--subject is empty: give the id of the person, or leave it out")
    return value
