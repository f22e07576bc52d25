"""Parse permission rules, and match them with tools, paths, commands and hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...errors import SettingsError
from ...settings.records import PermissionRules
from ...tools import Access
from ...tools.files.readable import absolute_path
from ...tools.shell.computed import parse
from ...tools.shell.grammar import Command, has_hidden_words, loose_commands, loose_texts
from ...tools.shell.read_only.options import words_of
from ...values import record, replace

_RULE: Final = re.compile(r"(?P<tool>[A-Za-z_][A-Za-z0-9_.-]*\*?)(?:\((?P<pattern>.*)\))?\Z", re.DOTALL)
_SYNTAX: Final = (
    "write a tool's name, or Tool(pattern): Edit(src/**), Bash(git status:*), WebFetch(docs.python.org), mcp__server"
)
_HOST: Final = re.compile(r"(?:\*\.)?[A-Za-z0-9.-]+\Z")
# Programs that run another program named by a later word; a deny rule for that program must still apply.
_WRAPPERS: Final = words_of(
    "builtin busybox chroot command coproc doas env exec find flock ionice nice nohup parallel setsid stdbuf strace "
    "sudo time timeout unshare watch xargs"
)
_SHELLS: Final = words_of("ash bash dash ksh sh zsh")
_READERS: Final = words_of("alias eval trap")
"""Commands whose words are lines of shell."""
_MAX_DEPTH: Final = 4
_MAX_INNER_WORDS: Final = 1_000
_MAX_INNER_CHARS: Final = 200_000
"""So much text inside a line is looked through for commands; the answer must be quick."""


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
    if tool == "Bash" and pattern is not None and (pattern == ":words" or _is_bare(pattern)):
        raise SettingsError(
            f"permissions: {text!r}: a prefix is written Bash(git commit:*) or, without further options, "
            "Bash(git commit:words); a whole command without a star"
        )
    return PermissionRule(text.strip(), tool, pattern)


def fixed_rules(rules: PermissionRules, cwd: Path) -> PermissionRules:
    """Return rules for an agent in another directory, which deny and ask about the paths below ``cwd`` there too.

    Directories beside ``cwd`` stay the same ones.
    """
    base = re.sub(r"[*?\[]", "?", str(cwd))  # in a pattern a letter of the path is no wildcard

    def fixed(texts: tuple[str, ...]) -> tuple[str, ...]:
        found = map(parse_permission_rule, texts)
        paths = [(one.tool, one.pattern) for one in found if one.pattern and one.tool not in ("Bash", "WebFetch")]
        below = [(tool, path) for tool, path in paths if "/" in path.rstrip("/") and not path.startswith(("/", "~/"))]
        return (*texts, *(f"{tool}({base}/{path.removeprefix('./')})" for tool, path in below))

    folders = tuple(absolute_path(each, cwd=cwd, home=Path.home()) for each in rules.directories)
    return replace(rules, deny=fixed(rules.deny), ask=fixed(rules.ask), directories=folders)


def _is_bare(pattern: str) -> bool:
    return pattern.rstrip().endswith(("*", ":")) and not (pattern.endswith(":*") and len(pattern) > 2)


def allows_command(pattern: str, command: Command, is_inside: Callable[[str], bool]) -> bool:
    """Return whether a command surely matches a rule's pattern: exactly, or by its first words before ``:*``.

    Before ``:words`` the first words are the same, and the others are no options and lead nowhere outside
    (``is_inside``). Words are compared after the shell's quoting: ``rm '*'`` is not ``rm *``.
    """
    prefix, _, kind = pattern.rpartition(":")
    if kind in ("*", "words") and prefix:
        first = command.words[: len(prefix.split())]
        if [word.text for word in first] != prefix.split() or any(word.is_pattern for word in first):
            return False
        return kind == "*" or _are_plain(command, len(first), is_inside)
    line = parse(pattern)
    return line is not None and len(line.commands) == 1 and line.commands[0] == command


# An option, an option file, a variable, an address or a refspec.
_NOT_PLAIN: Final = re.compile(r"[-+@]|.*[=:]", re.DOTALL)


def _are_plain(command: Command, start: int, is_inside: Callable[[str], bool]) -> bool:
    rest = list(command.words[start:])
    # The value of the last option that the person saw, such as a message.
    value = rest.pop(0) if rest and command.words[start - 1].text.startswith("-") else None
    if value is not None and (value.is_pattern or value.text.startswith("-")):
        return False
    return not command.reads and not any(
        word.is_pattern or _NOT_PLAIN.match(word.text) or not is_inside(word.text) for word in rest
    )


def touches_command(pattern: str, argv: tuple[str, ...]) -> bool:
    """Return whether a command's words equal a rule's pattern, or begin with its words before ``:*`` or ``:words``.

    Use it only for rules that deny and ask.
    """
    prefix, _, kind = pattern.rpartition(":")
    words = tuple(prefix.split())
    return argv[: len(words)] == words if kind in ("*", "words") else argv in (tuple(pattern.split()), _words(pattern))


@lru_cache(maxsize=256)
def _words(pattern: str) -> tuple[str, ...]:
    return next(loose_commands(pattern), ())


def runs(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that a line may run, also inside wrappers (sudo, sh -c) and quotes.

    Use it only for rules that deny and ask: an extra command does no harm there, a missing one would.
    """
    depths = {line: 0}
    left = len(line) + _MAX_INNER_CHARS
    for text in (waiting := [line]):
        left -= len(text)
        if left < 0:
            return
        has_shell, inner = False, list[str]()
        for argv in loose_commands(text):
            for words in _unwrapped(argv):
                yield words
                if words[0] in _SHELLS:  # it may read lines from a pipe or a here-document
                    has_shell = True
                if words[0] in _READERS:
                    read = words[1 : _MAX_INNER_WORDS + 1]
                    inner += (" ".join(read), *(word.partition("=")[2] or word for word in read))
        inner += loose_texts(text) if has_shell else ()
        new = [each for each in dict.fromkeys(inner) if each not in depths] if depths[text] < _MAX_DEPTH else []
        depths |= dict.fromkeys(new, depths[text] + 1)
        waiting += new


def _unwrapped(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield (os.path.basename(argv[0]), *argv[1:])
    if os.path.basename(argv[0]) in _WRAPPERS:
        yield from ((os.path.basename(argv[at]), *argv[at + 1 :]) for at in range(1, len(argv))[:_MAX_INNER_WORDS])


def hides_command(line: str, patterns: Iterable[str]) -> bool:
    """Return whether a word of a line that these patterns would compare is known only when the line runs."""
    count = max((len(pattern.split()) for pattern in patterns), default=0)
    return count > 0 and has_hidden_words(line, count, _WRAPPERS | _SHELLS | _READERS)


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
