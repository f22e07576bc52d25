"""Storage in PostgreSQL behaves as files do, keeps tenants apart and refuses stale writers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from reverie.testing.storage_conformance import StorageConformance

pytest.importorskip("psycopg")
from reverie.storage.postgres.storage import PostgresStorage

pytestmark = pytest.mark.slow


@pytest.mark.requirement("X1")
class TestPostgresStorage(StorageConformance):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def open_storage(self, folder: Path) -> PostgresStorage:
        return PostgresStorage(self.url, tenant=hashlib.sha256(str(folder).encode()).hexdigest()[:16])
