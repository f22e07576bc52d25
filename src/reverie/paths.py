"""File primitives shared by all stores: open beneath a root, replace atomically, append durably.

A key is a relative POSIX path and may come from a model or a file. Every opened file lies beneath the root: folders are
resolved by descriptor without following symlinks, and only regular files with a single name are read or written.
Every failure is a ``StorageError`` that names the path and the remedy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache

from .errors import LogLost, StorageError, UnsafePath
from .keys import OWN_PREFIX, check_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Literal

TEMPORARY_PREFIX: Final = OWN_PREFIX + "tmp-"

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_ORPHAN_AGE_SECONDS: Final = 3600.0
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive's own cache
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_ADVICE: Final = {
    errno.ENOSPC: "free some space on that disk and try again",
    errno.EDQUOT: "free some of your disk quota and try again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) and try again",
    errno.EROFS: "make that file system writable or choose another directory (REVERIE_HOME)",
    errno.EACCES: "give this user access to it or choose another directory (REVERIE_HOME)",
    errno.EPERM: "give this user access to it or choose another directory (REVERIE_HOME)",
    errno.EIO: "check the disk; data acknowledged earlier is intact",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and try again",
    errno.ENFILE: "close other programs that hold files open and try again",
    errno.ENOLCK: "that file system has no locks; choose another directory (REVERIE_HOME)",
    errno.ENOTSUP: "that file system has no locks; choose another directory (REVERIE_HOME)",
    errno.ENOTDIR: "a file is in the place of a directory; move it away",
    errno.ENOENT: "a directory on the way was removed meanwhile; try again",
}
_UNSAFE: Final = {
    errno.ELOOP: "it is or passes through a symbolic link; replace the link by its target",
    errno.EXDEV: "it leads out of the store's root; give a path that stays inside",
    errno.ENXIO: "it is a pipe, socket or device; move it away",
    errno.EISDIR: "it is a directory; name a file",
    errno.ENAMETOOLONG: "its name is too long here; shorten it",
}


_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


def is_read_only(error: OSError | StorageError) -> bool:
    """Return whether an error says that this user cannot write here, so that a reading command may go on."""
    return error.errno in _NOT_WRITABLE


def explain(error: OSError, doing: str, path: str) -> StorageError:
    """Return a ``StorageError`` for an operating-system error, which names the action, the path and the remedy."""
    number = error.errno or errno.EIO
    name = errno.errorcode.get(number, str(number))
    unsafe = _UNSAFE.get(number)
    advice = unsafe or _ADVICE.get(number, "check the directory and try again")
    message = f"cannot {doing} {path}: {error.strerror or os.strerror(number)} ({name}); {advice}"
    return (UnsafePath if unsafe else StorageError)(message, path=path, errno=number)


@contextmanager
def explained(doing: str, path: str) -> Generator[None]:
    """Raise operating-system errors of the block as ``StorageError``, which names the action and the path."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing, path) from error


_OPENAT2: Final = 437
_RESOLVE: Final = 0x08 | 0x04 | 0x02  # beneath the root, no symlinks, no magic links
_MAX_RACES: Final = 64


@cache
def resolver() -> Literal["openat2", "walk"]:
    """Return how this machine resolves folders: by the kernel in one call, or component by component."""
    if sys.platform != "linux":
        return "walk"
    here = os.open("/", _FOLDER_FLAGS)
    try:
        os.close(open_by_openat2(here, ".", _FOLDER_FLAGS))
    except (OSError, AttributeError, ImportError):
        return "walk"  # an old kernel, or a filter that does not know the call
    finally:
        os.close(here)
    return "openat2"


@cache
def _openat2() -> Callable[[int, bytes, int, int], int]:
    import ctypes

    class How(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def call(folder: int, path: bytes, flags: int, mode: int) -> int:
        how = How(flags, mode, _RESOLVE)
        size = ctypes.c_size_t(ctypes.sizeof(how))
        found: int = syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(folder), path, ctypes.byref(how), size)
        return found if found >= 0 else -ctypes.get_errno()

    return call


def open_by_openat2(folder: int, path: str, flags: int) -> int:
    """Open a path beneath a folder, resolved by the kernel, and return its descriptor; symlinks are refused."""
    mode = _FILE_MODE if flags & os.O_CREAT else 0
    for _ in range(_MAX_RACES):
        found = _openat2()(folder, os.fsencode(path), flags | os.O_CLOEXEC, mode)
        if found >= 0:
            return found
        if -found not in (errno.EINTR, errno.EAGAIN):  # EAGAIN: something was renamed on the way
            raise OSError(-found, os.strerror(-found), path)
    return open_by_walk(folder, path, flags)


