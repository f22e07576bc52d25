"""Parse the options of a command against a rule that lists every allowed option."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from ....values import field, record
from ..grammar import Word

_COUNT: Final = re.compile(r"-[0-9]+\Z")
_LONG: Final = re.compile(r"--[A-Za-z0-9][A-Za-z0-9-]*\Z")
_FEW: Final = re.compile(r"(?:[1-9]|1[0-6])?\Z")


@record
class ParsedArguments:
    """The options (name without dashes, value) and the operands of a command line."""

    options: tuple[tuple[str, str], ...]
    operands: tuple[Word, ...]

    def has(self, *names: str) -> bool:
        """Return whether at least one of these options was given; names are without dashes."""
        return any(name in names for name, _ in self.options)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the operands."""
        return tuple(word.text for word in self.operands)


ArgumentCheck: TypeAlias = Callable[[ParsedArguments], str]
"""Function that returns a problem of a command's parsed arguments; an empty text if there is none."""

WordCheck: TypeAlias = Callable[[tuple[Word, ...]], str]
"""Function that returns a problem of the words after a command's name; an empty text if there is none."""


def _fine(given: ParsedArguments) -> str:
    return ""


@record
class OptionRule:
    """The allowed options of a command, short as letters, long as words; long ones must be written in full."""

    flags: frozenset[str]
    valued: frozenset[str]
    attached: frozenset[str]
    """Options whose value, if they have one, is part of the same word (``-M50``, ``--color=never``)."""
    max_operands: int | None
    has_counts: bool
    """Whether a number with a dash, such as ``-5``, is an allowed option."""
    is_tame: bool
    """Whether every option of the command is harmless, so that a file named like an option is harmless too."""
    at_once: frozenset[str]
    """Options whose value is a number of processes or threads, of which at most 16 are allowed."""
    check: ArgumentCheck


@record
class Subcommands:
    """The rules of a command with subcommands, such as git: its own options, and a rule for each subcommand."""

    flags: frozenset[str]
    valued: frozenset[str]
    rules: Mapping[str, OptionRule | WordCheck] = field(default_factory=lambda: {})


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, split at white space, as a frozen set."""
    return frozenset(text.split())


def option_rule(
    flags: str = "",
    valued: str = "",
    *,
    attached: str = "",
    long: str = "",
    long_valued: str = "",
    long_optional: str = "",
    max_operands: int | None = None,
    has_counts: bool = False,
    is_tame: bool = False,
    at_once: str = "",
    check: ArgumentCheck = _fine,
) -> OptionRule:
    """List the allowed options of a command as an ``OptionRule``: short ones as letters, long ones as words."""
    return OptionRule(
        flags=frozenset([*flags.replace(" ", ""), *long.split(), *long_optional.split()]),
        valued=frozenset([*valued.replace(" ", ""), *long_valued.split()]),
        attached=frozenset([*attached.replace(" ", ""), *long_optional.split()]),
        max_operands=max_operands,
        has_counts=has_counts,
        is_tame=is_tame,
        at_once=words_of(at_once),
        check=check,
    )


def option_rules(
    file: str, checks: Mapping[str, ArgumentCheck], *, otherwise: ArgumentCheck = _fine
) -> dict[str, OptionRule]:
    """Return the rules of a table of options in this folder by command, with a check for each command."""
    tables: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))
    return {
        name: option_rule(**_fields(table, tables), check=checks.get(name, otherwise))
        for names, table in tables.items()
        for name in names.split()
        if not name.startswith("_")
    }


def _fields(table: dict[str, Any], tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a table, with the options of the one that it names by ``with``."""
    own = {name: value for name, value in table.items() if name != "with"}
    more = _fields(tables[table["with"]], tables) if "with" in table else {}
    both = {name: f"{more[name]} {own[name]}" for name in own.keys() & more.keys() if isinstance(own[name], str)}
    return {**more, **own, **both}


