"""The birth time of a directory, which tells it from a later one that got the same inode number."""

from __future__ import annotations

import os
import struct
from typing import Any, Final

_AT_FDCWD: Final = -100
_NO_FOLLOW: Final = 0x100
_BTIME: Final = 0x800
_BYTES: Final = 256  # of struct statx
_BTIME_AT: Final = 80


def birth_ns(path: str) -> int:
    """Return the birth time of a path itself in nanoseconds; 0 if its file system or this system has none.

    ext4, xfs, btrfs, APFS and tmpfs (Linux 5.18) have one; overlayfs has that of the file system above it.
    """
    found: Any = os.stat(path, follow_symlinks=False)
    if hasattr(found, "st_birthtime"):  # macOS and BSD
        return int(found.st_birthtime * 1_000_000_000)
    try:
        import ctypes

        statx = ctypes.CDLL(None, use_errno=True).statx
    except (ImportError, OSError, AttributeError):
        return 0
    buffer = ctypes.create_string_buffer(_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW, _BTIME, buffer) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_AT)
    return seconds * 1_000_000_000 + nanoseconds if mask & _BTIME else 0
