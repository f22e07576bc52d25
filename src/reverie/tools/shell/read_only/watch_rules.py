"""Rules for lines of which each program is judged when it starts; the sandbox bounds their programs and reads.

A script of awk or sed on the command line can then start no program (``sh`` is on no list), write no file and read none
that the sandbox closes. So these rules only keep a script from failing half-way that wants to, and refuse code that is
in a file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import Final

from ..grammar import Word
from .commands import COMMANDS, VERSIONS, has_no_option_file, judge_find, judge_xargs
from .languages import judge_awk, judge_sed
from .options import (
    OptionRule,
    ParsedArguments,
    Subcommands,
    WordCheck,
    option_rule,
    option_rules,
    parsed_arguments,
    problem_with,
)

# A program that starts others, writes, or loads code from files.
_AWK_ACTS: Final = re.compile(
    r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|\bprintf?\b[^;}\n]*>|>>|@\s*(?:load|include)|\bclose\b"
)
_SED_ACTS: Final = re.compile(
    r"(?:^|[;{}\n!]|[0-9$/])\s*[eFwWrR](?:\s|[./]|$)|([/|#,%@:!])[gpiImM0-9]*[ew][gpiImM0-9]*(?:\s|;|}|$)"
)
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n]|\\.|\[\^?\]?[^\]\n]*\])+/")
_AWK: Final = option_rule(valued="Fv", long_valued="field-separator assign")
_SED: Final = option_rule(
    "nErsuz",
    "el",
    long="quiet silent regexp-extended separate unbuffered null-data posix sandbox debug",
    long_valued="expression line-length",
)


def _judge_awk(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if awk's program is in the line and starts, writes and loads nothing."""
    if not judge_awk(words):
        return ""
    given = parsed_arguments(_AWK, words)
    if not given.operands:
        return "it has no program"
    # A regular expression may hold any sign; a division does no harm here.
    bare = _REGEX.sub(" ", _QUOTED.sub('""', given.texts[0]))
    return "its program may do more than print" if _AWK_ACTS.search(bare) else ""


def _judge_sed(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if sed's script is in the line and starts, writes and reads nothing else."""
    if not judge_sed(words):
        return ""
    given = parsed_arguments(_SED, words)
    scripts = [value for name, value in given.options if name in ("e", "expression")] or list(given.texts[:1])
    if not scripts:
        return "it has no script"
    return "its script may do more than print" if any(map(_SED_ACTS.search, scripts)) else ""


def nested_problem(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if a command that is judged when it starts may be on the list."""
    name = words[0].text if words and words[0].is_plain else ""
    return "" if name in COMMANDS or name in WATCHED else "the command that it runs is not on the list"


def _wraps(rule: OptionRule, values: int) -> WordCheck:
    """Return a check for a program that runs a command after its options and so many values."""

    def check(words: tuple[Word, ...]) -> str:
        at = 0
        while at < len(words) and words[at].text.startswith("-"):
            at += 2 if words[at].text[1:] in rule.valued else 1
        parsed_arguments(rule, words[:at])
        if any(not re.fullmatch(r"[0-9.]+[smhd]?", word.text) for word in words[at : at + values]):
            return "its time is no number"
        return _whole_problem(words[at + values :])

    return check


def _whole_problem(words: tuple[Word, ...]) -> str:
    """Return a problem of a command that follows another with all of its words."""
    if problem := nested_problem(words):
        return problem
    return watched_problem(words[0].text, words[1:])


def watched_problem(name: str, words: tuple[Word, ...]) -> str:
    """Return why a command on one of the lists may do more than read; '' if it only reads or prints its version."""
    if not _version_problem(name, words):
        return ""
    return problem_with(WATCHED.get(name) or COMMANDS[name], words)


def _judge_environment(words: tuple[Word, ...]) -> str:
    return "it would run a command" if words else ""


def _judge_json_tool(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if Python formats JSON; ``PYTHONSAFEPATH`` keeps modules of the project out."""
    texts = [word.text for word in words]
    if texts[:2] != ["-m", "json.tool"]:
        return _version_problem("python3", words)
    name = os.path.basename(os.path.realpath(shutil.which("python3") or ""))
    if not (found := re.fullmatch(r"python3\.([0-9]+)", name)) or int(found[1]) < 11:
        return "this Python would load modules of the project"
    given = parsed_arguments(_JSON_TOOL, words[2:])
    return "a second file is written" if len(given.operands) > 1 else ""


_JSON_TOOL: Final = option_rule(long="sort-keys no-ensure-ascii json-lines tab no-indent compact", long_valued="indent")


def _version_problem(name: str, words: tuple[Word, ...]) -> str:
    text = " ".join(word.text for word in words)
    return "" if text in VERSIONS.get(name, ()) else "only its version is known to be read-only"


def _asks_version(name: str) -> WordCheck:
    return lambda words: _version_problem(name, words)


def _checked(check: WordCheck) -> WordCheck:
    """Return a check that takes an unknown option as a problem."""

    def checked(words: tuple[Word, ...]) -> str:
        try:
            return check(words)
        except ValueError as problem:
            return str(problem)

    return checked


def _prints(given: ParsedArguments) -> str:
    is_input = not given.operands
    return "" if is_input or given.has(*"cltpvZ", "stdout", "list", "test") else "it would write files"


WATCHED: Final[Mapping[str, OptionRule | Subcommands | WordCheck]] = {
    **{name: _asks_version(name) for name in VERSIONS if name not in COMMANDS},
    **option_rules(
        "watch_rules.toml",
        {
            **dict.fromkeys(("gzip", "unzip"), _prints),
            **dict.fromkeys(("nm", "objdump", "readelf", "size"), has_no_option_file),
        },
    ),
    "awk": _checked(_judge_awk),
    "env": _judge_environment,
    "find": lambda words: judge_find(words, nested_problem),
    "nice": _checked(_wraps(option_rule("", "n"), 0)),
    "python3": _checked(_judge_json_tool),
    "sed": _checked(_judge_sed),
    "timeout": _checked(_wraps(option_rule("v", "ks", long="foreground verbose"), 1)),
    "xargs": lambda words: judge_xargs(words, nested_problem),
}
"""The rules that go before those of ``COMMANDS`` where each program is judged when it starts."""
