"""What every adapter does on the wire: bodies as bytes, streams read to their end, connections let go."""

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
from .failures import failure_of_exception
from .sse import EventDecoder, ServerEvent

if TYPE_CHECKING:
    import httpx2

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "ReplyAssembly", "body_bytes", "is_loopback", "read_reply", "whole_reply"]

CONNECT_SECONDS: Final = 15.0
READ_SECONDS: Final = 600.0
_DRAIN_SECONDS: Final = 0.25
_CLOSE_SECONDS: Final = 2.0
_encode: Final = msgspec.json.Encoder().encode


class ReplyAssembly(Protocol):
    """Puts a reply together from the events of one provider."""

    @property
    def done(self) -> bool:
        """Whether the provider said that this is all."""
        ...

    def feed(self, event: ServerEvent) -> Iterator[ReplyDelta]:
        """Take one event and yield what it shows."""
        ...

    def take_whole(self, body: bytes) -> Iterator[ReplyDelta]:
        """Take a reply that came in one piece."""
        ...

    def reply(self) -> Reply:
        """Return the whole reply; ``ReplyBroken`` where it is not."""
        ...


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a request as the bytes that are sent: the values as they are, in their order."""
    try:
        return _encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError):
        try:
            return _encode(clean(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelRefused(f"the request cannot be sent as JSON: {error}") from error


def is_loopback(url: str) -> bool:
    """Say whether an address is on this machine, so that no key, proxy or kept connection is needed."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or host.endswith(".localhost") or ip_address(host).is_loopback
    except ValueError:
        return False


async def read_reply(
    response: httpx2.Response, assembly: ReplyAssembly, who: str
) -> AsyncGenerator[ReplyDelta | Reply, None]:
    """Yield the pieces of an accepted response and last its reply; close it however this ends, also when cancelled."""
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
    """Read a stream to its end and return the reply it ended with."""
    found: Reply | None = None
    async with aclosing(stream):
        async for part in stream:
            if isinstance(part, Reply):
                found = part
    if found is None:
        raise ReplyBroken("the stream ended without a reply")
    return found


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read what is left after a whole reply, so that the connection can serve the next one; not for long."""
    with anyio.move_on_after(_DRAIN_SECONDS), suppress(Exception):
        async for _ in chunks:
            pass
