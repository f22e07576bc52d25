"""The commands that only read; ``commands.toml`` lists the options with which they do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..grammar import Word
from .git import GIT
from .languages import judge_awk, judge_find_words, judge_jq, judge_sed, judge_test
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


def _is_date(given: ParsedArguments) -> str:
    if all(text.startswith("+") for text in given.texts):
        return ""
    return "an argument that is not a format sets the clock"


def _is_process_list(given: ParsedArguments) -> str:
    if all(re.fullmatch(r"[auxfwlj]+|[0-9]+", text) for text in given.texts):
        return ""
    return "an argument is not a list of processes"


def _judge_command(words: tuple[Word, ...]) -> str:
    # Bash takes no option behind a name: ``command NAME -v`` runs NAME.
    return "" if words and words[0].text in ("-v", "-V") else "it would run the program that it names"


def _is_directory(given: ParsedArguments) -> str:
    return "it goes to the directory of an earlier command" if "-" in given.texts else ""


def _versions() -> Mapping[str, tuple[str, ...]]:
    """Return the spellings by which each program prints its version and does nothing else."""
    tables: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("versions.toml").read_text("utf-8"))
    pairs = [(name, spelling) for spelling, names in tables["versions"].items() for name in names.split()]
    return {name: tuple(spelling for each, spelling in pairs if each == name) for name, _ in pairs}


VERSIONS: Final = _versions()


def _is_only_version(name: str) -> WordCheck:
    def check(words: tuple[Word, ...]) -> str:
        is_asked = len(words) == 1 and words[0].text in VERSIONS[name]
        return "" if is_asked else "only --version is known to be read-only"

    return check


def has_no_option_file(given: ParsedArguments) -> str:
    """Return a problem, or '' if no argument is read as a file with more options (``@FILE``)."""
    return "an argument names a file of options" if any(text.startswith("@") for text in given.texts) else ""


def _judge_echo(words: tuple[Word, ...]) -> str:
    return ""


_CONVERSION: Final = re.compile(r"%[-+ #0]*[0-9]*(?:\.[0-9]+)?[sdixXofgeEGcbq%]")


def _judge_printf(words: tuple[Word, ...]) -> str:
    if not words or words[0].text.startswith("-") or any(word.is_pattern for word in words):
        return "its format does not come first"
    if "%" in _CONVERSION.sub("", words[0].text):
        return "its format holds a conversion that is not on the list"
    return ""


def _judge_tar(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if the words only list an archive, as in ``tar -tzvf FILE MEMBER...``."""
    texts = [word.text for word in words]
    if len(texts) < 2 or not re.fullmatch(r"-?(?=[a-zA-Z]*t)[tvzjJ]+f", texts[0]):
        return "only listing an archive (tar -tf FILE) is known to be read-only"
    if any(text.startswith("-") or word.is_pattern for text, word in zip(texts[1:], words[1:], strict=True)):
        return "only listing an archive (tar -tf FILE) is known to be read-only"
    return "an archive on another machine" if ":" in texts[1] else ""


def _tame_problem(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if a command that gets more words from its caller can only read with any words."""
    rule = COMMANDS.get(words[0].text) if words and words[0].is_plain and not words[0].is_pattern else None
    if not isinstance(rule, OptionRule) or not rule.is_tame:
        return "the command that it runs is not on the list of those that only read with any arguments"
    return problem_with(rule, words[1:])


_XARGS: Final = option_rule(
    "0rtx",
    "nLPsI",
    long="null no-run-if-empty",
    long_valued="max-args max-lines max-procs",
    at_once="P max-procs",
)


def judge_xargs(words: tuple[Word, ...], nested_problem: WordCheck = _tame_problem) -> str:
    """Return a problem, or '' if xargs runs a command that only reads with any words."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name = words[at].text
        at += 2 if name[1:] in _XARGS.valued else 1
    try:
        parsed_arguments(_XARGS, words[:at])
    except ValueError as problem:
        return str(problem)
    return nested_problem(words[at:]) if words[at:] else ""


def judge_find(words: tuple[Word, ...], nested_problem: WordCheck = _tame_problem) -> str:
    """Return a problem, or '' if find only tests and lists, or runs a command that only reads with any words."""
    left = list(words)
    while (at := next((n for n, word in enumerate(left) if word.text == "-exec"), -1)) >= 0:
        end = next((n for n in range(at, len(left)) if left[n].text in (";", "+")), len(left))
        if problem := nested_problem(tuple(left[at + 1 : end])) if end < len(left) else "its -exec does not end":
            return problem
        left[at : end + 1] = [Word("-print", "-print")]
    return judge_find_words(tuple(left))


COMMANDS: Final[Mapping[str, OptionRule | Subcommands | WordCheck]] = {
    **option_rules(
        "commands.toml",
        {
            "cd": _is_directory,
            "date": _is_date,
            "ps": _is_process_list,
            "strings": has_no_option_file,
        },
    ),
    **{name: _is_only_version(name) for name in ("bash", "gcc", "node", "python", "python3")},
    **dict.fromkeys(("[", "test"), judge_test),
    "awk": judge_awk,
    "command": _judge_command,
    "echo": _judge_echo,
    "find": judge_find,
    "git": GIT,
    "jq": judge_jq,
    "printf": _judge_printf,
    "sed": judge_sed,
    "tar": _judge_tar,
    "xargs": judge_xargs,
}
