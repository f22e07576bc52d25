"""Storage in this process behaves as files do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reverie.storage.in_memory import InMemoryStorage
from reverie.testing.storage_conformance import StorageConformance


@pytest.mark.requirement("K2", "K13", "S1")
class TestInMemoryStorage(StorageConformance):
    shared = False

    def open_storage(self, folder: Path) -> InMemoryStorage:
        return InMemoryStorage()


def test_an_append_costs_the_same_however_long_the_log() -> None:
    storage = InMemoryStorage()
    line = b"x" * 500

    def seconds_of_appends(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            storage.append("log", line)
        return time.perf_counter() - start

    seconds_of_appends(100)
    early = min(seconds_of_appends(2_000) for _ in range(5))
    seconds_of_appends(100_000)
    late = min(seconds_of_appends(2_000) for _ in range(5))
    assert late < 10 * early
    assert len(storage.load("log") or b"") == 501 * 120_100
