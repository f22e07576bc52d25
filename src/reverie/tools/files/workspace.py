"""Resolve a path that a model gave, and open it without following a link that was not checked.

A path is relative to the working directory. Symbolic links are resolved first, and permission is asked for the
resolved path. That path is then opened component by component from an allowed root without following links, so that
swapping a directory for a link in between causes an error and never opens a file outside. Only plain files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from ...errors import InputError, UnsafePath
from ...paths import closed_after, open_beneath
from ...values import record
from ..context import ToolContext
from ..tool import Access, AccessKind
from .readable import OTHER_NAMES, has_other_names, is_beneath, read_scope

_MAX_RACES: Final = 16
_MAX_PATH_BYTES: Final = 4_096
_FOLDER: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_KERNEL_MOUNTS: Final = ("/proc", "/sys")
_RACED: Final = frozenset({errno.ELOOP, errno.EXDEV, errno.EAGAIN})


@record
class ResolvedPath:
    """A path as it was given, and its absolute path without links; ``problem`` says why it cannot be used."""

    given: str
    target: str
    problem: str = ""


@record
class OpenFile:
    """A plain file that is open for reading, with its resolved path; the caller closes the descriptor."""

    descriptor: int
    target: str
    stat: os.stat_result


def resolved_path(path: str, context: ToolContext) -> ResolvedPath:
    """Return the absolute path without links for a path relative to the working directory; never raise."""
    problem = _problem(path)
    if problem:
        return ResolvedPath(path, "", problem)
    expanded = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    try:
        return ResolvedPath(path, os.path.realpath(os.path.join(context.cwd, expanded)))
    except (OSError, ValueError) as error:
        return ResolvedPath(path, "", f"{_shown(path)} cannot be resolved ({error}); give another path")


def _problem(path: str) -> str:
    if not path.strip():
        return "the path is empty; give the path of a file"
    if "\0" in path:
        return f"{_shown(path)} holds a NUL character; give the path without it"
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        return f"{_shown(path)} holds half a surrogate pair, which is no text; give the path as it is listed by Glob"
    if size > _MAX_PATH_BYTES:
        return f"the path is {size:,} bytes long; the system takes at most {_MAX_PATH_BYTES:,}"
    return ""


def access_to(kind: AccessKind, path: str, context: ToolContext) -> Access:
    """Return the access of a call to a path: the resolved path, and a doubt if a file inside has hard links.

    For a path that cannot be used the kind is ``none``, because the call will fail.
    """
    place = resolved_path(path, context)
    if place.problem:
        return Access("none", path)  # nothing will be touched: the call fails with the problem
    doubted = read_scope(context).is_inside(place.target) and needs_grant(place.target, context)
    return Access(kind, place.target, OTHER_NAMES if doubted else "")


def needs_grant(target: str, context: ToolContext) -> bool:
    """Return whether a person must allow a resolved path first: it is outside, or has other hard links."""
    if not read_scope(context).is_inside(target):
        return True
    with suppress(OSError, ValueError):
        return has_other_names(os.lstat(target))
    return False


def with_grant(context: ToolContext, target: str, **changes: Any) -> ToolContext:
    """Return a copy of the context in which one allowed target may be opened; it shares all other state.

    A target inside the workspace without other hard links gets no grant: if it becomes a link to the outside in
    the meantime, it is refused. ``changes`` replace fields of the context.
    """
    more = {target} if target and needs_grant(target, context) else set[str]()
    return replace(context, granted=context.granted | more, **changes)


@contextmanager
def open_parent_folder(path: str, context: ToolContext, *, create: bool = False) -> Generator[tuple[int, str, str]]:
    """Open a path's parent directory for the ``with`` block; yield its descriptor, file name, resolved path.

    With ``create``, make missing directories. Raise if the path was not allowed.
    """
    descriptor, target = _open(path, context, parent=True, create=create)
    try:
        yield descriptor, os.path.basename(target), target
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(path: str, context: ToolContext) -> Generator[tuple[int, str]]:
    """Open a directory for the ``with`` block; yield its descriptor and resolved path, or raise if not allowed."""
    descriptor, target = _open(path, context, parent=False, create=False)
    try:
        yield descriptor, target
    finally:
        os.close(descriptor)


def open_plain_file(path: str, context: ToolContext) -> OpenFile:
    """Open a plain file for reading; raise an error with advice if it is not allowed, not plain or missing."""
    for _ in range(_MAX_RACES):
        with open_parent_folder(path, context) as (folder, name, target):
            before = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(before.st_mode):
                continue
            _check_plain(before, target, context)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                descriptor = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                if error.errno in _RACED:
                    continue
                raise
        try:
            found = os.fstat(descriptor)
            _check_plain(found, target, context)
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, target, found)
    raise _keeps_changing(path)


def _open(path: str, context: ToolContext, *, parent: bool, create: bool) -> tuple[int, str]:
    """Return a descriptor of the directory at a path, or of its parent, and the resolved path.

    No link is followed that was not resolved and checked; ``create`` makes missing directories.
    """
    for _ in range(_MAX_RACES):
        place = resolved_path(path, context)
        if place.problem:
            raise InputError(place.problem)
        if parent and path.endswith(("/", "/.", "/..")):
            raise InputError(f"{_shown(path)} names a directory; name a file in it, or list it with Glob")
        root = _root_for(place, context)
        below = os.path.relpath(os.path.dirname(place.target) if parent else place.target, root)
        if below == "..":  # the path is the root itself
            raise InputError(f"{_shown(path)} is a directory; name a file in it, or list it with Glob")
        try:
            return _open_below(root, below, create), place.target
        except OSError as error:
            if error.errno not in _RACED:
                raise
    raise _keeps_changing(path)


def _root_for(place: ResolvedPath, context: ToolContext) -> str:
    """Return the root directory to open a path from; raise ``UnsafePath`` for a path that was not allowed."""
    scope = read_scope(context)
    for root in scope.roots:
        if is_beneath(place.target, (root,)) and not scope.is_private(place.target):
            return root
    if is_beneath(place.target, context.granted):
        return "/"
    raise UnsafePath(
        f"{_shown(place.given)} leads to {place.target}, which is outside the working directory and was not allowed; "
        f"use a path under {context.cwd}, or ask the user to allow that one",
        path=place.target,
    )


def _open_below(root: str, below: str, create: bool) -> int:
    with closed_after(os.open(root, _FOLDER)) as base:
        if below == ".":
            return os.dup(base)
        try:
            return open_beneath(base, below, _FOLDER)
        except FileNotFoundError:
            if not create:
                raise
        current = os.dup(base)
        try:
            for name in below.split("/"):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=current)
                deeper = open_beneath(current, name, _FOLDER)
                os.close(current)
                current = deeper
            return os.dup(current)
        finally:
            os.close(current)


def _check_plain(found: os.stat_result, target: str, context: ToolContext) -> None:
    """Raise unless it is a plain file, not in /proc or /sys, and any other hard links were allowed."""
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{target} is a directory; name a file in it, or list it with Glob")
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(f"{target} is a pipe, socket or device; only plain files can be used", path=target)
    if found.st_dev in _kernel_devices():
        raise UnsafePath(f"{target} is a window into the kernel, not a file; only plain files can be used", path=target)
    if has_other_names(found) and target not in context.granted:
        raise UnsafePath(
            f"{target} has {found.st_nlink} names (hard links), one of which may be outside the working directory, and "
            "was not allowed; ask the user to allow it, or work on a copy",
            path=target,
        )


def _kernel_devices() -> set[int]:
    devices: set[int] = set()
    for mount in _KERNEL_MOUNTS:
        with suppress(OSError):
            devices.add(os.stat(mount).st_dev)
    return devices - {os.stat("/").st_dev}


def _keeps_changing(path: str) -> UnsafePath:
    return UnsafePath(
        f"{_shown(path)} is a link that leads in a circle, or is changing while it is opened; give another path",
        path=path,
    )


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else path[:200] + "...")
