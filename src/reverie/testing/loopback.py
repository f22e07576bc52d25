"""A test server on loopback: an ASGI application, served by a thread of this process."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Final, Self

import anyio
from anyio import to_thread

from ..errors import InputError

_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0


class LoopbackServer:
    """A server on a free port of loopback, which runs as long as its ``with`` or ``async with`` block."""

    _server: Any = None
    _thread: threading.Thread | None = None
    _url = ""

    @property
    def base_url(self) -> str:
        """The address of the server; raises ``InputError`` while it does not run."""
        if self._thread is None:
            raise InputError("the server does not run yet: use it in a `with` block")
        return self._url

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    async def __aenter__(self) -> Self:
        await to_thread.run_sync(self._start)
        return self

    async def __aexit__(self, *error: object) -> None:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._stop)

    def _application(self) -> Any:
        raise NotImplementedError

    def _start(self) -> None:
        """Start serving and return when the server accepts connections; raise InputError if it cannot start."""
        try:
            import uvicorn

            application = self._application()
        except ImportError as error:
            raise InputError("the test server needs starlette and uvicorn: install reverie[testing]") from error
        # Named as TCP, so that the event loop turns off Nagle's delay: 40 ms per reply without it.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(
            application,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        thread = threading.Thread(target=self._server.run, args=([listener],), name="test-server", daemon=True)
        thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise InputError(f"the test server did not start within {_START_SECONDS:.0f} seconds")
            time.sleep(0.005)
        self._url, self._thread = f"http://127.0.0.1:{listener.getsockname()[1]}", thread

    def _stop(self) -> None:
        """Stop serving and wait for the thread, up to 20 seconds; open requests are dropped after a second."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._server.should_exit = True
        thread.join(_STOP_SECONDS)
        if thread.is_alive():
            self._server.force_exit = True
            thread.join(_STOP_SECONDS)
