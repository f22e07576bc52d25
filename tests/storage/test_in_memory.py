"""Storage in this process behaves as files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.ports import Storage
from reverie.storage.in_memory import InMemoryStorage
from reverie.testing.storage_conformance import StorageConformance


@pytest.mark.requirement("K2", "K13", "S1")
class TestInMemoryStorage(StorageConformance):
    shared = False

    def open_storage(self, folder: Path) -> InMemoryStorage:
        return InMemoryStorage()


def test_an_append_costs_the_same_however_long_the_log(is_linear: Callable[..., bool]) -> None:
    def fill(lines: int) -> None:
        storage = InMemoryStorage()
        for _ in range(lines):
            storage.append("log", b"x" * 500)
        assert len(storage.load("log") or b"") == 501 * lines

    assert is_linear(fill, 4_000)


def test_the_suite_detects_a_storage_that_hears_a_holder_who_lost_the_lease(tmp_path: Path) -> None:
    class Unfenced(TestInMemoryStorage):
        def take_over(self, storage: Storage, folder: Path, name: str) -> Storage:
            return storage

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        Unfenced().test_a_holder_who_lost_the_lease_changes_nothing(InMemoryStorage(), tmp_path)


def test_the_suite_detects_a_search_that_still_finds_a_deleted_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InMemoryStorage, "delete", lambda *_: True)
    with pytest.raises(AssertionError):
        TestInMemoryStorage().test_messages_are_found_by_their_words_until_their_log_is_deleted(
            InMemoryStorage(), tmp_path
        )
