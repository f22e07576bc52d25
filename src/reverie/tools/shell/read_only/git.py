"""The git commands that only read.

A repository's configuration can name programs (pagers, file system monitors, diff drivers, signature checkers). Options
that name programs are refused here. ``git_program.py``, which is ``git`` in the sandbox, switches off those that the
configuration names.
"""

from __future__ import annotations

import re
from typing import Final

from .options import ArgumentCheck, OptionRule, ParsedArguments, Subcommands, option_rule

__all__ = ["GIT"]

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


_DIFF_LONG: Final = (
    "shortstat numstat summary name-only name-status patch no-patch raw patch-with-stat minimal patience histogram "
    "no-color cached staged check full-index no-renames find-copies-harder pickaxe-all pickaxe-regex text "
    "ignore-space-at-eol ignore-space-change ignore-all-space ignore-blank-lines function-context exit-code quiet "
    "no-ext-diff no-textconv no-prefix merge-base no-index compact-summary no-color-moved no-relative cc root"
)
_DIFF_VALUED: Final = (
    "diff-algorithm anchored word-diff-regex diff-filter ignore-matching-lines unified inter-hunk-context "
    "ws-error-highlight src-prefix dst-prefix"
)
_DIFF_OPTIONAL: Final = (
    "stat dirstat color color-words word-diff abbrev find-renames find-copies relative ignore-submodules color-moved"
)
_LOG_LONG: Final = (
    "oneline graph no-decorate all all-match invert-grep merges no-merges first-parent reverse topo-order date-order "
    "author-date-order relative-date follow full-history simplify-by-decoration left-right left-only right-only "
    "cherry-pick cherry-mark walk-reflogs boundary ancestry-path abbrev-commit no-abbrev-commit no-abbrev source "
    "parents children not no-notes clear-decorations full-diff log-size regexp-ignore-case extended-regexp "
    "fixed-strings perl-regexp count dense sparse no-expand-tabs no-mailmap date-order show-pulls"
)
_LOG_VALUED: Final = (
    "since until after before author committer grep date format max-count skip exclude glob decorate-refs "
    "decorate-refs-exclude min-parents max-parents"
)
_LOG_OPTIONAL: Final = "decorate branches tags remotes pretty no-walk"

_DIFF: Final = option_rule(
    "puszaRwbcmrtqW",
    "USGl",
    attached="MCBD",
    long=_DIFF_LONG,
    long_valued=_DIFF_VALUED,
    long_optional=_DIFF_OPTIONAL,
    check=_has_safe_format,
)


def _log(flags: str = "", valued: str = "n", check: ArgumentCheck = _has_safe_format) -> OptionRule:
    return option_rule(
        "puszaRwbcmrtqWgiEFP" + flags,
        "USGlL" + valued,
        attached="MCBD",
        long=f"{_DIFF_LONG} {_LOG_LONG}",
        long_valued=f"{_DIFF_VALUED} {_LOG_VALUED}",
        long_optional=f"{_DIFF_OPTIONAL} {_LOG_OPTIONAL}",
        has_counts=True,
        check=check,
    )


_REFS_VALUED: Final = "sort format points-at"
_REFS_OPTIONAL: Final = "contains no-contains merged no-merged color column abbrev"

GIT: Final = Subcommands(
    flags=frozenset({"--no-pager", "-P", "--no-optional-locks", "--version", "--literal-pathspecs"}),
    valued=frozenset({"-C"}),
    rules={
        "blame": option_rule(
            "abcefhlnpstw",
            "L",
            attached="MC",
            long="show-name show-number show-email porcelain line-porcelain root show-stats minimal",
            long_valued="date since ignore-rev",
            long_optional="abbrev",
        ),
        "branch": option_rule(
            "arvqi",
            long="all remotes verbose list show-current ignore-case no-color no-column no-abbrev quiet",
            long_valued=_REFS_VALUED,
            long_optional=_REFS_OPTIONAL,
            check=_lists(),
        ),
        "cat-file": option_rule("tspe", max_operands=2),
        "check-ignore": option_rule("vnqz", long="verbose non-matching quiet no-index"),
        "cherry": option_rule("v", long="verbose", max_operands=3),
        "config": option_rule(
            "lz",
            long="get get-all get-regexp list global local system worktree show-origin show-scope name-only "
            "null bool int",
            long_valued="type default",
            check=_reads_configuration,
        ),
        "count-objects": option_rule("vH", long="verbose human-readable", max_operands=0),
        "describe": option_rule(
            long="tags all always long exact-match contains first-parent",
            long_valued="match exclude candidates",
            long_optional="dirty abbrev",
        ),
        "diff": _DIFF,
        "diff-index": _DIFF,
        "diff-tree": _log(),
        "for-each-ref": option_rule(
            long="ignore-case",
            long_valued=f"{_REFS_VALUED} count exclude",
            long_optional=_REFS_OPTIONAL,
            check=_has_safe_format,
        ),
        "grep": option_rule(
            "iIwvEFPGnlLchHoqpWraz",
            "eABCm",
            long="cached untracked no-index exclude-standard no-exclude-standard name-only count line-number "
            "ignore-case word-regexp files-with-matches files-without-match heading break invert-match extended-regexp "
            "basic-regexp fixed-strings perl-regexp only-matching full-name show-function function-context and or "
            "not all-match text quiet column no-color no-textconv recursive no-recursive null",
            long_valued="max-depth threads after-context before-context context max-count",
            long_optional="color",
            has_counts=True,
        ),
        "log": _log(),
        "ls-files": option_rule(
            "cdmoistuzvfk",
            "xX",
            long="cached deleted modified others ignored stage unmerged killed exclude-standard full-name "
            "error-unmatch directory no-empty-directory eol deduplicate",
            long_valued="exclude with-tree",
            long_optional="abbrev",
        ),
        "ls-tree": option_rule(
            "rtdlz", long="name-only name-status full-name full-tree long object-only", long_optional="abbrev"
        ),
        "merge-base": option_rule("a", long="all is-ancestor fork-point octopus independent"),
        "name-rev": option_rule(long="tags name-only always no-undefined"),
        "reflog": _log(check=_first_is("show", "HEAD", or_none=True)),
        "remote": option_rule("v", long="verbose", check=_first_is("get-url", exactly=2, or_none=True)),
        "rev-list": _log(),
        "rev-parse": option_rule(
            "q",
            long="show-toplevel verify is-inside-work-tree is-inside-git-dir is-bare-repository git-dir git-common-dir "
            "absolute-git-dir show-prefix show-cdup symbolic symbolic-full-name all quiet "
            "show-superproject-working-tree is-shallow-repository",
            long_valued="git-path",
            long_optional="abbrev-ref short branches tags remotes show-object-format",
        ),
        "shortlog": _log("sen", valued=""),
        "show": _log(),
        "show-ref": option_rule(
            "dsq", long="heads branches tags dereference verify quiet head", long_optional="hash abbrev"
        ),
        "stash": _log(check=_first_is("list", "show")),
        "status": option_rule(
            "sbzv",
            attached="u",
            long="short branch long verbose show-stash no-renames no-column ahead-behind no-ahead-behind renames",
            long_optional="porcelain untracked-files ignored ignore-submodules column find-renames",
        ),
        "tag": option_rule(
            "li",
            attached="n",
            long="list ignore-case no-column",
            long_valued=_REFS_VALUED,
            long_optional=_REFS_OPTIONAL,
            check=_lists("l", "n"),
        ),
        "version": option_rule(long="build-options", max_operands=0),
        "worktree": option_rule("vz", long="porcelain verbose", check=_first_is("list", exactly=1)),
    },
)
