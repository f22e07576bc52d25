"""Storage in this process behaves as files do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
