"""The Anthropic SDK: a middleware for an existing loop, and the memory tool over our store.

    client = AsyncAnthropic().with_middleware(reverie_middleware(session))
    memory = ReverieMemoryTool(Memory.open("."))          # client.beta.messages.tool_runner(tools=[memory], ...)

The loop keeps sending its whole history, and the middleware sends the session's view of it instead. Requests to other
endpoints, of other conversations, and after any failure of ours pass unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, cast

import httpx2
import msgspec
from anthropic import APIResponse, AsyncAPIResponse, Middleware
from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)
from anyio import to_thread

from ..errors import InputError, ModelError, ReverieError
from ..memories.store.trust import Trust
from ..models.failures import failure_of_status
from ..models.messages_stream import MessageAssembly
from ..models.sse import EventDecoder
from ..runtime.memory.memory import Memory
from ..runtime.session.limits import EDITING_BETA
from ..runtime.session.session import Session
from .host_session import HostSession
from .memory_files import MemoryFiles
from .sync_session import SessionBridge

__all__ = ["AsyncReverieMemoryTool", "ReverieMemoryTool", "reverie_middleware"]

Body = dict[str, Any]

_WHAT: Final = "middleware"
_PATH: Final = "/v1/messages"
_BETA: Final = "anthropic-beta"
_NO_LONGER_TRUE: Final = ("content-encoding", "content-length")


def reverie_middleware(session: Session, *, memory: Memory | None = None) -> Middleware:
    """Return a client middleware that sends a session's view in place of a loop's history, and logs the replies.

    With ``memory`` the memory index opens the conversation, and memories that fit are recalled.
    """
    return _SessionMiddleware(session, memory)


class _SessionMiddleware(Middleware):
    """The middleware for one conversation: sends the session's view, logs replies, lets other requests pass."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self._bridge = SessionBridge(session)
        self._host_session = HostSession(session, memory)

    def handle(self, request: Any, call_next: Callable[[Any], APIResponse[Any]]) -> APIResponse[Any]:
        """Send a synchronous client's request with the session's view, log the reply, and return the response.

        A refused request is sent again as long as the session can change it: a prompt that is too long is compacted.
        If we fail, or nothing can be changed, the client's own request is sent.
        """
        body = _body(request)
        if body is None:
            return call_next(request)
        sent = self._bridge.try_call(_WHAT, partial(self._host_session.prepare, _asked(request, body)))
        if sent is None:
            return call_next(request)
        response = call_next(_with_body(request, sent))
        while response.status_code in (400, 413):
            failure = _failure(response, response.http_response.read())
            sent = self._bridge.try_call(_WHAT, partial(self._host_session.recover, failure, body))
            if sent is None:
                self._refused(failure)
                return call_next(request)
            response = call_next(_with_body(request, sent))
        if not response.http_response.is_success:
            return response
        if request.stream:
            stream = _ObservedStream(response.http_response, self._observe)
            response.http_response = _with_stream(response.http_response, stream)
        else:
            self._observe(response.http_response.read())
        return response

    async def handle_async(self, request: Any, call_next: Callable[[Any], Any]) -> AsyncAPIResponse[Any]:
        """Send an asynchronous client's request with the session's view, log the reply, and return the response.

        A refused request is sent again as long as the session can change it: a prompt that is too long is compacted.
        If we fail, or nothing can be changed, the client's own request is sent.
        """
        body = _body(request)
        if body is None:
            return await call_next(request)
        sent = await self._bridge.try_acall(_WHAT, partial(self._host_session.prepare, _asked(request, body)))
        if sent is None:
            return await call_next(request)
        response: AsyncAPIResponse[Any] = await call_next(_with_body(request, sent))
        while response.status_code in (400, 413):
            failure = _failure(response, await response.http_response.aread())
            sent = await self._bridge.try_acall(_WHAT, partial(self._host_session.recover, failure, body))
            if sent is None:
                self._refused(failure)
                return await call_next(request)
            response = await call_next(_with_body(request, sent))
        if not response.http_response.is_success:
            return response
        if request.stream:
            stream = _AsyncObservedStream(response.http_response, self._aobserve)
            response.http_response = _with_stream(response.http_response, stream)
        else:
            await self._aobserve(await response.http_response.aread())
        return response

    def _refused(self, failure: Exception) -> None:
        """Report, as an event, that the provider refused our request and that the host's own is sent."""
        self._bridge.report_fallback(_WHAT, f"the request was refused and the host's own is sent instead: {failure}")

    def _observe(self, reply: bytes | Body) -> None:
        self._bridge.try_call(_WHAT, partial(self._log_reply, reply))

    async def _aobserve(self, reply: bytes | Body) -> None:
        await self._bridge.try_acall(_WHAT, partial(self._log_reply, reply))

    async def _log_reply(self, reply: bytes | Body) -> None:
        await self._host_session.observe(msgspec.json.decode(reply) if isinstance(reply, bytes) else reply)


