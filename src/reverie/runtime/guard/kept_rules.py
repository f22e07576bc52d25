"""Rules that a person keeps for a project, in ``permissions.toml`` of the Reverie directory and never in a repository.

As with trust, another directory that takes the project's path has none of its rules.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ...errors import SettingsError, StorageError
from ...tools.files.readable import absolute_path
from ..places.directory_file import DirectoryEntry, DirectoryFile, entry_for
from ..places.trust import root_of
from .rules import parse_permission_rule

_COMMENT: Final = "Calls that are allowed without asking, by project. Written by the answer 'always in this project'."


class KeptRules:
    """The rules that one user keeps for projects; each method reads the file anew."""

    def __init__(self, home: Path) -> None:
        self._path = str(home / "permissions.toml")
        self._file = DirectoryFile(home, "permissions", "kept", _COMMENT)

    def of(self, directory: Path) -> tuple[str, ...]:
        """Return the rules of a directory's project, oldest first."""
        entries = self.list()
        root = str(root_of(directory)) if entries else ""
        return tuple(each.rule for each in entries if each.path == root and each.is_same_directory())

    def add(self, directory: Path, rule: str) -> None:
        """Keep a rule for a directory's project."""
        entry = entry_for(root_of(directory), "given rules", parse_permission_rule(rule).text)
        self._file.change(
            lambda entries: [*(one for one in entries if (one.path, one.rule) != (entry.path, rule)), entry]
        )

    def remove(self, directory: Path, rule: str) -> bool:
        """Remove a rule of a directory's project; return whether it was kept."""
        roots = {str(root_of(directory)), os.path.abspath(directory)}
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
