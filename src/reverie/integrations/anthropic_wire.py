"""Requests and responses of the Anthropic SDK: other bodies and headers, and replies read while they stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
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
from .sync_session import SessionBridge

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


class ObservedStream(httpx2.SyncByteStream):
    """A stream with unchanged bytes that passes the whole reply to ``observe`` before its last bytes."""

    def __init__(self, response: httpx2.Response, observe: Callable[[Body], None]) -> None:
        self._response = response
        self._observe = observe

    def __iter__(self) -> Iterator[bytes]:
        watched = StreamObserver()
        for chunk in self._response.iter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                self._observe(reply)
            yield chunk

    def close(self) -> None:
        self._response.close()


class AsyncObservedStream(httpx2.AsyncByteStream):
    """``ObservedStream`` for an asynchronous client."""

    def __init__(self, response: httpx2.Response, observe: Callable[[Body], Any]) -> None:
        self._response = response
        self._observe = observe

    async def __aiter__(self) -> AsyncIterator[bytes]:
        watched = StreamObserver()
        async for chunk in self._response.aiter_bytes():
            reply = watched.feed(chunk)
            if reply is not None:
                await self._observe(reply)
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


def with_stream(response: httpx2.Response, stream: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> httpx2.Response:
    """Return a response with another body and the same status and headers, except its encoding and length."""
    headers = response.headers.copy()
    for name in _NO_LONGER_TRUE:
        if name in headers:
            del headers[name]
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
