"""The projects a server may answer for: the directories named when it started, and nothing outside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import InputError
from ..runtime.places.projects import canonical_root, project_slug
from ..values import record

_NAMED: Final = 5


@record
class ServedProject:
    """A project that a server may answer for."""

    directory: Path
    slug: str
    """The name of the project's folder for sessions under home."""


class ServedProjects:
    """The directories that a server may answer for; the first one is the default."""

    def __init__(self, directories: Sequence[str | os.PathLike[str]] = (".",)) -> None:
        self.directories = [_allowed(directory) for directory in directories]
        if not self.directories:
            raise InputError("name at least one directory to serve")
        self._spelled = [*self.directories, *(Path(os.path.abspath(_expanded(one))) for one in directories)]

    def find(self, named: str | None = None) -> ServedProject:
        """Return the project of a directory, by default the first; raise ``InputError`` if it is not served.

        The directory must lie in an allowed one, and so must the project it belongs to: a worktree of a repository
        elsewhere is refused.
        """
        if named is None:
            return _project(self.directories[0])
        # By its spelling first, so that a refusal does not reveal which other paths exist.
        given = _expanded(named)
        if "\0" in named or not os.path.isabs(given) or not _within(Path(os.path.abspath(given)), self._spelled):
            raise self._refusal(named)
        directory = Path(os.path.abspath(given)).resolve()
        if not _within(directory, self.directories):
            raise self._refusal(named)
        if not directory.is_dir():
            raise InputError(f"project {_shown(named)} is not a directory; give one that exists, or leave project out")
        root = canonical_root(directory)
        if not _within(root, self.directories) and root not in map(canonical_root, self.directories):
            raise self._refusal(named)
        return _project(directory)

    def _refusal(self, named: str) -> InputError:
        allowed = ", ".join(map(str, self.directories[:_NAMED]))
        more = f" and {len(self.directories) - _NAMED} more" if len(self.directories) > _NAMED else ""
        return InputError(
            f"project {_shown(named)} is not served here; give the absolute path of a directory in {allowed}{more}, "
            "or leave project out"
        )


def _allowed(directory: str | os.PathLike[str]) -> Path:
    path = Path(_expanded(directory))
    if not path.is_dir():
        raise InputError(f"{path} is not a directory; give one that exists")
    return path.resolve()


def _expanded(directory: str | os.PathLike[str]) -> str:
    return os.path.expanduser(os.fspath(directory))


def _within(directory: Path, roots: Sequence[Path]) -> bool:
    return any(directory.is_relative_to(root) for root in roots)


def _project(directory: Path) -> ServedProject:
    return ServedProject(directory, project_slug(directory))


def _shown(named: str) -> str:
    return repr(named if len(named) <= 100 else named[:99] + "…")
