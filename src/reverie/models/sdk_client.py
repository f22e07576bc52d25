"""The part that models behind a vendor's SDK share; the SDK is loaded and opened on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..cache.prices import listed_window
from ..conversation.tokens.window import window_for
from ..errors import InputError, ModelRefused, ModelUnknown
from ..extras import install_command
from ..model_facts import ModelFacts, bare_model, facts_of
from .failures import failure_of_exception, no_key
from .wire import CONNECT_SECONDS, READ_SECONDS, StreamedModel, is_loopback

if TYPE_CHECKING:
    import httpx2


class SdkModel(StreamedModel):
    """A model behind a vendor's SDK; a subclass names the vendor, connects its SDK and sends requests."""

    vendor: str

    def __init__(
        self,
        model_id: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
        environ: Mapping[str, str] | None = None,
        facts: ModelFacts | None = None,
    ) -> None:
        """Name the model, without connecting; the address and key may also come from ``environ``.

        ``window`` is for models that are not in the installed table; ``facts`` are the model's rules, if not those of
        its name.
        """
        known = os.environ if environ is None else environ
        self._id = model_id
        self._facts = facts or facts_of(model_id)
        self._environ = known
        variable = f"{self.vendor.upper()}_BASE_URL"
        self._base_url = base_url or known.get(variable) or None
        if self._base_url is not None and not self._base_url.startswith(("http://", "https://")):
            place = "base_url" if base_url else variable
            raise InputError(f"{place} is {self._base_url!r}: write an address that begins with http:// or https://")
        self._api_key = api_key or known.get(f"{self.vendor.upper()}_API_KEY") or None
        self._window = window
        self._client: Any = None
        self._lock = anyio.Lock()

    @property
    def name(self) -> str:
        """The name a user gives the model: its vendor, a colon and its id."""
        return f"{self.vendor}:{self._id}"

    @property
    def model_id(self) -> str:
        """The value of a request's ``model`` field for this model."""
        return self._id

    def check_key(self) -> None:
        """Raise ``ModelUnauthorized`` if no key is found; load the SDK only if its usual variable is not set."""
        if self._api_key:
            return
        try:
            client = self._connect(self._load())
        except Exception as error:
            raise failure_of_exception(self.name, error) from error
        if not any(getattr(client, name, None) for name in ("api_key", "auth_token", "credentials")):
            raise no_key(self.name)

    async def connect(self) -> None:
        """Load the SDK and open the client, so that the first request need not wait for that."""
        try:
            await self._opened()
        except Exception as error:
            raise failure_of_exception(self.name, error) from error

    async def listed(self) -> list[str]:
        """Ask the provider for the ids of its models; raise ``ModelError`` if it does not list them."""
        try:
            client, _ = await self._opened()
            return [str(model.id) async for model in client.models.list()]
        except Exception as error:
            raise failure_of_exception(self.name, error) from error

    async def check(self) -> None:
        """Raise ``ModelError`` if the provider knows neither this model nor the key, or cannot be reached.

        A server that describes no single model is asked for its list; one without a list is believed.
        """
        try:
            client, _ = await self._opened()
            await client.models.retrieve(bare_model(self._id))
            return
        except Exception as error:
            failure = failure_of_exception(self.name, error)
        if not isinstance(failure, ModelRefused | ModelUnknown):
            raise failure
        try:
            known = await self.listed()
        except (ModelRefused, ModelUnknown):
            return
        if self._id not in known:
            near = ", ".join(f"{self.vendor}:{name}" for name in get_close_matches(self._id, known, n=3, cutoff=0.4))
            raise ModelUnknown(f"{self.vendor} has no model {self._id}" + (f"; did you mean {near}?" if near else ""))

    async def aclose(self) -> None:
        """Close the client; the next request opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _opened(self) -> tuple[Any, Any]:
        """Return the client and the SDK module, opening both on the first call, in a worker thread."""
        sdk = await anyio.to_thread.run_sync(self._load)
        async with self._lock:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self._connect, sdk)
        return self._client, sdk

    async def _post(self, path: str, content: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """Post a JSON body and return the streaming response; raise SDK errors as ``ModelError``."""
        try:
            client, sdk = await self._opened()
            options = {"headers": {"content-type": "application/json", **headers}}
            stream = await client.post(
                path, cast_to=object, content=content, options=options, stream=True, stream_cls=sdk.AsyncStream[object]
            )
        except Exception as error:
            raise failure_of_exception(self.name, error) from error
        return stream.response

    def _limits(self) -> tuple[int | None, int | None]:
        """Return the window, as given or as known for this name, and the largest output."""
        known = window_for(self._id, facts=self._facts, lookup=listed_window)
        return self._window or (known.tokens if known.source != "strict" else None), known.max_output_tokens

    def _load(self) -> Any:
        """Import the SDK and return its module; raise ``ModelUnknown`` if it is not installed."""
        try:
            return import_module(self.vendor)
        except ImportError as error:
            raise ModelUnknown(f"{error.name} is not installed: {install_command(self.vendor)}") from error

    def _connect(self, sdk: Any) -> Any:
        raise NotImplementedError

    def _connection_options(self, sdk: Any) -> dict[str, Any]:
        """Return the arguments for a client that both SDKs share.

        A server on this machine is reached without a proxy, and its connections are not kept: some servers close a
        kept connection after a stream.
        """
        local = is_loopback(self._base_url or "")
        return {
            "base_url": self._base_url,
            "timeout": sdk.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            "max_retries": 0,
            "http_client": sdk.DefaultAsyncHttpxClient(trust_env=False) if local else None,
            "default_headers": {"connection": "close"} if local else None,
        }
