"""A gateway in a thread of the test, a server behind it that says exact bytes, and clients that compare them."""

from __future__ import annotations

import asyncio
import io
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from reverie.servers.gateway.exchange import Exchange, SeenExchange, read_exchanges
from reverie.servers.gateway.recorder import Recorder
from reverie.servers.gateway.server import serve
from reverie.servers.gateway.upstreams import Routes
from reverie.servers.guard import open_listener
from reverie.settings import Settings

WAIT_SECONDS = 60.0
LIMIT = 2**25
_writers: list[asyncio.StreamWriter] = []


class RawServer:
    """A server that keeps the bytes of each request and answers with given pieces of bytes, one write each.

    A piece that is an event is waited for.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, bytes]] = []
        self.answers: list[list[bytes | asyncio.Event]] = []
        self.gone = asyncio.Event()
        self.reads = True
        self.reached = asyncio.Event()
        self.tasks = set[asyncio.Task[None]]()

    async def start(self, tls: ssl.SSLContext | None = None) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT, ssl=tls)
        return self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self.tasks.add(me)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.reached.set()
                if not self.reads:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    poll = select.poll()
                    poll.register(writer.get_extra_info("socket").fileno(), select.POLLRDHUP)
                    while not poll.poll(0) and not self.gone.is_set():
                        await asyncio.sleep(0.01)
                    raise ConnectionError
                self.requests.append((head, await _body(reader, head)))
                for piece in self.answers.pop(0):
                    if isinstance(piece, asyncio.Event):
                        left = asyncio.ensure_future(reader.read(1))
                        opened = asyncio.ensure_future(piece.wait())
                        done, _ = await asyncio.wait({left, opened}, return_when=asyncio.FIRST_COMPLETED)
                        if left in done:
                            raise ConnectionError
                        left.cancel()
                        await asyncio.gather(left, return_exceptions=True)
                    elif piece == b"CLOSE":
                        raise ConnectionError
                    else:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError, IndexError):
            self.gone.set()
        finally:
            writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return the body of a request with its framing."""
    low = head.lower()
    if b"content-length:" in low:
        return await reader.readexactly(int(low.split(b"content-length:")[1].split(b"\r\n")[0]))
    body: list[bytes] = []
    while b"chunked" in low:
        line = await reader.readline()
        size = int(line, 16)
        body += [line, await reader.readexactly(size + 2)]
        if not size:
            break
    return b"".join(body)


class ListedExchanges:
    """Takes the place of the recorder's process: keeps what it would get."""

    def __init__(self, home: Path | None = None) -> None:
        self.frames: list[bytes] = []
        self.told: list[str] = []
        self._recorder = Recorder(Settings(home=home), self.told.append) if home is not None else None

    def start(self) -> None:
        """Start nothing: the test is the process."""

    def offer(self, exchange: Exchange) -> None:
        self.frames.append(b"".join(exchange.frame()))
        if self._recorder is not None:
            for seen in read_exchanges(io.BytesIO(self.frames[-1])):
                self._recorder.take(seen)

    def seen(self) -> list[SeenExchange]:
        return list(read_exchanges(io.BytesIO(b"".join(self.frames))))

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.__exit__(None, None, None)


@contextmanager
def gateway_thread(
    url: str | None, recorder: Any = None, token: str | None = None, rewriter: Any = None
) -> Iterator[str]:
    """Serve a gateway to ``url`` in a thread and yield its address."""
    listener, loop, ready = open_listener(), asyncio.new_event_loop(), threading.Event()
    task: list[asyncio.Task[None]] = []

    async def run() -> None:
        task.append(
            asyncio.ensure_future(
                serve(listener, Routes(url), token=token, recorder=recorder, rewriter=rewriter, started=ready.set)
            )
        )
        await asyncio.gather(*task, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    try:
        assert ready.wait(WAIT_SECONDS)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(WAIT_SECONDS)
        loop.close()


def with_gateway(
    act: Callable[[RawServer, int], Coroutine[Any, Any, None]],
    *,
    recorder: Any = None,
    rewriter: Any = None,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Run a test beside a raw server and a gateway to it, all in one loop; it gets the gateway's port."""

    async def run() -> None:
        server, listener = RawServer(), open_listener()
        port = await server.start(tls)
        routes = Routes(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
        task = asyncio.ensure_future(serve(listener, routes, token=token, recorder=recorder, rewriter=rewriter))
        await asyncio.sleep(0)
        server.port = port  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await act(server, listener.getsockname()[1])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for writer in _writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in _writers), return_exceptions=True)
            _writers.clear()
            server.gone.set()
            server._server.close()
            await asyncio.gather(*server.tasks, return_exceptions=True)
            for _ in range(5):  # transports close in the next turns of the loop
                await asyncio.sleep(0)

    asyncio.run(run())


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to a port of loopback, which ``with_gateway`` closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LIMIT)
    _writers.append(writer)
    return reader, writer


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as the system does for a process that was killed with unread bytes."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


def loopback_certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server with a new certificate for 127.0.0.1, and of a client that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    held = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "loopback.pem"
    path.write_bytes(held + made.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))
