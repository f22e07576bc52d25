"""For the adapters: a bounded event loop, and a loopback server that answers with any bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

SECONDS = 60.0


class Canned:
    """A server that answers each request with the next of its answers: status, headers, body, and where it breaks."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.closed = asyncio.Event()
        """Set when the other side closed a connection before the answer was over."""
        self._answers = iter(answers)
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.paths.append(head.split(" ")[1])
            length = next((int(line[15:]) for line in head.lower().splitlines() if line[:15] == "content-length:"), 0)
            self.requests.append(json.loads(await reader.readexactly(length)) if length else {})
            answer = next(self._answers)
            body: bytes = answer.get("body", b"")
            headers = {"content-type": "text/event-stream", "connection": "close", **answer.get("headers", {})}
            lines = [f"HTTP/1.1 {answer.get('status', 200)} X", *(f"{key}: {value}" for key, value in headers.items())]
            # A length that is not kept tells the reader that the answer broke off.
            writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode())
            writer.write(body[: answer.get("cut", len(body))])
            await writer.drain()
            if answer.get("hang"):
                await reader.read()
                self.closed.set()
        finally:
            writer.close()


@asynccontextmanager
async def _serving(answers: list[dict[str, Any]]) -> AsyncIterator[Canned]:
    canned = Canned(answers)
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0)
    canned.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield canned
    finally:
        server.close()


@pytest.fixture
def serving() -> Any:
    """Return what opens a canned server: ``async with serving([{"body": b"..."}]) as server``."""
    return _serving


@pytest.fixture(scope="session")
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return what runs a coroutine to its end, within a minute."""

    def run_bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine, SECONDS)

        return asyncio.run(bounded())

    return run_bounded


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's keys and addresses out of every test."""
    for provider in ("ANTHROPIC", "OPENAI"):
        for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "CUSTOM_HEADERS"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
