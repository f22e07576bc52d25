"""The file primitives: whatever a path says, what is opened lies beneath the root."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie import paths
from reverie.errors import StorageError, UnsafePath
from reverie.testing.storage_conformance import BAD_KEYS

Opener = Callable[[int, str, int], int]
OPENERS: list[Opener] = [paths.open_by_walk]
if paths.resolver() == "openat2":
    OPENERS.append(paths.open_by_openat2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root with a file inside, and a secret beside it."""
    root = tmp_path / "root"
    (root / "folder" / "deep").mkdir(parents=True)
    (root / "folder" / "deep" / "file").write_bytes(b"inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"secret")
    (tmp_path / "outside" / "deep").mkdir()
    (tmp_path / "outside" / "deep" / "file").write_bytes(b"secret")
    return root


def read_by(opener: Opener, root: Path, path: str) -> bytes:
    """Open a path beneath the root and read it."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return paths.read_all(opener(folder, path, os.O_RDONLY))
    finally:
        os.close(folder)


def open_trusting(folder: int, path: str, flags: int) -> int:
    """Open a path as a careless program would: a known-bad twin."""
    return os.open(path, flags, dir_fd=folder)


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_a_bad_key_is_refused_and_the_message_says_what_to_do(key: str) -> None:
    with pytest.raises(UnsafePath, match=r"cannot be used: .*; (use|give|leave|shorten|normalise)") as refusal:
        paths.check_key(key)
    assert refusal.value.path == key
    assert str(refusal.value).isprintable()


@pytest.mark.requirement("S1")
def test_two_spellings_of_one_name_are_not_two_keys() -> None:
    composed = "caf\u00e9"
    assert paths.check_key(composed) == (composed,)
    with pytest.raises(UnsafePath, match="NFC"):
        paths.check_key(unicodedata.normalize("NFD", composed))


PIECES = [
    ".",
    "..",
    "%2e",
    "%2E",
    "%252e",
    "%2f",
    "/",
    "\\",
    "%5c",
    "\0",
    "%00",
    "a",
    "é",
    "\uff0e",
    "\u2025",
    "%",
    "%u002e",
    " ",
]


def escapes(key: str) -> bool:
    """Say, in another way than the code does, whether some reader might see more in a key than a plain path."""
    seen = {key}
    for _ in range(6):
        seen |= {unquote(one.replace("%u00", "%")) for one in seen} | {
            unicodedata.normalize("NFKC", one) for one in seen
        }
    return any(
        "\0" in one
        or "\\" in one
        or one.count("/") != key.count("/")
        or any(part.strip() in ("", ".", "..") for part in one.split("/"))
        for one in seen
    )


@pytest.mark.requirement("S1")
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
def test_no_key_that_is_accepted_means_more_in_any_encoding(key: str) -> None:
    try:
        parts = paths.check_key(key)
    except UnsafePath:
        return
    assert not escapes(key)
    assert "/".join(parts) == key


def test_a_check_that_looks_for_dots_alone_is_caught() -> None:
    accepted = [key for key in BAD_KEYS if ".." not in key.split("/") and not key.startswith("/")]
    assert any(escapes(key) for key in accepted)


@given(st.text(max_size=300))
def test_any_text_is_a_key_or_is_refused_as_unsafe(key: str) -> None:
    try:
        parts = paths.check_key(key)
    except UnsafePath:
        return
    assert parts
    assert all(0 < len(part.encode()) <= 255 for part in parts)


@pytest.mark.requirement("D4")
def test_the_way_folders_are_resolved_is_named() -> None:
    assert paths.resolver() in ("openat2", "walk")
    if sys.platform != "linux":
        assert paths.resolver() == "walk"


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("opener", OPENERS)
def test_a_path_beneath_the_root_is_opened(opener: Opener, root: Path) -> None:
    assert read_by(opener, root, "folder/deep/file") == b"inside"
    with pytest.raises(FileNotFoundError):
        read_by(opener, root, "folder/none/file")


ATTACKS: dict[str, Callable[[Path], str]] = {
    "up and out": lambda root: "../outside/file",
    "down, up and out": lambda root: "folder/../../outside/file",
    "absolute": lambda root: str(root.parent / "outside" / "file"),
    "a symlink to a folder": lambda root: _link(root / "way", "../outside") + "/file",
    "an absolute symlink": lambda root: _link(root / "way", str(root.parent / "outside")) + "/file",
    "a symlink deep inside": lambda root: "folder/" + _link(root / "folder" / "way", "../../outside") + "/file",
    "a symlink to a file": lambda root: _link(root / "way", "../outside/file"),
    "a symlink that stays inside": lambda root: _link(root / "way", "folder/deep/file"),
    "a symlink to itself": lambda root: _link(root / "way", "way"),
    "a magic link": lambda root: _link(root / "way", "/proc/self/root") + str(root.parent / "outside" / "file"),
}


def _link(link: Path, target: str) -> str:
    link.symlink_to(target)
    return link.name


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("opener", OPENERS)
def test_no_path_leads_out_of_the_root(opener: Opener, root: Path, attack: str) -> None:
    path = ATTACKS[attack](root)
    with pytest.raises(OSError, match=r"symbolic link|cross-device") as refusal:
        read_by(opener, root, path)
    assert refusal.value.errno in (errno.ELOOP, errno.EXDEV)
    assert isinstance(paths.explain(refusal.value, "read", path), UnsafePath)


@pytest.mark.parametrize("attack", ["up and out", "a symlink to a folder", "absolute"])
def test_an_opener_that_trusts_the_path_is_caught(root: Path, attack: str) -> None:
    assert read_by(open_trusting, root, ATTACKS[attack](root)) == b"secret"


def open_while_swapped(opener: Opener, root: Path, attempts: int) -> set[bytes | None]:
    """Open a file again and again while its folder is swapped for a symlink that leads outside."""
    stop = threading.Event()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        folder, aside = root / "folder", root / "aside"
        while not stop.is_set():
            folder.rename(aside)
            folder.symlink_to("../outside")
            folder.unlink()
            aside.rename(folder)
            swaps += 1

    swapping = threading.Thread(target=swap)
    swapping.start()
    found: set[bytes | None] = set()
    try:
        for attempt in range(100 * attempts):
            try:
                found.add(read_by(opener, root, "folder/deep/file"))
            except OSError:
                found.add(None)
            if attempt >= attempts and (len(found) > 1 or b"secret" in found) and swaps > 10:
                break
    finally:
        stop.set()
        swapping.join(60)
    return found


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("opener", OPENERS)
def test_a_folder_swapped_for_a_symlink_while_it_is_opened_is_never_followed(
    opener: Opener, root: Path, torture: bool
) -> None:
    found = open_while_swapped(opener, root, 100_000 if torture else 2_000)
    assert found == {b"inside", None}


def test_an_opener_that_follows_a_swapped_folder_is_caught(root: Path) -> None:
    rounds = (open_while_swapped(open_trusting, root, 2_000) for _ in range(50))
    assert any(b"secret" in found for found in rounds)


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    paths.replace_file(root, "folder/file", b"one")
    paths.replace_file(root, "folder/file", b"two" * 100_000)
    file = tmp_path / "root" / "folder" / "file"
    assert file.read_bytes() == b"two" * 100_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_a_reader_never_sees_half_a_replaced_file(tmp_path: Path) -> None:
    root = str(tmp_path)
    paths.replace_file(root, "file", b"0" * 50_000)
    stop = threading.Event()

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            paths.replace_file(root, "file", b"%d" % (number % 10) * 50_000)

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        seen = {(len(data), len(set(data))) for data in ((tmp_path / "file").read_bytes() for _ in range(300))}
    finally:
        stop.set()
        replacing.join(60)
    assert seen == {(50_000, 1)}


@pytest.mark.requirement("K2")
@given(
    torn=st.binary(max_size=30),
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b" ")), min_size=1),
)
def test_whatever_a_file_ends_in_each_appended_line_is_a_line(
    tmp_path_factory: pytest.TempPathFactory, torn: bytes, lines: list[bytes]
) -> None:
    file = tmp_path_factory.mktemp("append") / "log"
    file.write_bytes(torn)
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
    try:
        for line in lines:
            size = paths.append_line(descriptor, line, path=str(file))
            assert size == file.stat().st_size
    finally:
        os.close(descriptor)
    data = file.read_bytes()
    assert data.startswith(torn)
    assert data.split(b"\n")[-len(lines) - 1 :] == [*lines, b""]


def test_an_append_that_cannot_be_names_the_path_and_the_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_RDONLY | os.O_CREAT)
    with pytest.raises(StorageError, match=r"cannot append to .*log.*EBADF") as failure:
        paths.append_line(descriptor, b"x", path=str(tmp_path / "log"))
    assert failure.value.errno == errno.EBADF
    assert failure.value.path == str(tmp_path / "log")
    os.close(descriptor)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOTTY])
def test_every_error_says_where_what_and_what_to_do(number: int) -> None:
    error = paths.explain(OSError(number, os.strerror(number)), "write", "/some/where")
    assert str(error).startswith(f"cannot write /some/where: {os.strerror(number)} ({errno.errorcode[number]}); ")
    assert (error.path, error.errno) == ("/some/where", number)
    assert type(error) is StorageError
