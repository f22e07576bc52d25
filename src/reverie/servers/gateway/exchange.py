"""One request with its reply as the gateway saw them, without credentials, and as a frame for the recorder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, cast

import msgspec

from ...values import record
from .http1 import Head, MessageBody

MAX_CONTENT_BYTES: Final = 64_000_000
"""A request or reply with more content is not recorded."""
APIS: Final = {b"/messages": "messages", b"/chat/completions": "chat", b"/responses": "responses"}
"""The end of the path of each recorded endpoint, and the name of its API."""
SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "session-id",
    "session_id",
    "thread-id",
    "conversation_id",
    "x-codex-parent-thread-id",
    "x-openai-subagent",
    "x-session-id",
    "x-session-affinity",
    "x-parent-session-id",
    "x-opencode-session",
)
"""The headers by which clients name their sessions, and the sub-agents in them."""
_KEPT: Final = frozenset(SESSION_HEADERS) | {"user-agent", "content-type", "content-encoding", "anthropic-beta"}
_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key", b"cookie"})
_LEAST_SECRET: Final = 8
_HIDDEN: Final = b"[credential]"
_PREFIX: Final = 4


class Exchange:
    """A request and its reply while they pass; only the headers that are safe to record are kept."""

    def __init__(self, api: str, head: Head, body: MessageBody) -> None:
        """Collect the content of a request from its ``body``."""
        self.api = api
        self.at = time.time()
        self.status = 0
        self.whole = False
        """Whether the reply came to its end."""
        self.request = body.content = list[bytes]()
        self.response = list[bytes]()
        self.headers = _safe(head)
        self.reply_headers: dict[str, str] = {}
        self._secrets = _secrets(head)

    def answered(self, head: Head, body: MessageBody) -> None:
        """Collect the content of the reply from its ``body``."""
        self.status, self.reply_headers = head.status, _safe(head)
        body.content = self.response

    def frame(self, saved: dict[str, Any] | None = None) -> bytes | None:
        """Return the exchange as bytes for ``read_exchanges``; None if it is too big to record."""
        request, response = b"".join(self.request), b"".join(self.response)
        if max(len(request), len(response)) > MAX_CONTENT_BYTES:
            return None
        for secret in self._secrets:
            request, response = request.replace(secret, _HIDDEN), response.replace(secret, _HIDDEN)
        about = msgspec.json.encode(
            {
                "api": self.api,
                "at": self.at,
                "status": self.status,
                "whole": self.whole,
                "headers": self.headers,
                "reply_headers": self.reply_headers,
                "saved": saved,
            }
        )
        return b"".join(len(part).to_bytes(_PREFIX, "big") + part for part in (about, request, response))


@record
class SeenExchange:
    """A request and its reply as the recorder gets them."""

    api: str
    at: float
    status: int
    whole: bool
    headers: dict[str, str]
    reply_headers: dict[str, str]
    request: bytes
    response: bytes
    saved: dict[str, Any] | None = None


def api_of(method: bytes, target: bytes) -> str | None:
    """Return the API that a request belongs to; None for one that is not recorded."""
    path = target.partition(b"?")[0]
    return next((api for end, api in APIS.items() if path.endswith(end)), None) if method == b"POST" else None


def read_exchanges(stream: IO[bytes]) -> Iterator[SeenExchange]:
    """Yield the exchanges of a stream of frames until its end; a frame that is cut off ends it too."""
    while True:
        parts = [_part(stream) for _ in range(3)]
        if None in parts:
            return
        about, request, response = cast("list[bytes]", parts)
        yield SeenExchange(**msgspec.json.decode(about), request=request, response=response)


def _part(stream: IO[bytes]) -> bytes | None:
    size = stream.read(_PREFIX)
    if len(size) < _PREFIX:
        return None
    wanted = int.from_bytes(size, "big")
    data = stream.read(wanted)
    return data if len(data) == wanted else None


def _safe(head: Head) -> dict[str, str]:
    named = ((name.decode("ascii", "replace"), value.decode("latin-1")) for name, value in head.fields)
    return {name: value for name, value in named if name in _KEPT}


def _secrets(head: Head) -> tuple[bytes, ...]:
    """Return the credentials of a request, to remove them should a body repeat them."""
    given = [value.split(b" ")[-1] for name, value in head.fields if name in _CREDENTIALS]
    given += _query_values(head.start)
    return tuple(one for one in given if len(one) >= _LEAST_SECRET)


def _query_values(start: bytes) -> Iterable[bytes]:
    """Return the values of a query; Google's clients send their key in one."""
    query = start.split(b" ")[1].partition(b"?")[2]
    return [value for name, _, value in (pair.partition(b"=") for pair in query.split(b"&")) if name == b"key"]
