"""Refused requests: foreign hosts, foreign pages, no token, a wrong token, and invalid HTTP."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError, StorageError
from reverie.servers.guard import LoopbackGuard, Message, Receive, Send, load_token

PORT, TOKEN = 8123, "t" * 43
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()

FOREIGN_HOSTS = [
    "evil.example", "localhost.evil.com:{port}", "127.0.0.1.nip.io:{port}", "localhost", "127.0.0.1", "localhost:1",
    "127.0.0.1:{port}.evil.com", "evil.com:{port}", "[::1]:{port}", "[::1]", "[::ffff:127.0.0.1]:{port}",
    "127.1:{port}", "0.0.0.0:{port}", "2130706433:{port}", "127.0.0.2:{port}", "localhost.:{port}",
    "user@localhost:{port}", "localhost:{port}@evil.com", "localhost:0{port}", "localhost:{port},evil.com",
    "127.0.0.1:{port}/mcp", "", "ⓛocalhost:{port}",
]  # fmt: skip
FOREIGN_ORIGINS = [
    "http://evil.example", "null", "", "https://localhost:{port}", "http://localhost", "http://localhost:{port}.evil.com",
    "http://localhost.evil.com:{port}", "http://127.0.0.1.nip.io:{port}", "http://[::1]:{port}", "file://",
    "http://localhost:{port}/", "http://user@localhost:{port}", "chrome-extension://abc", "http://localhost:1",
]  # fmt: skip
BAD_TOKENS = [
    None, "", "Bearer", "Bearer ", "Bearer x", "Basic {token}", "{token}", "Bearer {token}x", "Bearer {short}",
    "Bearer {upper}", "Bearer {token} {token}", "Bearer\t{token}", "bearer: {token}",
]  # fmt: skip


def said(http: Any, lines: list[str], body: bytes = b"") -> tuple[int, str]:
    """Send lines as they are over a connection of their own; return the status and the head of the answer."""
    with socket.create_connection(("127.0.0.1", http.port), timeout=60) as wire:
        wire.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
        answer = bytearray()
        while piece := wire.recv(65_536):
            answer += piece
    head = bytes(answer).split(b"\r\n\r\n")[0].decode("latin-1").lower()
    return int(head.split(" ", 2)[1]), head


def asked(http: Any, target: str = "/mcp", verb: str = "POST", **headers: str | None) -> tuple[int, str]:
    """Send one request that is right but for what is given."""
    right: dict[str, str | None] = {
        "Host": f"127.0.0.1:{http.port}",
        "Authorization": f"Bearer {http.token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
        "Content-Length": str(len(BODY)),
    }
    given = {**right, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    return said(http, [f"{verb} {target} HTTP/1.1", *lines], BODY)


def is_safe(head: str) -> bool:
    return "content-security-policy: default-src 'none'" in head and "x-content-type-options: nosniff" in head


def spelled(text: str, http: Any) -> str:
    token = http.token
    return text.format(port=http.port, token=token, short=token[:-1], upper=token.swapcase())


@pytest.mark.requirement("S8")
@pytest.mark.slow
def test_strangers_are_refused_and_a_friend_is_not(http: Any) -> None:
    friend, head = asked(http)
    assert (friend, is_safe(head)) == (400, True), "it is let in, and told that a session is missing"
    assert asked(http, Host=f"LOCALHOST:{http.port}", Origin=f"http://localhost:{http.port}")[0] == 400
    for host in FOREIGN_HOSTS:
        status, head = asked(http, Host=spelled(host, http))
        assert (status, is_safe(head)) == (421, True), host
    for origin in FOREIGN_ORIGINS:
        status, head = asked(http, Origin=spelled(origin, http))
        assert (status, is_safe(head)) == (403, True), origin
    for token in BAD_TOKENS:
        status, head = asked(http, Authorization=None if token is None else spelled(token, http))
        assert (status, is_safe(head)) == (401, True), token
        assert "www-authenticate: bearer" in head
    for site in ("cross-site", "same-site"):
        assert asked(http, Sec_Fetch_Site=site)[0] == 403


@pytest.mark.requirement("S8")
def test_targets_that_name_a_host_and_paths_that_are_not_there_are_refused(http: Any) -> None:
    right = f"127.0.0.1:{http.port}"
    assert asked(http, f"http://{right}/mcp")[0] == 421
    assert asked(http, "http://evil.example/mcp")[0] == 421
    assert asked(http, "*", verb="OPTIONS")[0] == 421
    assert asked(http, "evil.example:443", verb="CONNECT")[0] == 421
    for target in ("/", "/mcp/", "/mcp/../mcp", "/MCP", "//mcp", "/%2e%2e/mcp", "/metrics", "/.well-known/x"):
        status, head = asked(http, target)
        assert (status, is_safe(head)) == (404, True), target
    assert asked(http, "/metrics", Authorization=None)[0] == 401, "who may not enter learns nothing of the rooms"


def test_several_hosts_origins_or_tokens_are_one_too_many(http: Any) -> None:
    right = f"Host: 127.0.0.1:{http.port}"
    token = f"Authorization: Bearer {http.token}"
    assert said(http, ["GET /mcp HTTP/1.1", right, "Host: evil.example", token])[0] == 400
    assert said(http, ["GET /mcp HTTP/1.0", token])[0] == 421
    origins = [f"Origin: http://localhost:{http.port}", "Origin: http://evil.example"]
    assert said(http, ["GET /mcp HTTP/1.1", right, token, *origins])[0] == 403
    assert said(http, ["GET /mcp HTTP/1.1", right, token, "Authorization: Bearer x"])[0] == 401


def test_what_is_no_http_or_too_large_gets_a_safe_answer(http: Any) -> None:
    for lines in (["nonsense"], ["GET / HTTP/x"], ["GET /mcp HTTP/1.1", "Host : x"], ["\x00\x01\x02"]):
        status, head = said(http, lines)
        assert (status, is_safe(head)) == (400, True), lines
    status, head = asked(http, X_Filler="x" * 100_000)
    assert (status, is_safe(head)) == (400, True)
    status, head = asked(http, Content_Length=str(50_000_000))
    assert (status, is_safe(head)) == (413, True)
    upgrade = asked(http, Upgrade="websocket", Sec_WebSocket_Key="eA==", Sec_WebSocket_Version="13")
    assert (upgrade[0], is_safe(upgrade[1])) == (400, True)


def test_who_connects_and_says_nothing_is_let_go(http: Any, torture: bool) -> None:
    if not torture:
        pytest.skip("waits as long as the server does: half a minute")
    with socket.create_connection(("127.0.0.1", http.port), timeout=60) as wire:
        wire.sendall(b"POST /mcp HTTP/1.1\r\nHost: ")
        assert wire.recv(1) == b""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's list of sockets")
def test_the_server_listens_on_loopback_alone(http: Any) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = {line[1] for line in listening if line[3] == "0A" and line[1].endswith(f":{http.port:04X}")}
    assert mine == {f"0100007F:{http.port:04X}"}


async def welcome(scope: Message, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Security-Policy", b"own")]})
    await send({"type": "http.response.body", "body": b"hello"})


def answer_of(
    guard: LoopbackGuard, headers: list[tuple[bytes, bytes]], path: str = "/mcp"
) -> tuple[int, dict[bytes, bytes]]:
    sent: list[Message] = []

    async def take(message: Message) -> None:
        sent.append(message)

    async def nothing() -> Message:
        raise AssertionError("nothing of a request is read before it is let in")

    scope: Message = {"type": "http", "path": path, "raw_path": path.encode(), "headers": headers}
    anyio.run(guard, scope, nothing, take)
    return sent[0]["status"], {key.lower(): value for key, value in sent[0]["headers"]}


KNOWN = st.sampled_from([f"localhost:{PORT}", f"127.0.0.1:{PORT}", f"[::1]:{PORT}", "localhost", "evil.example"])
HEADERS = st.lists(
    st.one_of(
        st.tuples(st.just("host"), KNOWN | st.text(max_size=30)),
        st.tuples(st.just("origin"), KNOWN.map(lambda host: f"http://{host}") | st.text(max_size=30)),
        st.tuples(st.just("authorization"), st.sampled_from([f"Bearer {TOKEN}", "Bearer x"]) | st.text(max_size=50)),
        st.tuples(st.just("sec-fetch-site"), st.sampled_from(["none", "same-origin", "cross-site", "same-site"])),
    ),
    max_size=5,
)


@pytest.mark.requirement("S8")
@given(HEADERS)
def test_nobody_comes_in_without_the_one_host_no_foreign_origin_and_the_token(given: list[tuple[str, str]]) -> None:
    headers = [(key.encode(), value.encode("utf-8", "replace")) for key, value in given]
    status, answered = answer_of(LoopbackGuard(welcome, port=PORT, token=TOKEN, paths=["/mcp"]), headers)
    values = {name: [value for key, value in given if key == name] for name in ("host", "origin", "authorization")}
    ours = {f"localhost:{PORT}", f"127.0.0.1:{PORT}"}
    sites = {value for key, value in given if key == "sec-fetch-site"}
    may_enter = (
        len(values["host"]) == 1
        and values["host"][0].lower() in ours
        and all(origin in {f"http://{one}" for one in ours} for origin in values["origin"])
        and values["authorization"] == [f"Bearer {TOKEN}"]
        and not sites & {"cross-site", "same-site"}
    )
    assert (status == 200) == may_enter
    assert status in (200, 401, 403, 421)
    assert answered[b"x-content-type-options"] == b"nosniff"
    assert answered[b"content-security-policy"] == b"own" if status == 200 else b"default-src" in str(answered).encode()


def test_a_guard_that_looks_only_at_the_start_of_a_host_would_be_caught() -> None:
    class Careless(LoopbackGuard):
        def refusal(self, scope: Message) -> Any:
            host = dict(scope["headers"]).get(b"host", b"")
            return None if host.startswith((b"localhost", b"127.0.0.1")) else super().refusal(scope)

    careless = Careless(welcome, port=PORT, token=TOKEN, paths=["/mcp"])
    rebound = [(b"host", b"localhost.evil.com:8123")]
    assert answer_of(careless, rebound)[0] == 200
    assert answer_of(LoopbackGuard(welcome, port=PORT, token=TOKEN, paths=["/mcp"]), rebound)[0] == 421


def test_a_token_too_short_to_be_one_is_refused() -> None:
    for token in ("", "short", "é" * 40):
        with pytest.raises(InputError, match="token"):
            LoopbackGuard(welcome, port=PORT, token=token, paths=["/mcp"])


@pytest.mark.requirement("S8")
def test_the_token_is_made_once_and_readable_by_its_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    old = os.umask(0)
    try:
        token = load_token(home)
    finally:
        os.umask(old)
    file = home / "mcp-token"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_token(home) == token
    other = load_token(home, renew=True)
    assert other != token
    assert load_token(home) == other


def test_a_token_others_could_read_or_have_written_is_refused(tmp_path: Path) -> None:
    load_token(tmp_path)
    file = tmp_path / "mcp-token"
    file.chmod(0o644)
    with pytest.raises(InputError, match="others can read"):
        load_token(tmp_path)
    file.chmod(0o600)
    for content in (b"", b"short", b"two words of some length", b"\xff" * 40):
        file.write_bytes(content)
        with pytest.raises(InputError, match="no token"):
            load_token(tmp_path)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        load_token(tmp_path)
