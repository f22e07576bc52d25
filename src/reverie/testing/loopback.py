"""An ASGI application served on loopback by a thread of this process, for the test servers."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Final

from ..errors import InputError

_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0


class LoopbackThread:
    """A uvicorn server on a free port of loopback, started at once and stopped by ``stop``."""

    def __init__(self, application: Any, name: str) -> None:
        """Start serving and return when the server accepts connections; raise InputError if it cannot start."""
        try:
            import uvicorn
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
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name=name, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise InputError(f"the test server did not start within {_START_SECONDS:.0f} seconds")
            time.sleep(0.005)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def stop(self) -> None:
        """Stop serving and wait for the thread, up to 20 seconds; open requests are dropped after a second."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(_STOP_SECONDS)
