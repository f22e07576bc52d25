"""Judge a line of which bash computes a part: every name of a command is written out, and no value can become code.

The programs that such a line starts are judged again when they start, with their real arguments (``program_watch.py``),
so a computed word may stand wherever a literal one may. Bash's own commands start no program, so they are judged here:
where bash would evaluate a value as code (sums, subscripts, names of variables), only numbers and literal words stand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ..grammar import Command, Word
from ..kept_variables import KEPT
from ..read_only import problem_of
from ..read_only.commands import COMMANDS
from ..read_only.options import words_of
from .words import Assignment, Part, Script, ScriptCommand, ScriptWord, Text, Value

NUMBER: Final = "1"
"""The placeholder of a computed part for the rule of a command, before the line runs."""
# Variables of bash itself, by name or by their beginning; setting them changes how it runs.
_SPECIAL: Final = re.compile(
    r"BASH|COMP|COPROC|DIRSTACK|EPOCH|FUNC|GLOB|HIST|LC_|LD_|MAIL|OPT|POSIX|PROMPT|PS[0-4]|READLINE|TEXTDOMAIN|GIT_"
    r"|ASDF|CARGO|CONDA|GO(?:PATH|ROOT)|JAVA|LOCALE|LS_|NO_COLOR|NVM|PYENV|PYTHON|RBENV|RUSTUP|VIRTUAL_ENV|XDG_"
    r"|(?:auto_resume|histchars|CDPATH|CHILD_MAX|COLUMNS|EMACS|ENV|EUID|EXECIGNORE|FCEDIT|FIGNORE|GROUPS|HOME|HOSTFILE"
    r"|HOSTNAME|HOSTTYPE|IFS|IGNOREEOF|INPUTRC|INSIDE_EMACS|LANG|LANGUAGE|LINENO|LINES|LOGNAME|MACHTYPE|MAPFILE|OLDPWD"
    r"|OSTYPE|PAGER|PATH|PIPESTATUS|PPID|PWD|RANDOM|REPLY|SECONDS|SHELL|SHELLOPTS|SHLVL|SRANDOM|TERM|TIMEFORMAT|TMOUT"
    r"|TMPDIR|TZ|TZDIR|UID|USER)\Z"
)
# Variables that may be set for one command, with these values.
_FOR_ONE: Final = {
    "LC_ALL": r"C|POSIX|[A-Za-z_]+\.[Uu][Tt][Ff]-?8", "LANG": r"C|POSIX|[A-Za-z_]+\.[Uu][Tt][Ff]-?8",
    "TZ": r"[A-Za-z]+(?:/[A-Za-z_]+)?", "PAGER": "cat", "GIT_PAGER": "cat", "NO_COLOR": "1", "TERM": "dumb|xterm",
    "COLUMNS": "[0-9]+",
}  # fmt: skip
_NAMED: Final = words_of("variable changed list length")
_BUILTINS: Final = words_of("[ cd command echo false printf pwd test true type")
_UNARY: Final = frozenset(f"-{letter}" for letter in "bcdefghknpstuwxzGLNOSr")
_BINARY: Final = words_of("= == != < > -nt -ot -ef -eq -ne -lt -le -gt -ge")
_NUMBER_TESTS: Final = words_of("-eq -ne -lt -le -gt -ge")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_READ_FLAG: Final = re.compile(r"-(?:[rs]*[a]?|[rs]*[dntp])\Z")
_SET: Final = re.compile(r"[-+][eufx]+|-[euf]*o|\+o|pipefail|--\Z")
_SHOPT: Final = words_of("-s -u globstar nullglob dotglob nocaseglob failglob nocasematch lastpipe")
_COUNT_FLAGS: Final = re.compile(r"-[civwxEFPs]+\Z")
_COUNTS: Final = re.compile(r"-[lwcm]\Z|--(?:lines|words|bytes|chars)\Z")


def script_problem(script: Script) -> str:
    """Return the first reason why a line may do more than read; an empty text if it only reads."""
    bindings = [
        *script.bindings,
        *(Assignment(name, None) for each in script.commands for name in _names_read(each)),
        *(Assignment(name, ()) for name in script.summed),
    ]
    numbers = _numeric_names(bindings)
    unknown = _names_used(script) - {each.name for each in bindings}
    problems = (
        *(_binding_problem(each) for each in bindings),
        *(f"{name} is not set in the sandbox" for name in sorted(unknown) if not _is_given(name)),
        *(_command_problem(each, numbers) for each in script.commands),
        *(_comparison_problem(each.operator, each.operands, numbers) for each in script.comparisons),
        *(f"the value of {name} in a sum may be more than a number" for name in script.sums if name not in numbers),
        *("a substitution in a sum may be more than a number" for each in script.counts if not _is_numeric(each, ())),
    )
    return next(filter(None, problems), "")


def _names_used(script: Script) -> set[str]:
    """Return the variables whose values stand in words of the line."""
    words = (
        *script.words,
        *script.reads,
        *(word for each in script.commands for word in (*each.words, *each.reads)),
        *(word for each in script.bindings for word in each.words or ()),
        *(word for each in script.comparisons for word in each.operands),
    )
    values = (part for word in words for part in word.parts if isinstance(part, Value))
    return {value.name for value in values if value.kind in _NAMED and _NAME.match(value.name)}


def _is_given(name: str) -> bool:
    """Return whether the sandbox or bash itself gives a variable its value."""
    return name in KEPT or _SPECIAL.match(name) is not None


def _binding_problem(binding: Assignment) -> str:
    name, words = binding.name, binding.words
    if binding.before:
        value = words[0] if words and len(words) == 1 and words[0].is_literal else None
        if name == "IFS" and binding.before == "read" and value is not None:
            return ""
        if value is not None and re.fullmatch(_FOR_ONE.get(name, "(?!)"), value.text):
            return ""
        return f"it sets {name} for a command"
    return f"it sets {name}, which changes how bash runs" if _SPECIAL.match(name) else ""


# Numbers


def _numeric_names(bindings: Iterable[Assignment]) -> frozenset[str]:
    """Return the variables that hold nothing but numbers, by every word that the line gives them."""
    numbers = {each.name for each in bindings} - {"_"}  # bash itself sets it: the last word of each command
    while True:
        wrong = {
            each.name
            for each in bindings
            if each.name in numbers
            and (each.words is None or not all(_is_number(word, numbers) for word in each.words))
        }
        if not wrong:
            return frozenset(numbers)
        numbers -= wrong


def _is_number(word: ScriptWord, numbers: Collection[str]) -> bool:
    if word.is_literal:
        return re.fullmatch(r"-?[0-9]*", word.text) is not None
    return all(
        re.fullmatch(r"[0-9]*", part.text) is not None if isinstance(part, Text) else _is_numeric(part, numbers)
        for part in word.parts
    )


def _is_numeric(value: Value, numbers: Collection[str]) -> bool:
    match value.kind:
        case "sum" | "length" | "status":
            return True
        case "variable" | "list":
            return value.name in numbers
        case "braces":
            return re.fullmatch(r"[{}0-9.,]*", value.name) is not None
        case "substitution":
            return value.last is not None and _prints_number(value.last, numbers)
        case _:
            return False


def _prints_number(command: ScriptCommand, numbers: Collection[str]) -> bool:
    """Return whether a command prints only numbers for any input; no word of it may become an option."""
    words = command.words
    if command.is_mixed or not all(
        (word.is_literal and not word.is_pattern) or _is_number(word, numbers) for word in words
    ):
        return False
    name, *rest = [word.text or NUMBER for word in words] or [""]
    match name:
        case "wc":
            return len(rest) == 1 and _COUNTS.match(rest[0]) is not None
        case "seq":
            return all(re.fullmatch(r"-?[0-9]+", text) for text in rest)
        case "nproc":
            return not rest
        case "date":
            return rest[-1:] == ["+%s"] and all(text in ("-u", "-d") or text[0] not in "-+" for text in rest[:-1])
        case "grep":
            flags = [text for text in rest if text.startswith("-")]
            is_count = any("c" in flag for flag in flags) and all(_COUNT_FLAGS.match(flag) for flag in flags)
            return is_count and len(rest) - len(flags) <= 2
        case "git":
            is_time = {"log", "-1"} < set(rest) and any(re.fullmatch("--format=%[ac]t", text) for text in rest)
            return rest[:2] == ["rev-list", "--count"] or (is_time and len(rest) == 3)
        case _:
            return False


# Commands


def _command_problem(command: ScriptCommand, numbers: frozenset[str]) -> str:
    if not command.words:
        return "" if not command.reads else _reads_alone(command)
    first, *rest = command.words
    name = first.text
    if not first.is_literal or not first.is_plain or (first.is_pattern and name != "["):
        return "its command name is computed, quoted or a pattern"
    if name in _OWN:
        return problem if (problem := _OWN[name](tuple(rest))) == "" else f"{name}: {problem}"
    if name in _BUILTINS and any(not word.is_literal or word.is_pattern for word in rest):
        return problem if (problem := _builtin_problem(name, rest, numbers)) == "" else f"{name}: {problem}"
    return problem_of(Command(tuple(map(expected_word, command.words))), is_watched=name not in _BUILTINS)


def _reads_alone(command: ScriptCommand) -> str:
    """Return a problem of a redirection without a command, as in ``$(< FILE)``; bash prints the file."""
    return "" if len(command.reads) == 1 else "it redirects without a command"


def expected_word(word: ScriptWord) -> Word:
    """Return a word for the rule of a command, before the line runs, with a number for each computed part."""
    text = "".join(part.text if isinstance(part, Text) else NUMBER for part in word.parts)
    return Word(text, text, False, word.is_plain)


def _builtin_problem(name: str, rest: list[ScriptWord], numbers: frozenset[str]) -> str:
    match name:
        case "printf":
            if not rest[0].is_literal or rest[0].is_pattern:
                return "its format is computed"
            return problem_of(Command((Word("printf", "printf"), *map(expected_word, rest))))
        case "command":
            return "" if rest[0].is_literal and rest[0].text in ("-v", "-V") else "it would run a computed command"
        case "test" | "[":
            is_closed = name == "test" or (rest[-1].is_literal and rest[-1].text == "]")
            words = rest[:-1] if name == "[" else rest
            return _test_problem(words, numbers) if is_closed else "it does not end with ]"
        case _:
            return ""


def _test_problem(words: list[ScriptWord], numbers: frozenset[str]) -> str:
    """Return a problem, or '' if a test with computed words has one of the forms whose meaning no value changes."""
    if words and words[0].is_literal and words[0].text == "!":
        words = words[1:]
    if not all(word.is_single or _is_number(word, numbers) for word in words):
        return "a computed word without quotes could become several"
    match len(words):
        case 1:
            return ""
        case 2 if words[0].is_literal and words[0].text in _UNARY:
            return ""
        case 3 if words[1].is_literal and words[1].text in _BINARY:
            return ""
        case _:
            return "its meaning depends on a computed word"


def _comparison_problem(operator: str, operands: tuple[ScriptWord, ...], numbers: frozenset[str]) -> str:
    if operator in _NUMBER_TESTS and not all(_is_number(word, numbers) for word in operands):
        return "[[ evaluates a computed word as arithmetic"
    return ""


# Commands of bash that a line of more than simple commands may hold


def _names_read(command: ScriptCommand) -> Iterator[str]:
    """Yield the variables that a command sets from its input."""
    if command.words and command.words[0].text in ("read", "mapfile", "readarray"):
        yield from (word.text for word in command.words[1:] if _NAME.match(word.text))


def _judge_read(words: tuple[ScriptWord, ...]) -> str:
    takes_value = False
    for word in words:
        if takes_value:
            if not word.is_literal or word.is_pattern:
                return "the value of an option is computed"
            takes_value = False
        elif not word.is_literal:
            return "a name is computed"
        elif word.text.startswith("-"):
            if not _READ_FLAG.match(word.text):
                return f"the option {word.text} is not on the list"
            takes_value = word.text[-1] in "dntp"
        elif not _NAME.match(word.text) or _SPECIAL.match(word.text):
            return "it sets a variable that is not plain"
    return ""


def _judge_mapfile(words: tuple[ScriptWord, ...]) -> str:
    texts = [word.text for word in words if word.is_literal]
    if len(texts) != len(words) or len(texts) != 2 or texts[0] != "-t" or not _NAME.match(texts[1]):
        return "only mapfile -t NAME is known to be read-only"
    return "it sets a variable that is not plain" if _SPECIAL.match(texts[1]) else ""


def _judge_set(words: tuple[ScriptWord, ...]) -> str:
    if words and all(word.is_literal and _SET.fullmatch(word.text) and word.text != "--" for word in words):
        return ""
    return "it changes more than how errors end a line"


def _judge_shopt(words: tuple[ScriptWord, ...]) -> str:
    is_known = all(word.is_literal and word.text in _SHOPT for word in words)
    return "" if is_known else "it changes more than how globs match"


def _judge_number(words: tuple[ScriptWord, ...]) -> str:
    is_plain = len(words) <= 1 and all(
        (word.is_literal and re.fullmatch("[0-9]+", word.text)) or _is_status(word.parts) for word in words
    )
    return "" if is_plain else "its argument is no number"


def _is_status(parts: tuple[Part, ...]) -> bool:
    return all((isinstance(part, Value) and part.kind == "status") or part == Text("", True) for part in parts)


def _judge_nothing(words: tuple[ScriptWord, ...]) -> str:
    return ""


_OWN: Final = {
    ":": _judge_nothing,
    "break": _judge_number,
    "continue": _judge_number,
    "exit": _judge_number,
    "mapfile": _judge_mapfile,
    "read": _judge_read,
    "readarray": _judge_mapfile,
    "set": _judge_set,
    "shopt": _judge_shopt,
}
BASH_COMMANDS: Final = frozenset({*_OWN, "[", "test"})
"""Commands of bash itself that show no file."""
# A new name in the list of commands that bash itself runs would not be judged when it starts.
assert COMMANDS.keys() >= _BUILTINS
