"""The journal of a memory directory on disk: its lock, its lines, and applying them to the files.

New contents are first written to temporary files, durably. Then one line is appended to the journal: once that line is
on disk, the change is committed. Then the contents are renamed into place. A process that finds a committed line whose
writer was killed finishes it. The lock file, which is never removed, records how far the journal is applied.

With a ``SharedJournal`` the directory is the working copy of one machine: a line is committed once it is in the shared
journal, and each machine applies the lines of the others before it adds one.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Final, Protocol

import msgspec

from ...errors import StorageError
from ...keys import check_key
from ...paths import (
    TEMPORARY_PREFIX,
    append_line,
    closed_after,
    explained,
    lock_file,
    open_plain,
    opened_folder,
    refuse_unless_plain,
    replace_file,
    sync_folder,
    unlock,
    write_durably,
)
from ...schemas import newer
from .head_files import JOURNAL, JOURNAL_FILE, LOCK, READ_FLAGS
from .index import INDEX, changed, lines_of, listed_line, merged, patched
from .journal import History, JournalEntry, UnreadLine, Versions, content_of, encode, erased, read_entries
from .records import read_record, version_of
from .side_files import DirectoryFiles, SideFiles, read_plain
from .trust import Trust
from .trust_history import OUTSIDE_ACTS, TrustHistory

LOGS: Final = "logs"
"""The folder of the daily logs."""
SURFACED: Final = "surfaced.jsonl"
DREAMS: Final = "dreams"
_LINES: Final = "journal.jsonl"
SHARED_NAME: Final = "shared"
"""The file that names the shared journal of which a directory is a working copy."""
_MARK_DIGITS: Final = 20
_COMPARED_BYTES: Final = 512


class SharedJournal(Protocol):
    """The journal of a memory directory that several machines share."""

    name: str
    """The place of the journal, for messages and for the file that marks a working copy."""

    @property
    def files(self) -> SideFiles:
        """The files beside the memories, which have no working copy."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keep other machines from writing inside a ``with`` block; wait for one that does."""
        ...

    def dreaming(self) -> AbstractContextManager[None]:
        """Keep other machines from dreaming inside a ``with`` block; raise ``SessionBusy`` if one does."""
        ...

    def load(self, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes from an offset on, all or at most ``size``; None if there is no journal yet."""
        ...

    def append(self, line: bytes, *, expect: int) -> None:
        """Append a line durably; raise ``StorageError`` if the journal's size in bytes is not ``expect``."""
        ...

    def replace(self, lines: bytes) -> None:
        """Replace the whole journal, because a part of it must be erased."""
        ...


def _version(data: bytes | None) -> str | None:
    return None if data is None else version_of(data)


class _Left(msgspec.Struct, gc=False):
    """A journaled change without its content, for readers that need only its trust."""

    file: str
    after: str | None = None
    trust: Trust | None = None


class _Brief(msgspec.Struct, gc=False):
    act: str
    changes: list[_Left] = []


_brief: Final = msgspec.json.Decoder(_Brief)


class JournalFiles:
    """The journal of one memory directory on disk; ``history`` is its parsed content, current under the lock."""

    def __init__(self, root: str, shared: SharedJournal | None = None) -> None:
        self.root = root
        self.shared = shared
        self._lock_path, self._lines_path = self.path(LOCK), self.path(_LINES)
        self.history = History()
        self._gate = threading.RLock()
        self._lock: int | None = None
        self._inode = 0
        self._offset = 0
        self._standings = TrustHistory()
        self._stood = (0, 0)
        self._reading = threading.Lock()

    def path(self, name: str) -> str:
        """Return the path of a file in the journal's folder."""
        return os.path.join(self.root, JOURNAL, name)

    def is_settled(self) -> bool:
        """Say whether every line is applied, as far as is visible without the lock; True without a journal."""
        try:
            with closed_after(os.open(self._lock_path, READ_FLAGS)) as lock:
                mark = os.read(lock, _MARK_DIGITS)
            return mark == b"%0*d" % (_MARK_DIGITS, os.stat(self._lines_path, follow_symlinks=False).st_size)
        except OSError:
            return True  # no journal exists here, or it is not readable

    def trusts(self) -> TrustHistory:
        """Return the trust of each file by the applied lines, without the lock; only new lines are read."""
        with self._reading, suppress(OSError):
            lock = os.open(self._lock_path, READ_FLAGS)
            try:
                mark = int(os.read(lock, _MARK_DIGITS) or b"0")
            except ValueError:
                mark = 0
            finally:
                os.close(lock)
            inode, offset = self._stood
            found = os.stat(self._lines_path, follow_symlinks=False)
            if (found.st_ino, mark) != self._stood:
                if found.st_ino != inode or mark < offset:
                    self._standings, offset = TrustHistory(), 0
                self._read_standings(offset, mark)
                self._stood = found.st_ino, mark
        return self._standings

    def _read_standings(self, start: int, end: int) -> None:
        with closed_after(os.open(self._lines_path, READ_FLAGS)) as lines:
            data = _read_from(lines, start, end - start)
        try:
            entries = _brief.decode_lines(data)
        except (msgspec.MsgspecError, ValueError):
            entries = list[_Brief]()
            for line in data.splitlines():
                with suppress(msgspec.MsgspecError, ValueError):
                    entries.append(_brief.decode(line))
        for entry in entries:
            self._standings.add(entry.act, entry.changes)

    def problems(self) -> list[str]:
        """Return the problems of the journal as sentences without a subject; reads without the lock."""
        history, lost = self.read_history()
        return [*([f"is {lost} bytes shorter than it was"] if lost > 0 else []), *history.problems()]

    def read_history(self) -> tuple[History, int]:
        """Return the journal read without the lock, and the number of bytes that are missing at its end."""
        said = read_plain(self.root, f"{JOURNAL}/{LOCK}") or b""
        data = read_plain(self.root, JOURNAL_FILE) or b""
        history = History(highest=_digits(said[_MARK_DIGITS:]) or 0)
        for entry, _ in read_entries(data):
            history.pass_over(entry) if isinstance(entry, UnreadLine) else history.add(entry)
        lost = (_digits(said[:_MARK_DIGITS]) or 0) - len(data)
        return history, lost

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the journal's lock across threads and processes in a ``with`` block.

        On entry, new lines are read and applied. Raise ``StorageError`` if this thread holds the lock already.
        """
        with self._gate, explained("lock", self.path(LOCK)):
            if self._lock is not None:
                raise StorageError("a change is being made already; finish it first", path=self.root)
            self._refuse_other_copy()
            descriptor = lock_file(self.root, (JOURNAL,), LOCK, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
            self._lock = descriptor
            try:
                with self.shared.held() if self.shared is not None else nullcontext():
                    self._sweep()
                    self._pull()
                    self._catch_up()
                    yield
            finally:
                self._lock = None
                unlock(descriptor)

    def _folder(self, *, create: bool = False) -> AbstractContextManager[int]:
        return opened_folder(self.root, (JOURNAL,), create=create)

    @contextmanager
    def _lines(self) -> Generator[int]:
        with self._folder() as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            with closed_after(open_plain(folder, _LINES, flags, self.path(_LINES))) as descriptor:
                if os.fstat(descriptor).st_size == 0:
                    sync_folder(folder)  # its name must be as durable as its first line
                yield descriptor

    def _catch_up(self) -> None:
        """Read lines that others appended, apply the unapplied ones, and cut off an incomplete last line."""
        with self._lines() as descriptor:
            found = os.fstat(descriptor)
            mark = self._mark()
            if found.st_ino != self._inode or found.st_size < self._offset or mark != found.st_size:
                self.history, self._inode, self._offset = History(highest=self._highest()), found.st_ino, 0
            if found.st_size == self._offset:
                return
            start = self._offset
            data = _read_from(descriptor, start, found.st_size - start)
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.ftruncate(descriptor, start + whole)  # an incomplete last line was never committed
        undone: list[JournalEntry] = []
        for entry, end in read_entries(data[:whole]):
            if isinstance(entry, UnreadLine):
                self.history.pass_over(entry)
                continue
            self.history.add(entry)
            if mark is None or start + end > mark:
                undone.append(entry)
        self._offset = start + whole
        if mark != self._offset:
            for entry in undone if mark is not None else undone[-1:]:
                self._apply(entry, {})
            self._set_mark()

    # -- the shared journal

    def is_current(self) -> bool:
        """Say whether this directory has every line of the shared journal; True without one."""
        if self.shared is None:
            return True
        try:
            size = os.stat(self._lines_path, follow_symlinks=False).st_size
        except FileNotFoundError:
            return self.shared.load(0, 1) is None
        return self._shared_rest(size) == b""

    def _shared_rest(self, size: int) -> bytes | None:
        """Return the lines of the shared journal after these many bytes; None if it does not begin as this one."""
        assert self.shared is not None
        ours = _tail(self._lines_path, size)
        found = self.shared.load(size - len(ours))
        return found[len(ours) :] if found is not None and found.startswith(ours) else None

    def copy_of(self) -> str:
        """Return the name of the shared journal of which this directory is a working copy; empty if it is none."""
        return (read_plain(self.root, f"{JOURNAL}/{SHARED_NAME}") or b"").decode("utf-8", "replace").strip()

    @property
    def is_detached(self) -> bool:
        """Whether this directory is a working copy that was opened without a shared journal."""
        return self.shared is None and self.copy_of() != ""

    def release(self) -> None:
        """Make a working copy a directory of its own; lines of the shared journal that are not here stay away."""
        with self._gate, explained("change", self.path(SHARED_NAME)):
            descriptor = lock_file(self.root, (JOURNAL,), LOCK, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
            try:
                with self._folder() as folder, suppress(FileNotFoundError):
                    os.unlink(SHARED_NAME, dir_fd=folder)
                    sync_folder(folder)
            finally:
                unlock(descriptor)

    def _refuse_other_copy(self) -> None:
        """Raise ``StorageError`` if this directory is a working copy and was opened without its shared journal."""
        named = self.copy_of()
        wanted = self.shared.name if self.shared is not None else ""
        if named and named != wanted:
            raise StorageError(
                f"{self.root} is a working copy of {named}; use its database and tenant, or make it "
                "this home's own: 'reverie move --from URL', or without the database 'reverie move --release'",
                path=self.root,
            )
        if wanted and not named:
            with self._folder(create=True):
                replace_file(self.root, f"{JOURNAL}/{SHARED_NAME}", f"{wanted}\n".encode())

    def _pull(self) -> None:
        """Bring this machine's journal to the state of the shared one; the first machine brings its own."""
        if self.shared is None:
            return
        with self._lines() as descriptor:
            size = os.fstat(descriptor).st_size
            if self.shared.load(0, 1) is None:
                if size:
                    self.shared.replace(_read_from(descriptor, 0, size))
                    self._bring_side_files(self.shared.files)
                return
            rest = self._shared_rest(size)
            if rest:
                if not size:
                    self._set_mark()  # nothing is applied yet, which an empty lock file does not say
                write_durably(descriptor, rest)
        if rest is None:
            self._start_over(self.shared.load() or b"")

    def _bring_side_files(self, shared: SideFiles) -> None:
        here = DirectoryFiles(self.root)
        for file in (*here.names(LOGS), f"{JOURNAL}/{SURFACED}", *here.names(f"{JOURNAL}/{DREAMS}")):
            with suppress(StorageError):  # a link or a folder is none of them
                if (data := here.read(file)) is not None and shared.read(file) is None:
                    shared.replace(file, data)

    def _start_over(self, lines: bytes) -> None:
        """Take over a shared journal that does not continue this one, and build all files from it."""
        history, _ = self.read_history()
        files = {change.file for entry in history.entries for change in entry.changes}
        for file in (*files, INDEX):
            with suppress(StorageError):
                self._bring(file, _version(read_plain(self.root, file)), None, None, None)
        replace_file(self.root, JOURNAL_FILE, lines)
        self.history, self._inode, self._offset = History(), 0, 0
        self._set_mark()

    def _mark(self) -> int | None:
        assert self._lock is not None
        return _digits(os.pread(self._lock, _MARK_DIGITS, 0))

    def _highest(self) -> int:
        """Return the highest number that the lock file says was given to a change; 0 in old lock files."""
        assert self._lock is not None
        return _digits(os.pread(self._lock, _MARK_DIGITS, _MARK_DIGITS)) or 0

    def _set_mark(self) -> None:
        assert self._lock is not None
        os.pwrite(self._lock, b"%0*d%0*d" % (_MARK_DIGITS, self._offset, _MARK_DIGITS, self.history.highest), 0)

    # -- writing

    def note(self, entry: JournalEntry) -> None:
        """Append an entry for a change that is already in the files; the caller holds the lock."""
        self._append(entry)
        self._set_mark()

    def carry_out(self, entry: JournalEntry, contents: Mapping[str, bytes]) -> None:
        """Append an entry durably and write its contents by file; the caller holds the lock.

        If this raises before the line is durable, nothing has changed.
        """
        try:
            with self._folder() as folder:
                staged = {file: _write_beside(folder, data) for file, data in contents.items()}
            self._append(entry)
        except BaseException:
            self._sweep()
            raise
        try:
            self._apply(entry, staged)
        except (OSError, StorageError):
            self._apply(entry, {})  # try once more from the line; after a second failure the next process does it
            self._sweep()
        self._set_mark()

    def _append(self, entry: JournalEntry) -> None:
        if self.history.is_newer:
            raise newer(f"the journal {self._lines_path}", self._lines_path, "upgrade Reverie to change memories")
        line = encode(entry)
        with self._lines() as descriptor:
            size = os.fstat(descriptor).st_size
            if self.shared is not None:
                self.shared.append(line, expect=size)
            try:
                self._offset = append_line(descriptor, line, path=self.path(_LINES), clean_size=size)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, size)
                self._inode = 0  # the journal is read again from disk
                raise
        self.history.add(entry)

    def _apply(self, entry: JournalEntry, staged: Mapping[str, str]) -> None:
        """Bring files and index to the state after an entry; skip files that are not in the state before it."""
        for change in entry.changes:
            data = content_of(change)
            if data is not None:
                self._bring(change.file, change.before, change.after, data, staged.get(change.file))
        if entry.index is not None:
            self._bring_index(entry, staged.get(INDEX))
        elif entry.act in OUTSIDE_ACTS:
            self._list_found(entry)
        for change in entry.changes:  # last, so that no index line ever points to a missing file
            if change.after is None:
                self._bring(change.file, change.before, None, None, None)

    def _bring_index(self, entry: JournalEntry, staged: str | None) -> None:
        assert entry.index is not None
        found = read_plain(self.root, INDEX, is_memory=True)
        if _version(found) == entry.index_after:
            return
        now = (found or b"").decode("utf-8", "surrogateescape")
        same = _version(found) == entry.index_before
        new = patched(now, entry.index) if same else merged(now, entry.index)
        data = (new or "").encode("utf-8", "surrogateescape") or None
        self._bring(INDEX, _version(found), _version(data), data, staged if same else None)

    def _list_found(self, entry: JournalEntry) -> None:
        """Give each file from outside an index line, unless it has one: the index there stays on its machine."""
        found = read_plain(self.root, INDEX, is_memory=True)
        now = (found or b"").decode("utf-8", "surrogateescape")
        listed = {line.file for line in lines_of(now)}
        lines = dict[str, str | None]()
        for change in entry.changes:
            data = content_of(change)
            if (change.file in listed) != (data is not None):
                lines[change.file] = None if data is None else listed_line(read_record(change.file, data))
        data = changed(now, lines).encode("utf-8", "surrogateescape") or None
        self._bring(INDEX, _version(found), _version(data), data, None)

    def _bring(self, file: str, before: str | None, after: str | None, data: bytes | None, staged: str | None) -> None:
        if _version(read_plain(self.root, file)) != before or before == after:
            return
        *folders, name = check_key(file)
        path = os.path.join(self.root, file)
        with explained("write", path), opened_folder(self.root, folders, create=data is not None) as folder:
            with suppress(FileNotFoundError):
                refuse_unless_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
            if data is None:
                os.unlink(name, dir_fd=folder)
            else:
                with self._folder() as beside:
                    source = staged or _write_beside(beside, data)
                    os.rename(source, name, src_dir_fd=beside, dst_dir_fd=folder)
            sync_folder(folder)

    def _sweep(self) -> None:
        """Delete leftover temporary files in the journal's folder; ignore errors."""
        with suppress(OSError), self._folder() as folder:
            for name in os.listdir(folder):
                if name.startswith(TEMPORARY_PREFIX):
                    os.unlink(name, dir_fd=folder)

    def erase(self, files: Collection[str], versions: Versions) -> None:
        """Rewrite the journal without these files and versions of other files; the caller holds the lock."""
        lines = b"".join(encode(erased(entry, files, versions)) + b"\n" for entry in self.history.entries)
        if self.shared is not None:
            self.shared.replace(lines)
        replace_file(self.root, JOURNAL_FILE, lines)
        self._inode = 0
        self._offset = len(lines)
        self._set_mark()


def _digits(said: bytes) -> int | None:
    """Return the number in a field of the lock file; None if the field is missing or damaged."""
    return int(said) if len(said) == _MARK_DIGITS and said.isdigit() else None


def _tail(path: str, size: int) -> bytes:
    """Return the last bytes of a file of this size, enough to tell one journal from another."""
    with closed_after(os.open(path, READ_FLAGS)) as descriptor:
        return _read_from(descriptor, max(0, size - _COMPARED_BYTES), min(size, _COMPARED_BYTES))


def _read_from(descriptor: int, start: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, min(size, 1 << 24), start)):
        pieces.append(piece)
        start += len(piece)
        size -= len(piece)
    return b"".join(pieces)


def _write_beside(folder: int, data: bytes) -> str:
    """Write a durable temporary file into a folder, and return its unique name."""
    name = f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}"
    with closed_after(open_plain(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, name)) as descriptor:
        write_durably(descriptor, data)
    return name
