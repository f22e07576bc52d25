"""The rules that 'always' may add for a call, and those that a person keeps for a project in ``permissions.toml``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...errors import SettingsError, StorageError
from ...tools import Access
from ...tools.files.readable import absolute_path, is_beneath
from ...tools.shell.computed import parse
from ..places.directory_file import DirectoryEntry, DirectoryFile, entry_for
from ..places.projects import canonical_root
from .protected_files import is_protected
from .rules import allows_command, host_of, parse_permission_rule

# Commands for which further words, but no options, are paths of the project, names or a message.
_PREFIXES: Final = (
    "git add", "git commit -m", "git commit -am", "git switch", "cargo build", "cargo check", "cargo clippy",
    "cargo fmt", "cargo test", "go build", "go fmt", "go test", "go vet", "npm ci", "npm test", "pytest",
)  # fmt: skip
_COMMENT: Final = "Calls that are allowed without asking, by project. Written by the answer 'always in this project'."


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
    if parsed is not None and len(parsed.commands) == 1:
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
    words = [word.text for word in parsed.commands[0].words] if parsed is not None and parsed.commands else []
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


class KeptRules:
    """The rules that one user keeps for projects; each method reads the file anew."""

    def __init__(self, home: Path) -> None:
        self._path = str(home / "permissions.toml")
        self._file = DirectoryFile(home, "permissions", "kept", _COMMENT)

    def of(self, directory: Path) -> tuple[str, ...]:
        """Return the rules of a directory's project, oldest first."""
        entries = self.list()
        root = str(canonical_root(directory)) if entries else ""
        return tuple(each.rule for each in entries if each.path == root and each.is_same_directory())

    def add(self, directory: Path, rule: str) -> None:
        """Keep a rule for a directory's project."""
        entry = entry_for(canonical_root(directory), "given rules", parse_permission_rule(rule).text)
        self._file.change(
            lambda entries: [*(one for one in entries if (one.path, one.rule) != (entry.path, rule)), entry]
        )

    def remove(self, directory: Path, rule: str) -> bool:
        """Remove a rule of a directory's project; return whether it was kept."""
        roots = {str(canonical_root(directory)), os.path.abspath(directory)}
        return self._file.change(lambda entries: [one for one in entries if one.rule != rule or one.path not in roots])

    def list(self) -> list[DirectoryEntry]:
        """Return the rules of all projects, oldest first; raise if the file is damaged or not only the user's."""
        entries = self._file.entries()
        try:
            for each in entries:
                parse_permission_rule(each.rule)
        except SettingsError as error:
            raise StorageError(f"{self._path} is damaged ({error}); repair or remove it", path=self._path) from error
        return entries


def project_rule(rule: str, cwd: Path) -> str:
    """Return a rule as it is kept for a project: a path relative to ``cwd`` becomes absolute."""
    parsed = parse_permission_rule(rule)
    if parsed.tool == "Bash" or parsed.pattern is None or not parsed.pattern.startswith("./"):
        return rule
    return f"{parsed.tool}({absolute_path(parsed.pattern, cwd=cwd, home=Path.home())})"
