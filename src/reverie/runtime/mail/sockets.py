"""The socket of a mailbox: it delivers a letter at once and wakes the reader.

A letter from the socket is verified like any other, stored in the mailbox, and acknowledged when it is durable. Only
processes of the same user may connect, a few at a time, each for a short time; a sender that is turned away stores the
letter in the mailbox itself.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskStatus

from ...errors import InputError, StorageError
from ...paths import open_folder
from .files import SOCKET
from .frames import FrameReader, frame_of
from .mailbox import Mailbox

MAX_PEERS: Final = 16
FRAME_SECONDS: Final = 2.0
_MAX_PATH_BYTES: Final = 103
_BACKLOG: Final = 64
_THREADS: Final = 4
"""The number of worker threads that peers may occupy."""
_TAKEN: Final = b"taken"
_LOCAL_PEERCRED: Final = 1


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user id of the peer according to the kernel; None if the kernel does not provide it."""
    try:
        if sys.platform == "linux":
            said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return struct.unpack("3i", said)[1]
        said = connection.getsockopt(0, _LOCAL_PEERCRED, 76)  # struct xucred: version, uid, groups
        return struct.unpack_from("=II", said)[1]
    except (OSError, struct.error):
        return None


@contextmanager
def _address(home: str, parts: Sequence[str]) -> Generator[tuple[int, str]]:
    """Yield a mailbox's open folder and a path of its socket that is short enough for the system, in a context."""
    folder = open_folder(home, parts)
    try:
        short = f"/proc/self/fd/{folder}/{SOCKET}"
        whole = os.path.join(home, *parts, SOCKET)
        if os.path.isdir(f"/proc/self/fd/{folder}"):
            yield folder, short
        elif len(os.fsencode(whole)) <= _MAX_PATH_BYTES:
            yield folder, whole
        else:
            raise OSError(errno.ENAMETOOLONG, "the path of the socket is too long for this system", whole)
    finally:
        os.close(folder)


# -- sender


def deliver(home: str, parts: Sequence[str], data: bytes, *, seconds: float = FRAME_SECONDS) -> bool:
    """Send a letter to the socket of a mailbox within a time limit; return whether it is durable there."""
    until = time.monotonic() + seconds
    with suppress(OSError, InputError), _address(home, parts) as (folder, address):
        if not stat.S_ISSOCK(os.stat(SOCKET, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(address)
            if peer_uid(connection) != os.geteuid():
                return False
            connection.sendall(frame_of(data))
            answer = FrameReader()
            while answer.wanted:
                connection.settimeout(max(0.001, until - time.monotonic()))
                piece = connection.recv(answer.wanted)
                if not piece:
                    return False
                answer.feed(piece)
            return answer.frame() == _TAKEN
    return False


# -- reader


class MailSocket:
    """Receives letters for one mailbox: ``await tasks.start(MailSocket(mailbox, wake=...).serve)``."""

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        wake: Callable[[], None] | None = None,
        frame_seconds: float = FRAME_SECONDS,
        uid_of: Callable[[socket.socket], int | None] = peer_uid,
    ) -> None:
        self.problem = ""
        """The reason why there is no socket; letters then arrive only through the mailbox's files."""
        self.refused = 0
        """The number of peers that were turned away or sent no valid letter."""
        self._mailbox = mailbox
        self._wake = wake
        self._frame_seconds = frame_seconds
        self._uid_of = uid_of
        self._peers = 0

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; raise ``SessionBusy`` if another process reads this mailbox.

        If there can be no socket, set ``problem`` and return.
        """
        self._threads = CapacityLimiter(_THREADS)
        await to_thread.run_sync(self._mailbox.acquire)
        try:
            listener = self._listen()
        except OSError as error:
            self.problem = f"no socket for {self._mailbox.agent}: {error.strerror or error}"
            task_status.started()
            return
        try:
            task_status.started()
            async with anyio.create_task_group() as group:
                while True:
                    connection = await self._accept(listener)
                    if connection is None:
                        continue
                    if self._peers >= MAX_PEERS:
                        self.refused += 1
                        connection.close()
                        continue
                    self._peers += 1
                    group.start_soon(self._serve_peer, connection)
        finally:
            listener.close()
            with suppress(OSError):
                os.unlink(self._mailbox.path / SOCKET)

    def _listen(self) -> socket.socket:
        parts = self._mailbox.path.relative_to(self._mailbox.home).parts
        with _address(self._mailbox.home, parts) as (folder, address):
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=folder)  # left by a dead process, since this one holds the lease
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(address)
                os.chmod(SOCKET, 0o600, dir_fd=folder)  # before listen(), so that no other user can connect
                listener.listen(_BACKLOG)
                listener.setblocking(False)
            except BaseException:
                listener.close()
                raise
            return listener

    async def _accept(self, listener: socket.socket) -> socket.socket | None:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        except OSError:  # no file descriptors left; open connections will be closed soon
            await anyio.sleep(0.05)
            return None
        connection.setblocking(False)
        return connection

    async def _serve_peer(self, connection: socket.socket) -> None:
        """Serve one peer: check its user, receive one letter, send one answer."""
        try:
            if self._uid_of(connection) != os.geteuid():
                self.refused += 1
                return
            with anyio.move_on_after(self._frame_seconds) as scope:
                data = await self._frame(connection)
                if data is None:
                    self.refused += 1
                    return
                answer = await self._answer(data)
                await self._send(connection, frame_of(answer))
            self.refused += scope.cancelled_caught
        except (OSError, InputError):
            self.refused += 1
        finally:
            self._peers -= 1
            connection.close()

    async def _frame(self, connection: socket.socket) -> bytes | None:
        reader = FrameReader()
        while reader.wanted:
            await anyio.wait_readable(connection)
            try:
                piece = connection.recv(reader.wanted)
            except (BlockingIOError, InterruptedError):
                continue
            if not piece:
                return None
            reader.feed(piece)
        return reader.frame()

    async def _answer(self, data: bytes) -> bytes:
        try:
            await to_thread.run_sync(self._mailbox.accept, data, limiter=self._threads)
        except (InputError, StorageError) as error:
            self.refused += 1
            return f"refused: {error}".encode("utf-8", "replace")[:4_096]
        if self._wake is not None:
            self._wake()
        return _TAKEN

    async def _send(self, connection: socket.socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await anyio.wait_writable(connection)
            try:
                rest = rest[connection.send(rest) :]
            except (BlockingIOError, InterruptedError):
                continue
