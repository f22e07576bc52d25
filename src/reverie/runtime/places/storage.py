"""The storage that the settings choose: files under the home directory, or a database."""

from __future__ import annotations

from ...errors import SettingsError
from ...extras import install_command
from ...ports import Storage
from ...settings import Settings
from ...storage.files import FileStorage


def storage_of(settings: Settings) -> Storage:
    """Open the configured storage; raise ``SettingsError`` if a database lacks its tenant or its extra."""
    if settings.database is None:
        return FileStorage(settings.home, durability=settings.durability)
    if not settings.tenant:
        raise SettingsError("a database needs a tenant: set REVERIE_TENANT, or tenant in config.toml")
    try:
        from ...storage.postgres.storage import PostgresStorage
    except ImportError as error:
        raise SettingsError(f"a database needs the extra postgres: {install_command('postgres')}") from error
    return PostgresStorage(settings.database, tenant=settings.tenant)
