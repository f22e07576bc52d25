"""Storage in PostgreSQL, for several machines and several tenants."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

from psycopg import Connection

from ...errors import LogLost, SettingsError, StorageConflict, StorageError, UnsafePath
from ...keys import check_key
from ...ports import Document, Stamp
from ...values import record
from ..blobs import ObjectBlobs
from ..encryption import KEYS
from .connections import Connections, Row
from .leases import TTL_SECONDS, LeaseTable, PostgresLease
from .records import TenantRecords
from .search import SharedWords
from .streams import Stream, Streams, inflated

BLOB_BYTES: Final = 262_144
"""The size above which the bytes of an entry are stored by their content hash."""

_PIECE_BYTES: Final = 8_000
"""The most bytes of a piece of a document; a row of its size still fits a page of 8 KB."""
_MAX_BYTES: Final = 2**62
_PATIENCE_SECONDS: Final = 30.0
_MAX_RACES: Final = 32

_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
_APPEND: Final = "SELECT reverie.append(%s, %s, %s, %s, %s, %s, %s, %s)"
_HOLDS: Final = "SELECT 1 FROM reverie.leases WHERE tenant = %s AND name = %s AND fence = %s FOR SHARE"
_HEAD: Final = "SELECT file, size, torn, digest FROM reverie.files WHERE tenant = %s AND key = %s FOR UPDATE"
_CREATE: Final = """
INSERT INTO reverie.files (tenant, key, size, last, torn) VALUES (%s, %s, 0, 0, false) RETURNING file
"""
_ONE_CREATOR: Final = "SELECT pg_advisory_xact_lock(hashtextextended('reverie ' || %s, 0))"
_BELOW: Final = "SELECT 1 FROM reverie.files WHERE tenant = %s AND key > %s AND key < %s LIMIT 1"
_ABOVE: Final = "SELECT key FROM reverie.files WHERE tenant = %s AND key = ANY(%s) LIMIT 1"
_PUT: Final = """
INSERT INTO reverie.entries (tenant, file, seq, fence, content, begins, blob) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
# Bytes that are in an object store have no data in the row.
_PUT_BLOB: Final = """
INSERT INTO reverie.blobs AS known (tenant, digest, uses, data) VALUES (%s, %s, 1, %s)
ON CONFLICT (tenant, digest) DO UPDATE SET uses = known.uses + 1
"""
_SET_HEAD: Final = """
UPDATE reverie.files SET size = %s, last = %s, torn = %s, digest = %s, changed = clock_timestamp()
WHERE tenant = %s AND key = %s
"""
# Other bytes have another number: nothing that was read of the former ones is taken for a part of these.
_REPLACE_HEAD: Final = """
UPDATE reverie.files
SET file = DEFAULT, size = %s, last = %s, torn = %s, digest = %s, changed = clock_timestamp()
WHERE tenant = %s AND key = %s RETURNING file
"""
_CLEAR: Final = """
WITH gone AS (DELETE FROM reverie.entries WHERE tenant = %(tenant)s AND file = %(file)s RETURNING blob)
UPDATE reverie.blobs AS known SET uses = uses - freed.number
FROM (SELECT blob, count(*) AS number FROM gone WHERE blob IS NOT NULL GROUP BY blob) AS freed
WHERE known.tenant = %(tenant)s AND known.digest = freed.blob RETURNING known.digest
"""
_DROP_BLOBS: Final = "DELETE FROM reverie.blobs WHERE tenant = %s AND digest = ANY(%s) AND uses <= 0"
_USE_BLOBS: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended('reverie blobs ' || %s, 0))"
_LOCK_BLOBS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('reverie blobs ' || %s, 0))"
_DIGESTS: Final = "SELECT digest FROM reverie.blobs WHERE tenant = %s AND data IS NULL"
_DROP_WORDS: Final = "DELETE FROM reverie.words WHERE tenant = %s AND key = %s"
_DROP: Final = "DELETE FROM reverie.files WHERE tenant = %s AND key = %s"
_LOAD: Final = """
SELECT part.seq, coalesce(part.content, known.data), part.blob, part.begins FROM reverie.files AS head
LEFT JOIN LATERAL (SELECT first.seq FROM reverie.entries AS first
    WHERE first.tenant = head.tenant AND first.file = head.file AND first.seq <= %(start)s
        AND first.begins IS NOT FALSE ORDER BY first.seq DESC LIMIT 1) AS begin ON true
LEFT JOIN reverie.entries AS part ON part.tenant = head.tenant AND part.file = head.file
    AND part.seq >= begin.seq AND part.seq < %(end)s
LEFT JOIN reverie.blobs AS known ON known.tenant = part.tenant AND known.digest = part.blob
WHERE head.tenant = %(tenant)s AND head.key = %(key)s ORDER BY part.seq
"""
_STAMPS: Final = """
SELECT key, size, (extract(epoch FROM changed) * 1000000000)::bigint, file FROM reverie.files
WHERE tenant = %s AND key > %s AND (%s = '' OR key < %s) ORDER BY key
"""
_LAST: Final = """
SELECT 1 FROM reverie.files AS head JOIN reverie.entries AS part
ON part.tenant = head.tenant AND part.file = head.file AND part.seq = head.last
WHERE head.tenant = %s AND head.key = %s AND head.last = %s
"""


