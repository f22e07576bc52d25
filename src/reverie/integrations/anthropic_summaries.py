"""Send requests for the provider's summary beside a client's conversation: in a thread, or as a task.

The conversation never waits for a summary unless its window is full. A summary that is still being written when the
session closes is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, Final

from ..errors import ModelError, ReplyBroken
from ..events import Event, SessionClosed
from .anthropic_wire import Body, StreamObserver, failure_of, with_body
from .host_session import SendBeside
from .sync_session import SessionBridge

_WHAT: Final = "compact in the background"
_THREAD: Final = "reverie-summary"
_WHO: Final = "the provider"


class BackgroundSummaries:
    """Sends a session's requests for summaries through the client of its conversation, and passes on the replies."""

    def __init__(self, bridge: SessionBridge) -> None:
        self._bridge = bridge
        self._closed = False
        self._tasks: dict[asyncio.Task[None], asyncio.AbstractEventLoop] = {}
        bridge.session.listen(self._on_event)

    def by_thread(self, request: Any, call_next: Callable[[Any], Any]) -> SendBeside:
        """Return a function that sends a body like this request, in a thread that does not keep the program alive."""

        def send(body: Body) -> None:
            Thread(
                target=self._run, args=(_streamed(request, body, self._seconds), call_next), name=_THREAD, daemon=True
            ).start()

        return send

    def by_task(self, request: Any, call_next: Callable[[Any], Any]) -> SendBeside | None:
        """Return a function that sends a body like this request as a task; None outside of asyncio."""
        try:
            home = asyncio.get_running_loop()
        except RuntimeError:
            return None

        def start(body: Body) -> None:
            task = home.create_task(self._arun(_streamed(request, body, self._seconds), call_next), name=_THREAD)
            self._tasks[task] = home
            task.add_done_callback(self._tasks.pop)

        def send(body: Body) -> None:  # the session may run on another event loop
            home.call_soon_threadsafe(start, body)

        return send

    @property
    def _seconds(self) -> float:
        return self._bridge.session.settings.compact.summary_seconds

    def _on_event(self, event: Event) -> None:
        if isinstance(event, SessionClosed):
            self._closed = True
            for task, home in list(self._tasks.items()):
                if not home.is_closed():
                    home.call_soon_threadsafe(task.cancel)

    def _run(self, request: Any, call_next: Callable[[Any], Any]) -> None:
        try:
            reply: Any = self._reply(call_next(request))
        except Exception as error:
            reply = error
        if not self._closed:
            self._bridge.try_call(_WHAT, partial(self._bridge.session.background_reply, reply))

    def _reply(self, response: Any) -> Body | ModelError:
        http = response.http_response
        try:
            if not http.is_success:
                return failure_of(response, http.read())
            watched = StreamObserver()
            for chunk in http.iter_bytes():
                if self._closed:
                    break
                reply = watched.feed(chunk)
                if reply is not None:
                    return reply
        finally:
            http.close()
        return _broken()

    async def _arun(self, request: Any, call_next: Callable[[Any], Any]) -> None:
        try:
            reply: Any = await self._areply(await call_next(request))
        except Exception as error:
            reply = error
        if not self._closed:
            await self._bridge.try_acall(_WHAT, partial(self._bridge.session.background_reply, reply))

    async def _areply(self, response: Any) -> Body | ModelError:
        http = response.http_response
        try:
            if not http.is_success:
                return failure_of(response, await http.aread())
            watched = StreamObserver()
            async for chunk in http.aiter_bytes():
                reply = watched.feed(chunk)
                if reply is not None:
                    return reply
        finally:
            await http.aclose()
        return _broken()


def _streamed(request: Any, body: Body, seconds: float) -> Any:
    """Return a request with another body that is answered by a stream, so that no connection is idle for long."""
    sent = with_body(request, {**body, "stream": True}).copy(timeout=seconds)
    sent.stream = True
    return sent


def _broken() -> ReplyBroken:
    return ReplyBroken(f"{_WHO}: the stream of the summary ended without a reply")
