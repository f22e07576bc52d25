"""The connection to one MCP server, kept by a task of its own."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ..settings import McpServer
from .mcp_content import output_of
from .tool import Output

if TYPE_CHECKING:
    from mcp import Client

_LIMITS: Final = ("_WRITER_FLUSH_TIMEOUT", "PROCESS_TERMINATION_TIMEOUT", "FORCE_KILL_TIMEOUT")
"""How the SDK names its waits: after the last message, after the end of a server's input, and after SIGTERM."""
OPENING_SECONDS: Final = (0.1, 0.2, 0.2)
"""The waits for a server that is still opening and has nothing to lose."""
CLOSING_SECONDS: Final = (0.2, 1.0, 0.4)
"""The waits for any other, together less than the 2 seconds in which an interrupt ends everything."""
_MAX_PAGES: Final = 50
_TAIL_BYTES: Final = 2_000
_SHOWN_CHARS: Final = 500


class McpConnection:
    """The connection to one MCP server; the SDK's client exists only while the task that runs ``serve`` is up."""

    def __init__(self, name: str, server: McpServer, *, cwd: str | None = None) -> None:
        self.name = name
        self.server = server
        self.problem = ""
        self.listed: list[dict[str, Any]] = []
        """The server's own descriptions of its tools, as dicts of the MCP format."""
        self.instructions = ""
        """The text by which the server explains its use; empty if it is not connected."""
        self.ready = anyio.Event()
        """Set when the tools are listed or the connection has failed."""
        self._cwd = cwd
        self._client: Client | None = None
        self._closing = anyio.Event()
        self._errors = _Tail()
        self._stdio: Any = None

    async def serve(self) -> None:
        """Connect, list the tools and wait until ``close``; store an error in ``problem`` instead of raising."""
        try:
            with anyio.CancelScope() as scope:
                # One scope for the whole connection, because the client's own scopes outlive the connecting phase.
                scope.deadline = anyio.current_time() + self.server.timeout_seconds
                async with self._errors, self._open_client() as client:
                    self.listed = await _tools_of(client)
                    self.instructions = (client.instructions or "").strip()
                    scope.deadline = math.inf
                    self._limit(CLOSING_SECONDS)
                    self._client = client
                    self.ready.set()
                    await self._closing.wait()
            if scope.cancelled_caught:
                self.problem = f"it did not answer in {self.server.timeout_seconds:g} s{self._errors.shown()}"
        except Exception as error:
            self.problem = f"{_root_message(error)}{self._errors.shown()}"
        finally:
            self._client = None
            self.instructions = ""
            self.ready.set()

    def close(self) -> None:
        """Tell the task that runs ``serve`` to end; do not wait for its end."""
        self._closing.set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Output:
        """Call a tool of the server and return its result; return an error output instead of raising."""
        client = self._client
        if client is None:
            why = self.problem or "it was closed"
            return Output(f"The MCP server {self.name} is not running: {why}", is_error=True)
        limit = self.server.timeout_seconds
        try:
            with anyio.fail_after(limit):
                result = await client.call_tool(tool, dict(arguments))
        except TimeoutError:
            return Output(f"The MCP server {self.name} did not answer in {limit:g} s.", is_error=True)
        except Exception as error:
            self._note_end(error)
            return Output(f"The MCP server {self.name} failed: {_root_message(error)}", is_error=True)
        return output_of(result.model_dump(mode="json", by_alias=True, exclude_none=True))

    def _note_end(self, error: Exception) -> None:
        """Forget a server of this machine whose process has ended, as the error of a call shows."""
        from mcp_types import CONNECTION_CLOSED

        if self.server.command and getattr(error, "code", None) == CONNECTION_CLOSED:
            self.problem, self.instructions, self._client = f"it has ended{self._errors.shown()}", "", None

    def _limit(self, seconds: Sequence[float]) -> None:
        """Set how long the SDK waits for the end of a server of this machine before it kills it."""
        for name, limit in zip(_LIMITS, seconds, strict=True) if self._stdio is not None else ():
            setattr(self._stdio, name, limit)

    @asynccontextmanager
    async def _open_client(self) -> AsyncGenerator[Client, None]:
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with AsyncExitStack() as stack:
            if self.server.url:
                http = await stack.enter_async_context(_http_client(self.server.headers))
                transport = streamable_http_client(self.server.url, http_client=http)
            else:
                stdio = self._stdio = _stdio_module()
                self._limit(OPENING_SECONDS)
                parameters = stdio.StdioServerParameters(
                    command=self.server.command,
                    args=list(self.server.args),
                    env=dict(self.server.env),
                    cwd=self._cwd,
                )
                transport = stdio.stdio_client(parameters, errlog=self._errors.file)
            yield await stack.enter_async_context(Client(transport, client_info=_own_name()))


def _stdio_module() -> Any:
    """Return a copy of the SDK's module for stdio, so that its limits are those of one connection alone."""
    spec = find_spec("mcp.client.stdio")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _http_client(headers: Mapping[str, str]) -> Any:
    import httpx2

    return httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30.0, read=300.0))


def _own_name() -> Any:
    from importlib.metadata import version

    from mcp_types import Implementation

    return Implementation(name="reverie", version=version("reverie"))


async def _tools_of(client: Client) -> list[dict[str, Any]]:
    """Return the descriptions of the tools that the server lists, from at most ``_MAX_PAGES`` pages."""
    if client.server_capabilities.tools is None:
        return []
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _root_message(error: BaseException) -> str:
    """Return an error's message, or its type if that is empty; for a group, the message of its first error."""
    if isinstance(error, BaseExceptionGroup):
        return _root_message(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return str(error) or type(error).__name__


class _Tail:
    """The last bytes of a server's stderr, read continuously so that the server never blocks on a full pipe."""

    def __init__(self) -> None:
        self._data = b""

    async def __aenter__(self) -> None:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.file = os.fdopen(writing, "w")
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._read)

    async def __aexit__(self, *exception: Any) -> None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
        self.file.close()
        self._read_available()
        os.close(self._reading)

    async def _read(self) -> None:
        while True:
            await anyio.wait_readable(self._reading)
            if not self._read_available():
                return

    def _read_available(self) -> bool:
        """Read the bytes that are available now; return whether the stream is still open."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._reading, 65_536):
                self._data = (self._data + chunk)[-_TAIL_BYTES:]
            return False
        return True

    def shown(self) -> str:
        """Return the end of the stderr text on one line in brackets; an empty text if nothing was written."""
        text = " ".join(self._data.decode("utf-8", "replace").split())[-_SHOWN_CHARS:]
        return f" ({text})" if text else ""
