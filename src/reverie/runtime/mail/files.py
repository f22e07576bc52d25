"""The files of mailboxes: maildirs under ``<home>/teams/<team>/<agent>/``, each private to the user.

A letter is written to ``tmp``, flushed, and renamed into ``new``, which has a folder per sender with a subfolder per
256 letters, so that a reader lists only the oldest ones. Letters that were read go to ``cur``, refused ones to ``bad``.
Names are checked before they become paths, and every folder is opened below the home without following links.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from ...errors import InputError, StorageError, UnsafePath
from ...layers.l7_relay import KEY_BYTES, MAX_LETTER_BYTES, MAX_SEQUENCE, Letter, check_name
from ...paths import closed_after, explained, open_beneath, open_plain, opened_folder, sync_folder, temporary_file
from ...ports import Storage
from ...storage.files import FileStorage
from ...values import record

AGENT: Final = "agent.json"
KEY: Final = "key"
SOCKET: Final = "socket"
BUCKET: Final = 256
"""The number of letters of one sender that share a folder."""

_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]{1,64},[A-Za-z0-9._-]{1,64}")
_BUCKET: Final = re.compile(r"[0-9]{10}")
_FILE: Final = re.compile(r"[0-9]{12},[0-9]{20}")
_ORPHAN_SECONDS: Final = 3_600.0
_IDLE_SECONDS: Final = 60.0
_LOCK_SECONDS: Final = 10.0
_MAX_RACES: Final = 64
_NUMBER_BYTES: Final = 21


Folders: TypeAlias = tuple[str, str, str]
"""The parts of a mailbox's path below the home."""


@record
class LetterPlace:
    """The place of a waiting letter: its sender's folder, the subfolder of its 256 letters, and its file."""

    folder: str
    bucket: str
    file: str
    sequence: int = 0
    """The letter's number; 0 if the file name is not that of a letter."""


def place_of(letter: Letter) -> LetterPlace:
    """Return the place of a letter in its reader's ``new`` folder."""
    return LetterPlace(
        f"{letter.team},{letter.sender}",
        f"{letter.sequence // BUCKET:010d}",
        f"{letter.sequence:012d},{letter.time_ns:020d}",
        letter.sequence,
    )


def place_at(folder: str, bucket: str, file: str) -> LetterPlace:
    """Return the place of an existing file in ``new``."""
    return LetterPlace(folder, bucket, file, int(file[:12]) if _FILE.fullmatch(file) else 0)


def archive_name(place: LetterPlace) -> str:
    """Return a letter's file name in ``cur`` or ``bad``, which is unique and sorts by time."""
    sequence, _, at = place.file.partition(",")
    return f"{at},{sequence},{place.folder}"


def moved_name(place: LetterPlace) -> str:
    """Return the name in ``cur`` or ``bad`` of a letter, or of a file that is none."""
    if place.sequence:
        return archive_name(place)
    return f"stray,{os.urandom(4).hex()},{place.file.replace('/', ',')}"[:200]


def archived_place(name: str) -> LetterPlace | None:
    """Return the former place of a letter by its name in ``cur``; None if that is not the name of a letter."""
    at, sequence, folder = (*name.split(",", 2), "", "")[:3]
    if not _FILE.fullmatch(f"{sequence},{at}") or not _FOLDER.fullmatch(folder):
        return None
    return place_at(folder, f"{int(sequence) // BUCKET:010d}", f"{sequence},{at}")


def folders_of(team: str, agent: str) -> Folders:
    """Return the parts of a mailbox's path below the home; raise ``InputError`` for an invalid name."""
    return ("teams", check_name(team, "team"), check_name(agent))


# -- keys and numbers


def key_of(home: str, team: str, agent: str) -> bytes | None:
    """Return the key an agent of a home signs with; None if it has no valid key."""
    return stored_key(FileStorage(home), team, agent)


def stored_key(storage: Storage, team: str, agent: str) -> bytes | None:
    """Return the key an agent signs with; None if it has no valid key."""
    place = "/".join((*folders_of(team, agent), KEY))
    with suppress(UnsafePath, ValueError):
        key = bytes.fromhex((storage.load(place) or b"").decode("ascii").strip())
        return key if len(key) == KEY_BYTES else None
    return None


