"""The Anthropic SDK: a middleware for an existing loop, and the memory tool over our store.

    client = AsyncAnthropic().with_middleware(reverie_middleware(session))
    expand = expand_tool(session)                         # client.beta.messages.tool_runner(tools=[expand], ...)
    memory = ReverieMemoryTool(Memory.open("."))          # client.beta.messages.tool_runner(tools=[memory], ...)

The loop keeps sending its whole history, and the middleware sends the session's view of it instead. Requests to other
endpoints, of other conversations, and after any failure of ours pass unchanged. Where the provider writes summaries,
the middleware asks for one in the background before the window is full.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, Final

import msgspec
from anthropic import APIResponse, AsyncAPIResponse, Middleware
from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    BetaAsyncFunctionTool,
    BetaFunctionTool,
    ToolError,
)
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)
from anyio import to_thread

from ..errors import InputError, ReverieError
from ..memories.store.trust import Trust
from ..runtime.memory.memory import Memory
from ..runtime.memory.session import Session
from ..runtime.session.offload.read_back import EXPAND_TOOL
from .anthropic_wire import (
    BackgroundSummaries,
    BlockingResponse,
    Body,
    asked_options,
    failure_of,
    messages_body,
    observed,
    with_body,
)
from .host_session import HostSession, SendBeside
from .memory_files import MemoryFiles
from .sync_session import SessionBridge, Tried, as_async, run_now

__all__ = ["AsyncReverieMemoryTool", "ReverieMemoryTool", "async_expand_tool", "expand_tool", "reverie_middleware"]

_WHAT: Final = "middleware"


def reverie_middleware(session: Session, *, memory: Memory | None = None) -> Middleware:
    """Return a client middleware that sends a session's view in place of a loop's history, and logs the replies.

    With ``memory`` the memory index opens the conversation, and memories that fit are recalled.
    """
    return _SessionMiddleware(session, memory)


def expand_tool(session: Session) -> BetaFunctionTool[Any]:
    """Return the tool for a synchronous client that opens the handles that the model is shown.

    A loop of its own declares ``to_dict()`` and answers a call by ``call(input)``.
    """
    return BetaFunctionTool(SessionBridge(session).expand_blocking, **EXPAND_TOOL)


def async_expand_tool(session: Session) -> BetaAsyncFunctionTool[Any]:
    """Return ``expand_tool`` for an asynchronous client."""
    return BetaAsyncFunctionTool(SessionBridge(session).expand, **EXPAND_TOOL)


class _SessionMiddleware(Middleware):
    """The middleware for one conversation: sends the session's view, logs replies, lets other requests pass."""

    def __init__(self, session: Session, memory: Memory | None) -> None:
        self._bridge = SessionBridge(session)
        self._host_session = HostSession(session, memory)
        self._summaries = BackgroundSummaries(self._bridge)

    def handle(self, request: Any, call_next: Callable[[Any], APIResponse[Any]]) -> APIResponse[Any]:
        """Send a synchronous client's request with the session's view, log the reply, and return the response.

        A refused request is sent again as long as the session can change it: a prompt that is too long is compacted,
        thinking and images that were refused are dropped. If we fail, or nothing can be changed, the client's own
        request is sent.
        """
        work = self._exchange(
            request,
            as_async(call_next),
            self._bridge.try_now,
            lambda: self._summaries.by_thread(request, call_next),
            BlockingResponse,
        )
        return run_now(work)

    async def handle_async(self, request: Any, call_next: Callable[[Any], Any]) -> AsyncAPIResponse[Any]:
        """Do for an asynchronous client the same as ``handle``."""
        return await self._exchange(
            request, call_next, self._bridge.try_acall, lambda: self._summaries.by_task(request, call_next)
        )

    async def _exchange(
        self,
        request: Any,
        call_next: Callable[[Any], Awaitable[Any]],
        tried: Tried,
        send_beside: Callable[[], SendBeside | None],
        readable: Callable[[Any], Any] = lambda http: http,
    ) -> Any:
        """Send the session's view and return the response; ``readable`` makes its HTTP response one to be awaited."""
        body = messages_body(request)
        if body is None:
            return await call_next(request)
        beside = send_beside()
        prepare = partial(self._host_session.prepare, asked_options(request, body), beside)
        sent: Body | None = await tried(_WHAT, prepare)
        if sent is None:
            return await call_next(request)
        response = await call_next(with_body(request, sent))
        while response.status_code in (400, 413):
            failure = failure_of(response, await readable(response.http_response).aread())
            sent = await tried(_WHAT, partial(self._host_session.recover, failure, body))
            if sent is None:
                said = f"the request was refused and the host's own is sent instead: {failure}"
                self._bridge.report_fallback(_WHAT, said)
                return await call_next(request)
            response = await call_next(with_body(request, sent))
        if not response.http_response.is_success:
            return response
        if request.stream:
            response.http_response = observed(response.http_response, partial(self._log_reply, tried, beside))
        else:
            await self._log_reply(tried, beside, await readable(response.http_response).aread())
        return response

    async def _log_reply(self, tried: Tried, beside: SendBeside | None, reply: bytes | Body) -> None:
        await tried(_WHAT, partial(self._observe, beside, reply))

    async def _observe(self, beside: SendBeside | None, reply: bytes | Body) -> None:
        await self._host_session.observe(msgspec.json.decode(reply) if isinstance(reply, bytes) else reply, beside)


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


def _in_thread(command: Callable[[ReverieMemoryTool, Any], str]) -> Any:
    """Return a command of the memory tool as an asynchronous method that runs it in a worker thread."""

    @wraps(command)
    async def run(self: Any, given: Any) -> str:
        return await to_thread.run_sync(command, self._tool, given)

    return run


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

    view = _in_thread(ReverieMemoryTool.view)
    create = _in_thread(ReverieMemoryTool.create)
    str_replace = _in_thread(ReverieMemoryTool.str_replace)
    insert = _in_thread(ReverieMemoryTool.insert)
    delete = _in_thread(ReverieMemoryTool.delete)
    rename = _in_thread(ReverieMemoryTool.rename)

    async def clear_all_memory(self) -> str:
        """Delete all memories and return a confirmation; the journal can restore them."""
        return await to_thread.run_sync(self._tool.clear_all_memory)
