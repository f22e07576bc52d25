"""The rules that 'always' may add for a call: exactly this one, or a prefix that lets in no further option."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...errors import SettingsError
from ...tools import Access
from ...tools.files.readable import absolute_path, is_beneath
from ...tools.shell.grammar import Line, parse
from .protected_files import is_protected
from .rules import allows_command, host_of, parse_permission_rule

# Commands for which further words, but no options, are paths of the project, names or a message.
_PREFIXES: Final = (
    "git add", "git commit -m", "git commit -am", "git switch", "cargo build", "cargo check", "cargo clippy",
    "cargo fmt", "cargo test", "go build", "go fmt", "go test", "go vet", "npm ci", "npm test", "pytest",
)  # fmt: skip


def rules_to_keep(tool: str, access: Access, *, cwd: Path, home: Path | None = None) -> tuple[str, ...]:
    """Return the rules that 'always' may add for a call: exactly this command, path or host first; then a prefix.

    A prefix (``Bash(go test:words)``) allows no option that the person has not seen.
    """
    home = Path.home() if home is None else home
    match access.kind:
        case "run":
            found = _command_rules(tool, access.target.strip(), cwd, home)
        case "read" | "write":
            path = absolute_path(access.target, cwd=cwd, home=home)
            found = [f"{tool}({f'./{os.path.relpath(path, cwd)}' if is_beneath(path, [str(cwd)]) else path})"]
            if re.search(r"[*?\[]", path) or (access.kind == "write" and is_protected(path, [str(cwd)])):
                found = []
        case "fetch":
            found = [f"{tool}({host})"] if (host := host_of(access.target)) else []
        case _:
            found = [tool]
    return tuple(filter(_is_rule, found))


def _command_rules(tool: str, line: str, cwd: Path, home: Path) -> list[str]:
    found = [] if line.endswith((":words", ":*")) else [f"{tool}({line})"]
    parsed = parse(line)
    if isinstance(parsed, Line) and len(parsed.commands) == 1:
        for prefix in _PREFIXES:
            if allows_command(
                f"{prefix}:words",
                parsed.commands[0],
                lambda path: is_beneath(absolute_path(path, cwd=cwd, home=home), [str(cwd)]),
            ):
                found.append(f"{tool}({prefix}:words)")
    return found


def prefix_to_edit(tool: str, line: str) -> str:
    """Return the rule that a person may change: the first command of a line without its last options, and any words."""
    parsed = parse(line)
    words = [word.text for word in parsed.commands[0].words] if isinstance(parsed, Line) and parsed.commands else []
    while len(words) > 2 and words[-1].startswith("-"):
        words.pop()
    return f"{tool}({' '.join(words)}:*)" if words else f"{tool}({line})"


def rule_to_add(answered: str, suggestions: Sequence[str]) -> str:
    """Return the rule of an answer; the first suggestion, if any, instead of one that is empty or invalid."""
    return answered if _is_rule(answered) else next(iter(suggestions), "")


def _is_rule(text: str) -> bool:
    try:
        return parse_permission_rule(text).text == text
    except SettingsError:
        return False
