"""The socket of a mailbox: it delivers a letter at once.

A letter from the socket is verified like any other, stored in the mailbox, and acknowledged when it is durable. Only
processes of the same user may connect, a few at a time, each for a short time; a sender that is turned away stores the
letter in the mailbox itself. A letter and its answer are frames: the length in four bytes, then the content.
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
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from ...errors import InputError, StorageError
from ...layers.l7_relay import MAX_LETTER_BYTES
from ...paths import closed_after, open_folder
from .files import SOCKET
from .mailbox import Mailbox

MAX_PEERS: Final = 16
FRAME_SECONDS: Final = 2.0
_MAX_PATH_BYTES: Final = 103
_BACKLOG: Final = 64
_THREADS: Final = 4
"""The number of worker threads that peers may occupy."""
_TAKEN: Final = b"taken"
_LOCAL_PEERCRED: Final = 1
_HEAD_BYTES: Final = 4


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
    with closed_after(open_folder(home, parts)) as folder:
        short = f"/proc/self/fd/{folder}/{SOCKET}"
        whole = os.path.join(home, *parts, SOCKET)
        if os.path.isdir(f"/proc/self/fd/{folder}"):
            yield folder, short
        elif len(os.fsencode(whole)) <= _MAX_PATH_BYTES:
            yield folder, whole
        else:
            raise OSError(errno.ENAMETOOLONG, "the path of the socket is too long for this system", whole)


# -- frames


def frame_of(data: bytes) -> bytes:
    """Return data with its length in front; raise ``InputError`` if it is empty or too long."""
    return _checked(len(data)).to_bytes(_HEAD_BYTES, "big") + data


def _checked(length: int) -> int:
    if not 0 < length <= MAX_LETTER_BYTES:
        raise InputError(f"a frame must have 1 to {MAX_LETTER_BYTES:,} bytes, not {length:,}")
    return length


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
            length = int.from_bytes(_received(connection, _HEAD_BYTES, until), "big")
            return _received(connection, _checked(length), until) == _TAKEN
    return False


def _received(connection: socket.socket, size: int, until: float) -> bytes:
    """Return the next bytes of a connection; raise ``OSError`` if they do not come in time."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the reader closed the connection")
        data += piece
    return bytes(data)


# -- reader


class MailSocket:
    """Receives letters for one mailbox: ``await tasks.start(MailSocket(mailbox).serve)``."""

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        frame_seconds: float = FRAME_SECONDS,
        uid_of: Callable[[socket.socket], int | None] = peer_uid,
        on_letter: Callable[[], None] = lambda: None,
    ) -> None:
        self.problem = ""
        """The reason why there is no socket; letters then arrive only through the mailbox's files."""
        self.refused = 0
        """The number of peers that were turned away or sent no valid letter."""
        self._mailbox = mailbox
        self._frame_seconds = frame_seconds
        self._uid_of = uid_of
        self._on_letter = on_letter
        self._peers = 0

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled, or set ``problem``; raise ``SessionBusy`` if another process reads this mailbox."""
        self._threads = CapacityLimiter(_THREADS)
        await to_thread.run_sync(self._mailbox.acquire)
        parts = self._mailbox.path.relative_to(self._mailbox.home).parts
        try:
            with _address(self._mailbox.home, parts) as (folder, address):
                with suppress(FileNotFoundError):
                    os.unlink(SOCKET, dir_fd=folder)  # left by a dead process, since this one holds the lease
                listener = await anyio.create_unix_listener(address, mode=0o600, backlog=_BACKLOG)
        except OSError as error:
            self.problem = f"no socket for {self._mailbox.agent}: {error.strerror or error}"
            task_status.started()
            return
        try:
            task_status.started()
            async with listener, anyio.create_task_group() as group:
                while True:
                    try:
                        peer = await listener.accept()
                    except (OSError, anyio.BrokenResourceError):  # no file descriptors left; some are closed soon
                        await anyio.sleep(0.05)
                        continue
                    self._peers += 1
                    group.start_soon(self._serve_peer, peer)
        finally:
            with suppress(OSError):
                os.unlink(self._mailbox.path / SOCKET)

    async def _serve_peer(self, peer: SocketStream) -> None:
        """Serve one peer: check its user, receive one letter, send one answer."""
        try:
            async with peer:
                is_taken = False
                if self._peers <= MAX_PEERS and self._uid_of(peer.extra(SocketAttribute.raw_socket)) == os.geteuid():
                    with anyio.move_on_after(self._frame_seconds):
                        is_taken = await self._exchange(peer)
                self.refused += not is_taken
        except (OSError, InputError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            self.refused += 1
        finally:
            self._peers -= 1

    async def _exchange(self, peer: SocketStream) -> bool:
        """Receive one letter, send the answer, and return whether the letter was taken."""
        received = BufferedByteReceiveStream(peer)
        length = int.from_bytes(await received.receive_exactly(_HEAD_BYTES), "big")
        data = await received.receive_exactly(_checked(length))
        answer = _TAKEN
        try:
            await to_thread.run_sync(self._mailbox.accept, data, limiter=self._threads)
        except (InputError, StorageError) as error:
            answer = f"refused: {error}".encode("utf-8", "replace")[:4_096]
        else:
            self._on_letter()
        await peer.send(frame_of(answer))
        return answer is _TAKEN