@record
class _Head:
    file: int
    size: int
    torn: bool
    digest: bytes | None


class PostgresStorage:
    """A store of documents, logs and leases of one tenant in a PostgreSQL database.

    The tenant comes from configuration and is set in every transaction; row-level security hides all other rows.
    A lease that is not renewed for ``ttl_seconds`` may be taken over, and the former holder can write no more.
    A database that was reached and goes away is waited for, at most ``patience_seconds``. With ``blobs``, entries over
    256 KB go to that object store.
    """

    def __init__(
        self,
        url: str,
        *,
        tenant: str,
        blobs: ObjectBlobs | None = None,
        ttl_seconds: float = TTL_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
        refuses_encrypted: bool = False,
    ) -> None:
        """Use the rows of a tenant; ``refuses_encrypted`` makes every use an error if they are encrypted."""
        self.tenant = tenant
        self._blobs = blobs
        self._may_be_encrypted = refuses_encrypted
        self._connections = Connections(url, tenant, patience_seconds)
        self._leases = LeaseTable(self._connections, ttl_seconds)
        self._streams = Streams()
        weakref.finalize(self, self._connections.close)
        self.words = SharedWords(self._connections)

    def now(self) -> float:
        """Return the time by the database's clock, in seconds since 1970."""
        row = self._connections.repeated(lambda: self._connections.row("the clock", _NOW, ()))
        assert row is not None
        return row[0]

    def is_encrypted(self) -> bool:
        """Say whether content of the tenant is encrypted."""
        sql, values = _BELOW, (self.tenant, *_below(KEYS))
        return self._connections.repeated(lambda: self._connections.row(KEYS, sql, values)) is not None

    def _check(self, key: str) -> None:
        """Raise ``UnsafePath`` for a bad key, and ``SettingsError`` if the tenant's content is encrypted."""
        check_key(key)
        if self._may_be_encrypted:
            if self.is_encrypted():
                told = f"the content of the tenant {self.tenant} is encrypted"
                raise SettingsError(f"{told}; set encryption_key, as on the machines that wrote it")
            self._may_be_encrypted = False

    def read(self, key: str) -> Document | None:
        """Return the document, or None if it does not exist."""
        data = self.load(key)
        return None if data is None else Document(data, _digest(data).hex())

    def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes of a log or document, all or a part, or None if it does not exist."""
        self._check(key)
        end = start + size if size >= 0 else _MAX_BYTES
        values = {"tenant": self.tenant, "key": key, "start": start, "end": end}
        rows = self._connections.repeated(lambda: self._connections.rows(key, _LOAD, values))
        if not rows:
            self._refuse_folder(key)
            return None
        data = self._bytes(key, [row[1:] for row in rows])
        skipped = start - (rows[0][0] or 0)
        return data[skipped:] if size < 0 else data[skipped : skipped + size]

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Create or replace the document atomically and durably, and return its new version.

        Raise ``StorageConflict`` if the current version is not ``expect``, or if ``create`` is set and it exists.
        """
        self._check(key)
        digest = _digest(data)

        def replace(again: bool) -> None:
            with self._connections.transaction(key) as connection:
                lease = self._checked_lease(connection, key)
                head = self._head(connection, key)
                found = None if head is None else self._version(connection, key, head) if expect is not None else ""
                if again and found == digest.hex():
                    return  # the attempt whose answer was lost
                if head is None and expect is None:
                    head, found = self._created(connection, key)
                if head is None or (create and found is not None) or (expect is not None and found != expect):
                    raise _conflict(key, create)
                self._clear(connection, head.file)
                connection.execute(_DROP_WORDS, (self.tenant, key))
                pieces = list(_pieces_of(key, data))
                torn = bool(data) and not data.endswith(b"\n")
                values = (len(data), pieces[-1][0] if pieces else 0, torn, digest, self.tenant, key)
                row = connection.execute(_REPLACE_HEAD, values).fetchone()
                assert row is not None
                self._put(connection, row[0], pieces, lease)

        if create:
            replace(False)
        else:
            attempts = iter((False,))
            self._connections.repeated(lambda: replace(next(attempts, True)))
        return digest.hex()

    def delete(self, key: str) -> bool:
        """Delete a document or log, and say whether it existed."""
        self._check(key)
        with self._connections.transaction(key) as connection:
            self._checked_lease(connection, key)
            head = self._head(connection, key)
            if head is not None:
                self._clear(connection, head.file)
                connection.execute(_DROP_WORDS, (self.tenant, key))
                connection.execute(_DROP, (self.tenant, key))
        if head is None:
            self._refuse_folder(key)
        return head is not None

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a folder prefix, sorted."""
        yield from (one.key for one in self.stamps(prefix))

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """Yield the stamps of the documents and logs under a folder prefix, sorted by key."""
        folder = prefix.rstrip("/")
        first, end = _below("/".join(check_key(folder))) if folder else ("", "")
        values = (self.tenant, first, end, end)
        for row in self._connections.repeated(lambda: self._connections.rows(folder or "the keys", _STAMPS, values)):
            yield Stamp(*row)

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        """Append one line, given without a newline, to a log, and return when it is committed.

        Raise ``LogLost`` if the size of the log in bytes is not ``expect``, ``SessionBusy`` if the lease on the log
        was taken over. With ``expect`` an append whose answer was lost is found again; without, it raises.
        """
        if b"\n" in line:
            raise ValueError("a log line must not contain a newline; append one line at a time")
        self._check(key)
        if expect is None:
            self._append(key, line + b"\n", None, again=False)
            return
        attempts = iter((False,))
        self._connections.repeated(lambda: self._append(key, line + b"\n", expect, again=next(attempts, True)))

    def lease(self, name: str, *, holder: str = "") -> PostgresLease:
        """Take the lease on a name for ``holder``, or raise ``SessionBusy`` that names the present holder."""
        self._check(name)
        return self._connections.repeated(lambda: self._leases.take(name, holder or f"process {os.getpid()}"))

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        self._check(name)
        return self._connections.repeated(lambda: self._leases.holder(name))

    def sweep_blobs(self) -> int:
        """Delete the objects that no entry names any more from the object store, and return how many there were."""
        if self._blobs is None:
            return 0
        with self._connections.transaction("blobs") as connection:
            connection.execute(_LOCK_BLOBS, (self.tenant,))  # no writer is between its object and its row
            used = {digest.hex() for (digest,) in connection.execute(_DIGESTS, (self.tenant,), binary=True)}
            unused = [digest for digest in self._blobs.digests() if digest not in used]
            for digest in unused:
                self._blobs.delete(digest)
        return len(unused)

    @property
    def records(self) -> TenantRecords:
        """The audit rows and priced calls of the tenant."""
        return TenantRecords(self._connections)

    def close(self) -> None:
        """Release every lease and close every connection; a later use opens new ones."""
        try:
            self._leases.close()
        finally:
            self._connections.close()

    def _append(self, key: str, data: bytes, expect: int | None, *, again: bool) -> None:
        stream = self._streams.take(key, expect)
        line, begins = stream.deflated(data) if len(data) <= BLOB_BYTES else (data, None)
        for _ in range(_MAX_RACES):
            lease = self._leases.covering(key)
            if len(line) > _PIECE_BYTES:
                stored = self._append_pieces(key, data, expect)
            else:
                form = (None if begins is None else len(data), stream.file if begins is False else None)
                held = (None, None) if lease is None else (lease.name, lease.fence)
                row = self._connections.call(key, _APPEND, (self.tenant, key, line, *form, expect, *held))
                file: int | None = None if row is None else row[0]
                stored = file is not None
                if file is not None and expect is not None and begins is not None:
                    self._streams.keep(key, stream, file, expect + len(data))
            if stored or (again and self._is_last(key, data, expect or 0)):
                return
            if lease is not None and (lost := self._leases.lost(lease)) is not None:
                raise lost
            with self._connections.transaction(key) as connection:
                head = self._head(connection, key)
                if head is None and not expect:
                    self._created(connection, key)
                    continue
            if expect is not None and (head is None or head.size != expect):
                size = "is gone" if head is None else f"has {head.size} bytes instead of {expect}"
                raise LogLost(f"{key} {size}", path=key)
            if head is not None and head.torn:
                line, begins = data, None  # the database adds the newline
            elif begins is False:  # other bytes of the same size
                stream = Stream()
                line, begins = stream.deflated(data)
        raise StorageError(f"cannot append to {key}: other processes keep replacing it; stop them", path=key)

    def _append_pieces(self, key: str, data: bytes, expect: int | None) -> bool:
        """Append a line that is too long for one row; return whether the log had the expected size."""
        with self._connections.transaction(key) as connection:
            lease = self._checked_lease(connection, key)
            head = self._head(connection, key)
            if head is None or (expect is not None and head.size != expect):
                return False
            data = b"\n" + data if head.torn else data
            self._put(connection, head.file, _pieces_of(key, data, head.size), lease)
            connection.execute(_SET_HEAD, (head.size + len(data), head.size, False, None, self.tenant, key))
            return True

    def _is_last(self, key: str, data: bytes, seq: int) -> bool:
        """Say whether the last entry of a log is this one, because an append was committed and its answer lost."""
        row = self._connections.row(key, _LAST, (self.tenant, key, seq))
        return row is not None and self.load(key, seq, len(data) + 1) in (data, b"\n" + data)

    def _checked_lease(self, connection: Connection[Row], key: str) -> PostgresLease | None:
        """Return the lease under which a key is written here, locked until the commit; raise if it was taken over."""
        lease = self._leases.covering(key)
        if lease is not None:
            held = connection.execute(_HOLDS, (self.tenant, lease.name, lease.fence)).fetchone()
            if held is None and (lost := self._leases.lost(lease)) is not None:
                raise lost
        return lease

    def _head(self, connection: Connection[Row], key: str) -> _Head | None:
        row = connection.execute(_HEAD, (self.tenant, key), binary=True).fetchone()
        return None if row is None else _Head(*row)

    def _created(self, connection: Connection[Row], key: str) -> tuple[_Head, str | None]:
        """Return the head of a new, empty file and None, or one that another process created meanwhile and a text."""
        connection.execute(_ONE_CREATOR, (self.tenant,))
        head = self._head(connection, key)
        if head is not None:
            return head, ""
        if connection.execute(_BELOW, (self.tenant, *_below(key))).fetchone() is not None:
            raise _is_folder(key)
        parts = key.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        found = connection.execute(_ABOVE, (self.tenant, above)).fetchone()
        if found is not None:
            raise StorageError(f"cannot write {key}: {found[0]} is a file, not a directory; use another name", path=key)
        row = connection.execute(_CREATE, (self.tenant, key)).fetchone()
        assert row is not None
        return _Head(row[0], 0, False, None), None

    def _bytes(self, key: str, rows: Iterable[Row]) -> bytes:
        """Return the bytes of consecutive entries, from the object store if the database has only their hash."""
        return inflated(key, [(data or self._blob(blob), begins) for data, blob, begins in rows])

    def _blob(self, blob: bytes | None) -> bytes:
        if blob is None:
            return b""
        if self._blobs is None:
            raise SettingsError("a part of this is in an object store; set blobs to the URL that it was written to")
        return self._blobs.get(blob.hex())

    def _put(
        self, connection: Connection[Row], file: int, pieces: Iterable[tuple[int, bytes]], lease: PostgresLease | None
    ) -> None:
        """Insert consecutive pieces of a file at their offsets."""
        stream, rows = Stream(), list[tuple[Any, ...]]()
        for seq, data in pieces:
            content, begins, blob = None, None, None
            if len(data) > BLOB_BYTES:
                blob, stream = self._put_blob(connection, data), Stream()  # a part may be read from here on
            else:
                content, begins = stream.deflated(data)
            rows.append((self.tenant, file, seq, None if lease is None else lease.fence, content, begins, blob))
        with connection.cursor() as cursor:
            cursor.executemany(_PUT, rows)

    def _put_blob(self, connection: Connection[Row], data: bytes) -> bytes:
        """Store a piece by its hash, which is returned."""
        digest = _digest(data)
        if self._blobs is not None:
            connection.execute(_USE_BLOBS, (self.tenant,))
            self._blobs.put(data)
        connection.execute(_PUT_BLOB, (self.tenant, digest, data if self._blobs is None else None))
        return digest

    def _clear(self, connection: Connection[Row], file: int) -> None:
        freed = connection.execute(_CLEAR, {"tenant": self.tenant, "file": file}, binary=True).fetchall()
        if freed:
            connection.execute(_DROP_BLOBS, (self.tenant, [digest for (digest,) in freed]))

    def _version(self, connection: Connection[Row], key: str, head: _Head) -> str:
        if head.digest is not None:
            return head.digest.hex()
        rows = connection.execute(_LOAD_FILE, (self.tenant, head.file), binary=True).fetchall()
        return _digest(self._bytes(key, rows)).hex()

    def _refuse_folder(self, key: str) -> None:
        sql, values = _BELOW, (self.tenant, *_below(key))
        if self._connections.repeated(lambda: self._connections.row(key, sql, values)) is not None:
            raise _is_folder(key)


_LOAD_FILE: Final = """
SELECT coalesce(part.content, known.data), part.blob, part.begins FROM reverie.entries AS part
LEFT JOIN reverie.blobs AS known ON known.tenant = part.tenant AND known.digest = part.blob
WHERE part.tenant = %s AND part.file = %s ORDER BY part.seq
"""


def _pieces_of(key: str, data: bytes, seq: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of bytes with their offsets from ``seq`` on; each fits a page, except a blob."""
    start = 0
    while start < len(data):
        end = len(data)
        if key.endswith(".jsonl") and end - start > BLOB_BYTES:
            end = data.rfind(b"\n", start, start + BLOB_BYTES) + 1 or data.find(b"\n", start) + 1 or end
        step = end - start if end - start > BLOB_BYTES else _PIECE_BYTES
        yield from ((seq + place, data[place : min(place + step, end)]) for place in range(start, end, step))
        start = end


def _below(folder: str) -> tuple[str, str]:
    """Return the bounds of the keys below a folder in the order of bytes: ``0`` follows the slash."""
    return f"{folder}/", f"{folder}0"


def _is_folder(key: str) -> UnsafePath:
    return UnsafePath(f"cannot use {key}: it is a directory; name a file", path=key)


def _conflict(key: str, create: bool) -> StorageConflict:
    reason = "it exists already" if create else "another writer changed it first"
    return StorageConflict(f"cannot write {key}: {reason}; read it again, then retry", path=key)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
