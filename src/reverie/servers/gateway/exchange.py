"""One request with its reply as the gateway saw them, without credentials, and as a frame for the recorder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, cast

import msgspec

from ...values import record
from .http1 import BrokenMessage, Bytes, Head, kept, unframed

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
MAX_EXCHANGE_BYTES: Final = 128_000_000


class Exchange:
    """A request and its reply while they pass; of the headers only those that are safe to record are kept."""

    def __init__(self, api: str, head: Head, *, chunked: bool) -> None:
        """Begin with the head of a request."""
        self.api = api
        self.at = time.time()
        self.status = 0
        self.whole = False
        """Whether the reply came to its end."""
        self.request = list[Bytes]()
        """The bytes of the request's body, in chunks if it is ``chunked``."""
        self.response = list[Bytes]()
        self.is_too_long = False
        """Whether both bodies were longer than ``MAX_EXCHANGE_BYTES``; then no more of them is kept."""
        self._bytes = 0
        self.saved: dict[str, Any] | None = None
        self._chunked = [chunked, False]
        self._headers = _safe(head)
        self._reply_headers: dict[str, str] = {}
        self._secrets = _secrets(head)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request that name its session and describe its body."""
        return self._headers

    @property
    def is_chunked(self) -> bool:
        """Whether the body of the request comes in chunks."""
        return self._chunked[0]

    def answered(self, head: Head, *, chunked: bool) -> None:
        """Take the head of the reply; its body comes in pieces."""
        self.status, self._reply_headers, self._chunked[1] = head.status, _safe(head), chunked

    def went(self, piece: Bytes) -> list[Bytes]:
        """Keep a piece of the request's body; of one that is too long, return the pieces that are kept no more."""
        return self._keep(self.request, piece)

    def came(self, piece: Bytes) -> None:
        """Keep a piece of the reply's body."""
        self._keep(self.response, piece)

    def _keep(self, pieces: list[Bytes], piece: Bytes) -> list[Bytes]:
        """Keep a piece of a body; a stream that does not end must not fill the memory."""
        self._bytes += len(piece)
        self.is_too_long = self._bytes > MAX_EXCHANGE_BYTES
        if not self.is_too_long:
            pieces.append(kept(piece))
            return []
        dropped = [*pieces, piece]
        pieces.clear()
        return dropped

    @property
    def size(self) -> int:
        """The bytes of both bodies."""
        return sum(map(len, self.request)) + sum(map(len, self.response))

    def frame(self) -> list[Bytes]:
        """Return the exchange as bytes for ``read_exchanges``, in pieces.

        The credentials of the request are among them, so that the recorder can take them out of bodies that repeat
        them; they exist in memory only.
        """
        about = {
            "api": self.api,
            "at": self.at,
            "status": self.status,
            "whole": self.whole,
            "headers": self._headers,
            "reply_headers": self._reply_headers,
            "chunked": self._chunked,
            "secrets": [secret.decode("latin-1") for secret in self._secrets],
            "saved": self.saved,
        }
        pieces: list[Bytes] = []
        about_bytes: list[Bytes] = [msgspec.json.encode(about)]
        for part in (about_bytes, self.request, self.response):
            pieces += [sum(map(len, part)).to_bytes(_PREFIX, "big"), *part]
        return pieces


@record
class SeenExchange:
    """A request and its reply as the recorder gets them, without credentials."""

    api: str
    at: float
    status: int
    whole: bool
    headers: dict[str, str]
    reply_headers: dict[str, str]
    request: bytes
    response: bytes
    saved: dict[str, Any] | None = None
    secrets: tuple[bytes, ...] = ()
    """Values that must not be recorded."""


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
        about, *bodies = cast("list[bytes]", parts)
        told: dict[str, Any] = msgspec.json.decode(about)
        secrets = tuple(one.encode("latin-1") for one in told.pop("secrets"))
        framing: list[bool] = told.pop("chunked")
        try:
            request, response = map(lambda data, chunked: unframed(data, chunked=chunked), bodies, framing)
        except BrokenMessage:
            continue
        yield SeenExchange(**told, request=hidden(request, secrets), response=response, secrets=secrets)


def _part(stream: IO[bytes]) -> bytes | None:
    size = stream.read(_PREFIX)
    if len(size) < _PREFIX:
        return None
    wanted = int.from_bytes(size, "big")
    data = stream.read(wanted)
    return data if len(data) == wanted else None


def hidden(text: bytes, secrets: Iterable[bytes]) -> bytes:
    """Return a text without credentials."""
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


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
