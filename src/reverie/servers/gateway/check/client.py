"""A client that keeps the exact bytes of a reply and the time of every piece."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

import msgspec

from ....values import field, object_of, record
from ..http1 import Head, head_of, response_body, unframed
from ..upstreams import Upstream

_READ_BYTES: Final = 65_536
_SECONDS: Final = 30.0


@record
class Message:
    """A request or a reply: its head, its body without framing, and the seconds until each part of it arrived."""

    head: Head
    body: bytes
    whole: bool = True
    times: list[tuple[float, int]] = field(default_factory=lambda: [])
    """Seconds since the request, and the bytes of the body that had come by then."""
    case: str = ""
    """The case that a request asks the server for."""

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of each event that is JSON."""
        found: list[dict[str, Any]] = []
        for line in self.body.split(b"\n"):
            if line.startswith(b"data:"):
                with suppress(msgspec.DecodeError):
                    found.append(msgspec.json.decode(line[5:]))
        return found

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object; empty if it is none."""
        try:
            return object_of(msgspec.json.decode(self.body))
        except msgspec.DecodeError:
            return {}

    def header(self, name: str) -> str:
        """Return the value of a header; empty without it."""
        return b",".join(self.head.values(name.encode())).decode("latin-1")


class Connection:
    """One request on its own connection to a proxy."""

    def __init__(self, proxy: Upstream) -> None:
        self._proxy = proxy

    async def __aenter__(self) -> Connection:
        tls = True if self._proxy.tls else None
        self._reader, self._writer = await asyncio.open_connection(
            self._proxy.host, self._proxy.port, ssl=tls, limit=2**25
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.transport.abort()

    async def ask(self, path: str, body: bytes, headers: dict[str, str], *, stop_after: int | None = None) -> Message:
        """Send a request and return its reply; ``stop_after`` leaves after so many bytes of the body."""
        async with asyncio.timeout(_SECONDS):
            return await self._ask(path, body, headers, stop_after)

    async def _ask(self, path: str, body: bytes, headers: dict[str, str], stop_after: int | None) -> Message:
        given = {"host": self._proxy.authority.decode(), "content-type": "application/json", **headers}
        lines = [f"POST {self._proxy.path}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        begun = time.monotonic()
        self._writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body)
        data, head = b"", None
        while head is None:
            piece = await self._reader.read(_READ_BYTES)
            if not piece:
                raise ConnectionError("the proxy closed the connection without a reply")
            data += piece
            head = head_of(data)
            if head is not None and 100 <= head.status < 200:
                data, head = data[head.size :], None
        framing, times = response_body(head, b"POST"), list[tuple[float, int]]()
        data = data[head.size :]
        taken = framing.take(data)
        times.append((time.monotonic() - begun, taken))
        while not framing.done and (stop_after is None or len(data) < stop_after):
            piece = await self._reader.read(_READ_BYTES)
            if not piece:
                break
            framing.take(piece)
            data += piece
            times.append((time.monotonic() - begun, len(data)))
        whole = framing.done or framing.until_close
        return Message(head, unframed(data, chunked=framing.chunked), whole, times)
