"""Decide whether a tool call is allowed, needs asking, or is denied.

Pure: it takes the rules, the mode and the access of a call, and returns a verdict. Deny rules go before ask rules, and
those before allow rules; the mode decides on calls that no rule names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ...errors import SettingsError
from ...settings.agent import Mode, PermissionRules
from ...tools import Access
from ...tools.shell.grammar import Command, Line, parse
from ...tools.shell.read_only import is_read_only, problem_of
from ...values import record
from .rules import (
    PermissionRule,
    absolute_path,
    allows_command,
    host_of,
    matches_host,
    matches_path,
    names_tool,
    parse_permission_rule,
    parse_permission_rules,
    runs,
    touches_command,
)

__all__ = [
    "PROTECTED",
    "Approval",
    "ApprovalAnswer",
    "Approver",
    "PermissionOutcome",
    "PermissionScope",
    "Verdict",
    "decide",
    "remember",
]

PermissionOutcome: TypeAlias = Literal["allow", "ask", "deny"]

PROTECTED: Final = (
    ".git .reverie .reverie.toml .claude .mcp.json AGENTS.md CLAUDE.md CLAUDE.local.md .bashrc .bash_profile "
    ".bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .kshrc .gitconfig .gitmodules .ssh "
    ".netrc .npmrc .pypirc .envrc .husky .vscode .idea"
)
"""Names of files and folders that control later commands or instructions, separated by blanks.

Tools that write there ask even if a rule allows it; only the mode bypass allows it, and plan denies it.
"""

# These places hold no data of the user.
_SYSTEM: Final = (
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/opt",
    "/dev/null",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/etc/os-release",
)
_PATTERN_FIRST: Final = frozenset({"awk", "egrep", "fgrep", "grep", "jq", "rg", "sed"})
_PATTERN_BY_OPTION: Final = re.compile(r"-[A-Za-z]*[ef]|--(?:regexp|file|files|expression)\b")


@record
class Verdict:
    """The decision on a tool call, its reason, and the rule or mode behind it.

    ``restricted`` says that the command must run in the sandbox.
    """

    outcome: PermissionOutcome
    reason: str
    by: str
    restricted: bool = False


@record
class Approval:
    """A question for a person: the tool call, its access, a preview, and the rule that 'always' would add.

    For a plan (``is_plan``) the preview is its text, the access names its file, 'once' approves it in the mode default
    and 'always' in the mode accept-edits; the message of a denial tells the model the changes you want.
    """

    tool: str
    input: Mapping[str, Any]
    access: Access
    preview: str
    reason: str
    suggestion: str = ""
    is_plan: bool = False


@record
class ApprovalAnswer:
    """A person's answer to an approval; ``message`` is given to the model if the answer is a denial or on a plan."""

    kind: Literal["once", "always", "deny"]
    message: str = ""


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
    roots: tuple[str, ...]
    protected: tuple[str, ...]
    sandboxed: bool

    def place(self, path: str, base: str = "") -> str:
        """Return a path as absolute and normalized; relative to ``base``, or else to the working directory."""
        return absolute_path(path, cwd=Path(base) if base else self.cwd, home=self.home)

    def is_inside(self, path: str, *, roots: Sequence[str] = ()) -> bool:
        """Return whether an absolute path is in one of the session's directories or of the given roots."""
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in (*self.roots, *roots))

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
    """Paths where writes ask, in addition to ``PROTECTED``."""
    home: Path | None = None
    """The user's home directory; None means the home directory of this process."""
    sandboxed: bool = True
    """Whether this machine has a sandbox (``sandbox.available().works``)."""


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
        roots=tuple(os.path.normpath(each) for each in (str(cwd), *map(str, scope.directories), *extra)),
        protected=(*PROTECTED.split(), *(re.sub(r"([*?[])", r"[\1]", str(each)) for each in scope.protected)),
        sandboxed=scope.sandboxed,
    )
    if rule := _first(case, parse_permission_rules(rules).deny, loosely=True):
        return Verdict("deny", f"the rule {rule.text} denies it", rule.text)
    if mode == "bypass":
        return Verdict("allow", "bypass mode allows every call that no rule denies", "mode bypass")
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


def _plan_mode_denial(why: str) -> Verdict:
    return Verdict("deny", f"plan mode: {why}; only read, then propose a plan", "mode plan")


def _by_mode(case: PermissionCase) -> Verdict:
    by, kind = f"mode {case.mode}", case.access.kind
    if kind == "none":
        return Verdict("allow", "it touches nothing", by)
    if kind in ("read", "write"):
        if not case.is_inside(case.place(case.access.target)):
            return Verdict("ask", "the path is outside the directories of this session", by)
        if kind == "read":
            return Verdict("allow", "it reads inside the directories of this session", by)
        if case.mode == "accept-edits":
            return Verdict("allow", "it writes inside the directories of this session", by)
    words = {"write": "it writes a file", "fetch": "it reaches the network"}
    return Verdict("ask", words.get(kind, "no rule names this tool"), by)