def problem_with(how: OptionRule | Subcommands | WordCheck, words: tuple[Word, ...]) -> str:
    """Return the first reason why a rule does not allow a command's words; an empty text if it allows them."""
    if isinstance(how, Subcommands):
        return _with_subcommand(how, words)
    if not isinstance(how, OptionRule):
        return how(words)
    try:
        given = parsed_arguments(how, words)
    except ValueError as problem:
        return str(problem)
    if how.max_operands is not None and len(given.operands) > how.max_operands:
        return "it has more arguments than one that only reads"
    return how.check(given)


def _with_subcommand(how: Subcommands, words: tuple[Word, ...]) -> str:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if text not in how.flags and text not in how.valued:
            return f"the option {text} is not on the list"
        at += 2 if text in how.valued else 1
    if at >= len(words):
        return "" if how.flags & {word.text for word in words} & {"--version"} else "it names no subcommand"
    if any(word.is_pattern for word in words[: at + 1]):
        return "a pattern is used where an exact word is needed"
    below = how.rules.get(words[at].text)
    if below is None:
        return f"{words[at].text} is not on the list of read-only commands"
    return problem_with(below, words[at + 1 :])


def parsed_arguments(how: OptionRule, words: tuple[Word, ...]) -> ParsedArguments:
    """Return the options and operands of a command's words.

    Raise ``ValueError`` at the first option that the rule does not list, or at a pattern that may become one.
    """
    options: list[tuple[str, str]] = []
    operands: list[Word] = []
    left = list(reversed(words))
    ended = False
    while left:
        word = left.pop()
        _refuse_pattern(how, word, ended)
        if ended or not word.text.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.text == "--":
            ended = True
        elif how.has_counts and _COUNT.match(word.text):
            options.append(("count", word.text[1:]))
        elif word.text.startswith("--"):
            options.append(_long(how, word, left))
        else:
            options.extend(_short(how, word, left))
    if any(name in how.at_once and not _FEW.match(value) for name, value in options):
        raise ValueError("it would start more than 16 processes or threads at once")  # the kernel has no limit for root
    return ParsedArguments(tuple(options), tuple(operands))


def _refuse_pattern(how: OptionRule, word: Word, ended: bool) -> None:
    """Raise for a glob whose matches could be options, or where the number of operands matters."""
    if not word.is_pattern or how.is_tame:
        return
    if how.max_operands is not None:
        raise ValueError("a pattern is used where the number of arguments matters")
    if word.prefix.startswith("-") or not (word.prefix or ended):
        raise ValueError("a file's name could be read as an option; write ./* instead of *")


def _long(how: OptionRule, word: Word, left: list[Word]) -> tuple[str, str]:
    name, equals, value = word.text.partition("=")
    if not _LONG.match(name):
        raise ValueError("an option is not written plainly")
    name = name[2:]
    if name in how.valued:
        return name, value if equals else _next_value(how, name, left)
    if name in how.flags and (not equals or name in how.attached):
        return name, value
    raise ValueError(f"the option --{name} is not on the list")


def _short(how: OptionRule, word: Word, left: list[Word]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    letters = word.text[1:]
    for at, letter in enumerate(letters):
        rest = letters[at + 1 :]
        if letter in how.valued:
            return [*found, (letter, rest or _next_value(how, letter, left))]
        if letter in how.attached:
            return [*found, (letter, rest)]
        if letter not in how.flags:
            raise ValueError(f"the option -{letter} is not on the list")
        found.append((letter, ""))
    return found


def _next_value(how: OptionRule, name: str, left: list[Word]) -> str:
    if not left:
        raise ValueError(f"the option {name} lacks its value")
    value = left.pop()
    if value.is_pattern and not how.is_tame:
        raise ValueError("a pattern is used where one value is needed")
    # A version of the program that takes no value here would read this word as an option.
    if value.text.startswith("-") and not how.is_tame and not re.fullmatch(r"-[0-9]*", value.text):
        raise ValueError(f"the value of the option {name} looks like an option itself")
    return value.text
