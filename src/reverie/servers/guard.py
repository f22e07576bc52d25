"""Decide which requests may reach a server on loopback: the right host, no foreign page, and the right token.

A page in a browser can send requests to loopback, directly or under a name of its own that it points there (DNS
rebinding). So the Host must be one of our own spellings, an Origin must be ours, and every request needs a token that
no page can know. Each refusal has its own status and text; only the head of a refused request is read.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..errors import InputError
from ..paths import closed_after, explained, open_plain, open_root, read_all, replace_file
from ..values import record

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

SAFE_HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer; an application that serves pages may send a policy of its own."""

_NAMES: Final = ("127.0.0.1", "localhost")
_MIN_CHARS: Final = 20
_FOREIGN_SITES: Final = frozenset({b"cross-site", b"same-site"})
HOST: Final = "127.0.0.1"
_MAX_BYTES: Final = 4_096


@record
class HttpRefusal:
    """The answer to a refused request: the status, the reason as text, and further headers."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class LoopbackRules:
    """The rules by which a server on loopback refuses requests."""

    def __init__(
        self, *, port: int, token: str | None = None, paths: Iterable[str] = (), public: Iterable[str] = ()
    ) -> None:
        """Set the rules of a server that listens on ``port``; requests for other paths than ``paths`` get 404.

        ``public`` are paths that need no token: pages that hold nothing but their own script. Without a ``token`` every
        path is public. Raise ``InputError`` if the token is short or not ASCII.
        """
        if token is not None and (len(token) < _MIN_CHARS or not token.isascii()):
            raise InputError(f"a token needs at least {_MIN_CHARS} ASCII characters")
        self._token = token.encode() if token is not None else None
        self._public = frozenset(public)
        self._paths = frozenset(paths) | self._public
        spelled = [f"{name}:{port}" for name in _NAMES] + (list(_NAMES) if port == 80 else [])
        self._hosts = frozenset(one.encode() for one in spelled)
        self._origins = frozenset(f"http://{one}".encode() for one in spelled)

    def refusal(self, scope: Message) -> HttpRefusal | None:
        """Return why a request is refused; None if it is allowed."""
        headers: Headers = list(scope["headers"])
        hosts = _values(headers, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return HttpRefusal(421, "this server answers only at its own address on loopback")
        # A host in the request target would override the Host header.
        if not (scope.get("raw_path") or scope["path"].encode("latin-1", "replace")).startswith(b"/"):
            return HttpRefusal(421, "name the path alone")
        if any(origin not in self._origins for origin in _values(headers, b"origin")):
            return HttpRefusal(403, "other pages may not call this server")
        if any(site.lower() in _FOREIGN_SITES for site in _values(headers, b"sec-fetch-site")):
            return HttpRefusal(403, "other pages may not call this server")
        if self._token is None:
            return None
        if scope["path"] not in self._public and not self._knows_token(headers, self._token):
            challenge = ((b"www-authenticate", b"Bearer"),)
            return HttpRefusal(401, "send the server's token as 'Authorization: Bearer ...'", challenge)
        if scope["path"] not in self._paths:
            return HttpRefusal(404, f"there is only {', '.join(sorted(self._paths))}")
        return None

    def _knows_token(self, headers: Headers, wanted: bytes) -> bool:
        given = _values(headers, b"authorization")
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # Compared for every scheme, so that the time reveals nothing.
        same = hmac.compare_digest(token.strip(), wanted)
        return same and scheme.lower() == b"bearer"


class LoopbackGuard(LoopbackRules):
    """An ASGI application that passes only allowed requests to the application behind it."""

    def __init__(self, app: App, *, port: int, token: str, paths: Iterable[str]) -> None:
        """Guard an application that listens on ``port`` by the rules of loopback servers."""
        super().__init__(port=port, token=token, paths=paths)
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a refused HTTP request, or pass an allowed one to the application; ignore other connections."""
        if scope["type"] != "http":
            return  # only HTTP is served; the server closes other connections
        refusal = self.refusal(scope)
        if refusal is not None:
            await _refuse(refusal, _answering(send))
            return
        await self._app(scope, receive, _answering(send))


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def _answering(send: Send) -> Send:
    """Return a ``send`` that adds each safe header that an answer does not set itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: Headers = list(message.get("headers", ()))
            there = {key.lower() for key, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in SAFE_HEADERS if pair[0] not in there)]}
        await send(message)

    return sending


async def _refuse(refusal: HttpRefusal, send: Send) -> None:
    body = f"{refusal.reason}\n".encode()
    headers: Headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def open_listener(port: int = 0, host: str = HOST) -> socket.socket:
    """Return a socket that listens, with port 0 on a free port; raise ``InputError`` if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that the event loop turns off Nagle's delay.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"port {port} cannot be used ({error}); choose another, or 0 for a free one") from None
    return listener


def load_token(home: Path, name: str = "mcp-token", *, renew: bool = False) -> str:
    """Return the token from a file under home, made if missing or ``renew``; raise ``InputError`` if it is unsafe."""
    path = home / name
    with explained("read", str(path)), closed_after(open_root(str(home), create=True)) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two servers that start at once share one token
        token = None if renew else _read(folder, name, path)
        if token is None:
            token = secrets.token_urlsafe(32)
            replace_file(str(home), name, f"{token}\n".encode())
    return token


def _read(folder: int, name: str, path: Path) -> str | None:
    try:
        descriptor = open_plain(folder, name, os.O_RDONLY, str(path))
    except FileNotFoundError:
        return None
    found = os.fstat(descriptor)
    data = read_all(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(f"others can read the token in {path}; remove the file, and a new one is created")
    token = data[:_MAX_BYTES].decode("ascii", "replace").strip()
    if len(token) < _MIN_CHARS or not token.isascii() or len(token.split()) != 1:
        raise InputError(
            f"{path} holds no token of {_MIN_CHARS} characters or more; remove it, and a new one is created"
        )
    return token
