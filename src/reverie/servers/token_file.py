"""The token of a server: created once, in a file that only its user can read."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from ..errors import InputError
from ..paths import explained, open_plain, open_root, read_all, replace_file

_MIN_CHARS: Final = 20
_MAX_BYTES: Final = 4_096


def load_token(home: Path, name: str = "mcp-token", *, renew: bool = False) -> str:
    """Return the token from a file under home; create it if it is missing or ``renew`` is true.

    Raise ``InputError`` if other users can read the file or it holds no valid token.
    """
    path = home / name
    with explained("read", str(path)):
        folder = open_root(str(home), create=True)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # two servers that start at once share one token
            token = None if renew else _read(folder, name, path)
            if token is None:
                token = secrets.token_urlsafe(32)
                replace_file(str(home), name, f"{token}\n".encode())
        finally:
            os.close(folder)
    return token


def _read(folder: int, name: str, path: Path) -> str | None:
    try:
        descriptor = open_plain(folder, name, os.O_RDONLY, str(path))
    except FileNotFoundError:
        return None
    found = os.fstat(descriptor)
    data = read_all(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(f"others can read the token in {path}; remove the file, and a new one is created")
    token = data[:_MAX_BYTES].decode("ascii", "replace").strip()
    if len(token) < _MIN_CHARS or not token.isascii() or len(token.split()) != 1:
        raise InputError(
            f"{path} holds no token of {_MIN_CHARS} characters or more; remove it, and a new one is created"
        )
    return token
