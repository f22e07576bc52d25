"""The part that models behind a vendor's SDK share, and its client.

The SDK is loaded and opened on first use, in a worker thread, and shared by all requests.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..ports import Reply, ReplyDelta
from .failures import failure_of_exception
from .wire import CONNECT_SECONDS, READ_SECONDS, ReplyAssembly, is_loopback, read_reply, whole_reply

if TYPE_CHECKING:
    import httpx2


class SdkClient:
    """The client of a provider's SDK, opened on first use and shared by all requests."""

    def __init__(self, model: str, load: Callable[[], Any], connect: Callable[[Any], Any]) -> None:
        """Store the model's name, with which errors begin, and how to open the client, without opening it.

        ``load`` imports the SDK and ``connect`` makes a client of it; both may block and run in a worker thread.
        """
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


class SdkModel:
    """A model behind a vendor's SDK; a subclass names the vendor, loads the SDK, connects it and sends requests."""

    vendor: str

    def __init__(
        self,
        model_id: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = READ_SECONDS,
        max_retries: int = 0,
        window: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Name the model, without connecting; the address and key may also come from ``environ``.

        ``window`` is for models that are not in the installed table.
        """
        known = os.environ if environ is None else environ
        self._id = model_id
        self._environ = known
        self._base_url = base_url or known.get(f"{self.vendor.upper()}_BASE_URL") or None
        self._api_key = api_key or known.get(f"{self.vendor.upper()}_API_KEY") or None
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._window = window
        self._client = SdkClient(self.name, self._load, self._connect)

    @property
    def name(self) -> str:
        """The name a user gives the model: its vendor, a colon and its id."""
        return f"{self.vendor}:{self._id}"

    @property
    def model_id(self) -> str:
        """The value of a request's ``model`` field for this model."""
        return self._id

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Send a request and yield the pieces of the reply as they arrive, then the whole reply."""
        response, assembly = await self._send(request)
        async with aclosing(read_reply(response, assembly, self.name)) as parts:
            async for part in parts:
                yield part

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Send a request and return the whole reply."""
        return await whole_reply(self.stream(request))

    async def connect(self) -> None:
        """Load the SDK and open the client, so that the first request need not wait for that."""
        try:
            await self._client.open()
        except Exception as error:
            raise failure_of_exception(self.name, error) from error

    async def aclose(self) -> None:
        """Close the client; the next request opens a new one."""
        await self._client.aclose()

    def _load(self) -> Any:
        """Import the SDK and return its module; raise ``ModelUnknown`` if it is not installed."""
        raise NotImplementedError

    def _connect(self, sdk: Any) -> Any:
        """Return a new client of the SDK module."""
        raise NotImplementedError

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        """Send a request; return the streaming response and the assembly that reads it."""
        raise NotImplementedError

    def _connection_options(self, sdk: Any) -> dict[str, Any]:
        """Return the arguments for a client that both SDKs share.

        A server on this machine is reached without a proxy, and its connections are not kept: some servers close a
        kept connection after a stream.
        """
        local = is_loopback(self._base_url or "")
        return {
            "base_url": self._base_url,
            "timeout": sdk.Timeout(self._timeout_seconds, connect=CONNECT_SECONDS),
            "max_retries": self._max_retries,
            "http_client": sdk.DefaultAsyncHttpxClient(trust_env=False) if local else None,
            "default_headers": {"connection": "close"} if local else None,
        }
