"""The places that a command in the sandbox can read: the session's directories without denied files, and programs.

Landlock only allows, so a directory that holds a denied file is replaced by the list of its other entries.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import SandboxUnavailable
from ..files.readable import ReadScope, has_other_names, is_beneath, is_git_object
from .grammar import Line
from .read_only.commands import COMMANDS
from .read_only.watch_rules import WATCHED

Places: TypeAlias = list[tuple[str, str]]

MAX_ENTRIES: Final = 500_000
MAX_STATS: Final = 10_000
"""So many files are checked for hard links; a check of more would slow down each command."""
MAX_BESIDE: Final = 2_000
"""In a directory with more entries and a denied file, no file is readable, because each would need a rule."""
MAX_HIDDEN: Final = 500
"""A denied directory with more files is hidden as a whole; then git takes its files for deleted."""
MAX_LINKS: Final = 256
"""More files with hard links are a store of packages (uv, pnpm), and stay readable."""
_SETTINGS: Final = (
    "alternatives bash.bashrc debian_version gitattributes gitconfig inputrc "
    "ld.so.cache ld.so.conf ld.so.conf.d locale.alias locale.conf localtime lsb-release magic magic.mime mime.types "
    "nsswitch.conf os-release ssl/openssl.cnf terminfo timezone"
)
_SYSTEM: Final = "/usr /bin /sbin /lib /lib32 /lib64 /opt /nix/store /snap /home/linuxbrew"
_DEVICES: Final = "null zero full random urandom"
_NUMBERS: Final = "cpuinfo filesystems loadavg meminfo stat uptime version"
_WITHOUT_USERS: Final = (
    *_SYSTEM.split(),
    *(f"/dev/{name}" for name in _DEVICES.split()),
    *(f"/etc/{name}" for name in _SETTINGS.split()),
    *(f"/proc/{name}" for name in _NUMBERS.split()),
)
# Programs use these too, but they tell of users, processes and the network.
_USERS: Final = "group host.conf hostname hosts passwd profile protocols services shells"
_ABOUT_PROCESSES: Final = frozenset({"df", "free", "lscpu", "pgrep", "pidof", "ps", "uptime", "who"})
_PROGRAMS: Final = (*_WITHOUT_USERS, "/proc", "/sys", *(f"/etc/{name}" for name in _USERS.split()))
# Beside a folder of programs: libraries, helpers, and the versions that shims select from.
_BESIDE: Final = ("lib", "lib64", "libexec", "share/git-core", "version", "versions")
_INCLUDED: Final = re.compile(r"^\s*(?:path|excludesfile|attributesfile)\s*=\s*\"?([^\"#;\n]+)", re.M | re.I)


def read_places(scope: ReadScope, names: Collection[str] | None = None) -> Places:
    """Return the places as options of ``confine.py``; raise if there are too many files to find the denied ones.

    Of a directory elsewhere with so many files, only names can be read. ``names`` are the commands of a line that may
    compute paths, which no rule saw: then files are left out that these commands do not need.
    """
    roots = [*scope.roots, *(folder for root in scope.roots for folder in git_folders(root, scope.home))]
    places: Places = []
    for root in dict.fromkeys(roots):
        try:
            places += _without(root, _ExclusionWalk(scope).under(root), "--data")
        except SandboxUnavailable:
            if root in (scope.cwd, os.path.realpath(scope.cwd)):
                raise
            places.append(("--list", root))
    programs = [*_system_places(names), *_interpreter(), *_rust_settings(scope.home), *_programs(scope)]
    if names is None or "git" in names:
        programs += _git_settings(scope.home)
    for path in dict.fromkeys(map(os.path.realpath, programs)):
        beneath = {root for root in scope.roots if root != path and is_beneath(root, [path])}
        places += _without(path, beneath, "--read")
    return places


def search_path(scope: ReadScope) -> str:
    """Return the search path for programs without relative directories and those of the session."""
    return os.pathsep.join(folder for folder in _search_path() if not _is_of_project(folder, scope))


def program_of_project(line: Line, scope: ReadScope) -> str:
    """Return the first name of a command that the search path finds in the session's directories; '' if none."""
    folders = [folder for folder in _search_path() if _is_of_project(folder, scope)]
    names = [command.words[0].text for command in line.commands] if folders else []
    return next((name for name in names if any(os.path.lexists(os.path.join(each, name)) for each in folders)), "")


