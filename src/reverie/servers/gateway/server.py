"""The gateway as a server: a listener, the relay of each connection, and the recorder beside them."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable

from .exchange import Exchange
from .http1 import Slabs
from .recorder_process import RecorderProcess
from .relay import ClientSide, Rewriter
from .upstreams import Entrance, Routes


async def serve(
    listener: socket.socket,
    routes: Routes,
    *,
    token: str | None = None,
    recorder: RecorderProcess | None = None,
    rewriter: Rewriter | None = None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve clients until the task is cancelled; ``started`` is called when connections are accepted.

    With a ``token`` only clients that send it are served, else only those that use the address on loopback. The
    recorder gets every exchange when it is over.
    """
    entrance = Entrance(port=listener.getsockname()[1], token=token)
    following = [one.finished for one in (rewriter,) if one is not None]
    following += [one.offer for one in (recorder,) if one is not None]

    def finished(exchange: Exchange) -> None:
        for follow in following:
            follow(exchange)

    loop = asyncio.get_running_loop()
    clients, slabs = set[ClientSide](), Slabs()
    if recorder is not None:
        recorder.is_busy = lambda: any(client.busy for client in list(clients))
        recorder.start()
    server = await loop.create_server(
        lambda: ClientSide(entrance, routes, finished if following else None, rewriter, clients, slabs),
        sock=listener,
        backlog=512,
    )
    try:
        if started is not None:
            started()
        await asyncio.Event().wait()
    finally:
        server.close()
        for client in list(clients):
            client.transport.abort()
        if recorder is not None:
            await asyncio.to_thread(recorder.close)


async def serve_until_signal(serving: Callable[[], Awaitable[None]]) -> None:
    """Serve until Ctrl-C or a request to end; raise ``KeyboardInterrupt`` after Ctrl-C."""
    task, caught = asyncio.ensure_future(serving()), set[int]()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        caught.add(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if signal.SIGINT in caught:
            raise KeyboardInterrupt from None
        if not caught:
            raise