def _body(request: Any) -> Body | None:
    """Return the body of a POST to the Messages endpoint that has a list of messages; None for other requests."""
    path = str(request.url).split("?", 1)[0]
    body = request.json
    if str(request.method).lower() != "post" or not path.endswith(_PATH) or not isinstance(body, dict):
        return None
    asked = cast(Body, body)
    return asked if isinstance(asked.get("messages"), list) else None


def _asked(request: Any, body: Body) -> Body:
    """Return the body with the betas of the request's header, and the one that ``_with_body`` can add, as ``betas``."""
    headers = cast("Mapping[str, Any]", request.headers)
    named = next((value for key, value in headers.items() if key.lower() == _BETA and isinstance(value, str)), "")
    betas = [one.strip() for one in named.split(",") if one.strip()]
    return {**body, "betas": list(dict.fromkeys([*betas, EDITING_BETA]))}


def _with_body(request: Any, sent: Body) -> Any:
    """Return a copy of the request with another body, and with the beta header that this body newly needs."""
    body = {key: value for key, value in sent.items() if key != "betas"}
    headers: dict[str, Any] = dict(request.headers)
    if "context_management" in body and "context_management" not in request.json:
        name = next((key for key in headers if key.lower() == _BETA), _BETA)
        known = headers.get(name) if isinstance(headers.get(name), str) else ""
        headers[name] = ",".join(filter(None, (known, EDITING_BETA if EDITING_BETA not in str(known) else "")))
    return request.copy(body=body, headers=headers)


def _failure(response: Any, data: bytes) -> ModelError:
    try:
        said: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        said = data.decode("utf-8", "replace")
    return failure_of_status("the provider", response.status_code, said)


# -- streams


class _StreamObserver:
    """Assembles a streamed reply while its bytes pass through."""

    def __init__(self) -> None:
        self._events = EventDecoder()
        self._reply: MessageAssembly | None = MessageAssembly("the provider")

    def feed(self, chunk: bytes) -> Body | None:
        """Add bytes of a stream; return the reply's body if they complete it, else None, also after an error."""
        if self._reply is None:
            return None
        try:
            for event in self._events.feed(chunk):
                for _ in self._reply.feed(event):
                    pass
        except (ReverieError, ValueError):
            self._reply = None  # an error or an unreadable stream: the host sees it, and nothing is logged
            return None
        if not self._reply.done:
            return None
        whole, self._reply = self._reply.reply().body, None
        return whole


class _ObservedStream(httpx2.SyncByteStream):
    """A stream with unchanged bytes that passes the whole reply to ``observe`` before its last bytes."""

    def __init__(self, response: httpx2.Response, observe: Callable[[Body], None]) -> None:
        self._response = response
        self._observe = observe

    def __iter__(self) -> Iterator[bytes]:
        watched = _StreamObserver()
        for chunk in self._response.iter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                self._observe(reply)
            yield chunk

    def close(self) -> None:
        self._response.close()


