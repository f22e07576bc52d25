"""Read instruction files safely: limited sizes, regular files only, nothing outside the project without consent."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ...memories.rules.instructions import MAX_BYTES

Consent: TypeAlias = bool | Callable[[str], bool]
"""Whether files outside the project may be read: one answer for all files, or a function of the path."""

_MAX_RULES: Final = 1_000
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class ReadableFiles:
    """Reads files around a working directory as far as they may be read, and lists ``problems`` on the way."""

    def __init__(self, cwd: Path, *, consent: Consent, user_home: Path | None) -> None:
        self.cwd = Path(os.path.realpath(cwd))
        self.user_home = Path(os.path.realpath(user_home if user_home is not None else Path.home()))
        self.problems: list[str] = []
        self._consent = consent
        self._project = _top(self.cwd)

    def levels(self) -> list[Path]:
        """Return a list of the directories from the file system's root down to the working directory."""
        return [*reversed(self.cwd.parents), self.cwd]

    def in_project(self, path: Path) -> bool:
        """Return whether a path, with its links resolved, is in the project: the git working tree of ``cwd``."""
        return Path(os.path.realpath(path)).is_relative_to(self._project)

    def exists(self, path: Path) -> bool:
        """Return whether a path exists and can be reached; note a dangling link or an error as a problem."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                self.note(path, "the link leads nowhere")
            return False
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                self.note(path, f"it cannot be read: {error.strerror}")
            return False
        except ValueError:
            return False
        return True

    def named_by(self, importer: Path, named: str) -> Path | None:
        """Return the path that an import in a file names, its directories resolved; None if it holds a NUL."""
        if "\0" in named:
            return None
        if named == "~" or named.startswith("~/"):
            meant = self.user_home / named[2:]
        else:
            meant = Path(os.path.realpath(importer)).parent / named
        return Path(os.path.realpath(meant.parent)) / meant.name

    def read(self, path: Path, *, trusted: bool, base: Path | None = None) -> str | None:
        """Return a file's text; note a problem and return None if it cannot or may not be read.

        A ``trusted`` file may be anywhere. Others must be in the project or below ``base`` (the directory to which
        an instruction file applies; None for imports), or need consent.
        """
        real = Path(os.path.realpath(path))
        if not trusted and not self._allowed(real, base):
            self.note(path, f"it is outside the project, at {real}, and there is no consent to read it")
            return None
        try:
            descriptor = os.open(real, _FLAGS)
        except OSError as error:
            self.note(path, f"it cannot be read: {error.strerror}")
            return None
        try:
            return self._text(path, descriptor, os.fstat(descriptor))
        except OSError as error:
            self.note(path, f"it cannot be read: {error.strerror}")
            return None
        finally:
            os.close(descriptor)

    def rules(self, directory: Path) -> Iterator[Path]:
        """Yield the ``.md`` files in a directory's ``.claude/rules``, by name, before those of its sub-folders."""
        waiting, entered, found = [directory / ".claude" / "rules"], set[str](), 0
        while waiting:
            folder = waiting.pop(0)
            real = os.path.realpath(folder)
            if real in entered or not os.path.isdir(real):
                continue
            entered.add(real)
            try:
                names = sorted(os.listdir(folder))
            except OSError as error:
                self.note(folder, f"it cannot be listed: {error.strerror}")
                continue
            waiting[:0] = [folder / name for name in names if (folder / name).is_dir()]
            for name in names:
                if name.endswith(".md") and not (folder / name).is_dir():
                    found += 1
                    if found > _MAX_RULES:
                        self.note(folder, f"{_MAX_RULES:,} rules are the most; the others were left out")
                        return
                    yield folder / name

    def _allowed(self, real: Path, base: Path | None) -> bool:
        """Return whether a resolved file is in the project or below ``base``, or there is consent to read it."""
        if real.is_relative_to(self._project) or (base is not None and real.is_relative_to(base)):
            return True
        return self._consent(str(real)) if callable(self._consent) else self._consent

    def _text(self, path: Path, descriptor: int, found: os.stat_result) -> str | None:
        if not stat.S_ISREG(found.st_mode):
            self.note(path, "it is not a regular file")
            return None
        if found.st_uid not in (0, os.geteuid()) and not self.in_project(path):
            self.note(path, "it belongs to another user, and not to the project")
            return None
        data = bytearray()
        while len(data) <= MAX_BYTES and (chunk := os.read(descriptor, 1 << 20)):
            data += chunk
        if len(data) > MAX_BYTES:
            self.note(path, f"it is larger than {MAX_BYTES // 1024 // 1024} MiB and was skipped")
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.note(path, "it is not text in UTF-8")
            return None
        if "\0" in text:
            self.note(path, "it is not text")
            return None
        return text.replace("\r\n", "\n")

    def note(self, path: Path, why: str) -> None:
        """Add a line with the path and the reason to ``problems``, unless it is there already."""
        line = f"{path}: {why}"
        if line not in self.problems:
            self.problems.append(line)


def _top(cwd: Path) -> Path:
    """Return the nearest directory upwards that contains ``.git``; the directory itself if there is none."""
    return next((one for one in (cwd, *cwd.parents) if os.path.lexists(one / ".git")), cwd)
