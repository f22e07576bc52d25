"""Storage that encrypts every document and log line of another storage, with one key per session.

A session's key is drawn at random, wrapped by the tenant's key, and stored beside the data. Deleting a wrapped key
makes one session unreadable; losing the tenant's key makes all of them unreadable, in every copy and backup.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import LogLost, SettingsError, StorageConflict, StorageError, UnsafePath
from ..keys import check_key
from ..ports import Document, Lease, Stamp, Storage
from ..values import replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEYS: Final = ".keys"
"""The folder of the wrapped keys, which no caller can list or name."""

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_DOCUMENT, _LINE = b"d", b"l"
_MAX_INDEXES: Final = 256


class _Frames:
    """The ends of a log's frames in readable and in stored bytes, so that a part can be read without the rest."""

    def __init__(self) -> None:
        self.first = b""
        self.plain: list[int] = []
        self.stored: list[int] = []
        self._is_torn = False

    @property
    def size(self) -> int:
        """The number of readable bytes."""
        return self.plain[-1] if self.plain else 0

    @property
    def stored_size(self) -> int:
        """The number of stored bytes."""
        return self.stored[-1] if self.stored else 0

    def add(self, frame: bytes, data: bytes, *, is_line: bool) -> None:
        """Note one more frame, without its newline, and the data inside it."""
        self.first = self.first or frame
        self.stored.append(self.stored_size + len(frame) + 1)
        self.plain.append(self.size + len(data) + (is_line + self._is_torn if is_line else 0))
        self._is_torn = not is_line and bool(data) and not data.endswith(b"\n")

    def text(self, number: int, data: bytes, is_line: bool) -> bytes:
        """Return the readable bytes of a frame; a line after a torn end begins with a newline."""
        text = data + b"\n" if is_line else data
        length = self.plain[number] - (self.plain[number - 1] if number else 0)
        return b"\n" * (length - len(text)) + text