def _search_path() -> list[str]:
    return [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each.startswith("/")]


def _is_of_project(folder: str, scope: ReadScope) -> bool:
    paths = (os.path.normpath(folder), os.path.realpath(folder))
    return any(scope.is_inside(path) and not is_beneath(path, _PROGRAMS) for path in paths)


def _system_places(names: Collection[str] | None) -> Iterator[str]:
    if names is None:
        yield from _PROGRAMS
        return
    yield from _WITHOUT_USERS
    if not _ABOUT_PROCESSES.isdisjoint(names):
        yield from ("/proc", "/sys")


def denied_paths(scope: ReadScope) -> set[str]:
    """Return the denied files in a session's directories, by all of their names; none in a tree that is too large."""
    with suppress(SandboxUnavailable):
        return {path for root in scope.roots for path in _ExclusionWalk(scope).under(root, elsewhere=False)}
    return set()


def hidden_paths(scope: ReadScope) -> list[str]:
    """Return the denied files to hide from a command that runs freely, and denied directories with very many files.

    Patterns with a fixed beginning are looked for there, too, not only in the session's directories.
    """
    found: dict[str, None] = {}
    for root in dict.fromkeys([*scope.roots, *map(os.path.realpath, scope.bases_of_denied())]):
        try:
            denied = {root} if scope.is_denied(root) else _ExclusionWalk(scope).under(root, elsewhere=False)
        except SandboxUnavailable:
            if root in scope.roots:
                raise
            continue  # a pattern such as ~/**/x in a large home
        found.update(dict.fromkeys(each for path in sorted(denied) for each in _files_or_folder(path)))
    return list(found)


def _files_or_folder(path: str) -> list[str]:
    """Return the files beneath a path, or the path itself where they are too many to be hidden one by one."""
    if not os.path.isdir(path) or os.path.islink(path):
        return [] if os.path.islink(path) else [path]
    beneath = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    files = list(islice((each for each in beneath if not os.path.islink(each)), MAX_HIDDEN + 1))
    return files if len(files) <= MAX_HIDDEN else [path]


class _ExclusionWalk:
    """Finds the paths beneath a directory that must not be read: denied, private, or with names elsewhere."""

    def __init__(self, scope: ReadScope) -> None:
        self._scope = scope
        self._links: dict[tuple[int, int], list[str]] = {}
        self._names: dict[tuple[int, int], int] = {}

    def under(self, root: str, *, elsewhere: bool = True) -> set[str]:
        """Return these paths; without ``elsewhere`` names elsewhere are no reason."""
        found = set(self._forbidden(root, elsewhere))
        linked = {
            path
            for key, paths in self._links.items()
            if (elsewhere and self._names[key] > len(paths)) or not found.isdisjoint(paths)
            for path in paths
        }
        return found | linked if len(linked) <= MAX_LINKS else found

    def _forbidden(self, root: str, elsewhere: bool) -> Iterator[str]:
        scope, count = self._scope, 0
        private = {entry.path for entry in _entries(os.path.realpath(scope.home)) if scope.is_private(entry.path)}
        if elsewhere:
            yield from (path for path in private if is_beneath(path, [root]))
        elif is_beneath(root, private):
            private.clear()  # a rule names this place
        folders = deque([root])  # shallow ones first: hard links are looked for in a limited number of files
        while folders and (scope.denied or count < MAX_STATS):
            for entry in _entries(folders.popleft()):
                count += 1
                path = entry.path
                if scope.is_denied(path):
                    yield path
                    yield os.path.realpath(path)
                    self._note_links(entry)
                elif entry.is_dir(follow_symlinks=False):
                    if path not in private and path not in _PROGRAMS and not is_git_object(path):
                        folders.append(path)
                elif count < MAX_STATS:
                    self._note_links(entry)
            if count > MAX_ENTRIES and scope.denied:
                raise SandboxUnavailable(
                    f"there are more than {MAX_ENTRIES:,} files here, too many to find those that a rule denies; "
                    "use Read, Grep and Glob, which check each file"
                )

    def _note_links(self, entry: os.DirEntry[str]) -> None:
        with suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if has_other_names(status):
                key = status.st_dev, status.st_ino
                self._links.setdefault(key, []).append(entry.path)
                self._names[key] = status.st_nlink


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _without(folder: str, excluded: set[str], option: str) -> Places:
    """Return the places of a directory but for the excluded paths and for links, whose targets stand elsewhere."""
    parents = {str(parent) for path in excluded for parent in Path(path).parents}
    places: Places = []
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path in excluded:
            continue
        if path not in parents:
            places.append((option, path))
            continue
        places.append(("--list", path))
        entries = [entry for entry in _entries(path) if not entry.is_symlink()]
        is_large = len(entries) > MAX_BESIDE
        waiting += [entry.path for entry in entries if not is_large or entry.is_dir(follow_symlinks=False)]
    return places