def _is_protected(case: PermissionCase) -> bool:
    path = case.place(case.access.target)
    return any(matches_path(each, path, cwd=case.cwd, home=case.home) for each in case.protected)


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
    # A rule against reading or writing a file also covers commands that name the file.
    if rule.pattern is None or rule.tool not in ("Read", "Edit", "Write"):
        return False
    if rule.tool != "Read" and is_read_only(line).allowed:
        return False
    return any(
        case.hits(rule, case.place(text)) for argv in runs(line) for word in argv[1:] for text in _paths_in(word)
    )


def _paths_in(word: str) -> Iterator[str]:
    yield word
    if "=" in word:
        yield word.partition("=")[2]


def _decide_command(case: PermissionCase) -> Verdict:
    text, found = case.access.target, parse_permission_rules(case.rules)
    judged = is_read_only(text)
    if case.mode == "plan" and not judged.allowed:
        return _plan_mode_denial(f"the command is not known to only read ({judged.reason})")
    if rule := _first(case, found.ask, loosely=True):
        return Verdict("ask", f"the rule {rule.text} asks", rule.text)
    if rule := _allowing_rule(case, found.allow):
        return Verdict("allow", f"the rule {rule.text} allows it", rule.text, judged.allowed and case.sandboxed)
    by = f"mode {case.mode}"
    if not judged.allowed:
        return Verdict("ask", f"it is not known to only read: {judged.reason}", by)
    if outside := _outside(case, parse(text)):
        return Verdict(
            "ask", f"it reads {outside}, which is outside the directories of this session", by, case.sandboxed
        )
    if not case.sandboxed:
        return Verdict("ask", "it seems to only read, but there is no sandbox here to enforce that", by)
    return Verdict("allow", "it only reads, and runs in the sandbox", by, True)


def _allowing_rule(case: PermissionCase, rules: tuple[PermissionRule, ...]) -> PermissionRule | None:
    """Return a rule that allows the whole line, or None: each command must match a rule or be read-only."""
    about = [rule for rule in rules if rule.tool == case.tool]
    for rule in about:
        if rule.pattern is None or rule.pattern == case.access.target.strip():
            return rule
    line = parse(case.access.target)
    if not isinstance(line, Line):
        return None
    by = [next((rule for rule in about if allows_command(rule.pattern or "", each)), None) for each in line.commands]
    covered = all(rule or not problem_of(each) for rule, each in zip(by, line.commands, strict=True))
    return next((rule for rule in by if rule), None) if covered else None


def _outside(case: PermissionCase, line: object) -> str:
    """Return the first path in a line of read-only commands that is outside the allowed places; '' if none.

    Allowed are the session's directories and system places such as /usr. After a ``cd`` that may have failed, a
    path must be inside from every possible working directory.
    """
    bases = [str(case.cwd)]
    for command in line.commands if isinstance(line, Line) else ():
        for text in (*_operands(command), *command.reads):
            if not all(case.is_inside(case.place(text, base), roots=_SYSTEM) for base in bases):
                return text
        if command.words[0].text == "cd":
            target = command.words[1].text if len(command.words) > 1 else "~"
            bases += [case.place(target, base) for base in bases]
    return ""


def _operands(command: Command) -> Iterator[str]:
    """Yield the words of a command that may be paths; skip the pattern or script of commands such as grep."""
    name, *words = command.argv
    skips = name in _PATTERN_FIRST and not any(_PATTERN_BY_OPTION.match(word) for word in words)
    for word in words:
        if name in ("echo", "printf"):
            return
        if not word.startswith("-"):
            if skips:
                skips = False
                continue
            yield word
        elif "=" in word:
            yield word.partition("=")[2]
        elif "/" in word:
            yield word[2:]


_BY_SECOND_WORD: Final[Mapping[str, frozenset[str]]] = {
    "git": frozenset({"add", "commit", "fetch", "merge", "pull", "push", "stash", "switch"}),
    "cargo": frozenset({"build", "check", "clippy", "fmt", "test"}),
    "go": frozenset({"build", "fmt", "test", "vet"}),
    "npm": frozenset({"ci", "test"}),
}


def remember(tool: str, access: Access, *, cwd: Path, home: Path | None = None) -> str:
    """Return the rule that 'always' adds: for a path, a command or its first words, a host or tool; '' if none."""
    home = Path.home() if home is None else home
    match access.kind:
        case "run":
            suggestion = f"{tool}({_command_to_remember(access.target.strip())})"
        case "read" | "write":
            path = absolute_path(access.target, cwd=cwd, home=home)
            inside = path.startswith(f"{cwd}/")
            is_kept = access.kind == "read" or not any(
                matches_path(e, path, cwd=cwd, home=home) for e in PROTECTED.split()
            )
            suggestion = f"{tool}({f'./{os.path.relpath(path, cwd)}' if inside else path})" if is_kept else ""
            suggestion = "" if re.search(r"[*?\[]", path) else suggestion
        case "fetch":
            suggestion = f"{tool}({host})" if (host := host_of(access.target)) else ""
        case _:
            suggestion = tool
    try:
        return parse_permission_rule(suggestion).text if suggestion else ""
    except SettingsError:
        return ""


def _command_to_remember(line: str) -> str:
    found = parse(line)
    if isinstance(found, Line) and len(found.commands) == 1:
        words = found.commands[0].argv
        if len(words) > 1 and words[1] in _BY_SECOND_WORD.get(words[0], ()):
            return f"{words[0]} {words[1]}:*"
    return line
