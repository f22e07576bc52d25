"""The git commands that only read; ``git.toml`` lists their options.

A repository's configuration can name programs (pagers, file system monitors, diff drivers, signature checkers). Options
that name programs are refused here. ``git_program.py``, which is ``git`` in the sandbox, switches off those that the
configuration names.
"""

from __future__ import annotations

import re
from typing import Final

from .options import ArgumentCheck, ParsedArguments, Subcommands, option_rules

_FORMATS: Final = frozenset({"oneline", "short", "medium", "full", "fuller", "reference", "email", "raw"})
_LISTING: Final = ("list", "contains", "no-contains", "merged", "no-merged", "points-at")


def _has_safe_format(given: ParsedArguments) -> str:
    """Return a problem, or '' if no format checks signatures or is a name that a repository can define."""
    for name, value in given.options:
        if name not in ("format", "pretty") or not value:
            continue
        if "%G" in value or "signature" in value:
            return "its format runs a program that checks signatures"
        if name == "pretty" and value not in _FORMATS and not re.match(r"t?format:|[^%]*%", value):
            return "its format is a name that a repository can define"
    return ""


def _lists(*options: str) -> ArgumentCheck:
    """Return a check that allows operands only together with a listing option or one of ``options``."""

    def check(given: ParsedArguments) -> str:
        if given.operands and not given.has(*_LISTING, *options):
            return "an argument would create something"
        return _has_safe_format(given)

    return check


def _first_is(*words: str, exactly: int | None = None, or_none: bool = False) -> ArgumentCheck:
    """Return a check that the first operand is one of ``words``.

    ``exactly`` is the needed number of operands; ``or_none`` also allows no operand.
    """

    def check(given: ParsedArguments) -> str:
        texts = given.texts
        if not texts:
            return "" if or_none else "it would do more than read"
        if texts[0] not in words or (exactly is not None and len(texts) != exactly):
            return f"{texts[0]} is not on the list of read-only commands"
        return _has_safe_format(given)

    return check


def _reads_configuration(given: ParsedArguments) -> str:
    asked = given.has("get", "get-all", "get-regexp")
    if given.has("list", "l"):
        return "an argument does not belong to a list" if given.operands else ""
    return "" if len(given.operands) <= (2 if asked else 1) and given.operands else "it would set something"


GIT: Final = Subcommands(
    flags=frozenset({"--no-pager", "-P", "--no-optional-locks", "--version", "--literal-pathspecs"}),
    valued=frozenset({"-C"}),
    rules=option_rules(
        "git.toml",
        {
            "branch": _lists(),
            "config": _reads_configuration,
            "reflog": _first_is("show", "HEAD", or_none=True),
            "remote": _first_is("get-url", exactly=2, or_none=True),
            "stash": _first_is("list", "show"),
            "tag": _lists("l", "n"),
            "worktree": _first_is("list", exactly=1),
        },
        otherwise=_has_safe_format,
    ),
)
