"""Read instruction files: those at the start of a session, and nested ones when a tool touches a file near them.

Everything here may block on the file system: call it from a worker thread. Nothing raises; a file that cannot be used
becomes a line in ``problems``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import InputError
from ...memories.rules.instructions import (
    MAX_BYTES,
    MAX_HOPS,
    WARN_CHARS,
    InstructionFile,
    InstructionSet,
    Kind,
    fingerprint,
    imports_of,
    without_comments,
)
from ...memories.rules.path_rules import Rule, is_for, read_rule

ReadPermission: TypeAlias = Callable[[str], bool]

_NAMES: Final[tuple[tuple[str, Kind], ...]] = (
    ("AGENTS.md", "project"),
    ("CLAUDE.md", "project"),
    (".claude/CLAUDE.md", "project"),
    ("CLAUDE.local.md", "local"),
)
_MAX_FILES: Final = 500
Consent: TypeAlias = bool | Callable[[str], bool]
"""Whether files outside the project may be read: one answer for all files, or a function of the path."""
_MAX_RULES: Final = 1_000
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def gather(
    cwd: str | Path,
    *,
    home: Path,
    consent: Consent = False,
    user_home: Path | None = None,
    permission: ReadPermission | None = None,
) -> InstructionSet:
    """Return the instruction files for a session's start: the user's, then those from the root to ``cwd``.

    The user's file is ``AGENTS.md`` in the Reverie directory ``home``, or else ``~/.claude/CLAUDE.md``. Imports
    from outside the project need consent; the user's own file may import any file.
    """
    files = ReadableFiles(Path(cwd), consent=consent, user_home=user_home)
    reading = _Collector(files, permission)
    for path in (home / "AGENTS.md", files.user_home / ".claude" / "CLAUDE.md"):
        if reading.add(path, "user", trusted=True):
            break
    for directory in files.levels():
        reading.level(directory)
    return InstructionSet(reading.files, files.problems)


class NestedInstructions:
    """Finds the instruction files of sub-directories to attach when a tool reads or writes a file near them."""

    def __init__(
        self, cwd: str | Path, gathered: InstructionSet, *, consent: Consent = False, user_home: Path | None = None
    ) -> None:
        self.problems: list[str] = []
        """The problems of the last call of ``current``."""
        self._cwd = Path(cwd)
        self._consent = consent
        self._user_home = user_home
        self._gathered = {file.path: fingerprint(file.text) for file in gathered.files}
        self._triggers: set[str] = set()
        self._used: set[str] = set()
        """The touched paths of the last call of ``current``, whose files may not have been said yet."""
        self._found: set[str] = set()

    def following(self, before: NestedInstructions) -> NestedInstructions:
        """Take over the touched paths of an earlier object, and return this one."""
        self._triggers, self._used, self._found = before._triggers, before._used, before._found
        return self

    def touched(self, paths: Iterable[str | Path]) -> None:
        """Remember the paths that a tool read or wrote, for the next call of ``current``; read nothing."""
        self._triggers.update(os.fspath(path) for path in paths)

    def current(self, known: Iterable[str], permission: ReadPermission) -> list[InstructionFile]:
        """Return the nested files that hold now: ``known`` ones that still exist, and those near touched paths.

        For every path touched since a call whose files are all known now, take the files of each directory between the
        working directory and that path, then the rules of the working directory and of those above whose ``paths``
        match. Files that the session's start has, by path or by text, are left out.
        """
        known = list(known)
        if self._found.issubset(known):  # a draft of a compaction asks too, and says nothing
            self._used = set()
        self._used |= self._triggers
        triggers, self._triggers = self._used, set()
        files = ReadableFiles(self._cwd, consent=self._consent, user_home=self._user_home)
        reading = _Collector(files, permission, shown=self._gathered)
        for path in map(Path, known):
            reading.again(path)
        for path in sorted({Path(os.path.realpath(self._cwd / trigger)) for trigger in triggers}):
            if path.is_relative_to(files.cwd):
                for directory in _between(files.cwd, path.parent):
                    reading.level(directory, trigger=path)
            for directory in files.levels():
                reading.rules(directory, trigger=path, always=False)
        self.problems = files.problems
        self._found = {file.path for file in reading.files}
        return reading.files


def _between(above: Path, below: Path) -> list[Path]:
    """Return the directories below ``above`` down to ``below``, the upper ones first."""
    between = [directory for directory in (below, *below.parents) if directory != above and above in directory.parents]
    return between[::-1]


class _Collector:
    """Collects instruction files and their imports in ``files``, each path and each text once."""

    def __init__(
        self,
        files: ReadableFiles,
        permission: ReadPermission | None,
        *,
        shown: dict[str, str] | None = None,
    ) -> None:
        self.files: list[InstructionFile] = []
        self._disk = files
        self._permission = permission
        self._seen = {*(shown or {})}
        self._texts = {*(shown or {}).values()}
        self._rules: dict[Path, Rule | None] = {}

    def level(self, directory: Path, *, trigger: Path | None = None) -> None:
        """Add the instruction files and rules of one directory to ``files``; ``trigger`` is the touched path."""
        for name, kind in _NAMES:
            path = directory / name
            own = path == self._disk.user_home / ".claude" / "CLAUDE.md"
            self.add(path, "user" if own else kind, trusted=own, base=directory)
        self.rules(directory, trigger=trigger, always=True)

    def rules(self, directory: Path, *, trigger: Path | None, always: bool) -> None:
        """Add a directory's rules that match the touched path and, with ``always``, those without patterns."""
        for path in self._disk.rules(directory):
            if (rule := self._rule(path, directory)) is None:
                continue
            patterns, body = rule
            if patterns and trigger is not None and trigger.is_relative_to(directory):
                wanted = is_for(patterns, trigger.relative_to(directory).as_posix())
            else:
                wanted = always and not patterns
            if wanted:
                self._take(path, body, "rule", trusted=False)

    def again(self, path: Path) -> None:
        """Add a file that was attached before, if it still exists; one that another file imports comes with that."""
        kind: Kind | None = next((kind for name, kind in _NAMES if path.as_posix().endswith(f"/{name}")), None)
        if kind is not None:
            self.add(path, kind, trusted=False, base=path.parent)
        elif "/.claude/rules/" in path.as_posix():
            directory = Path(path.as_posix().partition("/.claude/rules/")[0])
            if path in self._disk.rules(directory) and (rule := self._rule(path, directory)) is not None:
                self._take(path, rule[1], "rule", trusted=False)

    def _rule(self, path: Path, directory: Path) -> Rule | None:
        """Return the parsed rule of a file, read only once; None if it was collected already or is unusable."""
        if str(path) in self._seen:
            return None
        if path not in self._rules:
            text = self._read(path, trusted=False, base=directory)
            try:
                self._rules[path] = None if text is None else read_rule(text)
            except InputError as error:
                self._disk.note(path, str(error))
                self._rules[path] = None
        return self._rules[path]

    def add(
        self,
        path: Path,
        kind: Kind,
        *,
        trusted: bool,
        base: Path | None = None,
        parent: str = "",
        hops: int = 0,
    ) -> bool:
        """Add a file, if it is new and may be read, and its imports; return whether it was read now or before."""
        text = self._read(path, trusted=trusted, base=base)
        if text is None:
            return str(path) in self._seen
        self._take(path, text, kind, trusted=trusted, parent=parent, hops=hops)
        return True

    def _read(self, path: Path, *, trusted: bool, base: Path | None) -> str | None:
        """Return the text of a file that is new, exists and may be read; otherwise None."""
        if str(path) in self._seen or not self._disk.exists(path):
            return None
        if len(self.files) >= _MAX_FILES:
            self._disk.note(path, f"not read, because {_MAX_FILES} files are the most")
            return None
        if self._permission is not None and not self._permission(str(path)):
            self._disk.note(path, "not attached, because reading it is not permitted")
            return None
        return self._disk.read(path, trusted=trusted, base=base)

    def _take(self, path: Path, text: str, kind: Kind, *, trusted: bool, parent: str = "", hops: int = 0) -> None:
        self._seen.add(str(path))
        text = without_comments(text).strip()
        if len(text) > WARN_CHARS:
            self._disk.note(path, f"it has {len(text):,} characters; keep instructions below {WARN_CHARS:,}")
        known = fingerprint(text)
        if text and known not in self._texts:
            self._texts.add(known)
            self.files.append(InstructionFile(str(path), text, kind, parent))
        for named in imports_of(text):
            self._import(path, named, trusted=trusted, hops=hops + 1)

    def _import(self, importer: Path, named: str, *, trusted: bool, hops: int) -> None:
        path = self._disk.named_by(importer, named)
        if path is None or str(path) in self._seen:
            return
        if not self._disk.exists(path):
            if "/" in named or "." in named:  # a bare word is more likely a person's name
                self._disk.note(importer, f"it imports {named}, which does not exist")
            return
        if hops > MAX_HOPS:
            self._disk.note(importer, f"{named} is more than {MAX_HOPS} imports deep and was left out")
            return
        still_trusted = trusted and not self._disk.in_project(importer)
        self.add(path, "import", trusted=still_trusted, parent=str(importer), hops=hops)


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
