"""Decide whether a tool call is allowed, needs asking, or is denied.

It takes the rules, the mode and the access of a call, and returns a verdict; it changes nothing, and of the disk it
reads only names and links. Deny rules go before ask rules, and those before allow rules; the mode decides on calls that
no rule names.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from ...errors import InputError
from ...settings.records import Mode, PermissionRules
from ...tools import Access
from ...tools.files.readable import ReadScope, absolute_path, is_beneath, matches_path
from ...tools.shell.computed import judged_line, parse
from ...tools.shell.git_history import shows_denied_file
from ...tools.shell.grammar import Line
from ...tools.shell.read_only import problem_of
from ...tools.shell.read_places import denied_paths, program_of_project
from ...tools.shell.read_words import denied_word, outside_paths, outside_problem
from ...tools.shell.sandbox import available
from ...values import record, replace
from .joined_commands import may_join
from .protected_files import is_protected
from .rules import (
    PermissionRule,
    allows_command,
    hides_command,
    host_of,
    matches_host,
    names_tool,
    parse_permission_rules,
    runs,
    touches_command,
)

PermissionOutcome: TypeAlias = Literal["allow", "ask", "deny"]


@record
class Verdict:
    """The decision on a tool call, its reason, and the rule or mode behind it.

    ``restricted`` says that the command must run in the sandbox, ``reads_inside`` that it can read there only the
    session's directories and the paths of ``reads``, ``hides_denied`` that it runs freely but without denied files.
    """

    outcome: PermissionOutcome
    reason: str
    by: str
    restricted: bool = False
    reads_inside: bool = False
    reads: tuple[str, ...] = ()
    hides_denied: bool = False


@record
class Approval:
    """A question for a person: the tool call, its access, a preview, and the rules that 'always' can add.

    The preview is whole, and has control characters as they are: show them by their numbers. For a plan (``is_plan``)
    it is the plan's text, the access names its file, 'once' approves it in the mode default and 'always' in the mode
    accept-edits; the message of a denial tells the model the changes you want.
    """

    tool: str
    input: Mapping[str, Any]
    access: Access
    preview: str
    reason: str
    suggestions: tuple[str, ...] = ()
    """Rules that would allow this call from now on, the narrowest first."""
    is_plan: bool = False
    id: str = ""
    """The id of the call; empty for a plan."""


@record
class ApprovalAnswer:
    """A person's answer to an approval; ``message`` is given to the model if the answer is a denial or on a plan.

    'always' adds ``rule``, or the first of the suggestions if it is empty or invalid, for this session, or with
    ``keep`` for every session of this project.
    """

    kind: Literal["once", "always", "deny"]
    message: str = ""
    rule: str = ""
    keep: Literal["session", "project"] = "session"


Approver: TypeAlias = Callable[[Approval], Awaitable[ApprovalAnswer]]


@record
class PermissionCase:
    """A tool call to decide on, with the rules, mode, directories and protected paths that apply to it."""

    rules: PermissionRules
    mode: Mode
    tool: str
    access: Access
    cwd: Path
    home: Path
    reads: ReadScope
    protected: tuple[str, ...]
    sandboxed: bool

    def place(self, path: str) -> str:
        """Return a path as absolute and normalized, relative to the working directory."""
        return absolute_path(path, cwd=self.cwd, home=self.home)

    def hits(self, rule: PermissionRule, path: str) -> bool:
        """Return whether a rule's pattern matches an absolute path; a rule without a pattern matches any path."""
        return rule.pattern is None or matches_path(rule.pattern, path, cwd=self.cwd, home=self.home)


@record
class PermissionScope:
    """The directories that apply to a session's tool calls, and whether the machine has a sandbox."""

    cwd: Path
    directories: Sequence[Path] = ()
    """Directories besides ``cwd`` that tools may use without asking."""
    protected: Sequence[Path] = ()
    """Paths where writes ask, in addition to those of ``protected_files.py``."""
    home: Path | None = None
    """The user's home directory; None means the home directory of this process."""
    sandboxed: bool = True
    """Whether this machine has a sandbox (``sandbox.available().works``)."""


def check_mode(mode: Mode) -> None:
    """Raise ``InputError`` unless a permission mode is one of those that exist."""
    if mode not in get_args(Mode):
        raise InputError(f"mode is {mode!r}: pass one of {', '.join(get_args(Mode))}")


