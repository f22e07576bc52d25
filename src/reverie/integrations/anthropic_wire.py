"""Requests and responses of the Anthropic SDK: other bodies and headers, and replies read while they stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, cast

import httpx2
import msgspec

from ..errors import ModelError, ReverieError
from ..models.failures import failure_of_status
from ..models.messages_stream import MessageAssembly
from ..models.sse import EventDecoder
from ..runtime.session.limits import EDITING_BETA

Body = dict[str, Any]

_PATH: Final = "/v1/messages"
_BETA: Final = "anthropic-beta"
_NO_LONGER_TRUE: Final = ("content-encoding", "content-length")
_BESIDE: Final = ("betas", "extra_headers")


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
