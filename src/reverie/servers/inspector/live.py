"""The inspector on loopback: one page that follows the sessions of a home while they run.

The page itself holds nothing and needs no token. Everything else does: the page finds the token in the fragment of
its address, which a browser sends to no server.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Mapping, Sequence, Set
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from ...cache.prices import listed_window
from ...conversation.tokens.window import WindowPolicy, thresholds, window_for
from ...errors import InputError, ReverieError
from ...importers import ImportedSession
from ...model_facts import facts_of
from ...runtime.library import Library
from ...settings import Settings
from ...storage.files import FileStorage
from ..guard import SAFE_HEADERS, LoopbackRules
from .film import film_data, films_of
from .now import SessionWatch
from .page import page, policy

HOST: Final = "127.0.0.1"
PAGE, NOW, FILM, UNDO = "/", "/now", "/film", "/undo"
_SHOWN: Final = 40
_IDLE_SECONDS: Final = 30

Load: TypeAlias = Callable[[str], Sequence[tuple[ImportedSession, bytes]]]
"""Returns a session or a recording by name, with its agents, each with its log."""


Undo: TypeAlias = Callable[[str], str]
"""Undoes the last compaction of a session and returns the result as a sentence."""


class LiveSessions:
    """Answers the questions of the page; several threads may ask at once."""

    def __init__(self, settings: Settings, load: Load, undo: Undo, *, target: str, version: str) -> None:
        """Follow the sessions of the settings' home; ``target`` is a session or file that the page opens first."""
        self._undo = undo
        self._settings = settings
        self._load = load
        self._target = target
        self._version = version
        self._lock = Lock()
        self._watches: dict[str, tuple[tuple[int, int], SessionWatch]] = {}

    def shell(self) -> bytes:
        """Return the page without any session."""
        data = {**film_data([], version=self._version), "live": True}
        return page(data, live=True).encode()

    def now(self) -> bytes:
        """Return the sessions and agents that were used last as JSON: the running ones first, each by time.

        With them comes the target, because the page without a token must not name it.
        """
        with self._lock:
            storage = FileStorage(self._settings.home)
            try:
                rows = [self._row(storage, key, stamp) for key, stamp in self._newest(Library(storage))]
            finally:
                storage.close()
        return msgspec.json.encode({"target": self._target, "sessions": sorted(rows, key=lambda row: not row["open"])})

    def film(self, name: str, known: str) -> tuple[str, bytes | None]:
        """Return a tag and the film of a session as JSON, None for ``known``, the tag of the film the page has.

        Raise ``ReverieError`` for a name that is neither the target nor a session of the library.
        """
        if not name:
            raise InputError("name a session: /film?session=NAME")
        if name != self._target:
            name = self._full_name(name)
        tag = self._tag(name)
        if tag == known:
            return tag, None
        films = films_of(self._load(name), is_file=os.path.isfile(name))
        return tag, msgspec.json.encode(film_data(films, version=self._version))

    def undo(self, name: str) -> bytes:
        """Undo the last compaction of a session of the library and return the result as JSON."""
        if not name:
            raise InputError("name a session: /undo?session=NAME")
        with self._lock:
            return msgspec.json.encode({"result": self._undo(self._full_name(name))})

    def _full_name(self, name: str) -> str:
        storage = FileStorage(self._settings.home)
        try:
            return _name_of(Library(storage).find(name))
        finally:
            storage.close()

    def _tag(self, name: str) -> str:
        path = Path(name)
        if not path.is_file():
            storage = FileStorage(self._settings.home)
            try:
                path = self._settings.home / Library(storage).find(name)
            finally:
                storage.close()
        found = path.stat()
        return sha256(f"{name}:{found.st_size}:{found.st_mtime_ns}".encode()).hexdigest()[:16]

    def _newest(self, library: Library) -> list[tuple[str, tuple[int, int]]]:
        found: list[tuple[str, tuple[int, int]]] = []
        for key in [*library.keys(), *library.agent_keys()]:
            try:
                stat = (self._settings.home / key).stat()
            except OSError:
                continue  # deleted just now
            found.append((key, (stat.st_mtime_ns, stat.st_size)))
        return sorted(found, key=lambda one: one[1], reverse=True)[:_SHOWN]

    def _row(self, storage: FileStorage, key: str, stamp: tuple[int, int]) -> dict[str, Any]:
        before, watch = self._watches.get(key, ((0, 0), SessionWatch()))
        if stamp[1] < before[1]:
            watch = SessionWatch()  # another log under the same name
        if stamp != before:
            watch.read(lambda start: storage.load(key, start, max(0, stamp[1] - start)) or b"")
            self._watches[key] = stamp, watch
        settings = self._settings
        window = window_for(watch.model, facts=facts_of(watch.model, settings.models), lookup=listed_window)
        limits = thresholds(
            window,
            policy=WindowPolicy(
                auto_compact=settings.switches.auto_compact,
                window_tokens=settings.window_tokens,
                compact_percent=settings.compact_percent,
            ),
        )
        return watch.row(_name_of(key), is_open=storage.holder(key) is not None, limits=limits)


def _name_of(key: str) -> str:
    return key.removeprefix("projects/").removesuffix(".jsonl")


class InspectorServer(ThreadingHTTPServer):
    """A server on loopback that shows sessions to a page with the token."""

    daemon_threads = True

    def __init__(self, sessions: LiveSessions, *, token: str, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.sessions = sessions
        self.rules = LoopbackRules(port=self.server_port, token=token, paths=[NOW, FILM, UNDO], public=[PAGE])
        self.address = f"http://{HOST}:{self.server_port}{PAGE}#token={token}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer a request that the rules allow, and refuse any other one."""
        self._answer_if_allowed({PAGE, NOW, FILM})

    def do_POST(self) -> None:
        """Undo a compaction; the request has no body."""
        self.close_connection = True
        self._answer_if_allowed({UNDO})

    def _answer_if_allowed(self, paths: Set[str]) -> None:
        target = urlsplit(self.path)
        headers = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in self.headers.items()]
        scope = {"path": target.path, "raw_path": self.path.encode("latin-1", "replace"), "headers": headers}
        assert isinstance(self.server, InspectorServer)
        refusal = self.server.rules.refusal(scope)
        if refusal is not None:
            more = {name.decode(): value.decode() for name, value in refusal.headers}
            self._answer(refusal.status, refusal.reason.encode() + b"\n", "text/plain", more)
            return
        if target.path not in paths:
            self._answer(405, b"another method answers here\n", "text/plain", {})
            return
        try:
            self._allowed(self.server.sessions, target.path, parse_qs(target.query))
        except (ReverieError, OSError) as error:
            self._answer(404, f"{error}\n".encode("utf-8", "replace"), "text/plain", {})

    def _allowed(self, sessions: LiveSessions, path: str, query: Mapping[str, list[str]]) -> None:
        if path == PAGE:
            self._answer(200, sessions.shell(), "text/html", {"content-security-policy": policy(live=True)})
        elif path == NOW:
            self._answer(200, sessions.now(), "application/json", {})
        elif path == UNDO:
            self._answer(200, sessions.undo(next(iter(query.get("session", [])), "")), "application/json", {})
        else:
            known = self.headers.get("if-none-match", "").strip('"')
            tag, body = sessions.film(next(iter(query.get("session", [])), ""), known)
            self._answer(304 if body is None else 200, body or b"", "application/json", {"etag": f'"{tag}"'})

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
        self._answer(
            int(code), f"{message or 'this method is not answered'}\n".encode(), "text/plain", {"connection": "close"}
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: an address may hold the name of a session."""
