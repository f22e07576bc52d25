"""Encrypted storage behaves as the storage beneath it, and nobody reads it without its keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import SettingsError, StorageError, UnsafePath
from reverie.storage.encryption import EncryptedStorage, tenant_key
from reverie.storage.files import FileStorage
from reverie.storage.in_memory import InMemoryStorage
from reverie.testing.storage_conformance import StorageConformance

TENANT = bytes(range(32))
LOG = "projects/app/one.jsonl"


@pytest.mark.requirement("X5")
class TestEncryptedFiles(StorageConformance):
    searchable = False

    def open_storage(self, folder: Path) -> EncryptedStorage:
        return EncryptedStorage(FileStorage(folder), TENANT)


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_no_file_has_a_word_of_the_conversation(tmp_path: Path) -> None:
    storage, plain = EncryptedStorage(FileStorage(tmp_path / "a"), TENANT), FileStorage(tmp_path / "b")
    for one in (storage, plain):
        one.append(LOG, b'{"text": "the pangolin sleeps"}')
        one.write("projects/app/one/tool-results/r.txt", b"a pangolin result")
        one.close()
    assert b"pangolin" not in all_bytes(tmp_path / "a")
    assert b"pangolin" in all_bytes(tmp_path / "b")  # the search finds it where nothing is encrypted


@given(st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=12), st.data())
def test_every_part_of_a_log_equals_that_part_of_a_plain_one(lines: list[bytes], data: st.DataObject) -> None:
    inner = InMemoryStorage()
    storage, plain = EncryptedStorage(inner, TENANT), InMemoryStorage()
    size = 0
    for line in lines:
        storage.append(LOG, line, expect=size)
        plain.append(LOG, line, expect=size)
        size += len(line) + 1
        start = data.draw(st.integers(0, size + 2))
        length = data.draw(st.integers(-1, size + 2))
        for reader in (storage, EncryptedStorage(inner, TENANT)):
            assert reader.load(LOG, start, length) == plain.load(LOG, start, length)


def test_erasing_the_key_of_one_session_makes_that_one_unreadable_in_every_copy() -> None:
    inner = InMemoryStorage()
    storage = EncryptedStorage(inner, TENANT)
    storage.append(LOG, b"secret")
    storage.append("projects/app/two.jsonl", b"other")
    storage.forget_key(LOG)
    for reader in (storage, EncryptedStorage(inner, TENANT)):
        with pytest.raises(StorageError, match="erased"):
            reader.load(LOG)
        assert reader.load("projects/app/two.jsonl") == b"other\n"


def test_another_tenants_key_reads_nothing_and_writes_nothing() -> None:
    inner = InMemoryStorage()
    EncryptedStorage(inner, TENANT).append(LOG, b"secret")
    before = inner.load(LOG)
    stranger = EncryptedStorage(inner, os.urandom(32))
    for act in (lambda: stranger.load(LOG), lambda: stranger.append(LOG, b"mine")):
        with pytest.raises(StorageError, match="cannot be unwrapped"):
            act()
    assert inner.load(LOG) == before


def test_a_line_that_was_changed_or_moved_is_not_taken_for_another_one() -> None:
    inner = InMemoryStorage()
    storage = EncryptedStorage(inner, TENANT)
    storage.append(LOG, b"pay 1")
    storage.append(LOG, b"pay 2")
    storage.append("projects/app/one/other.jsonl", b"pay 9")
    moved = inner.load("projects/app/one/other.jsonl")
    stored = inner.load(LOG)
    assert moved is not None
    assert stored is not None
    inner.write(LOG, stored.split(b"\n")[0] + b"\n" + moved)
    loaded = EncryptedStorage(inner, TENANT).load(LOG)
    assert loaded is not None
    assert loaded.startswith(b"pay 1\n")
    assert b"pay 9" not in loaded
    assert loaded.count(b"\n") == 2  # the moved line stands as a damaged one


def test_the_folder_of_keys_cannot_be_named() -> None:
    storage = EncryptedStorage(InMemoryStorage(), TENANT)
    with pytest.raises(UnsafePath, match="keys of sessions"):
        storage.read(".keys/0123")


def test_a_tenants_key_is_32_bytes_in_base64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    monkeypatch.setenv("ACME_KEY", text)
    (tmp_path / "key").write_text(f" {text}\n")
    assert tenant_key("env:ACME_KEY") == tenant_key(f"file:{tmp_path / 'key'}") == TENANT
    monkeypatch.setenv("ACME_KEY", "AAEC")
    for wrong in ("env:ACME_KEY", "env:NONE", f"file:{tmp_path / 'none'}", f"file:{tmp_path}"):
        with pytest.raises(SettingsError, match="make one with"):
            tenant_key(wrong)
