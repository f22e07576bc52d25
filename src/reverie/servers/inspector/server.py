"""The HTTP side of the inspector on loopback: a table of readings and acts behind the rules of ``servers/guard``.

The page itself holds nothing and needs no token. Everything else does: the page finds the token in the fragment of
its address, which a browser sends to no server.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from ...errors import ReverieError
from ...values import record
from ..guard import SAFE_HEADERS, LoopbackRules
from .page import page, policy

HOST: Final = "127.0.0.1"
PAGE: Final = "/"
_IDLE_SECONDS: Final = 30

Query: TypeAlias = Mapping[str, str]
Act: TypeAlias = Callable[[Query], str]
"""Changes something and returns the result as a sentence; it may raise ``ReverieError``."""


@record
class LiveAnswer:
    """An answer: a tag that names its content, and a function that makes the values of JSON.

    Without a tag the values are made each time, and their hash is the tag.
    """

    make: Callable[[], Any]
    tag: str = ""


Read: TypeAlias = Callable[[Query], LiveAnswer]
"""Answers a question of the page; several threads may ask at once. It may raise ``ReverieError``."""


class InspectorServer(ThreadingHTTPServer):
    """A server on loopback that answers a page with the token: ``reads`` by GET, ``acts`` by POST, each by its path."""

    daemon_threads = True

    def __init__(
        self, reads: Mapping[str, Read], acts: Mapping[str, Act], *, version: str, token: str, port: int = 0
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.reads, self.acts = reads, acts
        self.shell = page({"version": version, "live": True}, live=True).encode()
        self.rules = LoopbackRules(port=self.server_port, token=token, paths=[*reads, *acts], public=[PAGE])
        self.address = f"http://{HOST}:{self.server_port}{PAGE}#token={token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that went away, and a trace of any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer a request that the rules allow, and refuse any other one."""
        if self._is_allowed("GET"):
            self._guarded(self._read)

    def do_POST(self) -> None:
        """Act as the path says; the request has no body."""
        self.close_connection = True
        if self._is_allowed("POST"):
            self._guarded(self._act)

    @property
    def _inspector(self) -> InspectorServer:
        assert isinstance(self.server, InspectorServer)
        return self.server

    def _is_allowed(self, method: str) -> bool:
        path = self.path.partition("?")[0]
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in self.headers.items()]
        scope = {"path": path, "raw_path": self.path.encode("latin-1", "replace"), "headers": headers}
        refusal = self._inspector.rules.refusal(scope)
        if refusal is not None:
            more = {name.decode(): value.decode() for name, value in refusal.headers}
            self._answer(refusal.status, refusal.reason.encode() + b"\n", "text/plain", more)
            return False
        if (path in self._inspector.acts) != (method == "POST"):
            self._answer(405, b"another method answers here\n", "text/plain", {})
            return False
        return True

    def _guarded(self, answer: Callable[[str, Query], None]) -> None:
        path, _, query = self.path.partition("?")
        try:
            answer(path, dict(parse_qsl(query)))
        except (ReverieError, OSError) as error:
            self._answer(404, f"{error}\n".encode("utf-8", "replace"), "text/plain", {})

    def _read(self, path: str, query: Query) -> None:
        if path == PAGE:
            self._answer(200, self._inspector.shell, "text/html", {"content-security-policy": policy(live=True)})
            return
        known = self.headers.get("if-none-match", "").strip('"')
        found = self._inspector.reads[path](query)
        body = b"" if found.tag and found.tag == known else msgspec.json.encode(found.make())
        tag = found.tag or sha256(body).hexdigest()[:16]
        is_known = tag == known
        self._answer(304 if is_known else 200, b"" if is_known else body, "application/json", {"etag": f'"{tag}"'})

    def _act(self, path: str, query: Query) -> None:
        result = self._inspector.acts[path](query)
        self._answer(200, msgspec.json.encode({"result": result}), "application/json", {})

    def _answer(self, status: int, body: bytes, kind: str, more: Mapping[str, str]) -> None:
        packed = gzip.compress(body, 5) if len(body) > 1_000 else body
        safe = {name.decode(): value.decode() for name, value in SAFE_HEADERS}
        plain = {"content-type": f"{kind}; charset=utf-8", "content-length": str(len(packed))}
        encoding = {"content-encoding": "gzip"} if packed is not body else {}
        self.send_response_only(status)
        for name, value in {**safe, "cache-control": "no-store", **plain, **encoding, **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(packed)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse invalid HTTP and other methods, with the headers of every answer."""
        self.close_connection = True
        text = f"{message or 'this method is not answered'}\n"
        self._answer(int(code), text.encode(), "text/plain", {"connection": "close"})

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: an address may hold the name of a session."""
