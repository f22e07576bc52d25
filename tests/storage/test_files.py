"""Storage in a directory: the port's promises, and failures that only files have."""

from __future__ import annotations

import gc
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.errors import SessionBusy, StorageError, UnsafePath
from reverie.ports import Lease, Storage
from reverie.storage.files import FileStorage
from reverie.storage.log_files import Durability
from reverie.testing.storage_conformance import StorageConformance


@pytest.mark.requirement("K2", "K13", "S1")
class TestFileStorage(StorageConformance):
    def open_storage(self, folder: Path) -> FileStorage:
        return FileStorage(folder)


class TestFileStorageThatMayLoseASecond(StorageConformance):
    def open_storage(self, folder: Path) -> FileStorage:
        return FileStorage(folder, durability="second")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[FileStorage]:
    storage = FileStorage(tmp_path / "store")
    yield storage
    storage.close()


def fill(storage: Storage) -> Lease:
    """Make every kind of file there is."""
    storage.write("documents/deep/d.md", b"x")
    storage.append("logs/deep/l.jsonl", b"{}")
    return storage.lease("session")


def modes(root: Path) -> set[tuple[str, int]]:
    found = [root, *root.rglob("*")]
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in found}


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_folders_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        storage = FileStorage(tmp_path / "made" / "store")
        fill(storage)
        storage.append("logs/deep/l.jsonl", b"{}")
        storage.close()
    finally:
        os.umask(before)
    assert modes(tmp_path / "made") == {("folder", 0o700), ("file", 0o600)}


@pytest.mark.requirement("D1")
def test_a_log_others_could_read_is_made_private_when_it_is_opened(storage: FileStorage) -> None:
    storage.root.mkdir()
    log = storage.root / "log"
    log.write_bytes(b"")
    log.chmod(0o644)
    storage.append("log", b"{}")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_reading_makes_nothing(storage: FileStorage) -> None:
    assert storage.read("a/b") is None
    assert storage.holder("a") is None
    assert list(storage.list()) == []
    assert storage.delete("a/b") is False
    assert not storage.root.exists()


