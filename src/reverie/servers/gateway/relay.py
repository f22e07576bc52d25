"""Pass requests to their servers and replies back, byte by byte as they come.

Each connection of a client has one connection to a server, and both end together. So keep-alive, time limits and
retries stay between client and server as without the gateway, and a client that goes takes its request
along. Nothing waits: bytes go on as soon as they are here, and flow control of one side holds back the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol, cast

import msgspec

from .exchange import Exchange, api_of
from .http1 import BrokenMessage, Bytes, Head, MessageBody, Slabs, head_of, request_body, response_body
from .upstreams import Entrance, Routes, Upstream, forwarded

_HIGH_WATER_BYTES: Final = 262_144
_MOST_UNSENT_BYTES: Final = 33_554_432
"""The largest request that providers take: one that is slow to send is read to its end, to see its client go."""
_HANG_UP_SECONDS: Final = 0.25
_HANG_UP: Final = cast(int, getattr(select, "POLLRDHUP", select.POLLHUP)) | select.POLLHUP | select.POLLERR
_RESET: Final = struct.pack("ii", 1, 0)
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    502: "api_error",
}

Finished = Callable[[Exchange], None]


class Rewriter(Protocol):
    """Changes the body of a request before it is sent, and follows its reply."""

    async def request(self, exchange: Exchange) -> bytes | None:
        """Return the content to send in place of the request's own; None if nothing changes. Never raise."""
        ...

    def finished(self, exchange: Exchange) -> None:
        """Take an exchange that is over. Never raise."""
        ...