def open_by_walk(folder: int, path: str, flags: int) -> int:
    """Open a path beneath a folder component by component and return its descriptor; symlinks are refused."""
    *folders, name = path.split("/")
    current = os.dup(folder)
    try:
        for part in folders:
            below = _open_component(current, part, _FOLDER_FLAGS)
            os.close(current)
            current = below
        return _open_component(current, name, flags)
    finally:
        os.close(current)


def _open_component(folder: int, name: str, flags: int) -> int:
    if name in ("", "..") or "\0" in name:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a path beneath a folder by the best available means and return its descriptor; symlinks are refused."""
    is_resolved = "/" in path and resolver() == "openat2"
    return open_by_openat2(folder, path, flags) if is_resolved else open_by_walk(folder, path, flags)


def open_root(root: str, *, create: bool = False) -> int:
    """Open a store's root and return its descriptor; with ``create``, make missing folders.

    The user chose this path, so it may contain symlinks.
    """
    try:
        return os.open(root, _FOLDER_FLAGS)
    except FileNotFoundError:
        if not create:
            raise
    above = os.path.dirname(root) or os.curdir
    with closed_after(open_root(above, create=above != root)) as parent:
        os.close(_make_folder(parent, os.path.basename(root)))
    return os.open(root, _FOLDER_FLAGS)


def refuse_shared_link(root: str) -> None:
    """Raise ``UnsafePath`` if a folder that others can push to is a link, or lies behind one inside its checkout."""
    inside = [root]
    while not os.path.lexists(os.path.join(inside[-1], ".git")) and inside[-1] != "/":
        inside.append(os.path.dirname(inside[-1]))
    # The user placed the top of the checkout, and every folder where there is no checkout but the last.
    for folder in inside[:-1] if inside[-1] != "/" else inside[:1]:
        if os.path.islink(folder):
            raise explain(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), "use", folder)


def open_folder(root: str, parts: Sequence[str], *, create: bool = False) -> int:
    """Open a folder beneath the root and return its descriptor; with ``create``, make private, durable folders."""
    current = open_root(root, create=create)
    try:
        if not parts:
            return os.dup(current)
        with suppress(FileNotFoundError):
            return open_beneath(current, "/".join(parts), _FOLDER_FLAGS)
        if not create:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
        for part in parts:
            below = _make_folder(current, part)
            os.close(current)
            current = below
        return os.dup(current)
    finally:
        os.close(current)


@contextmanager
def closed_after(descriptor: int) -> Generator[int]:
    """Yield a descriptor, and close it after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(root: str, parts: Sequence[str], *, create: bool = False) -> Generator[int]:
    """Open a folder as ``open_folder`` does, yield its descriptor, and close it after the block."""
    with closed_after(open_folder(root, parts, create=create)) as folder:
        yield folder


def _make_folder(parent: int, name: str) -> int:
    try:
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    except FileExistsError:
        return _open_component(parent, name, _FOLDER_FLAGS)
    made = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(made.st_mode) and made.st_mode & 0o777 != _FOLDER_MODE:
        os.chmod(name, _FOLDER_MODE, dir_fd=parent)  # a strict umask may have removed rights that are needed to open it
    folder = _open_component(parent, name, _FOLDER_FLAGS)
    sync_folder(parent)
    return folder


def open_file(root: str, key: str, flags: int) -> int:
    """Open a regular file beneath the root and return its descriptor; with ``O_CREAT``, make missing folders."""
    *folders, name = key.split("/")
    with opened_folder(root, folders, create=bool(flags & os.O_CREAT)) as folder:
        return open_plain(folder, name, flags, os.path.join(root, key))


