"""Fixtures for servers: a running HTTP server, a home directory with content, and the official client."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from log_script import Script, call, text
from reverie import FileStorage, Library
from reverie.conversation.decisions import Cause, Compacted
from reverie.layers.l1_offload import OffloadPolicy, ResultStore, offload_result
from reverie.runtime.places.projects import project_slug

REVERIE = str(Path(sys.executable).with_name("reverie"))
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Running:
    """A server process: where it listens and what it knows."""

    url: str
    port: int
    token: str
    home: Path
    project: Path
    process: subprocess.Popen[str]


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "REVERIE_HOME": str(home), "PYTHONWARNINGS": "default"}


@contextmanager
def serving(home: Path, project: Path, *arguments: str) -> Iterator[Running]:
    """Run ``reverie mcp --http`` in a process of its own and stop it at the end."""
    command = [REVERIE, "mcp", "--http", "--json", *arguments]
    process = subprocess.Popen(
        command, cwd=project, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.communicate(timeout=WAIT_SECONDS)[1]
        where = json.loads(first)
        token = Path(where["token_file"]).read_text().strip()
        yield Running(where["url"], int(where["url"].split(":")[2].split("/")[0]), token, home, project, process)
    finally:
        ended_by_itself = process.poll() is not None
        process.send_signal(signal.SIGINT)
        try:
            rest, complaints = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
            process.wait()
    assert not ended_by_itself
    assert (process.returncode, rest, complaints) == (130, "", ""), "a server that works has nothing to complain about"
    assert token not in first, "the token is never printed"


@pytest.fixture(scope="session")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve one directory over HTTP; each test works in a project of its own beneath it."""
    with serving(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")) as running:
        yield running


@pytest.fixture
def alone() -> Any:
    """Return the way to run a server that no other test uses."""
    return serving


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what the SDK leaves of the processes it has ended, so that no later test is blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def stock() -> Callable[[Path, Path], str]:
    """Return a function that files a session under a project: a stored result, a cut, words to search for."""

    def filed(home: Path, project: Path, *, name: str = "fence-1", words: str = "Please mend the crooked fence") -> str:
        storage, script = FileStorage(home), Script()
        folder = f"projects/{project_slug(project)}/{name}"
        script.user(words)
        script.reply(call("toolu_big", "Bash"), call("toolu_small", "Bash"))
        output = "".join(f"line {number}\n" for number in range(1, 10_001))
        made = offload_result(ResultStore(storage, folder), "Bash", "toolu_big", output, OffloadPolicy(), script.view)
        for decision in made.before:
            script.decide(decision)
        script.result("toolu_big", made.content)
        script.result("toolu_small", "short and sweet")
        last = script.reply(text("The fence stands."))
        cut = script.decide(Compacted(Cause("compact", "full"), "auto", "full", "They mended it.", 10, last, None))
        Library(storage).store(f"{folder}.jsonl", script.entries)
        storage.close()
        return cut

    return filed


Connect = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def over_http() -> Connect:
    """Return a function that opens the official client on a server over HTTP."""
    from contextlib import asynccontextmanager

    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def connect(running: Running, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {running.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as web,
            Client(streamable_http_client(running.url, http_client=web), **options) as client,
        ):
            yield client

    return connect


@pytest.fixture
def over_stdio() -> Connect:
    """Return a function that starts ``reverie mcp`` and opens the official client on it."""
    from contextlib import asynccontextmanager

    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    @asynccontextmanager
    async def connect(home: Path, project: Path, *arguments: str, **options: Any) -> Any:
        parameters = StdioServerParameters(
            command=REVERIE, args=["mcp", *arguments], env=environment(home), cwd=str(project)
        )
        async with Client(stdio_client(parameters), **options) as client:
            yield client

    return connect