@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "pipe", "hard link", "directory", "socket"])
@pytest.mark.requirement("S1")
def test_what_is_not_a_plain_file_is_refused_and_left_alone(storage: FileStorage, tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    storage.write("other", b"")
    trap = storage.root / "trap"
    if kind == "symlink":
        trap.symlink_to(outside)
    elif kind == "dangling symlink":
        trap.symlink_to(tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(trap)
    elif kind == "hard link":
        os.link(outside, trap)
    elif kind == "socket":
        os.mknod(trap, stat.S_IFSOCK | 0o600)
    else:
        trap.mkdir()
    acts = (
        lambda: storage.read("trap"),
        lambda: storage.load("trap"),
        lambda: storage.write("trap", b"x"),
        lambda: storage.append("trap", b"x"),
        lambda: storage.delete("trap"),
    )
    for act in acts:
        with pytest.raises(UnsafePath) as refusal:
            act()
        assert str(trap) in str(refusal.value)
    assert list(storage.list()) == ["other"]
    assert outside.read_bytes() == b"secret"
    assert not (tmp_path / "nowhere").exists()
    assert os.path.lexists(trap)


@pytest.mark.requirement("S1")
def test_a_folder_that_is_a_symlink_is_refused(storage: FileStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    storage.write("inside/file", b"")
    (storage.root / "link").symlink_to(outside)
    (storage.root / "near").symlink_to(storage.root / "inside")
    for folder in ("link", "near", "inside/../link"):
        for act in (
            storage.read,
            storage.delete,
            lambda key: storage.write(key, b"x"),
            lambda key: storage.append(key, b"x"),
        ):
            for name in ("file", "new", "new/deep"):
                with pytest.raises(UnsafePath):
                    act(f"{folder}/{name}")
    assert list(storage.list()) == ["inside/file"]
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"secret"


@pytest.mark.requirement("S1")
def test_a_log_swapped_for_a_trap_while_it_is_open_is_not_followed(storage: FileStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    storage.append("log", b"one")
    (storage.root / "log").rename(tmp_path / "moved")
    (storage.root / "log").symlink_to(outside)
    with pytest.raises(UnsafePath):
        storage.append("log", b"two")
    (storage.root / "log").unlink()
    os.link(tmp_path / "moved", storage.root / "log")
    with pytest.raises(UnsafePath):
        storage.append("log", b"two")
    assert outside.read_bytes() == b""
    assert (tmp_path / "moved").read_bytes() == b"one\n"


@pytest.mark.requirement("K2")
def test_a_log_deleted_or_replaced_underneath_is_opened_anew(storage: FileStorage) -> None:
    log = storage.root / "folder" / "log"
    storage.append("folder/log", b"one")
    log.unlink()
    storage.append("folder/log", b"two")
    assert log.read_bytes() == b"two\n"
    log.with_name("new").write_bytes(b"edited, with no end")
    log.with_name("new").rename(log)
    storage.append("folder/log", b"three")
    assert log.read_bytes() == b"edited, with no end\nthree\n"
    log.parent.rename(storage.root / "away")
    storage.append("folder/log", b"four")
    assert log.read_bytes() == b"four\n"


def test_a_log_cut_short_by_hand_goes_on_with_a_whole_line(storage: FileStorage) -> None:
    storage.append("log", b"one")
    storage.append("log", b"two")
    os.truncate(storage.root / "log", 5)
    storage.append("log", b"three")
    assert storage.load("log") == b"one\nt\nthree\n"


@pytest.mark.parametrize("durability", ["always", "second"])
def test_more_logs_than_descriptors_are_kept_open(tmp_path: Path, durability: Durability) -> None:
    storage = FileStorage(tmp_path, durability)
    before = len(os.listdir("/dev/fd"))
    for turn in range(3):
        for number in range(150):
            storage.append(f"log{number}", b"%d" % turn)
    assert len(os.listdir("/dev/fd")) - before <= 65  # 64 logs, and a duplicate of the one that is being flushed
    storage.close()
    assert len(os.listdir("/dev/fd")) == before
    assert all(storage.load(f"log{number}") == b"0\n1\n2\n" for number in range(150))


def test_a_storage_that_is_forgotten_lets_its_descriptors_go(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for durability in ("always", "second"):
        storage = FileStorage(tmp_path, durability)
        storage.append("log", b"line")
        del storage
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "reverie-flush"]


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="always"):
        FileStorage(tmp_path, "sometimes")  # type: ignore[arg-type]


def test_a_killed_writers_leavings_are_hidden_and_cleared_away_later(storage: FileStorage) -> None:
    storage.write("folder/d", b"")
    old, young = (storage.root / "folder" / f".reverie-tmp-{name}" for name in ("old", "young"))
    for leaving in (old, young):
        leaving.write_bytes(b"half")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    assert list(storage.list()) == ["folder/d"]
    FileStorage(storage.root).write("folder/e", b"")
    assert not old.exists()
    assert young.exists()


def test_names_that_are_no_keys_are_not_listed(storage: FileStorage) -> None:
    storage.write("good", b"")
    for name in (b"\xff\xfe", "cafe\u0301".encode(), b"new\nline", b"back\\slash"):
        with open(os.path.join(os.fsencode(storage.root), name), "wb"):
            pass
    assert list(storage.list()) == ["good"]


def test_a_failed_write_leaves_no_temporary_file(storage: FileStorage) -> None:
    storage.write("a", b"one")
    with pytest.raises(StorageError):
        storage.write("a/b", b"two")
    with pytest.raises(StorageError):
        storage.write("a", b"two", create=True)
    assert [path.name for path in storage.root.iterdir() if "tmp" in path.name] == []


@pytest.mark.requirement("K13")
def test_who_holds_a_lease_can_be_asked_of_a_store_one_may_only_read(storage: FileStorage, tmp_path: Path) -> None:
    lease = fill(storage)
    for path in (storage.root, *storage.root.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        reader = FileStorage(storage.root)
        assert reader.holder("session") == f"process {os.getpid()}"
        with pytest.raises((SessionBusy, StorageError)):
            reader.lease("session")
    finally:
        for path in (storage.root, *sorted(storage.root.rglob("*"))):
            path.chmod(0o700 if path.is_dir() else 0o600)
        lease.release()
