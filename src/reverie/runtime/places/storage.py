"""The storage that the settings choose: files under the home directory, or a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import SettingsError
from ...extras import install_command
from ...ports import Storage
from ...settings import Settings
from ...storage.encryption import EncryptedStorage, tenant_key
from ...storage.files import FileStorage

if TYPE_CHECKING:
    from ...storage.postgres.storage import PostgresStorage


def storage_of(settings: Settings) -> Storage:
    """Open the configured storage; raise ``SettingsError`` if a database lacks its tenant or its extra."""
    if settings.database is None:
        return FileStorage(settings.home, durability=settings.durability)
    if not settings.tenant:
        raise SettingsError("a database needs a tenant: set REVERIE_TENANT, or tenant in config.toml")
    try:
        from ...storage.blobs import ObjectBlobs
        from ...storage.postgres.storage import PostgresStorage
    except ImportError as error:
        raise SettingsError(f"a database needs the extra postgres: {install_command('postgres')}") from error
    blobs = ObjectBlobs(settings.blobs, settings.tenant) if settings.blobs is not None else None
    storage = PostgresStorage(settings.database, tenant=settings.tenant, blobs=blobs)
    return (
        storage if settings.encryption_key is None else EncryptedStorage(storage, tenant_key(settings.encryption_key))
    )


def database_of(storage: Storage) -> PostgresStorage | None:
    """Return the database beneath a storage, None if its files are on this machine."""
    inner = storage.inner if isinstance(storage, EncryptedStorage) else storage
    return inner if hasattr(inner, "records") else None  # pyright: ignore[reportReturnType] no import of psycopg for files