class EncryptedStorage:
    """A storage whose bytes can be read only with the tenant's key.

    Keys (names of projects and sessions), sizes and times stay readable. Stored content is authenticated: a frame that
    was changed or moved to another key is returned as it is stored, so that a log reports it as a damaged line.
    """

    def __init__(self, inner: Storage, tenant_key: bytes) -> None:
        if len(tenant_key) != _KEY_BYTES:
            raise SettingsError(f"the tenant's key must have {_KEY_BYTES} bytes, not {len(tenant_key)}")
        self.inner = inner
        self._tenant_key = tenant_key
        self._ciphers: dict[str, AESGCM] = {}
        self._frames: OrderedDict[str, _Frames] = OrderedDict()
        self._lock = threading.RLock()

    def read(self, key: str) -> Document | None:
        """Return the document, or None if it does not exist."""
        _refuse_keys(key)
        found = self.inner.read(key)
        return None if found is None else Document(self._opened(key, found.data), found.version)

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Create or replace the document atomically and durably, and return its new version.

        Raise ``StorageConflict`` if the current version is not ``expect``, or if ``create`` is set and it exists.
        """
        _refuse_keys(key)
        frame = self._sealed(key, _DOCUMENT + data) + b"\n"
        return self.inner.write(key, frame, expect=expect, create=create)

    def delete(self, key: str) -> bool:
        """Delete a document or log, and say whether it existed; the session's key stays until ``forget_key``."""
        _refuse_keys(key)
        with self._lock:
            self._frames.pop(key, None)
        return self.inner.delete(key)

    def forget_key(self, key: str) -> None:
        """Delete the wrapped key of a session that was deleted, so that copies of its content cannot be read."""
        with self._lock:
            self._ciphers.pop(_scope(key), None)
            self.inner.delete(_key_name(_scope(key)))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a folder prefix, sorted."""
        return (key for key in self.inner.list(prefix) if not key.startswith(f"{KEYS}/"))

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """Yield the stamps of the documents and logs under a folder prefix, sorted by key; this reads all of them."""
        for one in self.inner.stamps(prefix):
            if not one.key.startswith(f"{KEYS}/"):
                with self._lock:
                    size = self._known_frames(one.key).size
                yield replace(one, size=size)

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        """Append one line, given without a newline, to a log, and return when it is stored safely.

        Raise ``LogLost``, without creating the log, if its readable size in bytes is not ``expect``.
        """
        _refuse_keys(key)
        if b"\n" in line:
            raise ValueError("a log line must not contain a newline; append one line at a time")
        if expect == 0:
            self._ciphers.pop(_scope(key), None)  # a session of that name may have been deleted, with its key
        frame = self._sealed(key, _LINE + line)
        if expect is None:
            self.inner.append(key, frame)
            return
        with self._lock:
            frames = self._frames.get(key)
            if frames is None or frames.size != expect:
                frames = self._known_frames(key)
            if frames.size != expect:
                raise LogLost(f"{key} has {frames.size} bytes instead of {expect}", path=key)
            self.inner.append(key, frame, expect=frames.stored_size)
            frames.add(frame, line, is_line=True)

    def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes of a log or document, including damaged lines, or None if it does not exist.

        With a ``size`` return at most so many bytes from the offset ``start`` on; fewer only at its end.
        """
        _refuse_keys(key)
        if not start and size < 0:
            data = self.inner.load(key)
            return None if data is None else self._opened(key, data)
        with self._lock:
            frames = self._known_frames(key)
            if not frames.stored:
                return None if self.inner.load(key, 0, 1) is None else b""
            end = frames.size if size < 0 else min(start + size, frames.size)
            if start >= end:
                return b""
            first, last = bisect_right(frames.plain, start), bisect_left(frames.plain, end)
            begin, before = (frames.stored[first - 1], frames.plain[first - 1]) if first else (0, 0)
            data = self.inner.load(key, begin, frames.stored[last] - begin) or b""
        plain = b"".join(
            frames.text(number, *self._frame(key, frame))
            for number, frame in enumerate(data.removesuffix(b"\n").split(b"\n"), first)
        )
        return plain[start - before : end - before]

    def lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease on a name for ``holder``, or raise ``SessionBusy`` that names the present holder."""
        return self.inner.lease(name, holder=holder)

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        return self.inner.holder(name)

    def close(self) -> None:
        """Close the storage beneath and forget every key."""
        self._ciphers.clear()
        self.inner.close()

    def _opened(self, key: str, data: bytes) -> bytes:
        """Return the readable bytes of all frames."""
        frames = _Frames()
        parts: list[bytes] = []
        for number, frame in enumerate(data.removesuffix(b"\n").split(b"\n") if data else ()):
            content, is_line = self._frame(key, frame)
            frames.add(frame, content, is_line=is_line)
            parts.append(frames.text(number, content, is_line))
        return b"".join(parts)

    def _known_frames(self, key: str) -> _Frames:
        """Return the index of a log, brought up to date; one of a log that was replaced is made anew."""
        frames = self._frames.pop(key, None)
        if frames is None or self.inner.load(key, 0, len(frames.first)) != frames.first:
            frames = _Frames()
        rest = self.inner.load(key, frames.stored_size) or b""
        for frame in rest.removesuffix(b"\n").split(b"\n") if rest else ():
            content, is_line = self._frame(key, frame)
            frames.add(frame, content, is_line=is_line)
        self._frames[key] = frames
        while len(self._frames) > _MAX_INDEXES:
            self._frames.popitem(last=False)
        return frames

    def _frame(self, key: str, frame: bytes) -> tuple[bytes, bool]:
        """Return the content of a frame and whether it is a line; a frame that cannot be read is a line as stored."""
        from cryptography.exceptions import InvalidTag

        cipher = self._cipher(_scope(key), create=False)
        try:
            sealed = base64.b64decode(frame, validate=True)
            plain = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], key.encode())
        except (binascii.Error, InvalidTag, ValueError):
            return frame, True
        return plain[1:], plain[:1] == _LINE

    def _sealed(self, key: str, content: bytes) -> bytes:
        """Return a frame: a random nonce and the encrypted content, bound to the key, without a newline."""
        check_key(key)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher(_scope(key), create=True).encrypt(nonce, content, key.encode())
        return base64.b64encode(nonce + sealed)

    def _cipher(self, scope: str, *, create: bool) -> AESGCM:
        """Return the cipher of a session; with ``create``, draw and store its key if it has none."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

        with self._lock:
            if scope in self._ciphers:
                return self._ciphers[scope]
            name = _key_name(scope)
            found = self.inner.read(name)
            if found is None and create:
                try:
                    drawn = aes_key_wrap(self._tenant_key, os.urandom(_KEY_BYTES))
                    self.inner.write(name, base64.b64encode(drawn), create=True)
                except StorageConflict:
                    pass  # another process drew it first
                found = self.inner.read(name)
            if found is None:
                raise StorageError(f"the key of {scope} was erased, so its content is lost for good", path=scope)
            try:
                session_key = aes_key_unwrap(self._tenant_key, base64.b64decode(found.data))
            except (InvalidUnwrap, ValueError) as error:
                raise StorageError(
                    f"the key of {scope} cannot be unwrapped; give the tenant's key that it was written with",
                    path=scope,
                ) from error
            self._ciphers[scope] = AESGCM(session_key)
            return self._ciphers[scope]


def tenant_key(place: str) -> bytes:
    """Return a tenant's 32-byte key from base64 in ``env:NAME`` or ``file:PATH``; raise ``SettingsError`` without."""
    kind, _, name = place.partition(":")
    try:
        text = os.environ.get(name, "") if kind == "env" else Path(name).read_text(encoding="ascii")
        key = base64.b64decode(text.strip(), validate=True)
    except (OSError, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise SettingsError(
            f"{place} holds no key of 32 bytes in base64; make one with "
            "python3 -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"
        )
    return key


def _scope(key: str) -> str:
    """Return the name of the session that a storage key belongs to, else of its top folder."""
    top, *rest = check_key(key)
    depth = {"projects": 2, "agents": 1}.get(top, 0)
    if depth == 0 or len(rest) < depth:
        return top
    return "/".join((top, *rest[: depth - 1], rest[depth - 1].removesuffix(".jsonl")))


def _key_name(scope: str) -> str:
    return f"{KEYS}/{hashlib.sha256(scope.encode()).hexdigest()[:32]}"


def _refuse_keys(key: str) -> None:
    if check_key(key)[0] == KEYS:
        raise UnsafePath(f"cannot use {key}: the folder {KEYS} holds the keys of sessions; use another name", path=key)
