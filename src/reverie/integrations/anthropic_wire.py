"""Requests and responses of the Anthropic SDK: other bodies and headers, and replies read while they stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from threading import Thread
from typing import Any, Final, cast

import httpx2
import msgspec

from ..errors import ModelError, ReplyBroken, ReverieError
from ..events import Event, SessionClosed
from ..models.failures import failure_of_status
from ..models.messages_stream import MessageAssembly
from ..models.wire import EventDecoder
from ..runtime.session.limits import EDITING_BETA
from .host_session import SendBeside
from .sync_session import SessionBridge, Tried, as_async, run_now

Body = dict[str, Any]

_PATH: Final = "/v1/messages"
_BETA: Final = "anthropic-beta"
_NO_LONGER_TRUE: Final = ("content-encoding", "content-length")
_BESIDE: Final = ("betas", "extra_headers")
_WHAT: Final = "compact in the background"
_THREAD: Final = "reverie-summary"
_WHO: Final = "the provider"


def messages_body(request: Any) -> Body | None:
    """Return the body of a POST to the Messages endpoint that has a list of messages; None for other requests."""
    path = str(request.url).split("?", 1)[0]
    body = request.json
    if str(request.method).lower() != "post" or not path.endswith(_PATH) or not isinstance(body, dict):
        return None
    asked = cast(Body, body)
    return asked if isinstance(asked.get("messages"), list) else None


def asked_options(request: Any, body: Body) -> Body:
    """Return the body with the betas of the request's header, and the one that ``with_body`` can add, as ``betas``."""
    headers = cast("Mapping[str, Any]", request.headers)
    named = next((value for key, value in headers.items() if key.lower() == _BETA and isinstance(value, str)), "")
    return {**body, "betas": list(dict.fromkeys([*_named(named), EDITING_BETA]))}


def with_body(request: Any, sent: Body) -> Any:
    """Return a copy of the request with another body, and with the beta header that this body newly needs."""
    body = {key: value for key, value in sent.items() if key not in _BESIDE}
    headers: dict[str, Any] = dict(request.headers)
    name = next((key for key in headers if key.lower() == _BETA), _BETA)
    beside: Mapping[str, Any] = sent.get("extra_headers") or {}
    betas = [*_named(headers.get(name)), *_named(beside.get(_BETA))]
    if "context_management" in body and "context_management" not in request.json:
        betas.append(EDITING_BETA)
    if betas:
        headers[name] = ",".join(dict.fromkeys(betas))
    return request.copy(body=body, headers=headers)


def _named(header: Any) -> list[str]:
    return [one.strip() for one in header.split(",") if one.strip()] if isinstance(header, str) else []


def failure_of(response: Any, data: bytes) -> ModelError:
    try:
        said: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        said = data.decode("utf-8", "replace")
    return failure_of_status("the provider", response.status_code, said)


# -- streams


class StreamObserver:
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


class BlockingResponse:
    """The response of a synchronous client in the form of one that is awaited."""

    def __init__(self, http: httpx2.Response) -> None:
        self._http = http
        self.is_success = http.is_success

    async def aread(self) -> bytes:
        """Return the whole body."""
        return self._http.read()

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces."""
        for chunk in self._http.iter_bytes():
            yield chunk

    async def aclose(self) -> None:
        """Close the response."""
        self._http.close()


class ObservedStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A stream with unchanged bytes that passes the whole reply to ``observe`` before its last bytes."""

    def __init__(self, response: httpx2.Response, observe: Callable[[Body], Coroutine[Any, Any, None]]) -> None:
        self._response = response
        self._observe = observe

    def __iter__(self) -> Iterator[bytes]:
        watched = StreamObserver()
        for chunk in self._response.iter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                run_now(self._observe(reply))
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        watched = StreamObserver()
        async for chunk in self._response.aiter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                await self._observe(reply)
            yield chunk

    def close(self) -> None:
        self._response.close()

    async def aclose(self) -> None:
        await self._response.aclose()


def observed(response: httpx2.Response, observe: Callable[[Body], Coroutine[Any, Any, None]]) -> httpx2.Response:
    """Return a response whose stream is observed, with the same status and headers but its encoding and length."""
    headers = response.headers.copy()
    for name in _NO_LONGER_TRUE:
        if name in headers:
            del headers[name]
    stream = ObservedStream(response, observe)
    return httpx2.Response(status_code=response.status_code, headers=headers, stream=stream, request=response.request)


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
            asked = _streamed(request, body, self._seconds)
            work = self._run(asked, as_async(call_next), self._bridge.try_now, BlockingResponse)
            Thread(target=run_now, args=(work,), name=_THREAD, daemon=True).start()

        return send

    def by_task(self, request: Any, call_next: Callable[[Any], Any]) -> SendBeside | None:
        """Return a function that sends a body like this request as a task; None outside of asyncio."""
        try:
            home = asyncio.get_running_loop()
        except RuntimeError:
            return None

        def start(body: Body) -> None:
            asked = _streamed(request, body, self._seconds)
            task = home.create_task(self._run(asked, call_next, self._bridge.try_acall), name=_THREAD)
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

    async def _run(
        self,
        request: Any,
        call_next: Callable[[Any], Awaitable[Any]],
        tried: Tried,
        readable: Callable[[Any], Any] = lambda http: http,
    ) -> None:
        try:
            response = await call_next(request)
            reply: Any = await self._reply(response, readable(response.http_response))
        except Exception as error:
            reply = error
        if not self._closed:
            await tried(_WHAT, partial(self._bridge.session.background_reply, reply))

    async def _reply(self, response: Any, http: Any) -> Body | ModelError:
        try:
            if not http.is_success:
                return failure_of(response, await http.aread())
            watched = StreamObserver()
            async for chunk in http.aiter_bytes():
                if self._closed:
                    break
                reply = watched.feed(chunk)
                if reply is not None:
                    return reply
        finally:
            await http.aclose()
        return ReplyBroken(f"{_WHO}: the stream of the summary ended without a reply")


def _streamed(request: Any, body: Body, seconds: float) -> Any:
    """Return a request with another body that is answered by a stream, so that no connection is idle for long."""
    sent = with_body(request, {**body, "stream": True}).copy(timeout=seconds)
    sent.stream = True
    return sent