def decide(rules: PermissionRules, mode: Mode, tool: str, access: Access, scope: PermissionScope) -> Verdict:
    """Return the verdict on a tool call: allow, ask or deny; the caller has resolved links in the target."""
    cwd, home = scope.cwd, Path.home() if scope.home is None else scope.home
    extra = [absolute_path(each, cwd=cwd, home=home) for each in rules.directories]
    case = PermissionCase(
        rules=rules,
        mode=mode,
        tool=tool,
        access=access,
        cwd=cwd,
        home=home,
        reads=_read_scope(cwd, home, [*map(str, scope.directories), *extra], denied_reads(rules)),
        protected=tuple(map(str, scope.protected)),
        sandboxed=scope.sandboxed,
    )
    if rule := _first(case, parse_permission_rules(rules).deny, loosely=True):
        return Verdict("deny", f"the rule {rule.text} denies it", rule.text)
    if mode == "bypass":
        return _bypass(case)
    if access.kind == "run":
        return _decide_command(case)
    if mode == "plan" and access.kind not in ("none", "read"):
        return _plan_mode_denial(f"{tool} does more than read")
    if rule := _first(case, parse_permission_rules(rules).ask, loosely=True):
        return Verdict("ask", f"the rule {rule.text} asks", rule.text)
    if access.kind == "write" and _is_protected(case):
        return Verdict("ask", "it controls later commands or instructions", "protected")
    if rule := _first(case, parse_permission_rules(rules).allow):
        return Verdict("allow", f"the rule {rule.text} allows it", rule.text)
    if access.doubt:
        return Verdict("ask", access.doubt, "doubt")
    return _by_mode(case)


def _read_scope(cwd: Path, home: Path, directories: Sequence[str], denied: tuple[str, ...]) -> ReadScope:
    folders = [os.path.normpath(each) for each in (str(cwd), *directories)]
    return ReadScope(str(cwd), str(home), tuple(dict.fromkeys([*folders, *map(os.path.realpath, folders)])), denied)


def denied_reads(rules: PermissionRules) -> tuple[str, ...]:
    """Return the patterns of paths that rules deny to every tool that reads."""
    deny = parse_permission_rules(rules).deny
    return tuple(rule.pattern for rule in deny if rule.tool == "Read" and rule.pattern is not None)


def _plan_mode_denial(why: str) -> Verdict:
    return Verdict("deny", f"plan mode: {why}; only read, then propose a plan", "mode plan")


def _by_mode(case: PermissionCase) -> Verdict:
    by, kind = f"mode {case.mode}", case.access.kind
    if kind in ("none", "own"):
        return Verdict("allow", "it touches nothing" if kind == "none" else "the program's own function", by)
    if kind in ("read", "write"):
        if not case.reads.is_inside(case.place(case.access.target)):
            return Verdict("ask", "the path is outside the directories of this session", by)
        if kind == "read":
            return Verdict("allow", "it reads inside the directories of this session", by)
        if case.mode == "accept-edits":
            return Verdict("allow", "it writes inside the directories of this session", by)
    if kind == "checkout" and case.mode == "accept-edits":
        return Verdict("allow", "it makes a branch and a checkout of its own", by)
    words = {
        "write": "it writes a file",
        "fetch": "it reaches the network",
        "checkout": "it makes a branch and a checkout of the repository",
    }
    return Verdict("ask", words.get(kind, "no rule names this tool"), by)


def _is_protected(case: PermissionCase) -> bool:
    path = case.place(case.access.target)
    return is_protected(path, case.reads.roots) or is_beneath(path.casefold(), map(str.casefold, case.protected))


def _first(case: PermissionCase, rules: tuple[PermissionRule, ...], *, loosely: bool = False) -> PermissionRule | None:
    """Return the first rule that matches the call, or None; with ``loosely`` a probable match counts.

    Commands match only with ``loosely``; ``_allowing_rule`` finds rules that allow them.
    """
    return next((rule for rule in rules if _matches(case, rule, loosely)), None)


def _matches(case: PermissionCase, rule: PermissionRule, loosely: bool) -> bool:
    if case.access.kind == "run":
        return loosely and _matches_command(case, rule)
    if not names_tool(rule, case.tool, case.access):
        return False
    if rule.pattern is None:
        return True
    match case.access.kind:
        case "read" | "write":
            return case.hits(rule, case.place(case.access.target))
        case "fetch":
            host = host_of(case.access.target)
            return matches_host(rule.pattern, host) if host else loosely
        case _:
            return rule.pattern == case.access.target


def _matches_command(case: PermissionCase, rule: PermissionRule) -> bool:
    line = case.access.target
    if names_tool(rule, case.tool, case.access):
        return (
            rule.pattern is None
            or rule.pattern == line.strip()
            or any(touches_command(rule.pattern, argv) for argv in runs(line))
        )
    # A rule against reading or writing a file also covers commands that name the file, or may name it.
    if rule.pattern is None or rule.tool not in ("Read", "Edit", "Write"):
        return False
    judged = judged_line(line)
    if rule.tool != "Read" and judged.allowed:
        return False
    return denied_word(line, judged.line, replace(case.reads, denied=(rule.pattern,)))


