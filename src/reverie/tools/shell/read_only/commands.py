"""The commands that only read, and the options with which they only read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..grammar import Word
from .git import GIT
from .languages import judge_awk, judge_find, judge_jq, judge_sed, judge_test
from .options import (
    OptionRule,
    ParsedArguments,
    Subcommands,
    WordCheck,
    option_rule,
    parsed_arguments,
    problem_with,
)

__all__ = ["COMMANDS"]

_GREP_LONG: Final = (
    "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case word-regexp line-regexp "
    "null-data no-messages invert-match byte-offset line-number line-buffered with-filename no-filename only-matching "
    "quiet silent text recursive dereference-recursive files-without-match files-with-matches count initial-tab null"
)
_GREP: Final = option_rule(
    "EFGPyivwxzsbnHhoqaIrRLlcTZ",
    "efmABCdD",
    long=_GREP_LONG,
    long_valued="regexp file max-count label binary-files directories devices include exclude exclude-from exclude-dir "
    "after-context before-context context",
    long_optional="color colour",
    has_counts=True,
    is_tame=True,
)
_CHECKSUM: Final = option_rule(
    "btcwz", long="binary text check tag zero quiet status strict warn ignore-missing", is_tame=True
)
_LINES: Final = option_rule(
    "qvz", "nc", long="quiet silent verbose zero-terminated", long_valued="lines bytes", has_counts=True, is_tame=True
)


def _is_date(given: ParsedArguments) -> str:
    if all(text.startswith("+") for text in given.texts):
        return ""
    return "an argument that is not a format sets the clock"


def _is_process_list(given: ParsedArguments) -> str:
    if all(re.fullmatch(r"[auxfwlj]+|[0-9]+", text) for text in given.texts):
        return ""
    return "an argument is not a list of processes"


def _is_lookup(given: ParsedArguments) -> str:
    return "" if given.has("v", "V") else "it would run the program that it names"


def _is_directory(given: ParsedArguments) -> str:
    return "it goes to the directory of an earlier command" if "-" in given.texts else ""


def _is_only_version(words: tuple[Word, ...]) -> str:
    return "" if [word.text for word in words] == ["--version"] else "only its --version is known to only read"


def _has_no_option_file(given: ParsedArguments) -> str:
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
        return "only listing an archive (tar -tf FILE) is known to only read"
    if any(text.startswith("-") or word.is_pattern for text, word in zip(texts[1:], words[1:], strict=True)):
        return "only listing an archive (tar -tf FILE) is known to only read"
    return "an archive on another machine" if ":" in texts[1] else ""


def _nested_problem(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if a command that gets more words from its caller can only read with any words."""
    rule = COMMANDS.get(words[0].text) if words and words[0].is_plain and not words[0].is_pattern else None
    if not isinstance(rule, OptionRule) or not rule.is_tame:
        return "the command that it runs is not on the list of those that only read with any arguments"
    return problem_with(rule, words[1:])


_XARGS: Final = option_rule("0rtx", "nLPsI", long="null no-run-if-empty", long_valued="max-args max-lines max-procs")


