"""Only the user grants trust, for one directory, and it does not spread."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reverie.cli.main import run
from reverie.cli.setup.trust import command
from reverie.errors import InputError, StorageError
from reverie.runtime.places.directory_file import birth_ns
from reverie.runtime.places.projects import canonical_root
from reverie.runtime.places.trust import TrustList
from reverie.values import replace


def repository(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def trust(home: Path) -> TrustList:
    return TrustList.open(home)


@pytest.mark.requirement("S2")
def test_nothing_is_trusted_until_the_user_says_so(trust: TrustList, tmp_path: Path) -> None:
    folder = repository(tmp_path / "a")
    (folder / "trust.toml").write_text(f'[[trusted]]\npath = "{folder}"\ndevice = 0\ninode = 0\n')
    assert not trust.is_trusted(folder)
    trust.trust(folder)
    assert trust.is_trusted(folder)
    assert trust.forget(folder)
    assert not trust.forget(folder)
    assert not trust.is_trusted(folder)


@pytest.mark.requirement("S2")
def test_trust_covers_the_repository_and_neither_its_parent_nor_what_is_nested(
    trust: TrustList, tmp_path: Path
) -> None:
    outer = repository(tmp_path / "outer")
    inner = repository(outer / "vendor" / "inner")
    (outer / "src").mkdir()
    trust.trust(outer / "src")
    assert trust.is_trusted(outer)
    assert trust.is_trusted(outer / "src")
    assert not trust.is_trusted(tmp_path)
    assert not trust.is_trusted(inner)
    assert not trust.is_trusted(repository(tmp_path / "outer-2"))


def test_a_plain_directory_covers_what_is_below_but_no_repository(trust: TrustList, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    trust.trust(tmp_path / "a")
    assert trust.is_trusted(tmp_path / "a" / "b")
    assert not trust.is_trusted(repository(tmp_path / "a" / "c"))


def test_the_home_covers_nothing_below_it(trust: TrustList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "downloads").mkdir()
    trust.trust(tmp_path)
    assert trust.is_trusted(tmp_path)
    assert not trust.is_trusted(tmp_path / "downloads")


@pytest.mark.requirement("S2")
def test_another_directory_in_the_same_place_is_a_stranger(trust: TrustList, tmp_path: Path) -> None:
    folder = repository(tmp_path / "a")
    trust.trust(folder)
    folder.rename(tmp_path / "moved")
    assert not trust.is_trusted(tmp_path / "moved")
    repository(tmp_path / "a")
    assert not trust.is_trusted(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    trust.trust(tmp_path / "moved")
    assert trust.is_trusted(tmp_path / "link")


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("root", ["", "/dev/shm"])
def test_a_directory_that_got_the_inode_number_of_a_trusted_one_is_not_trusted(
    trust: TrustList, home: Path, tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Remove and make it again until the number is used again, as ext4 does at once; also for older entries."""
    base = Path(tempfile.mkdtemp(dir=root)) if os.path.isdir(root or "/") and root else tmp_path
    try:
        folder = base / "a"
        folder.mkdir()
        if not birth_ns(str(folder)):
            pytest.skip("this file system has no birth time")
        assert run([str(folder), "--yes"], commands=command) == 0
        (before,) = trust.list()
        assert before.is_same_directory()
        old = home / "trust.toml"
        for _ in range(50):
            shutil.rmtree(folder)
            folder.mkdir()
            assert not trust.is_trusted(folder)
            if folder.stat().st_ino == before.inode:
                break
        assert run(["--list"], commands=command) == 0
        assert "not trusted: the directory was replaced" in capsys.readouterr().out
        now = folder.stat()
        assert replace(before, inode=now.st_ino, born_ns=birth_ns(str(folder))).is_same_directory()
        assert not replace(before, inode=now.st_ino).is_same_directory(), "the number alone is not enough"
        earlier, later = "2026-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"
        assert not replace(before, inode=now.st_ino, born_ns=None, since=earlier).is_same_directory()
        assert replace(before, inode=now.st_ino, born_ns=None, since=later).is_same_directory()
        assert "born_ns = " in old.read_text()
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.requirement("S2")
def test_a_forged_worktree_borrows_no_trust(trust: TrustList, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(main), *arguments], check=True, capture_output=True, timeout=60)

    main = tmp_path / "main"
    main.mkdir()
    git("init", "-q")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    trust.trust(main)
    assert trust.is_trusted(tmp_path / "tree")
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / ".git").write_text((tmp_path / "tree" / ".git").read_text())
    assert canonical_root(forged) == forged
    assert not trust.is_trusted(forged)


def test_the_list_is_private_and_whole(trust: TrustList, home: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        trust.trust(tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((home / "trust.toml").stat().st_mode) == 0o600
    odd = tmp_path / 'a "b" \\ ü \x7f'
    odd.mkdir()
    trust.trust(odd)
    assert [entry.path for entry in trust.list()] == [str(tmp_path), str(odd)]


def test_a_list_that_others_could_have_written_is_refused(trust: TrustList, home: Path, tmp_path: Path) -> None:
    trust.trust(tmp_path)
    (home / "trust.toml").chmod(0o666)
    with pytest.raises(StorageError, match="chmod 600"):
        trust.is_trusted(tmp_path)
    (home / "trust.toml").chmod(0o600)
    (home / "trust.toml").write_text("[[trusted]]\npath = 3")
    with pytest.raises(StorageError, match="damaged"):
        trust.is_trusted(tmp_path)


def test_what_is_not_a_directory_cannot_be_trusted(trust: TrustList, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "absent"):
        with pytest.raises(InputError, match="cannot be trusted"):
            trust.trust(tmp_path / name)


def test_two_processes_lose_nothing_of_each_other(home: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from reverie.runtime.places.trust import TrustList\n"
        "for name in sys.argv[2:]: TrustList.open(Path(sys.argv[1])).trust(Path(name))"
    )
    names = [tmp_path / str(number) for number in range(20)]
    for name in names:
        name.mkdir()
    halves = [names[::2], names[1::2]]
    running = [subprocess.Popen([sys.executable, "-c", code, str(home), *map(str, half)]) for half in halves]
    assert [each.wait(timeout=60) for each in running] == [0, 0]
    assert {entry.path for entry in TrustList.open(home).list()} == set(map(str, names))


def test_the_command_trusts_lists_and_removes(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "a")
    monkeypatch.chdir(folder)
    said: list[str] = []
    for arguments in (["--yes"], [], ["--list"], ["--remove"], ["--remove", str(folder)], ["--list"]):
        assert run(arguments, commands=command) == 0
        said.append(capsys.readouterr().out)
    assert said[0].endswith(f"{folder} is now trusted; 'reverie trust --remove' takes it back\n")
    assert "already" in said[1]
    assert str(folder) in said[2]
    assert "no longer trusted" in said[3]
    assert "was not trusted" in said[4]
    assert "no trusted directories" in said[5]
    assert run(["--list", "--remove"], commands=command) == 2
    assert run(["--yes", "--json"], commands=command) == 0
    assert '"changed": true' in capsys.readouterr().out
