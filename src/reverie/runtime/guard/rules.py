"""Parse permission rules, and match them with tools, paths, commands and hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...errors import SettingsError
from ...settings.agent import PermissionRules
from ...tools import Access
from ...tools.shell.grammar import Command, Line, loose_commands, parse
from ...tools.shell.read_only.options import words_of
from ...values import record

__all__ = [
    "PermissionRule",
    "PermissionRuleSet",
    "absolute_path",
    "allows_command",
    "host_of",
    "matches_host",
    "matches_path",
    "names_tool",
    "parse_permission_rule",
    "parse_permission_rules",
    "runs",
    "touches_command",
]

_RULE: Final = re.compile(r"(?P<tool>[A-Za-z_][A-Za-z0-9_.-]*\*?)(?:\((?P<pattern>.*)\))?\Z", re.DOTALL)
_SYNTAX: Final = (
    "write a tool's name, or Tool(pattern): Edit(src/**), Bash(git status:*), WebFetch(docs.python.org), mcp__server"
)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9.-]+\Z")
# Programs that run another program named by a later word; a deny rule for that program must still apply.
_WRAPPERS: Final = words_of(
    "builtin busybox chroot command doas env exec find flock ionice nice nohup parallel setsid stdbuf strace sudo "
    "time timeout unshare watch xargs"
)
_SHELLS: Final = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_MAX_DEPTH: Final = 4


@record
class PermissionRule:
    """One parsed permission rule: a tool, and a pattern for the call's target; None matches every target."""

    text: str
    tool: str
    pattern: str | None


@record
class PermissionRuleSet:
    """The parsed permission rules that deny, ask and allow."""

    deny: tuple[PermissionRule, ...]
    ask: tuple[PermissionRule, ...]
    allow: tuple[PermissionRule, ...]


@lru_cache(maxsize=64)
def parse_permission_rules(rules: PermissionRules) -> PermissionRuleSet:
    """Return all rules of the settings parsed; raise ``SettingsError`` with examples for an invalid one."""
    return PermissionRuleSet(
        *(tuple(map(parse_permission_rule, texts)) for texts in (rules.deny, rules.ask, rules.allow))
    )


def parse_permission_rule(text: str) -> PermissionRule:
    """Parse one rule such as ``Edit(src/**)``; raise ``SettingsError`` with examples if it is invalid."""
    found = _RULE.match(text.strip())
    if found is None:
        raise SettingsError(f"permissions: {text!r} is not a rule; {_SYNTAX}")
    tool, pattern = found["tool"], found["pattern"]
    if tool.endswith("*") and not tool.startswith("mcp__"):
        raise SettingsError(f"permissions: {text!r}: only mcp__server__* may end in a star; {_SYNTAX}")
    if pattern is not None and not pattern.strip():
        raise SettingsError(f"permissions: {text!r} has an empty pattern; leave the brackets out to match everything")
    if tool.startswith("mcp__") and pattern is not None:
        raise SettingsError(f"permissions: {text!r}: a rule for MCP tools has no pattern; {_SYNTAX}")
    if tool == "WebFetch" and pattern is not None and not _HOST.match(pattern):
        raise SettingsError(f"permissions: {text!r}: give a host (docs.python.org, *.python.org), not a URL")
    if tool == "Bash" and pattern is not None and pattern.rstrip().endswith(("*", ":")) and not _is_command(pattern):
        raise SettingsError(
            f"permissions: {text!r}: a prefix is written Bash(git commit:*), a whole command without a star"
        )
    return PermissionRule(text.strip(), tool, pattern)


def _is_command(pattern: str) -> bool:
    return pattern.endswith(":*") and len(pattern) > 2


def absolute_path(path: str, *, cwd: Path, home: Path) -> str:
    """Return a path as absolute and normalized, with ``~`` as ``home``, without reading the disk."""
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    return os.path.normpath(os.path.join(cwd, path))