def _judge_xargs(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if xargs runs a command that only reads with any words."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name = words[at].text
        at += 2 if name[1:] in _XARGS.valued else 1
    try:
        parsed_arguments(_XARGS, words[:at])
    except ValueError as problem:
        return str(problem)
    return _nested_problem(words[at:]) if words[at:] else ""


def _judge_find(words: tuple[Word, ...]) -> str:
    """Return a problem, or '' if find only tests and lists, or runs a command that only reads with any words."""
    left = list(words)
    while (at := next((n for n, word in enumerate(left) if word.text == "-exec"), -1)) >= 0:
        end = next((n for n in range(at, len(left)) if left[n].text in (";", "+")), len(left))
        if problem := _nested_problem(tuple(left[at + 1 : end])) if end < len(left) else "its -exec does not end":
            return problem
        left[at : end + 1] = [Word("-print", "-print")]
    return judge_find(tuple(left))


COMMANDS: Final[Mapping[str, OptionRule | Subcommands | WordCheck]] = {
    "[": judge_test,
    "arch": option_rule(max_operands=0),
    "awk": judge_awk,
    "b2sum": _CHECKSUM,
    "base64": option_rule("d", "w", long="decode", long_valued="wrap", max_operands=1),
    "basename": option_rule("az", "s", long="multiple zero", long_valued="suffix", is_tame=True),
    "bash": _is_only_version,
    "cat": option_rule(
        "AbeEnstTuv",
        long="show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting",
        is_tame=True,
    ),
    "cd": option_rule(max_operands=1, check=_is_directory),
    "cksum": option_rule(is_tame=True),
    "cmp": option_rule("bls", "in", long="print-bytes verbose quiet silent", long_valued="ignore-initial bytes"),
    "column": option_rule("txnJ", "sco", long="table json", long_valued="separator output-separator"),
    "comm": option_rule("123z", long="check-order nocheck-order total zero-terminated", long_valued="output-delimiter"),
    "command": option_rule("vV", check=_is_lookup),
    "cut": option_rule(
        "snz",
        "bcdf",
        long="complement only-delimited zero-terminated",
        long_valued="bytes characters fields delimiter output-delimiter",
        is_tame=True,
    ),
    "date": option_rule(
        "uR",
        "dr",
        attached="I",
        long="utc universal rfc-email",
        long_valued="date reference rfc-3339",
        long_optional="iso-8601",
        max_operands=1,
        check=_is_date,
    ),
    "df": option_rule(
        "ahHiklPTm",
        "tx",
        long="all human-readable si inodes local portability print-type total",
        long_valued="type exclude-type block-size",
        long_optional="output",
    ),
    "diff": option_rule(
        "qsycuNraiEbBwZdtTpe",
        "UCIxWF",
        long="normal brief report-identical-files side-by-side recursive new-file unidirectional-new-file ignore-case "
        "ignore-tab-expansion ignore-trailing-space ignore-space-change ignore-all-space ignore-blank-lines text "
        "minimal expand-tabs show-c-function suppress-common-lines left-column strip-trailing-cr no-dereference",
        long_valued="label exclude width ignore-matching-lines show-function-line",
        long_optional="unified context color",
    ),
    "dirname": option_rule("z", long="zero", is_tame=True),
    "du": option_rule(
        "abcDhHklLmPsSx0",
        "dtB",
        long="all apparent-size bytes total human-readable si summarize one-file-system separate-dirs null dereference",
        long_valued="max-depth exclude threshold block-size",
        long_optional="time",
    ),
    "echo": _judge_echo,
    "egrep": _GREP,
    "expand": option_rule("i", "t", long="initial", long_valued="tabs"),
    "expr": option_rule(),
    "false": option_rule(),
    "fgrep": _GREP,
    "file": option_rule(
        "bhiLkNnr0",
        "F",
        long="brief mime mime-type mime-encoding dereference no-dereference keep-going extension",
        long_valued="separator",
    ),
    "find": _judge_find,
    "fmt": option_rule("cstu", "w", long_valued="width", has_counts=True),
    "fold": option_rule("bs", "w", long="bytes spaces", long_valued="width", has_counts=True),
    "free": option_rule("bkmghtwl", long="bytes kibi mebi gibi human total wide si lohi", max_operands=0),
    "gcc": _is_only_version,
    "getconf": option_rule("a", max_operands=2),
    "git": GIT,
    "grep": _GREP,
    "groups": option_rule(max_operands=1),
    "head": _LINES,
    "hexdump": option_rule("bcCdovx", "ns", long="canonical one-byte-octal", long_valued="length skip"),
    "hostname": option_rule("s", long="short", max_operands=0),
    "id": option_rule("agGnruz", long="group groups name real user zero", max_operands=1),
    "join": option_rule("i", "aeo12tvj", long="ignore-case header check-order nocheck-order"),
    "jq": judge_jq,
    "ls": option_rule(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        "ITw",
        long="all almost-all author escape ignore-backups directory file-type classify full-time human-readable si "
        "dereference-command-line dereference inode numeric-uid-gid no-group literal hide-control-chars quote-name "
        "reverse recursive size group-directories-first kibibytes zero context",
        long_valued="block-size hide ignore indicator-style quoting-style sort time time-style tabsize width format",
        long_optional="color hyperlink classify",
        is_tame=True,
    ),
    "lscpu": option_rule("abce", long="all json bytes", max_operands=0),
    "md5sum": _CHECKSUM,
    "nl": option_rule(
        "p", "bdfhilnsvw", long_valued="body-numbering number-separator number-width number-format", is_tame=True
    ),
    "node": _is_only_version,
    "nproc": option_rule(long="all", long_valued="ignore", max_operands=0),
    "od": option_rule(
        "abcdfhilosxv", "AjNtw", long="output-duplicates", long_valued="address-radix skip-bytes read-bytes format"
    ),
    "paste": option_rule("sz", "d", long="serial zero-terminated", long_valued="delimiters"),
    "printf": _judge_printf,
    "ps": option_rule(
        "eAaflFHjMLTwd",
        "ugpoCtGUOkqs",
        long="no-headers forest headers",
        long_valued="sort pid ppid user format group tty cols columns width rows sid",
        check=_is_process_list,
        max_operands=2,
    ),
    "pwd": option_rule("LP", long="logical physical", max_operands=0),
    "python": _is_only_version,
    "python3": _is_only_version,
    "readlink": option_rule(
        "efmnqsvz",
        long="canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
        is_tame=True,
    ),
    "realpath": option_rule(
        "eLmPqsz",
        long="canonicalize-existing canonicalize-missing logical physical quiet strip no-symlinks zero",
        long_valued="relative-to relative-base",
        is_tame=True,
    ),
    "rev": option_rule(is_tame=True),
    "rg": option_rule(
        "aFHiIlnNoPqsSuUvVwxcpL0.",
        "ABCefgmMrtTdEj",
        long="text fixed-strings with-filename no-filename ignore-case files-with-matches files-without-match "
        "line-number no-line-number only-matching pcre2 quiet case-sensitive smart-case unrestricted invert-match "
        "version word-regexp line-regexp count count-matches pretty follow null hidden no-ignore no-ignore-vcs "
        "no-ignore-parent no-ignore-global no-ignore-dot files heading no-heading multiline multiline-dotall json "
        "stats trim vimgrep column no-column byte-offset type-list no-messages no-config crlf binary passthru "
        "one-file-system glob-case-insensitive include-zero no-unicode auto-hybrid-regex no-mmap mmap",
        long_valued="after-context before-context context regexp file glob iglob max-count max-columns replace type "
        "type-not max-depth maxdepth encoding threads sort sortr color colors max-filesize engine type-add "
        "context-separator path-separator field-match-separator dfa-size-limit regex-size-limit",
        is_tame=False,
    ),
    "sed": judge_sed,
    "seq": option_rule("w", "sf", long="equal-width", long_valued="separator format", has_counts=True),
    "sha1sum": _CHECKSUM,
    "sha224sum": _CHECKSUM,
    "sha256sum": _CHECKSUM,
    "sha384sum": _CHECKSUM,
    "sha512sum": _CHECKSUM,
    "sort": option_rule(
        "bcCdfghiMmnRrsuVz",
        "kt",
        long="ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting month-sort "
        "human-numeric-sort numeric-sort random-sort reverse version-sort stable unique merge zero-terminated debug",
        long_valued="key field-separator sort",
        long_optional="check",
    ),
    "stat": option_rule("fLt", "c", long="dereference file-system terse", long_valued="format printf"),
    "strings": option_rule(
        "af", "nte", long="all print-file-name", long_valued="bytes radix encoding", check=_has_no_option_file
    ),
    "tac": option_rule("br", "s", long="before regex", long_valued="separator", is_tame=True),
    "tail": _LINES,
    "tar": _judge_tar,
    "test": judge_test,
    "tr": option_rule("cCdst", long="complement delete squeeze-repeats truncate-set1", max_operands=2),
    "tree": option_rule(
        "adfispughDFlxqNQrtcUnCASJX",
        "LPI",
        long="dirsfirst gitignore noreport du prune matchdirs ignore-case si inodes device filesfirst metafirst",
        long_valued="filelimit sort timefmt charset",
    ),
    "true": option_rule(),
    "tty": option_rule("s", max_operands=0),
    "type": option_rule("aftpP"),
    "uname": option_rule(
        "asnrvmpio",
        long="all kernel-name nodename kernel-release kernel-version machine processor operating-system",
        max_operands=0,
    ),
    "unexpand": option_rule("a", "t", long="all first-only", long_valued="tabs"),
    "uniq": option_rule(
        "cdDiuz",
        "fsw",
        long="count repeated ignore-case unique zero-terminated",
        long_valued="skip-fields skip-chars check-chars",
        long_optional="all-repeated group",
        max_operands=1,
    ),
    "uptime": option_rule("ps", long="pretty since", max_operands=0),
    "wc": option_rule("clmLw", long="bytes chars lines words max-line-length", long_valued="total", is_tame=True),
    "which": option_rule("as"),
    "who": option_rule("abdHlmpqrstTu", max_operands=0),
    "whoami": option_rule(max_operands=0),
    "xargs": _judge_xargs,
    "xxd": option_rule("abBeEiup", "cglos", max_operands=1),
}
