"""Large contents outside the database, in any object store that a URL names, each under the hash of its bytes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ..digests import hex_of
from ..errors import SettingsError, StorageError
from ..extras import needing
from ..keys import as_one_part

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEMES: Final = ("s3", "gs", "az", "file", "memory")


class ObjectBlobs:
    """The blobs of one tenant in an object store, named by tenant and SHA-256.

    ``url`` is such as ``s3://bucket/folder``; ``?endpoint=http://host:port`` names a server other than Amazon's, and
    credentials come from the usual variables (``AWS_ACCESS_KEY_ID`` and so on).
    """

    def __init__(self, url: str, tenant: str) -> None:
        self._tenant = as_one_part(tenant)
        self._store, self.place = _opened(url)

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256 in hexadecimal; the same bytes are stored once."""
        import obstore

        digest = hex_of(data)
        with _explained("write", self.place, digest):
            obstore.put(self._store, self._name(digest), data)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes with this hash; raise ``StorageError`` if they are missing or were changed."""
        import obstore

        with _explained("read", self.place, digest):
            data = bytes(obstore.get(self._store, self._name(digest)).bytes())
        if hex_of(data) != digest:
            raise StorageError(f"the blob {digest} in {self.place} was changed; restore it from a backup", path=digest)
        return data

    def delete(self, digest: str) -> None:
        """Delete the bytes with this hash, if they exist."""
        import obstore

        try:
            with _explained("delete", self.place, digest):
                obstore.delete(self._store, self._name(digest))
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def digests(self) -> list[str]:
        """Return the hashes of all blobs of the tenant, sorted."""
        import obstore

        with _explained("list", self.place, self._tenant):
            listed: Any = obstore.list(self._store, prefix=self._tenant)  # pyright: ignore[reportUnknownMemberType] its type is known in part only
            found: list[str] = [row["path"] for rows in listed for row in rows]
        return sorted(path.rpartition("/")[2] for path in found)

    def _name(self, digest: str) -> str:
        return f"{self._tenant}/{digest[:2]}/{digest}"


@contextmanager
def _explained(verb: str, place: str, path: str) -> Generator[None]:
    """Turn an error of the object store into a ``StorageError`` that names the place."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StorageError(
            f"cannot {verb} {path} in {place}: {reason}; check the URL and the credentials", path=path
        ) from error


def _opened(url: str) -> tuple[ObjectStore, str]:
    """Return the store that a URL names, and the URL without its options for messages."""
    with needing("s3", "blobs outside the database need a package", SettingsError):
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise SettingsError(f"blobs cannot be stored at {url!r}; give a URL such as s3://bucket/folder")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    place = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    if str(options.get("endpoint", "")).startswith("http://"):
        options = {"config": options, "client_options": {"allow_http": True}}
    open_url: Any = from_url  # its overloads are one per provider
    try:
        return open_url(place, **options), place
    except (BaseError, ValueError, TypeError) as error:
        raise SettingsError(f"blobs cannot be stored at {place}: {error}") from error
