"""A process that runs JSON commands on a store, one per line, and reports the results.

Run as ``python -S -E child.py SRC ROOT``: a bare interpreter, so that starting hundreds of them is cheap.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

sys.path.insert(0, sys.argv[1])

from reverie.errors import ReverieError
from reverie.storage.files import FileStorage
from reverie.storage.log_files import Durability

ROOT = sys.argv[2]
ANY_TRACER = 0x59616D61


def entry(uuid: str, size: int) -> bytes:
    """Build a log line of about that size."""
    head = f'{{"uuid":"{uuid}","parent":null,"time":"","session":"s","kind":"user","body":{{"text":"'
    return head.encode() + b"x" * max(0, size - len(head) - 3) + b'"}}'


def say(**said: object) -> None:
    """Answer by a call that the store does not make, so that none meant for the store fails here."""
    os.writev(1, [json.dumps(said).encode() + b"\n"])


class Eager(FileStorage):
    """A known-bad twin: acknowledges at once and writes three lines later."""

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        self.later = [*getattr(self, "later", []), line]
        if len(self.later) > 3:
            super().append(key, self.later.pop(0))


class Careless(FileStorage):
    """A known-bad twin: one write on an O_APPEND descriptor, but nobody looks whether the last line is whole."""

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            data = line + b"\n"
            if os.write(descriptor, data) != len(data):
                raise OSError("short write")
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


class Buffered(FileStorage):
    """A known-bad twin: writes a long line in pieces."""

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            for start in range(0, len(line) + 1, 8192):
                file.write((line + b"\n")[start : start + 8192])


class _PidLease:
    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    def release(self) -> None:
        os.unlink(self.path)


class PidFile(FileStorage):
    """A known-bad twin: a lease is a file that names a process."""

    def lease(self, name: str, *, holder: str = "") -> _PidLease:  # type: ignore[override]
        path = str(self.root / f"{name}.pid")
        if os.path.exists(path):
            raise ReverieError("busy")
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        return _PidLease(path, name)


KINDS = {kind.__name__: kind for kind in (FileStorage, Eager, Careless, Buffered, PidFile)}


class Child:
    def __init__(self) -> None:
        self.store = FileStorage(ROOT)
        self.leases: dict[str, object] = {}

    def use(self, kind: str, durability: Durability = "always") -> None:
        self.store = KINDS[kind](ROOT, durability)

    def append(self, key: str, uuid: str, size: int = 150) -> None:
        self.store.append(key, entry(uuid, size))

    def append_many(self, key: str, who: str, sizes: list[int]) -> None:
        for number, size in enumerate(sizes):
            self.append(key, f"{who}-{number}", size)
            say(done=f"{who}-{number}")

    def write(self, key: str, text: str, expect: str | None = None, create: bool = False) -> str:
        return self.store.write(key, text.encode(), expect=expect, create=create)

    def count_up(self, key: str, times: int) -> int:
        """Add one to a number in a document, by compare-and-set, again and again."""
        conflicts = 0
        done = 0
        while done < times:
            found = self.store.read(key)
            assert found is not None
            try:
                self.store.write(key, b"%d" % (int(found.data) + 1), expect=found.version)
                done += 1
            except ReverieError:
                conflicts += 1
        return conflicts

    def delete(self, key: str) -> bool:
        return self.store.delete(key)

    def load(self, key: str) -> int | None:
        data = self.store.load(key)
        return None if data is None else len(data)

    def lease(self, name: str, holder: str = "") -> None:
        self.leases[name] = self.store.lease(name, holder=holder)

    def release(self, name: str) -> None:
        self.leases.pop(name).release()  # type: ignore[attr-defined]

    def race(self, name: str, rounds: int, witness: str) -> list[int]:
        """Take and release a lease again and again; count rounds won, and those with somebody else inside."""
        won = crowded = 0
        descriptor = os.open(witness, os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(rounds):
            try:
                lease = self.store.lease(name, holder=str(os.getpid()))
            except ReverieError:
                continue
            won += 1
            os.pwrite(descriptor, b"%20d" % os.getpid(), 0)
            os.sched_yield()
            if int(os.pread(descriptor, 20, 0)) != os.getpid():
                crowded += 1
            lease.release()
        return [won, crowded]

    def fork_and_hold(self, name: str) -> int:
        """Fork a child that lives on; return its process id."""
        self.lease(name, "parent")
        self.store.append("forked", b"{}")
        inside, outside = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(outside, b"x")
            signal.pause()
            os._exit(0)
        os.read(inside, 1)
        return child

    def limit_file_size(self, size: int) -> None:
        """Let the kernel cut writes short at this size, as a full disk does."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def unlimit_file_size(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def allow_tracing(self) -> None:
        ctypes.CDLL(None).prctl(ANY_TRACER, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)


def main() -> None:
    child = Child()
    say(ready=True)
    for line in sys.stdin.buffer:
        command = json.loads(line)
        try:
            say(ok=getattr(child, command.pop("act"))(**command))
        except ReverieError as error:
            say(
                error=type(error).__name__,
                message=str(error),
                path=getattr(error, "path", ""),
                errno=getattr(error, "errno", None),
            )
        except BaseException as error:
            say(error=type(error).__name__, message=str(error), path="", errno=None, untyped=True)


main()
