"""Commands whose arguments are a small language: only a harmless part of each is allowed."""

from __future__ import annotations

import re
from typing import Final

from ..grammar import Word
from .options import option_rule, parsed_arguments, words_of

_FIND_ALONE: Final = words_of(
    "-true -false -empty -depth -mount -xdev -daystart -noleaf -follow -ignore_readdir_race -nouser -nogroup -prune "
    "-quit -print -print0 -ls -readable -writable -executable -not -and -or -a -o ! ( ) , -warn -nowarn"
)
_FIND_VALUED: Final = words_of(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype -size -mtime -mmin -atime "
    "-amin -ctime -cmin -newer -anewer -cnewer -perm -user -group -uid -gid -maxdepth -mindepth -links -inum -samefile "
    "-lname -ilname -fstype -used -printf"
)
_FIND_NEWER: Final = re.compile(r"-newer[aBcm][aBcmt]\Z")


def judge_find_words(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if find's words are paths and tests with no action that runs, removes or writes."""
    at = 0
    while at < len(words) and words[at].text in ("-H", "-L", "-P"):
        at += 1
    while at < len(words) and words[at].text[:1] not in ("-", "(", "!", ",", ")"):
        if words[at].is_pattern and not words[at].prefix:
            return "a file's name could be read as an action; write ./* instead of *"
        if not words[at].text:
            return "an argument is empty"
        at += 1
    while at < len(words):
        text = words[at].text
        if words[at].is_pattern:
            return "a pattern for find must be quoted"
        if text in _FIND_ALONE:
            at += 1
        elif text in _FIND_VALUED or _FIND_NEWER.match(text):
            if at + 1 >= len(words) or words[at + 1].is_pattern:
                return f"{text} lacks its value, or the value is a pattern that is not quoted"
            at += 2
        else:
            return f"{text} is not on the list of tests that only read"
    return ""


# Addresses, then one of: print, quit, delete, next, line number; or a substitution with harmless flags. A bracket must
# close before the delimiter: versions of sed differ in whether a delimiter inside brackets ends the expression.
_SED_REGEX: Final = r"(?:[^{d}\\\[\]]|\\.|\[\^?\]?[^{d}\]\\\[]+\])*"
_SED_ADDRESS: Final = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_SED_REGEX.format(d='/')}/I?)"
_SED_RANGE: Final = re.compile(rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+[0-9]+))?)?!?")
_SED_COMMAND: Final = re.compile(
    "[pdqnN=]|"
    + "|".join(rf"s{d}{_SED_REGEX.format(d=d)}{d}(?:[^{d}\\]|\\.)*{d}[gpiI0-9]*" for d in ("/", "#", ",", "%", "@"))
)
_SED_OPTIONS: Final = option_rule(
    "nErsuz",
    "e",
    long="quiet silent regexp-extended separate unbuffered null-data posix sandbox",
    long_valued="expression",
)


def judge_sed(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if sed's scripts only print, quit, skip or delete lines of output, or substitute."""
    try:
        given = parsed_arguments(_SED_OPTIONS, words)
    except ValueError as problem:
        return str(problem)
    scripts = [value for name, value in given.options if name in ("e", "expression")]
    if not scripts:
        if given.operands and given.operands[0].is_pattern:
            return "its script is a pattern that is not quoted"
        scripts = list(given.texts[:1])
    if not scripts or not all(map(_only_prints, scripts)):
        return "its script is not of the few forms known to only print"
    return ""


def _only_prints(script: str) -> bool:
    at = 0
    while True:
        at = _skip(script, at)
        where = _SED_RANGE.match(script, at)
        at = _skip(script, where.end() if where else at)
        command = _SED_COMMAND.match(script, at)
        if command is None:
            return False
        at = _skip(script, command.end())
        if at == len(script):
            return True
        if script[at] != ";":
            return False
        at = _skip(script, at + 1)
        if at == len(script):
            return True


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] == " ":
        at += 1
    return at


