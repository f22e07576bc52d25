"""The client of a vendor's SDK: loaded and opened on first use, in a worker thread, and shared by all requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from .failures import failure_of_exception
from .wire import CONNECT_SECONDS, is_loopback

if TYPE_CHECKING:
    import httpx2

__all__ = ["SdkClient", "connection_options"]


class SdkClient:
    """One connection to a provider; ``load`` imports the SDK and ``connect`` makes a client of it, both may block."""

    def __init__(self, model: str, load: Callable[[], Any], connect: Callable[[Any], Any]) -> None:
        """Name the model that error messages start with, and say how to load and connect."""
        self._model = model
        self._load = load
        self._connect = connect
        self._client: Any = None
        self._lock = anyio.Lock()

    async def open(self) -> tuple[Any, Any]:
        """Return the client and the SDK module, opening both on the first call."""
        sdk = await anyio.to_thread.run_sync(self._load)
        async with self._lock:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self._connect, sdk)
        return self._client, sdk

    async def post(self, path: str, content: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """Post a JSON body and return the streaming response; raise SDK errors as ``ModelError``."""
        try:
            client, sdk = await self.open()
            options = {"headers": {"content-type": "application/json", **headers}}
            stream = await client.post(
                path, cast_to=object, content=content, options=options, stream=True, stream_cls=sdk.AsyncStream[object]
            )
        except Exception as error:
            raise failure_of_exception(self._model, error) from error
        return stream.response

    async def aclose(self) -> None:
        """Close the client; the next request opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def connection_options(sdk: Any, base_url: str | None, timeout_seconds: float, max_retries: int) -> dict[str, Any]:
    """Return the client arguments that both SDKs share.

    A server on this machine is reached without a proxy, and its connections are not kept: some servers close a kept
    connection after a stream.
    """
    local = is_loopback(base_url or "")
    return {
        "base_url": base_url,
        "timeout": sdk.Timeout(timeout_seconds, connect=CONNECT_SECONDS),
        "max_retries": max_retries,
        "http_client": sdk.DefaultAsyncHttpxClient(trust_env=False) if local else None,
        "default_headers": {"connection": "close"} if local else None,
    }
