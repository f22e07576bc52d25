"""Leases in the database: renewed by a heartbeat, taken over when they expire, and numbered against stale writers."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...errors import SessionBusy, StorageError
from .connections import Connections

TTL_SECONDS: Final = 15.0
_BEATS_PER_TTL: Final = 3

_TAKE: Final = """
INSERT INTO reverie.leases AS held (tenant, name, holder, process, fence, expires)
VALUES (%s, %s, %s, %s, 1, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (tenant, name) DO UPDATE
SET holder = excluded.holder, process = excluded.process, fence = held.fence + 1, expires = excluded.expires
WHERE held.expires <= clock_timestamp() OR (held.process = %s AND held.fence = %s)
RETURNING fence
"""
_LOOK: Final = """
SELECT holder, process, fence, to_char(expires AT TIME ZONE 'UTC', 'HH24:MI:SS') FROM reverie.leases
WHERE tenant = %s AND name = %s AND expires > clock_timestamp()
"""
_RENEW: Final = """
UPDATE reverie.leases SET expires = clock_timestamp() + make_interval(secs => %s)
WHERE tenant = %s AND name = %s AND fence = %s RETURNING fence
"""
_RELEASE: Final = """
UPDATE reverie.leases SET expires = '-infinity' WHERE tenant = %s AND name = %s AND fence = %s RETURNING fence
"""


class PostgresLease:
    """A lease on a name with its fencing number, held until it is released, or taken over after its expiry."""

    def __init__(self, name: str, fence: int, owner: LeaseTable) -> None:
        self.name = name
        self.fence = fence
        self._owner = owner

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        self._owner.release(self)

    def covers(self, key: str) -> bool:
        """Say whether writes to a key need this lease: the key itself, and the folder of a session's log."""
        return key == self.name or key.startswith(self.name.removesuffix(".jsonl") + "/")


class LeaseTable:
    """The leases that one storage holds, and the thread that renews them."""

    def __init__(self, connections: Connections, ttl_seconds: float) -> None:
        self._connections = connections
        self._ttl_seconds = ttl_seconds
        self._held: dict[str, PostgresLease] = {}
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._stopping = threading.Event()
        self._beating: threading.Thread | None = None
        self._process = os.getpid()
        self._token = os.urandom(6).hex()

    def take(self, name: str, holder: str) -> PostgresLease:
        """Take the lease, also of a holder that expired or whose process ended on this machine.

        One thread at a time: a lease that another thread just took must not look like one whose answer was lost.
        """
        with self._taking:
            return self._taken(name, holder)

    def _taken(self, name: str, holder: str) -> PostgresLease:
        tenant = self._connections.tenant
        mine = f"{this_process()} {self._token}"
        gone, fence = "", 0
        for _ in range(8):
            values = (tenant, name, holder, mine, self._ttl_seconds, gone, fence)
            if (taken := self._connections.row(name, _TAKE, values)) is not None:
                return self._hold(PostgresLease(name, taken[0], self))
            found = self._connections.row(name, _LOOK, (tenant, name))
            if found is None:
                continue
            lost_answer = found[1] == mine and name not in self._held
            if not lost_answer and is_alive(found[1]):
                raise busy(name, found[0], found[3])
            gone, fence = found[1], found[2]
        raise busy(name, "several processes in turn", "any moment")

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        found = self._connections.row(name, _LOOK, (self._connections.tenant, name))
        return found[0] if found is not None and is_alive(found[1]) else None

    def covering(self, key: str) -> PostgresLease | None:
        """Return the lease of this storage that a write to a key must still hold."""
        with self._lock:
            return next((lease for lease in self._held.values() if lease.covers(key)), None)

    def lost(self, lease: PostgresLease) -> SessionBusy | None:
        """Return the error of a writer whose lease was taken over, None if it still holds the lease."""
        found = self._connections.row(lease.name, _LOOK, (self._connections.tenant, lease.name))
        if found is not None and found[2] == lease.fence:
            return None
        if self._renew(lease):
            return None
        now = "another process" if found is None else found[0]
        return SessionBusy(
            f"{lease.name} was taken over by {now} while this process was away; nothing more is written from here: "
            "open it again",
            holder=now,
        )

    def release(self, lease: PostgresLease) -> None:
        """Free a lease, unless it is another's by now; if the database is away, it ends by itself."""
        with self._lock:
            if self._held.get(lease.name) is not lease or self._process != os.getpid():
                return  # released before, or by a child process, which inherits no leases
            del self._held[lease.name]
        with suppress(StorageError):
            self._connections.row(lease.name, _RELEASE, (self._connections.tenant, lease.name, lease.fence))

    def close(self) -> None:
        """Stop the heartbeat and release every lease."""
        self._stopping.set()
        if self._beating is not None and self._beating is not threading.current_thread():
            self._beating.join()
        self._beating, self._stopping = None, threading.Event()
        for lease in list(self._held.values()):
            self.release(lease)

    def renew_all(self) -> None:
        """Renew every lease; a database that is away is asked again at the next beat."""
        for lease in list(self._held.values()):
            try:
                self._renew(lease)
            except StorageError:
                continue  # the fencing number decides at the next write

    def _renew(self, lease: PostgresLease) -> bool:
        values = (self._ttl_seconds, self._connections.tenant, lease.name, lease.fence)
        return self._connections.row(lease.name, _RENEW, values) is not None

    def _hold(self, lease: PostgresLease) -> PostgresLease:
        with self._lock:
            self._held[lease.name] = lease
            if self._beating is None or not self._beating.is_alive():
                seconds = self._ttl_seconds / _BEATS_PER_TTL
                self._beating = threading.Thread(
                    target=_beat, args=(weakref.ref(self), self._stopping, seconds), name="reverie-leases", daemon=True
                )
                self._beating.start()
        return lease


def busy(name: str, holder: str, until: str) -> SessionBusy:
    """Return the error of a lease that another process holds."""
    return SessionBusy(
        f"{name} is in use by {holder}; close it there, or open it read-only (if that machine is down, the lease "
        f"ends at {until} UTC)",
        holder=holder,
    )


def this_process() -> str:
    """Return a text that names this process among those of its machine: machine, process id and start."""
    return f"{_machine()} {os.getpid()} {_started(os.getpid())}"


def is_alive(process: str) -> bool:
    """Say whether a process may be alive; those of other machines always may be."""
    machine, _, rest = process.partition(" ")
    number, started, *_ = (*rest.split(" "), "", "")
    if machine != _machine() or not number.isdigit() or not started:
        return True
    return _started(int(number)) == started


def _machine() -> str:
    """Return a name of this machine since it was started, and of the container that numbers its processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "unknown"


def _started(process_id: int) -> str:
    """Return the start of a process in ticks of the machine, empty if there is no such process or it ended."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _beat(table: weakref.ref[LeaseTable], stopping: threading.Event, seconds: float) -> None:
    while not stopping.wait(seconds):
        held = table()
        if held is None:
            return
        held.renew_all()
        del held