@contextmanager
def reserved_number(home: str, sender: Sequence[str], reader: Sequence[str]) -> Generator[int]:
    """Lock the route from one mailbox to another in a context, and yield the number of the next letter.

    Hold the lock until the letter is stored, so that a later letter never appears before it. The number is used up
    at once: an undelivered letter leaves a gap, and two letters never share a number.
    """
    parts = (*sender, "sent", reader[1])
    path = os.path.join(home, *parts, reader[2])
    with explained("number a letter in", path), opened_folder(home, parts, create=True) as folder:
        descriptor = open_plain(folder, reader[2], os.O_RDWR | os.O_CREAT, path)
    try:
        with explained("lock", path):
            _lock(descriptor, path)
            said = os.pread(descriptor, _NUMBER_BYTES, 0).strip()
            last = int(said) if said.isdigit() else 0
            if not last:  # new, or lost in a power cut: continue after the letters that still wait
                last = _last_waiting(home, reader, f"{sender[1]},{sender[2]}")
            if last + 1 >= MAX_SEQUENCE:
                raise StorageError(
                    f"cannot send: the number of the last letter in {path} is damaged ({last}); delete that file, and "
                    "numbers go on after the letters that wait",
                    path=path,
                )
            os.pwrite(descriptor, b"%020d\n" % (last + 1), 0)
        yield last + 1
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    """Lock a file; raise ``StorageError`` if another sender of the same name holds it for 10 s."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise StorageError(
                    f"cannot send: another process has been sending under this name for {_LOCK_SECONDS:.0f} s "
                    f"and holds {path}; end it or try again",
                    path=path,
                    errno=errno.EAGAIN,
                ) from None
            time.sleep(0.002)


def _last_waiting(home: str, reader: Sequence[str], sender: str) -> int:
    with suppress(FileNotFoundError), opened_folder(home, reader) as mailbox:
        for bucket in sorted(listed(mailbox, "new", sender), reverse=True):
            numbers = [place_at(sender, bucket, name).sequence for name in listed(mailbox, "new", sender, bucket)]
            if any(numbers):
                return max(numbers)
    return 0


# -- storing


def store_letter(home: str, reader: Sequence[str], place: LetterPlace, data: bytes, settled: set[str]) -> None:
    """Write a letter durably into its reader's ``new`` folder; ``settled`` caches folders that are on the disk."""
    path = os.path.join(home, *reader, "new", place.folder, place.bucket, place.file)
    name = f"{place.folder},{place.file},{os.getpid()}.{os.urandom(4).hex()}"
    with explained("deliver", path), opened_folder(home, (*reader, "tmp")) as tmp, temporary_file(tmp, data, name):
        _rename_into_place(home, reader, tmp, name, place, settled)


def _rename_into_place(
    home: str, reader: Sequence[str], tmp: int, name: str, place: LetterPlace, settled: set[str]
) -> None:
    above, parts = (*reader, "new", place.folder), (*reader, "new", place.folder, place.bucket)
    for _ in range(_MAX_RACES):
        try:
            with opened_folder(home, parts, create=True) as bucket:
                os.rename(name, place.file, src_dir_fd=tmp, dst_dir_fd=bucket)
                key = "/".join(parts)
                if key not in settled:
                    for folder in (above[:-1], above):
                        with opened_folder(home, folder) as parent:
                            sync_folder(parent)
                    settled.add(key)
                sync_folder(bucket)
            return
        except FileNotFoundError:
            settled.discard("/".join(parts))  # the reader removed the empty folder
            if not _exists(tmp, name):
                return  # the letter was stored and already read
    raise OSError(errno.ENOENT, "its folder was removed again and again")


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


# -- finding and reading


