"""A reader with its socket, hostile peers, and a report of the reader's state.

    python -E mail_peers.py PEERS SEED

``REVERIE_HOME`` names the store. The reader runs in this process; peers run in another one, so that their memory is
not counted here. Prints as JSON the memory used and the path of each honest message.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import anyio
from anyio import to_thread

from reverie.layers.l7_relay.messages import MAX_LETTER_BYTES
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.mail.post_office import PostOffice
from reverie.runtime.mail.sockets import MailSocket, frame_of, peer_uid

HOME = os.environ["REVERIE_HOME"]
NOBODY = 65_534
HELD = 24
"""Peers that are kept waiting at once; more than the reader hears."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connected(address: str) -> socket.socket | None:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(1)
    try:
        peer.connect(address)
    except OSError:
        peer.close()
        return None
    return peer


def pester(folder: int, count: int, seed: int) -> None:
    """Be so many bad peers, of every kind."""
    random = Random(seed)
    os.fchdir(folder)  # from here another user can reach the socket too
    held: list[socket.socket] = []
    for number in range(count):
        other = number % 7 == 6 and os.geteuid() == 0
        if other:
            os.seteuid(NOBODY)
        peer = connected("socket")
        if other:
            os.seteuid(0)
        if peer is None:
            continue
        try:
            match number % 7:
                case 0:  # cut off in the middle
                    peer.sendall(struct.pack(">I", 5_000) + random.randbytes(random.randrange(4_000)))
                case 1:  # one byte at a time, for as long as it is heard
                    for byte in struct.pack(">I", 9) + b"x" * 3:
                        peer.sendall(bytes([byte]))
                case 2:
                    peer.sendall(random.randbytes(random.randrange(1, 9_000)))
                case 3:  # gigabytes, or nothing, are announced
                    length = random.choice([2**32 - 1, 2**30, MAX_LETTER_BYTES + 1, 0])
                    peer.sendall(struct.pack(">I", length) + b"x" * 100)
                case 4:  # all but the last byte of the largest frame
                    peer.sendall(struct.pack(">I", MAX_LETTER_BYTES) + b"x" * (MAX_LETTER_BYTES - 1))
                case 5:  # a whole frame that is no letter
                    peer.sendall(frame_of(b"reverie-letter 1 " + b"0" * 64 + b"\n" + random.randbytes(200)))
                case _:
                    pass  # silence, by another user where this can be one
        except OSError:
            pass
        if number % 7 in (1, 4, 6):
            held.append(peer)
        else:
            peer.close()
        while len(held) > HELD:
            held.pop(0).close()
    for peer in held:
        peer.close()


async def main() -> None:
    count, seed = map(int, sys.argv[1:])
    with Mailbox(HOME, "default", "reader") as reader, Mailbox(HOME, "default", "sender") as sender:
        if os.geteuid() == 0:  # let another user come as far as the socket, so that only who it is can keep it out
            for folder in (HOME, f"{HOME}/teams", f"{HOME}/teams/default", str(reader.path)):
                os.chmod(folder, 0o711)
        users: Counter[int | None] = Counter()

        def counted(connection: socket.socket) -> int | None:
            uid = peer_uid(connection)
            users[uid] += 1
            return uid

        server = MailSocket(reader, frame_seconds=0.3, uid_of=counted)
        post = PostOffice("sender", mailbox=sender)
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.serve)
            mode = stat.S_IMODE(os.stat(reader.path / "socket").st_mode)
            if os.geteuid() == 0:
                os.chmod(reader.path / "socket", 0o666)
            first = await post.send("reader", "before the storm")
            before, most = resident_bytes(), 0
            folder = os.open(reader.path, os.O_RDONLY)
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    pester(folder, count, seed)
                    code = 0
                finally:
                    os._exit(code)
            os.close(folder)
            ways: list[str] = []
            done = 0
            began = time.monotonic()
            try:
                while not done:
                    ways.append(await post.send("reader", f"in the storm {len(ways)}"))
                    most = max(most, resident_bytes())
                    await anyio.sleep(0.05)  # a storm of letters, and no busy loop
                    done, status = await to_thread.run_sync(os.waitpid, pid, os.WNOHANG)
                    if time.monotonic() - began > 900:
                        raise SystemExit("the reader hangs")
            finally:
                if not done:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            seconds = time.monotonic() - began
            with anyio.fail_after(60):
                while server._peers:  # the last of them are given up
                    await anyio.sleep(0.05)
            quiet = PostOffice("sender", mailbox=sender)
            last = await quiet.send("reader", "after the storm")
            tasks.cancel_scope.cancel()
        letters = [one.text for one in reader.poll(10_000)]
    print(
        json.dumps(
            {
                "first": first,
                "last": last,
                "by_socket": sum(way.startswith("Sent") for way in ways),
                "by_mailbox": sum(way.startswith("Left") for way in ways),
                "letters": letters,
                "refused": server.refused,
                "grown_bytes": most - before,
                "pesterer": os.waitstatus_to_exitcode(status),
                "seconds": seconds,
                "mode": mode,
                "strangers": users[NOBODY],
                "root": os.geteuid() == 0,
                "gone": not (Path(reader.path) / "socket").exists(),
            }
        )
    )


if __name__ == "__main__":
    anyio.run(main)
