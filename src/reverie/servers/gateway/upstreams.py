"""The servers behind the gateway: which one a request is for, and the request as it is sent there."""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import urlsplit

from ...errors import InputError
from ...values import record
from ..guard import HttpRefusal, LoopbackRules
from .http1 import Head

TOKEN_HEADER: Final = b"x-reverie-token"
_ANTHROPIC: Final = "https://api.anthropic.com"
_OPENAI: Final = "https://api.openai.com"
_GOOGLE: Final = "https://generativelanguage.googleapis.com"
_FOR_US: Final = frozenset({b"proxy-connection", b"proxy-authorization", TOKEN_HEADER})
_PORTS: Final = {"http": 80, "https": 443}
_PREFIX: Final = b"/token/"


@record
class Upstream:
    """The address of a server and the path in front of every request for it."""

    host: str
    port: int
    tls: bool
    path: str

    @property
    def authority(self) -> bytes:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _PORTS["https" if self.tls else "http"]
        return (host if usual else f"{host}:{self.port}").encode("ascii")


def upstream_of(url: str) -> Upstream:
    """Return the server at a URL; raise ``InputError`` if the URL cannot be used as a base URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is no URL ({error})") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InputError(f"{url!r} is no base URL: give one like https://api.example.com, without a key in it")
    if not (parts.hostname + parts.path).isascii():
        raise InputError(f"{url!r} has characters beyond ASCII: write the host in its ASCII form")
    return Upstream(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "https", parts.path.rstrip("/"))


class Routes:
    """Chooses the server of a request: the given one, or by default the provider whose API it speaks."""

    def __init__(self, url: str | None = None) -> None:
        """Send everything to ``url``; None means each provider's own address."""
        self._only = upstream_of(url) if url else None
        self._anthropic, self._openai, self._google = map(upstream_of, (_ANTHROPIC, _OPENAI, _GOOGLE))

    def of(self, head: Head, target: bytes) -> Upstream:
        """Return the server that a request is for."""
        if self._only is not None:
            return self._only
        names = {name for name, _ in head.fields}
        if b"anthropic-version" in names or target.startswith(b"/v1/messages"):
            return self._anthropic
        if b"x-goog-api-key" in names or target.startswith((b"/v1beta/", b"/v1alpha/")):
            return self._google
        return self._openai


def forwarded(head: Head, method: bytes, target: bytes, upstream: Upstream) -> bytes:
    """Return the head of a request as it goes to its server: other host and path, every other line as it was."""
    version = head.start.rpartition(b" ")[2]
    start = b"%s %s%s %s" % (method, upstream.path.encode("ascii"), target, version)
    lines: list[bytes] = []
    for line in head.lines:
        name = line.partition(b":")[0]
        if name.lower() == b"host":
            lines.append(b"%s: %s" % (name, upstream.authority))
        elif name.lower() not in _FOR_US:
            lines.append(line)
    return b"\r\n".join([start, *lines, b"", b""])


class Entrance:
    """Admits requests: on loopback those for our own address that no web page sent, elsewhere those with the token."""

    def __init__(self, *, port: int, token: str | None) -> None:
        """Admit by address without a ``token``, else by the token."""
        self._token = token.encode("ascii") if token is not None else None
        self._rules = LoopbackRules(port=port)

    def admitted(self, head: Head, target: bytes) -> bytes | HttpRefusal:
        """Return the target of a request without the token in its path, or why the request is refused."""
        if not target.startswith(b"/"):
            return HttpRefusal(421, "name the path alone")
        given = b"".join(head.values(TOKEN_HEADER))
        if target.startswith(_PREFIX):
            given, _, rest = target.removeprefix(_PREFIX).partition(b"/")
            target = b"/" + rest
        if self._token is not None:
            if hmac.compare_digest(given, self._token):
                return target
            return HttpRefusal(401, "send its token: in the base URL as /token/..., or as header X-Reverie-Token")
        scope = {"path": target.decode("latin-1"), "raw_path": target, "headers": head.fields}
        return self._rules.refusal(scope) or target