def git_folders(root: str, home: str) -> Iterator[str]:
    """Yield the repository that a directory belongs to, and the folders of its worktree or submodule elsewhere.

    A home that is a repository does not count; a folder counts only if it knows the directory.
    """
    for folder in (root, *map(str, Path(root).parents)):
        mark = os.path.join(folder, ".git")
        if not os.path.lexists(mark):
            continue
        if not is_beneath(home, [folder]):
            yield folder
        if os.path.isfile(mark):
            yield from _git_folders_elsewhere(mark)
        return


def _git_folders_elsewhere(mark: str) -> Iterator[str]:
    with suppress(OSError, ValueError):
        text = Path(mark).read_text(encoding="utf-8")[:4_096]
        given = text.removeprefix("gitdir:").strip()
        place = os.path.realpath(os.path.join(os.path.dirname(mark), given))
        owner = place.partition("/.git/modules/")[0]
        if owner != place and is_beneath(mark, [owner]):
            yield place
            return
        known = Path(place, "gitdir").read_text(encoding="utf-8").strip()
        common = os.path.realpath(os.path.join(place, Path(place, "commondir").read_text(encoding="utf-8").strip()))
        if os.path.realpath(known) == os.path.realpath(mark) and is_beneath(place, [os.path.join(common, "worktrees")]):
            yield common


def _git_settings(home: str) -> Iterator[str]:
    """Yield the person's own git settings, and the files that they include."""
    folder = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")
    settings = [
        os.path.join(home, ".gitconfig"),
        *(os.path.join(folder, name) for name in ("config", "ignore", "attributes")),
    ]
    for path in settings:
        yield path
        with suppress(OSError, UnicodeDecodeError):
            for given in _INCLUDED.findall(Path(path).read_text(encoding="utf-8")[:100_000]):
                yield os.path.join(os.path.dirname(path), os.path.expanduser(given.strip()))


def _rust_settings(home: str) -> Iterator[str]:
    """Yield the compilers between which the programs of Rust choose, and the choice."""
    folder = os.environ.get("RUSTUP_HOME") or os.path.join(home, ".rustup")
    yield from (os.path.join(folder, name) for name in ("settings.toml", "toolchains"))


def _interpreter() -> Iterator[str]:
    """Yield the places of this Python, in which ``git_program.py`` runs."""
    yield from (os.path.dirname(__file__), sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"))
    yield from (os.path.join(sys.base_prefix, part) for part in ("bin", "lib", "lib64"))


def _programs(scope: ReadScope) -> Iterator[str]:
    """Yield the folders of listed commands that PATH finds outside the system's own places, and their libraries."""
    seen: set[str] = set()
    for folder in search_path(scope).split(os.pathsep):
        if is_beneath(os.path.realpath(folder), _PROGRAMS):
            continue
        for name in _present(folder):
            real = os.path.realpath(os.path.join(folder, name))
            if scope.is_inside(real):
                continue
            yield real
            prefix, last = os.path.split(os.path.dirname(real))
            if last in ("bin", "shims") and prefix not in seen:
                seen.add(prefix)
                yield from (os.path.join(prefix, part) for part in _BESIDE)


def _present(folder: str) -> Iterable[str]:
    with suppress(OSError):
        return (COMMANDS.keys() | WATCHED.keys()) & set(os.listdir(folder))
    return ()