class ClientSide(asyncio.BufferedProtocol):
    """The connection of a client: reads requests, passes them on, and answers those that may not pass."""

    def __init__(
        self,
        entrance: Entrance,
        routes: Routes,
        finished: Finished | None,
        rewriter: Rewriter | None,
        clients: set[ClientSide],
        slabs: Slabs,
    ) -> None:
        """Pass requests by these rules; ``finished`` gets each recorded exchange when it is over.

        ``clients`` holds this connection while it is open; bytes are read into ``slabs``.
        """
        self._clients = clients
        self.slabs = slabs
        self._entrance = entrance
        self._routes = routes
        self._finished = finished
        self._rewriter = rewriter
        self._buffer = bytearray()
        self._body: MessageBody | None = None
        self._exchange: Exchange | None = None
        self._server: ServerSide | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._rewriting: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._held = list[Bytes]()
        """Bytes of a request whose connection is not open yet."""
        self._rewritten: bytes | None = None
        """The head of a request that is sent once it is complete."""
        self.busy = False
        """Whether a request of this client has no whole reply yet."""
        self._tunnel = False
        self._gone = False

    # -- the client's bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._clients.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory to read into."""
        return self.slabs.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes on, or keep them until the head they belong to is complete."""
        data = self.slabs.read(nbytes)
        if self._tunnel:
            self._send(data)
        elif self._body is not None and not self._buffer:
            self._take(data)
        else:
            self._buffer += data
            self._advance()

    def _advance(self) -> None:
        while self._buffer and not self.transport.is_closing() and not self._tunnel:
            if self._body is not None:
                data = bytes(self._buffer)
                self._buffer.clear()
                self._take(data)
            elif self.busy:
                if len(self._buffer) > _HIGH_WATER_BYTES:
                    self.transport.pause_reading()
                return
            else:
                try:
                    head = head_of(self._buffer)
                    if head is None:
                        return
                    del self._buffer[: head.size]
                    self._begin(head)
                except BrokenMessage as error:
                    self.answer(400, f"the request is no valid HTTP: {error}")

    def _begin(self, head: Head) -> None:
        method, target = head.request
        admitted = self._entrance.admitted(head, target)
        if isinstance(admitted, bytes):
            target = admitted
        else:
            self.answer(admitted.status, admitted.reason)
            return
        body, upstream = request_body(head), self._routes.of(head, target)
        api = api_of(method, target) if self._finished is not None else None
        self._exchange = Exchange(api, head, chunked=body.chunked) if api is not None else None
        self.busy, self._body = True, None if body.done else body
        sent = forwarded(head, method, target, upstream)
        if self._server is None or self._server.upstream != upstream:
            if self._server is not None:
                self._server.leave()
            self._server = ServerSide(self, upstream)
            self._connecting = asyncio.ensure_future(self._connect(self._server))
        self._server.expect(method, self._exchange)
        if self._rewriter is not None and self._exchange is not None:
            self._rewritten = sent
        else:
            self._send(sent)
        if body.done:
            self._complete()

    def _take(self, data: Bytes) -> None:
        assert self._body is not None
        try:
            taken = self._body.take(data)
        except BrokenMessage as error:
            self.answer(400, f"the request is no valid HTTP: {error}")
            return
        piece = data if taken == len(data) else data[:taken]
        dropped = self._exchange.went(piece) if self._exchange is not None else []
        if self._rewritten is None:
            self._send(piece)
        elif dropped:  # too long to be changed
            head, self._rewritten = self._rewritten, None
            self._send(b"".join([head, *dropped]))
        if self._body.done:
            self._body = None
            self._complete()
        if taken < len(data):
            self._buffer += data[taken:]
            self._advance()

    def _complete(self) -> None:
        if self._rewritten is not None and self._rewriter is not None and self._exchange is not None:
            head, self._rewritten = self._rewritten, None
            self._rewriting = asyncio.ensure_future(self._rewrite(self._rewriter, self._exchange, head))

    async def _rewrite(self, rewriter: Rewriter, exchange: Exchange, head: bytes) -> None:
        body = await rewriter.request(exchange)
        framed = body is None
        data = b"".join(exchange.request) if body is None else body
        self._send(head + data if framed else with_length(head, len(data)) + data)

    async def _connect(self, server: ServerSide) -> None:
        upstream = server.upstream
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: server, upstream.host, upstream.port, ssl=_tls() if upstream.tls else None
            )
        except (OSError, ssl.SSLError) as error:
            self.answer(502, f"no connection to {upstream.host}:{upstream.port}: {error}")

    def connected(self, server: ServerSide) -> None:
        """Send the bytes that waited for the connection."""
        if self._gone:
            server.abort()
            return
        held, self._held = self._held, []
        self.resume()  # writing may hold the client again
        server.write(b"".join(held))

    def _send(self, data: Bytes) -> None:
        if self._server is not None and self._server.transport is not None:
            self._server.write(data)
        else:
            self._held.append(data)
            if self._unsent() > _HIGH_WATER_BYTES:
                self.hold()
        if self._watch is not None and self._unsent() > _MOST_UNSENT_BYTES:
            self.transport.pause_reading()

    def _unsent(self) -> int:
        transport = self._server.transport if self._server is not None else None
        return sum(map(len, self._held)) + (transport.get_write_buffer_size() if transport is not None else 0)

    # -- the server's side

    def reply(self, data: Bytes) -> None:
        """Pass bytes of a reply to the client."""
        self.transport.write(data)

    @property
    def is_sending(self) -> bool:
        """Whether a part of the request has not come yet."""
        return self._body is not None

    def replied(self, *, whole: bool = True) -> None:
        """End an exchange, and go on with the next request if the client has sent one."""
        self._end(whole)
        if self._body is not None:  # the server answered before the request was complete
            self.leave()
            return
        self.busy = False
        self.resume()
        self._advance()

    def tunnel(self) -> None:
        """Pass all further bytes of both sides on unread: the server agreed to another protocol."""
        self._exchange, self._tunnel = None, True
        if self._buffer:
            self._send(bytes(self._buffer))

    def leave(self) -> None:
        """End both connections once everything is sent."""
        self._end(False)
        self.transport.close()
        if self._server is not None:
            self._server.leave()

    def hold(self) -> None:
        """Read no more from the client while its server is slow, but notice when it goes."""
        if self._watch is None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._watch = asyncio.get_running_loop().call_later(_HANG_UP_SECONDS, self._look)

    def resume(self) -> None:
        """Read from the client again."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _look(self) -> None:
        """Notice a client that went while its server is slow: it has gone already, or it is read further."""
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), _HANG_UP)
        if poll.poll(0):
            self.transport.abort()
            return
        if self._unsent() < _MOST_UNSENT_BYTES:
            self.transport.resume_reading()  # the client's end comes behind its bytes
        self._watch = asyncio.get_running_loop().call_later(_HANG_UP_SECONDS, self._look)

    # -- the end

    def answer(self, status: int, reason: str) -> None:
        """Answer in place of a server, in the form of an error of its API, and end the connection."""
        kind = _ERROR_TYPES.get(status, "invalid_request_error")
        body = msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": f"reverie gateway: {reason}"}, "request_id": None}
        )
        self._exchange = None
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.leave()

    def _end(self, whole: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self._finished is not None:
            exchange.whole = whole
            self._finished(exchange)

    def eof_received(self) -> bool:
        """Take the end of the client's bytes as its end."""
        if not self._tunnel:
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection to the server at once, and so the work for this client."""
        self._gone = True
        self._clients.discard(self)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._end(False)
        if self._server is not None:
            self._server.abort()

    def pause_writing(self) -> None:
        """Read no more from the server while the client is slow."""
        if self._server is not None and self._server.transport is not None:
            self._server.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the server again."""
        if self._server is not None and self._server.transport is not None:
            self._server.transport.resume_reading()


class ServerSide(asyncio.BufferedProtocol):
    """The connection to a server: passes replies to the one client it belongs to."""

    def __init__(self, client: ClientSide, upstream: Upstream) -> None:
        self.upstream = upstream
        self.transport: asyncio.Transport | None = None
        self._client = client
        self._buffer = bytearray()
        self._body: MessageBody | None = None
        self._method = b""
        self._exchange: Exchange | None = None
        self._expecting = False
        self._tunnel = False
        self._left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and send the waiting bytes."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._client.connected(self)

    def expect(self, method: bytes, exchange: Exchange | None) -> None:
        """Expect the reply to a request."""
        self._method, self._exchange, self._expecting = method, exchange, True

    def write(self, data: Bytes) -> None:
        """Send bytes of a request."""
        if self.transport is not None:
            self.transport.write(data)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory to read into."""
        return self._client.slabs.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes of a reply on, whole heads first."""
        data = self._client.slabs.read(nbytes)
        if self._tunnel:
            self._client.reply(data)
        elif self._body is not None:
            self._take(data)
        else:
            self._buffer += data
            self._heads()

    def _heads(self) -> None:
        """Pass on every head that is complete, until that of the reply itself."""
        while self._buffer and self._expecting and self._body is None:
            try:
                head = head_of(self._buffer)
                if head is None:
                    return
                body = response_body(head, self._method)
                status = head.status
            except BrokenMessage:  # it is the client's to judge
                head, body, status = None, MessageBody(None), 0
            size = head.size if head is not None else 0
            data = bytes(self._buffer[:size])
            rest = bytes(self._buffer[size:])
            self._buffer.clear()
            self._client.reply(data)
            if status == 101:
                self._tunnel, self._expecting = True, False
                self._client.reply(rest)
                self._client.tunnel()
            elif 100 <= status < 200:
                self._buffer += rest
            else:
                if self._exchange is not None and head is not None:
                    self._exchange.answered(head, chunked=body.chunked)
                self._body = body
                self._take(rest)
        if self._buffer and not self._expecting:  # bytes without a request: the client's to judge
            self._client.reply(bytes(self._buffer))
            self._buffer.clear()

    def _take(self, data: Bytes) -> None:
        body = self._body
        assert body is not None
        try:
            taken = body.take(data)
        except BrokenMessage:  # the client gets these bytes too
            self._body, taken = MessageBody(None), len(data)
        if taken:
            piece = data if taken == len(data) else data[:taken]
            self._client.reply(piece)
            if self._exchange is not None:
                self._exchange.came(piece)
        if body.done:
            self._body, self._exchange, self._expecting = None, None, False
            self._client.replied()
            if taken < len(data):
                self._buffer += data[taken:]
                self._heads()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the client's connection once everything has reached it."""
        body, self._body = self._body, None
        if self._left:
            return
        if body is not None and body.until_close:
            self._client.replied(whole=exc is None)
        self._client.leave()

    def pause_writing(self) -> None:
        """Read no more from the client while the server is slow."""
        self._client.hold()

    def resume_writing(self) -> None:
        """Read from the client again."""
        self._client.resume()

    def leave(self) -> None:
        """End the connection once everything is sent; the client is not told."""
        self._left, self._exchange = True, None
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End the connection at once; the client is not told.

        A server that has not got the whole request learns it by a reset, also if it does not read.
        """
        self._left, self._exchange = True, None
        if self.transport is not None:
            with contextlib.suppress(OSError):
                if self._client.is_sending or self.transport.get_write_buffer_size():
                    self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.transport.abort()


def with_length(head: bytes, length: int) -> bytes:
    """Return the head of a request with another length of its body."""
    start, *lines = head[:-4].split(b"\r\n")
    framing = (b"content-length", b"transfer-encoding")
    kept = [line for line in lines if line.partition(b":")[0].lower() not in framing]
    return b"\r\n".join([start, *kept, b"Content-Length: %d" % length, b"", b""])


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