class _AsyncObservedStream(httpx2.AsyncByteStream):
    """``_ObservedStream`` for an asynchronous client."""

    def __init__(self, response: httpx2.Response, observe: Callable[[Body], Any]) -> None:
        self._response = response
        self._observe = observe

    async def __aiter__(self) -> AsyncIterator[bytes]:
        watched = _StreamObserver()
        async for chunk in self._response.aiter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                await self._observe(reply)
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


def _with_stream(response: httpx2.Response, stream: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> httpx2.Response:
    """Return a response with another body and the same status and headers, except its encoding and length."""
    headers = response.headers.copy()
    for name in _NO_LONGER_TRUE:
        if name in headers:
            del headers[name]
    return httpx2.Response(status_code=response.status_code, headers=headers, stream=stream, request=response.request)


# -- the memory tool


def _tool_answer(command: Callable[..., str], *arguments: Any) -> str:
    """Run a command of the memory tool and return its text; raise ``ToolError`` for an error of Reverie."""
    try:
        return command(*arguments)
    except InputError as error:
        raise ToolError(str(error)) from error
    except ReverieError as error:
        raise ToolError(f"The memory store could not do that: {error}") from error


class ReverieMemoryTool(BetaAbstractMemoryTool):
    """The memory tool ``memory_20250818`` over a project's memories."""

    def __init__(
        self,
        memory: Memory,
        *,
        author: str = "agent",
        source: str = "",
        trust: Trust | None = None,
        cache_control: Any = None,
    ) -> None:
        """Use a project's memories.

        The journal names ``author`` and ``source``; ``trust`` can lower the trust of new memories below an
        agent's.
        """
        super().__init__(cache_control=cache_control)
        self._files = MemoryFiles(str(memory.path), author=author, source=source, trust=trust)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return the listing of a directory, or a file's text with line numbers."""
        return _tool_answer(self._files.view, command.path, command.view_range)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file and return a confirmation; raise ``ToolError`` if the path exists."""
        return _tool_answer(self._files.create, command.path, command.file_text)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once in a file and return the changed lines; else raise ``ToolError``."""
        return _tool_answer(self._files.str_replace, command.path, command.old_str, command.new_str)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line of a file and return a confirmation."""
        return _tool_answer(self._files.insert, command.path, command.insert_line, command.insert_text)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or every file of a directory, and return a confirmation."""
        return _tool_answer(self._files.delete, command.path)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or a directory and return a confirmation; raise ``ToolError`` if the new path exists."""
        return _tool_answer(self._files.rename, command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        """Delete all memories and return a confirmation; the journal can restore them."""
        return _tool_answer(self._files.clear)


class AsyncReverieMemoryTool(BetaAsyncAbstractMemoryTool):
    """``ReverieMemoryTool`` for an asynchronous client; its commands run in a worker thread."""

    def __init__(
        self,
        memory: Memory,
        *,
        author: str = "agent",
        source: str = "",
        trust: Trust | None = None,
        cache_control: Any = None,
    ) -> None:
        """Take the same arguments as ``ReverieMemoryTool``."""
        super().__init__(cache_control=cache_control)
        self._tool = ReverieMemoryTool(memory, author=author, source=source, trust=trust)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return the listing of a directory, or a file's text with line numbers."""
        return await to_thread.run_sync(self._tool.view, command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file and return a confirmation; raise ``ToolError`` if the path exists."""
        return await to_thread.run_sync(self._tool.create, command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once in a file and return the changed lines; else raise ``ToolError``."""
        return await to_thread.run_sync(self._tool.str_replace, command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line of a file and return a confirmation."""
        return await to_thread.run_sync(self._tool.insert, command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file, or every file of a directory, and return a confirmation."""
        return await to_thread.run_sync(self._tool.delete, command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or a directory and return a confirmation; raise ``ToolError`` if the new path exists."""
        return await to_thread.run_sync(self._tool.rename, command)

    async def clear_all_memory(self) -> str:
        """Delete all memories and return a confirmation; the journal can restore them."""
        return await to_thread.run_sync(self._tool.clear_all_memory)
