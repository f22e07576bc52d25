"""The MCP server over HTTP: on loopback only, behind the guard, with bounded requests and sessions."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from .guard import HOST, SAFE_HEADERS, App, LoopbackGuard, Message, Receive, Send
from .mcp import McpServer

PATH: Final = "/mcp"
MAX_BODY_BYTES: Final = 1_048_576
_MAX_HEAD_BYTES: Final = 32_768
_HEAD_SECONDS: Final = 30.0
_KEEP_SECONDS: Final = 60
"""How long an idle connection is kept: longer than clients keep theirs, else a client may use one as it closes."""
_MAX_SESSIONS: Final = 256
_IDLE_SECONDS: Final = 600.0
_GRACE_SECONDS: Final = 2


async def serve_http(
    mcp: McpServer, listener: socket.socket, *, token: str, started: Callable[[str], None] | None = None
) -> None:
    """Serve clients that send the token until a signal; Ctrl-C raises, and ``started`` gets the address."""
    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(
        mcp.server(),
        max_request_body_size=MAX_BODY_BYTES,
        session_idle_timeout=_IDLE_SECONDS,
        max_sessions=_MAX_SESSIONS,
    )
    port = listener.getsockname()[1]
    guard = LoopbackGuard(_patient(manager.handle_request), port=port, token=token, paths=[PATH])
    config = uvicorn.Config(
        guard,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http=_protocol(),
        ws="none",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server, signals = uvicorn.Server(config), set[int]()
    stop = server.handle_exit

    def handle_exit(sig: int, frame: FrameType | None) -> None:
        signals.add(sig)
        stop(sig, frame)

    server.handle_exit = handle_exit
    async with manager.run():
        if started is not None:
            started(f"http://{HOST}:{port}{PATH}")  # the socket listens already: early clients wait a moment
        await server.serve(sockets=[listener])
    if signal.SIGINT in signals:
        # As a cancellation by the loop it ended the process with 0, twice in long test runs; the cause is unknown.
        raise KeyboardInterrupt


def _patient(app: App) -> App:
    """Return the application with 429 in place of 503, because too many open sessions are temporary."""

    async def answering(scope: Message, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 503:
                headers = [*message.get("headers", ()), (b"retry-after", b"60")]
                message = {**message, "status": 429, "headers": headers}
            await send(message)

        await app(scope, receive, sending)

    return answering


def _protocol() -> Any:
    """Return a subclass of uvicorn's protocol with two additions.

    Its own answer to invalid HTTP, which no application sees, gets our headers; and a connection without a request
    is closed after a time.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(_HEAD_SECONDS, self._give_up)

        def _give_up(self) -> None:
            if getattr(self, "cycle", None) is None and not self.transport.is_closing():
                self.transport.close()

        def send_400_response(self, msg: str) -> None:
            head = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *SAFE_HEADERS]
            parts = (
                h11.Response(status_code=400, headers=head, reason=b"Bad Request"),
                h11.Data(data=msg.encode("ascii", "replace")),
                h11.EndOfMessage(),
            )
            for part in parts:
                self.transport.write(self.conn.send(part) or b"")
            self.transport.close()

    return Protocol