_AWK_FIELD: Final = r"(?:\$(?:[0-9]+|NF)|F?NR|NF|FILENAME)"
_AWK_TEXT: Final = r'"[^"\\]*"'
_AWK_REGEX: Final = r"/(?:[^/\\\[\]]|\\.|\[\^?\]?[^/\]\\\[]+\])*/"
_AWK_TEST: Final = (
    rf"(?:(?:{_AWK_FIELD}|length(?:\(\$0\))?) ?(?:[=!]=|[<>]=?) ?(?:[0-9]+|{_AWK_TEXT})"
    rf"|{_AWK_FIELD} ?!?~ ?{_AWK_REGEX}|!?{_AWK_REGEX}|NF|END)"
)
_AWK_NAME: Final = r"(?:[a-z]|count|max|min|sum|total)"
_AWK_VALUE: Final = rf"(?:{_AWK_FIELD}|{_AWK_TEXT}|{_AWK_NAME}(?![A-Za-z0-9_(]))"
_AWK_ACTION: Final = (
    rf"\{{ ?(?:print(?: {_AWK_VALUE}(?:(?: ?, ?| |){_AWK_VALUE})*)?"
    rf"|{_AWK_NAME} ?\+?= ?(?:{_AWK_FIELD}|[0-9]+)|{_AWK_NAME}\+\+) ?;? ?\}}"
)
_AWK_TESTS: Final = rf"{_AWK_TEST}(?: ?&& ?{_AWK_TEST})*"
_AWK_RULE: Final = rf"(?:{_AWK_TESTS} ?)?{_AWK_ACTION}"
# Only the last rule may be a test alone, so that there is one way to read a program.
_AWK_PROGRAM: Final = re.compile(rf"(?:{_AWK_RULE}(?: ?;)? ?)*(?:{_AWK_TESTS})?")
_AWK_MAX_CHARS: Final = 300


def judge_awk(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if awk's program only prints or adds up fields of lines that pass a simple test."""
    try:
        given = parsed_arguments(option_rule(valued="F"), words)
    except ValueError as problem:
        return str(problem)
    program, *files = given.texts or ("",)
    if any(word.is_pattern for word in given.operands[:1]):
        return "its program is a pattern that is not quoted"
    if not program.strip() or len(program) > _AWK_MAX_CHARS or not _AWK_PROGRAM.fullmatch(program):
        return "its program is not of the few forms known to only print"
    if any("=" in file or file.startswith("/inet") for file in files):
        return "an argument is not a plain file"
    return ""


_JQ: Final = option_rule(
    "rcnseSjaCMR",
    long="raw-output compact-output null-input slurp exit-status sort-keys join-output ascii-output color-output "
    "monochrome-output raw-input tab seq stream unbuffered",
    long_valued="indent",
)
_JQ_REACHES_OUT: Final = re.compile(
    r"\b(?:env|import|include|modulemeta|get_search_list|input_filename)\b|\$\s*(?:ENV|__prog)"
)


def judge_jq(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if jq's options are allowed and its filter reads no environment or modules."""
    left: list[Word] = []
    at = 0
    while at < len(words):
        if words[at].text in ("--arg", "--argjson"):
            pair = words[at + 1 : at + 3]
            if len(pair) < 2 or any(word.is_pattern or word.text.startswith("-") for word in pair):
                return "an --arg lacks its name and value"
            at += 3
            continue
        left.append(words[at])
        at += 1
    try:
        given = parsed_arguments(_JQ, tuple(left))
    except ValueError as problem:
        return str(problem)
    if not given.operands or given.operands[0].is_pattern:
        return "its filter does not come first"
    return "its filter reads more than its input" if _JQ_REACHES_OUT.search(given.texts[0]) else ""


_TEST_WORDS: Final = words_of(
    "-b -c -d -e -f -g -h -k -L -n -N -O -G -p -r -s -S -t -u -w -x -z -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o "
    "= == != ! ( ) < >"
)


def judge_test(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if the words only test files, texts and numbers.

    Tests of variables are refused, because bash evaluates their subscripts.
    """
    for word in words:
        if word.is_pattern and not (word.prefix and word.prefix[0] not in "-(!=<>"):
            return "a pattern that is not quoted could become a test of its own"
        if word.text in _TEST_WORDS or word.text == "]" or re.fullmatch(r"-[0-9]+", word.text):
            continue
        if word.text.startswith("-") or re.search(r"[\[$`]", word.text):
            return f"{word.text} is not on the list of tests that only read"
    return ""