def open_plain(folder: int, name: str, flags: int, path: str) -> int:
    """Open a regular file in a folder and return its descriptor; a file opened to write becomes private (0600).

    Raise ``UnsafePath``, which names ``path``, if it is not a regular file or has several names.
    """
    descriptor = _open_component(folder, name, flags | os.O_NONBLOCK | os.O_NOCTTY)  # never wait for a pipe's reader
    try:
        found = os.fstat(descriptor)
        refuse_unless_plain(found, path)
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and found.st_mode & 0o777 != _FILE_MODE:
            os.fchmod(descriptor, _FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_no_follow(path: str, flags: int) -> int:
    """Open a path without following a link at its end or waiting for a pipe; for ``open(..., opener=...)``."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def lock_file(root: str, folders: Sequence[str], name: str, flags: int, how: int) -> int:
    """Open a file beneath the root, lock it by ``flock`` and return its descriptor; its path leads to this very file.

    Raise ``BlockingIOError`` if ``how`` has ``LOCK_NB`` and another descriptor holds the lock.
    """
    path = os.path.join(root, *folders, name)
    while True:
        with opened_folder(root, folders, create=bool(flags & os.O_CREAT)) as folder:
            descriptor = open_plain(folder, name, flags, path)
        try:
            fcntl.flock(descriptor, how)
            with suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Release the lock of a file and close it; a child that is being started may share the descriptor."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def refuse_unless_plain(found: os.stat_result, path: str) -> None:
    """Raise ``UnsafePath`` for anything but a regular file with a single name."""
    if not stat.S_ISREG(found.st_mode):
        number = {stat.S_IFLNK: errno.ELOOP, stat.S_IFDIR: errno.EISDIR}.get(stat.S_IFMT(found.st_mode), errno.ENXIO)
        raise explain(OSError(number, ""), "use", path)
    if found.st_nlink > 1:
        raise UnsafePath(
            f"cannot use {path}: it has {found.st_nlink} names (hard links); replace it by a copy of its own", path=path
        )


def read_all(descriptor: int) -> bytes:
    """Return the bytes of an open file from its position to its end, and close it."""
    with open(descriptor, "rb", buffering=0) as file:
        return file.readall()


def flush(descriptor: int) -> None:
    """Flush the file's data to disk, so that it survives a power failure."""
    if _FULL_SYNC is not None:
        with suppress(OSError):
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
    getattr(os, "fdatasync", os.fsync)(descriptor)


def write_durably(descriptor: int, data: bytes) -> None:
    """Write all of the data and flush it to disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    flush(descriptor)


def sync_folder(folder: int) -> None:
    """Flush the folder's entries to disk, if the file system supports it."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def replace_file(
    root: str, key: str, data: bytes, *, guard: Callable[[int, str], AbstractContextManager[object]] | None = None
) -> None:
    """Create or replace a file beneath the root atomically and durably, and make missing folders.

    The file is renamed into place inside ``guard(folder, name)``, which may take a lock and refuse.
    """
    *folders, name = check_key(key)
    path = os.path.join(root, key)
    with explained("write", path), opened_folder(root, folders, create=True) as folder:
        with temporary_file(folder, data) as temporary, guard(folder, name) if guard else nullcontext():
            with suppress(FileNotFoundError):
                refuse_unless_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)


def write_file(path: str, data: bytes, *, mode: int = _FILE_MODE, replaces: bool = True) -> None:
    """Write a file of the user atomically and durably, also outside of any store, and make missing folders.

    Without ``replaces`` raise ``FileExistsError`` if there is one.
    """
    parent, name = os.path.split(path)
    with opened_folder(parent or os.curdir, (), create=True) as folder:
        with suppress(OSError):
            remove_orphans(folder)
        with temporary_file(folder, data, "" if replaces else name) as written:
            os.chmod(written, mode, dir_fd=folder)
            os.replace(written, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def temporary_file(folder: int, data: bytes, name: str = "") -> Generator[str]:
    """Write a private, durable file and yield its name, unique if none is given; remove it if the block fails.

    If the block succeeds, the file stays, unless the block renamed it.
    """
    name = name or f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}"
    descriptor = _open_component(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            os.fchmod(descriptor, _FILE_MODE)
            write_durably(descriptor, data)
        finally:
            os.close(descriptor)
        yield name
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def remove_orphans(folder: int) -> None:
    """Remove temporary files that are older than an hour, whose writer must have died."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
    for name in names:
        with suppress(FileNotFoundError):
            age_seconds = time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
            if age_seconds > _ORPHAN_AGE_SECONDS:
                os.unlink(name, dir_fd=folder)


def append_line(
    descriptor: int,
    line: bytes,
    *,
    path: str,
    clean_size: int = -1,
    durable: bool = True,
    expect: int | None = None,
) -> int:
    """Append one line and a newline in a single write and return the file's new size; flush it if ``durable``.

    The descriptor is open for reading and appending. An incomplete last line is first terminated by a newline;
    ``clean_size`` is a size at which the file is known to end in a newline, which saves the check. A lock on the file
    prevents other processes from writing between the check and the write. Raise ``LogLost`` if the size before is not
    ``expect``.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            size = os.fstat(descriptor).st_size
            if expect is not None and size != expect:
                raise LogLost(f"{path} has {size} bytes instead of {expect}", path=path)
            torn = size not in (0, clean_size) and os.pread(descriptor, 1, size - 1) != b"\n"
            data = b"\n%b\n" % line if torn else line + b"\n"
            written = os.write(descriptor, data)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        if written != len(data):
            number = errno.EIO if os.fstatvfs(descriptor).f_bavail else errno.ENOSPC
            raise OSError(number, f"only {written} of {len(data)} bytes were taken")
        if durable:
            flush(descriptor)
    except OSError as error:
        raise explain(error, "append to", path) from error
    return size + written
