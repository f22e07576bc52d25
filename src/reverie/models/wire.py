"""The HTTP work that all adapters share: encode bodies, read streams to the end, close responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec

from ..conversation.entries import clean
from ..errors import ModelError, ModelRefused, ReplyBroken
from ..ports import Reply, ReplyDelta
from ..values import record
from .failures import failure_of_exception

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 15.0
READ_SECONDS: Final = 600.0
_DRAIN_SECONDS: Final = 0.25
_CLOSE_SECONDS: Final = 2.0
_encode: Final = msgspec.json.Encoder().encode
MAX_EVENT_BYTES: Final = 2**25
"""An event may have at most this many bytes: the largest carry a whole reply."""
_BOM = b"\xef\xbb\xbf"


class ReplyAssembly(Protocol):
    """A reply that is assembled from the events of one provider."""

    @property
    def done(self) -> bool:
        """Whether the provider has sent the last event."""
        ...

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Take one event and yield the pieces in it; raise ``ModelError`` for an error event."""
        ...

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a reply that came in one piece, not streamed, and yield its pieces."""
        ...

    def reply(self) -> Reply:
        """Return the whole reply; raise ``ReplyBroken`` if it is not finished."""
        ...


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON bytes in its order, odd values made JSON; raise ``ModelRefused`` if that fails."""
    try:
        return _encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError):
        try:
            return _encode(clean(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelRefused(f"the request cannot be sent as JSON: {error}") from error


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, where no key, proxy or kept connection is needed."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or host.endswith(".localhost") or ip_address(host).is_loopback
    except ValueError:
        return False


async def read_reply(
    response: httpx2.Response, assembly: ReplyAssembly, who: str
) -> AsyncGenerator[ReplyDelta | Reply, None]:
    """Yield the pieces of a response, then the reply; always close it, and raise errors as ``ModelError``."""
    try:
        if "json" in response.headers.get("content-type", ""):
            for piece in assembly.take_whole(await response.aread()):
                yield piece
        else:
            decoder = EventDecoder()
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        for piece in assembly.feed(event):
                            yield piece
                    if assembly.done:
                        await _drain(chunks)
                        break
        yield assembly.reply()
    except ModelError:
        raise
    except Exception as error:
        raise failure_of_exception(who, error, begun=True) from error
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await response.aclose()


async def whole_reply(stream: AsyncGenerator[ReplyDelta | Reply, None]) -> Reply:
    """Read a stream to its end and return its reply; raise ``ReplyBroken`` if it has none."""
    found: Reply | None = None
    async with aclosing(stream):
        async for part in stream:
            if isinstance(part, Reply):
                found = part
    if found is None:
        raise ReplyBroken("the stream ended without a reply")
    return found


class StreamedModel:
    """A model whose replies are read from an HTTP stream; a subclass names itself and sends requests."""

    @property
    def name(self) -> str:
        """The full name of the model, with which errors begin."""
        raise NotImplementedError

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Send a request and yield the pieces of the reply as they arrive, then the whole reply."""
        response, assembly = await self._send(request)
        async with aclosing(read_reply(response, assembly, self.name)) as parts:
            async for part in parts:
                yield part

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Send a request and return the whole reply."""
        return await whole_reply(self.stream(request))

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        """Send a request; return the streaming response and the assembly that reads it."""
        raise NotImplementedError


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read the bytes after a whole reply for a moment, so that the connection can be reused."""
    with anyio.move_on_after(_DRAIN_SECONDS), suppress(Exception):
        async for _ in chunks:
            pass


@record
class ServerEvent:
    """One event: its name, empty where none was given, and its data."""

    name: str
    data: str


class EventDecoder:
    """A decoder that collects bytes and yields the events that they complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._bytes = 0
        self._name = ""
        self._data: list[str] = []
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete.

        Raise ``UnicodeDecodeError`` for bytes that are not UTF-8, and ``ModelError`` for an event that is too big.
        """
        self._bytes += len(chunk)
        waiting = self._rest
        waiting.append(chunk)
        # Bytes are joined once a line ends, and not at every chunk: that would cost the square of the line's length.
        ends = b"\n" in chunk or b"\r" in chunk or (len(waiting) > 1 and waiting[-2].endswith(b"\r"))
        lines = b"".join(waiting).splitlines(keepends=True) if ends else []
        if ends:
            # A carriage return at the end may be half of a line end, so it waits for the next chunk.
            self._rest = [lines.pop()] if lines and not lines[-1].endswith(b"\n") else []
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                yield event
        if self._bytes > MAX_EVENT_BYTES:
            raise ModelError(f"the stream sent an event of more than {MAX_EVENT_BYTES // 2**20} MB; it is not read")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            line, self._begun = line.removeprefix(_BOM), True
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self._bytes = "", [], sum(map(len, self._rest))
            return event
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        return None
