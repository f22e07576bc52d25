"""One answer to "may this path be read": resolved, inside the directories of the session, and denied by no rule.

Read, Grep and Glob ask it for each file, permissions for each word of a command, and the sandbox for the places that a
command can open at all.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ...values import record

if TYPE_CHECKING:
    from ..context import ToolContext

# These places hold no data of the user.
_SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/dev/null",
    "/proc/cpuinfo", "/proc/meminfo", "/etc/os-release",
)  # fmt: skip
_FIXED: Final = re.compile(r"[^*?\[]*\Z|[^*?\[]*(?=/)")
"""The beginning of a pattern up to the folder of its first wildcard."""
OTHER_NAMES: Final = "the file has another name (a hard link), which may be outside the directories of this session"


def absolute_path(path: str, *, cwd: str | os.PathLike[str], home: str | os.PathLike[str]) -> str:
    """Return a path as absolute and normalized, with ``~`` as ``home``, without reading the disk."""
    if path == "~" or path.startswith("~/"):
        path = f"{os.fspath(home)}{path[1:]}"
    return os.path.normpath(os.path.join(cwd, path))


def matches_path(pattern: str, path: str, *, cwd: str | os.PathLike[str], home: str | os.PathLike[str]) -> bool:
    """Return whether an absolute path matches a rule's path pattern, ignoring case.

    ``/etc/**`` and ``//etc/**`` are absolute, ``~/x`` is in the home, ``src/**`` and ``./x`` are below the working
    directory, ``*.env`` without a slash matches at any depth anywhere; a directory includes everything in it.
    """
    return bool(_expression(pattern, os.fspath(cwd), os.fspath(home)).match(_composed(path)))


def _composed(text: str) -> str:
    """Return a text in the normal form that is compared: some file systems store another one, or take both."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


@lru_cache(maxsize=512)
def _expression(pattern: str, cwd: str, home: str) -> re.Pattern[str]:
    if pattern.startswith("~/"):
        root, rest = home, pattern[1:]
    elif pattern.startswith("/"):
        root, rest = "", pattern.removeprefix("/") if pattern.startswith("//") else pattern
    elif "/" in pattern.rstrip("/"):
        root, rest = cwd, f"/{pattern.removeprefix('./')}"
    else:
        root, rest = "", f"/**/{pattern}"
    # Letters of either case: on some file systems .GIT is .git.
    root, rest = _composed(root.rstrip("/")), _composed(rest.rstrip("/"))
    return re.compile(re.escape(root) + _translated(rest), re.DOTALL | re.IGNORECASE)


def _translated(pattern: str) -> str:
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
                negated = "^" if piece[1] in "!^" else ""
                out.append(f"[{negated}{re.escape(piece[1:-1].lstrip('!^'))}]".replace(r"\-", "-"))
            case _:
                out.append(re.escape(piece))
    return "".join(out) + r"(?:/.*)?\Z"


def is_beneath(path: str, folders: Iterable[str]) -> bool:
    """Return whether an absolute path is one of the folders or lies beneath one of them."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders if folder)


def has_other_names(found: os.stat_result) -> bool:
    """Return whether a file has further hard links."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def is_git_object(path: str) -> bool:
    """Return whether a path is in git's store of objects, which local clones share by hard links."""
    _, inside, rest = path.partition("/.git/")
    return bool(inside) and "objects" in rest.split("/")


@record
class ReadScope:
    """The directories that may be read without asking, and the patterns of paths that may not be read at all."""

    cwd: str
    home: str
    roots: tuple[str, ...]
    """The session's directories, absolute and resolved."""
    denied: tuple[str, ...] = ()

    def is_denied(self, path: str) -> bool:
        """Return whether a rule denies reading an absolute path."""
        return bool(self.denied) and bool(_any_expression(self.denied, self.cwd, self.home).match(_composed(path)))

    def bases_of_denied(self) -> list[str]:
        """Return the directories, or paths, with which denied patterns begin that are absolute or in the home."""
        fixed = (_FIXED.match(pattern) for pattern in self.denied if pattern.startswith(("/", "~/")))
        found = (absolute_path(each[0], cwd=self.cwd, home=self.home) for each in fixed if each and each[0])
        return [f"/{path.strip('/')}" for path in found if path.strip("/")]

    def is_private(self, path: str) -> bool:
        """Return whether an absolute path is, or lies in, a hidden file or folder of the home.

        These hold keys, tokens and histories, so they are outside even if the home is a directory of the session;
        not if a directory of the session lies in the same one.
        """
        for home in _names_of(self.home):
            if path.startswith(f"{home}/."):
                hidden = f"{home}/{path[len(home) + 1 :].split('/', 1)[0]}"
                return not is_beneath(path, [root for root in self.roots if is_beneath(root, [hidden])])
        return False

    def is_hidden(self, path: str, start: str) -> bool:
        """Return whether a search from a directory that was allowed leaves out a file beneath it."""
        return self.is_denied(path) or (self.is_private(path) and not self.is_private(start))

    def is_inside(self, path: str) -> bool:
        """Return whether an absolute path is in a directory of the session, and not private."""
        return is_beneath(path, self.roots) and not self.is_private(path)

    def problem(self, path: str) -> str:
        """Return a reason to ask before an absolute path is read; an empty text if there is none."""
        target = os.path.realpath(path)
        if is_beneath(target, _SYSTEM):
            return ""
        if not self.is_inside(target):
            return "that is outside the directories of this session"
        with suppress(OSError, ValueError):
            if has_other_names(os.lstat(target)) and not is_git_object(target):
                return OTHER_NAMES
        return ""

    def denial(self, path: str) -> bool:
        """Return whether an absolute path, or the file that its links lead to, is denied by a rule."""
        if not self.denied or "\0" in path:  # no file has such a name
            return False
        return self.is_denied(os.path.normpath(path)) or self.is_denied(os.path.realpath(path))


@lru_cache(maxsize=64)
def _any_expression(patterns: tuple[str, ...], cwd: str, home: str) -> re.Pattern[str]:
    places = [(folder, base) for folder in _names_of(cwd) for base in _names_of(home)]
    return re.compile(
        "|".join(f"(?:{_expression(one, *place).pattern})" for one in patterns for place in places),
        re.DOTALL | re.IGNORECASE,
    )


@lru_cache(maxsize=64)
def _names_of(folder: str) -> tuple[str, ...]:
    """Return a folder's path as given and resolved."""
    return tuple(dict.fromkeys((os.path.normpath(folder), os.path.realpath(folder))))


def read_scope(context: ToolContext) -> ReadScope:
    """Return the scope of a context's reads."""
    folders = (context.cwd, *context.directories)
    return ReadScope(str(context.cwd), os.path.expanduser("~"), tuple(map(os.path.realpath, folders)), context.denied)
