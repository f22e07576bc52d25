"""The storage that the settings choose: files under the home directory, or a database."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...arguments import check_parts, check_type
from ...errors import SessionBusy, SettingsError, StorageError
from ...extras import needing
from ...keys import as_one_part
from ...ports import Lease, Storage
from ...settings import Settings, load_settings
from ...storage.encryption import EncryptedStorage, tenant_key
from ...storage.files import FileStorage
from ...values import replace
from .projects import canonical_root

if TYPE_CHECKING:
    from ...storage.postgres.storage import PostgresStorage

_PAUSE_SECONDS: Final = 0.02


def given_settings(settings: Settings | None, directory: Path, storage: Storage | None) -> Settings:
    """Return a caller's settings, else those of the directory's project; raise ``InputError`` for a wrong argument."""
    check_parts("storage", storage, ("lease", "load"), "FileStorage(...), InMemoryStorage() or another Storage")
    if settings is None:
        return load_settings(project=canonical_root(directory))
    check_type("settings", settings, Settings, "the result of load_settings()")
    return settings


def storage_of(settings: Settings) -> Storage:
    """Open the configured storage; raise ``SettingsError`` if a database lacks its tenant or its extra."""
    if settings.database is None:
        return FileStorage(settings.home, durability=settings.durability)
    if not settings.tenant:
        raise SettingsError("a database needs a tenant: set REVERIE_TENANT, or tenant in config.toml")
    with needing("postgres", "a database needs the extra postgres", SettingsError):
        from ...storage.blobs import ObjectBlobs
        from ...storage.postgres.storage import PostgresStorage
    blobs = ObjectBlobs(settings.blobs, settings.tenant) if settings.blobs is not None else None
    place = settings.encryption_key
    storage = PostgresStorage(settings.database, tenant=settings.tenant, blobs=blobs, refuses_encrypted=place is None)
    if place is None:
        return storage
    return EncryptedStorage(storage, tenant_key(place.replace("{tenant}", as_one_part(settings.tenant))))


def key_if_encrypted(settings: Settings) -> str | None:
    """Return the place of the tenant's key if the tenant's content in the database is encrypted, else None."""
    if settings.encryption_key is None:
        return None
    with closing(storage_of(replace(settings, encryption_key=None))) as storage:
        database = database_of(storage)
        return settings.encryption_key if database is not None and database.is_encrypted() else None


def patient_lease(storage: Storage, name: str, holder: str, patience_seconds: float) -> Lease:
    """Take a lease that others hold for moments only; raise ``StorageError`` if it is not free in time."""
    until = time.monotonic() + patience_seconds
    while True:
        try:
            return storage.lease(name, holder=holder)
        except SessionBusy as error:
            if time.monotonic() > until:
                told = f"{name} was in use for {patience_seconds:.0f} s, by {error.holder}: try again"
                raise StorageError(told, path=name) from error
        time.sleep(_PAUSE_SECONDS)


def database_of(storage: Storage) -> PostgresStorage | None:
    """Return the database beneath a storage, None if its files are on this machine."""
    inner = storage.inner if isinstance(storage, EncryptedStorage) else storage
    return inner if hasattr(inner, "records") else None  # pyright: ignore[reportReturnType] no import of psycopg for files