def matches_path(pattern: str, path: str, *, cwd: Path, home: Path) -> bool:
    """Return whether an absolute path matches a rule's path pattern, ignoring case.

    ``/etc/**`` and ``//etc/**`` are absolute, ``~/x`` is in the home, ``src/**`` and ``./x`` are below the working
    directory, ``*.env`` without a slash matches at any depth anywhere; a directory includes everything in it.
    """
    if pattern.startswith("~/"):
        root, rest = str(home), pattern[1:]
    elif pattern.startswith("/"):
        root, rest = "", pattern.removeprefix("/") if pattern.startswith("//") else pattern
    elif "/" in pattern.rstrip("/"):
        root, rest = str(cwd).rstrip("/"), f"/{pattern.removeprefix('./')}"
    else:
        root, rest = "", f"/**/{pattern}"
    # Letters of either case: on some file systems .GIT is .git.
    return path.casefold().startswith(root.casefold()) and bool(_expression(rest.rstrip("/")).match(path[len(root) :]))


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    out: list[str] = []
    for piece in re.findall(r"/\*\*(?=/|\Z)|\*\*|\*|\?|\[[^\]/]+\]|.", pattern, re.DOTALL):
        match piece:
            case "/**":
                out.append("(?:/[^/]+)*")
            case "**":
                out.append(".*")
            case "*":
                out.append("[^/]*")
            case "?":
                out.append("[^/]")
            case _ if len(piece) > 1:
                out.append(
                    "["
                    + ("^" if piece[1] in "!^" else "")
                    + re.escape(piece[1:-1].lstrip("!^")).replace(r"\-", "-")
                    + "]"
                )
            case _:
                out.append(re.escape(piece))
    return re.compile("".join(out) + r"(?:/.*)?\Z", re.DOTALL | re.IGNORECASE)


def allows_command(pattern: str, command: Command) -> bool:
    """Return whether a command surely matches a rule's pattern: exactly, or by its first words before ``:*``.

    Words are compared after the shell's quoting: ``rm '*'`` is not ``rm *``.
    """
    if pattern.endswith(":*"):
        prefix = pattern[:-2].split()
        first = command.words[: len(prefix)]
        return [word.text for word in first] == prefix and not any(word.is_pattern for word in first)
    line = parse(pattern)
    return isinstance(line, Line) and len(line.commands) == 1 and line.commands[0] == command


def touches_command(pattern: str, argv: tuple[str, ...]) -> bool:
    """Return whether a command's words equal a rule's pattern, or begin with its words before ``:*``.

    Use it only for rules that deny and ask.
    """
    words = tuple(pattern.removesuffix(":*").split())
    return argv[: len(words)] == words if pattern.endswith(":*") else argv == words or argv == _words(pattern)


def _words(pattern: str) -> tuple[str, ...]:
    return next(loose_commands(pattern), ())


def runs(line: str, depth: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that a line may run, also inside wrappers (sudo, sh -c) and quotes.

    Use it only for rules that deny and ask: an extra command does no harm there, a missing one would.
    """
    for argv in loose_commands(line):
        yield from _unwrapped(argv, depth)


def _unwrapped(argv: tuple[str, ...], depth: int) -> Iterator[tuple[str, ...]]:
    name = os.path.basename(argv[0]) if argv else ""
    yield (name, *argv[1:])
    if depth >= _MAX_DEPTH:
        return
    if name in _WRAPPERS:
        for at in range(1, len(argv)):
            yield from _unwrapped(argv[at:], depth + 1)
    if name in _SHELLS:
        for word in argv[1:]:
            yield from runs(word, depth + 1)
    if name == "eval":
        yield from runs(" ".join(argv[1:]), depth + 1)


def names_tool(rule: PermissionRule, tool: str, access: Access) -> bool:
    """Return whether a rule is about this tool: by its name or MCP server.

    A rule for Read or Edit is about every call that reads or writes files.
    """
    if rule.tool.startswith("mcp__"):
        server = rule.tool.removesuffix("*").removesuffix("__")
        return tool == rule.tool or (
            tool.startswith(f"{server}__") and (rule.tool.count("__") == 1 or rule.tool.endswith("*"))
        )
    if rule.tool == tool:
        return True
    return (rule.tool == "Read" and access.kind == "read") or (rule.tool == "Edit" and access.kind == "write")


def host_of(url: str) -> str:
    """Return the host of an http URL in lower case; an empty text if URL parsers could disagree about it."""
    if re.search(r"[\s\\\x00-\x1f\x7f]", url):
        return ""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    return host.lower().rstrip(".") if parts.scheme in ("http", "https") and "@" not in parts.netloc else ""


def matches_host(pattern: str, host: str) -> bool:
    """Return whether a host equals the pattern, or is a subdomain if the pattern begins with ``*.``."""
    pattern = pattern.lower().rstrip(".")
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