def _decide_command(case: PermissionCase) -> Verdict:
    text, found = case.access.target, parse_permission_rules(case.rules)
    judged = judged_line(text)
    if case.mode == "plan" and not judged.allowed:
        return _plan_mode_denial(f"the command may change files ({judged.reason})")
    if rule := _first(case, found.ask, loosely=True):
        return Verdict("ask", f"the rule {rule.text} asks", rule.text)
    shown = judged.line or parse(text)
    if shown is not None and shows_denied_file(shown, case.reads, is_computed=judged.is_computed):
        return _HISTORY
    outside = outside_problem(judged.line, case.reads) if judged.line is not None else ""
    restricted = judged.allowed and case.sandboxed
    if rule := _allowing_rule(case, found.allow, is_walled=restricted and not outside):
        if rule.pattern is None and not judged.allowed and _hides_denied_command(case):
            return _HIDDEN
        is_exact = rule.pattern == text.strip()  # the person saw every path
        walled = restricted and (not outside or (bool(case.reads.denied) and not is_exact))
        reads = _reads_outside(judged.line, case) if walled and outside and judged.line is not None else ()
        return Verdict("allow", f"the rule {rule.text} allows it", rule.text, restricted, walled, reads)
    by = f"mode {case.mode}"
    if not judged.allowed:
        return Verdict("ask", f"it may change files ({judged.reason})", by)
    if outside:
        return Verdict("ask", outside, by, case.sandboxed)
    if judged.line is not None and (name := program_of_project(judged.line, case.reads)):
        return Verdict(
            "ask", f"the search path (PATH) finds {name} in the directories of this session", by, case.sandboxed
        )
    if not case.sandboxed or (judged.is_computed and not _can_watch(case)):
        return Verdict("ask", "it seems to only read, but there is no sandbox here to enforce that", by)
    return Verdict("allow", "it only reads, and runs in the sandbox", by, True, True)


def _can_watch(case: PermissionCase) -> bool:
    """Return whether programs can be judged when they start: nothing in the session's directories may start."""
    return available().watch and not is_beneath("/usr/bin", case.reads.roots)


def _bypass(case: PermissionCase) -> Verdict:
    """Return the verdict of bypass mode: only a file that a rule denies, reached by another name, is held back."""
    allowed = Verdict("allow", "bypass mode allows every call that no rule denies", "mode bypass")
    if _hides_denied_command(case):
        return _HIDDEN
    access = case.access
    if not case.reads.denied or access.kind not in ("run", "read"):
        return allowed
    if access.kind == "read":
        is_hidden = access.doubt and case.place(access.target) in denied_paths(case.reads)
        return Verdict("deny", "the file has another name that a rule denies", "denied file") if is_hidden else allowed
    parsed = parse(access.target)
    if parsed is not None and shows_denied_file(parsed, case.reads):
        return _HISTORY
    if not (case.sandboxed and parsed is not None and judged_line(access.target).allowed):
        rule = _allowing_rule(case, parse_permission_rules(case.rules).allow)
        return replace(allowed, hides_denied=rule is None or rule.pattern is None)
    return replace(allowed, restricted=True, reads_inside=True, reads=_reads_outside(parsed, case))


def _reads_outside(line: Line, case: PermissionCase) -> tuple[str, ...]:
    paths = outside_paths(line, case.reads)
    inside = [path for path in paths if case.reads.is_inside(path)]  # files with other names
    hidden = denied_paths(case.reads) if inside else set[str]()
    return tuple(path for path in paths if path not in hidden)


_HISTORY: Final = Verdict("ask", "it may show a file that a rule denies, which the repository holds or held", "history")
_HIDDEN: Final = Verdict("ask", "some words are known only when it runs, and a rule denies some commands", "hidden")


def _hides_denied_command(case: PermissionCase) -> bool:
    deny = parse_permission_rules(case.rules).deny
    patterns = [rule.pattern for rule in deny if rule.tool == case.tool and rule.pattern is not None]
    return case.access.kind == "run" and hides_command(case.access.target, patterns)


def _allowing_rule(
    case: PermissionCase, rules: tuple[PermissionRule, ...], *, is_walled: bool = False
) -> PermissionRule | None:
    """Return a rule that allows the whole line, or None: each command must match a rule, or only read inside.

    ``is_walled`` says that the sandbox will limit the reads of the line.
    """
    about = [rule for rule in rules if rule.tool == case.tool]
    for rule in about:
        if rule.pattern is None or rule.pattern == case.access.target.strip():
            return rule
    line = parse(case.access.target)
    if line is None:
        return None

    def is_inside(path: str) -> bool:
        return case.reads.is_inside(case.place(path))

    by = [
        next((rule for rule in about if allows_command(rule.pattern or "", each, is_inside)), None)
        for each in line.commands
    ]
    covered = all(rule or not problem_of(each) for rule, each in zip(by, line.commands, strict=True))
    joined = covered and may_join(case.access.target, line, by, case.reads, is_walled=is_walled)
    return next((rule for rule in by if rule), None) if joined else None