@contextmanager
def _below(mailbox: int, *parts: str) -> Generator[int]:
    with closed_after(open_beneath(mailbox, "/".join(parts), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        yield folder


def listed(mailbox: int, *parts: str) -> list[str]:
    """Return the names in a folder of a mailbox; an empty list if there is no such folder."""
    try:
        with _below(mailbox, *parts) as folder:
            return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def senders_waiting(mailbox: int) -> tuple[list[str], list[LetterPlace]]:
    """Return the names of the sender folders in ``new``, and the places of all other files there."""
    folders: list[str] = []
    strays: list[LetterPlace] = []
    with _below(mailbox, "new") as new, os.scandir(new) as entries:
        for entry in entries:
            if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                strays.append(LetterPlace("", "", entry.name))
    return folders, strays


def oldest_places(mailbox: int, sender: str, limit: int, *, upto: LetterPlace | None = None) -> list[LetterPlace]:
    """Return about ``limit`` places of a sender's oldest letters in order, up to and including ``upto``.

    A file that is not named like a letter is included with number 0.
    """
    found: list[LetterPlace] = []
    for bucket in sorted(listed(mailbox, "new", sender)):
        if upto is not None and bucket > upto.bucket:
            break
        if not _BUCKET.fullmatch(bucket):
            found.append(LetterPlace(sender, "", bucket))
            continue
        names = sorted(listed(mailbox, "new", sender, bucket))
        if upto is not None and bucket == upto.bucket:
            names = [name for name in names if name <= upto.file]
        found += [place_at(sender, bucket, name) for name in names[: limit - len(found)]]
        if len(found) >= limit:
            break
    return found


def read_letter(mailbox: int, parts: Sequence[str], path: str) -> bytes:
    """Return a letter's bytes; raise if the file cannot be a letter, ``FileNotFoundError`` if it is gone."""
    with _below(mailbox, *parts[:-1]) as folder:
        descriptor = open_plain(folder, parts[-1], os.O_RDONLY, path)
    try:
        if os.fstat(descriptor).st_size > MAX_LETTER_BYTES:
            raise InputError("it is larger than a letter may be")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read(MAX_LETTER_BYTES + 1)
    finally:
        os.close(descriptor)


# -- archiving


def move_out(mailbox: int, place: LetterPlace, to: str) -> bool:
    """Move the file at a place from ``new`` to the folder ``to``; return whether it was still there."""
    parts = [part for part in ("new", place.folder, place.bucket) if part]
    try:
        with _below(mailbox, *parts) as source, _below(mailbox, to) as target:
            os.rename(place.file, moved_name(place), src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    return True


def remove_empty_folders(mailbox: int, sender: str, now: float) -> None:
    """Remove a sender's empty folders: older ones at once, the newest one after it was idle for a while."""
    buckets = sorted(listed(mailbox, "new", sender))
    with suppress(OSError), _below(mailbox, "new", sender) as folder:
        for bucket in buckets[:-1]:
            with suppress(OSError):
                os.rmdir(bucket, dir_fd=folder)
        last = os.stat(buckets[-1], dir_fd=folder, follow_symlinks=False) if buckets else os.fstat(folder)
        if now - last.st_mtime > _IDLE_SECONDS:
            if buckets:
                os.rmdir(buckets[-1], dir_fd=folder)
            with _below(mailbox, "new") as new:
                os.rmdir(sender, dir_fd=new)


def drop_oldest(mailbox: int, name: str, keep: int) -> None:
    """Delete all but the newest ``keep`` files of the folder ``cur`` or ``bad``."""
    names = sorted(listed(mailbox, name))
    with _below(mailbox, name) as folder:
        for one in names[: max(0, len(names) - keep)]:
            with suppress(OSError):
                os.unlink(one, dir_fd=folder)


def drop_orphans(mailbox: int, now: float) -> None:
    """Delete unfinished files in ``tmp`` that are older than an hour, left by senders that died."""
    names = listed(mailbox, "tmp")
    with _below(mailbox, "tmp") as folder:
        for name in names:
            with suppress(OSError):
                if now - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > _ORPHAN_SECONDS:
                    os.unlink(name, dir_fd=folder)


def socket_owner(home: str, path: str) -> tuple[str, str] | None:
    """Return the team and agent whose mailbox socket has this path; None if it is not such a path."""
    parts = Path(os.path.normpath(path)).parts
    above = Path(os.path.normpath(home)).parts
    if len(parts) != len(above) + 4 or parts[: len(above)] != above or parts[-1] != SOCKET or parts[-4] != "teams":
        return None
    return parts[-3], parts[-2]
