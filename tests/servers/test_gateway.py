"""The gateway passes every byte of requests and replies as it came, and ends with the client."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway_world import ListedExchanges, RawServer, connected, loopback_certificate, reset, with_gateway
from played_sessions import played
from reverie.conversation.entries import ASSISTANT
from reverie.importers import find_sessions, read_session
from reverie.models.wire import EventDecoder, ServerEvent
from reverie.servers.gateway import relay
from reverie.servers.gateway.exchange import Exchange
from reverie.servers.gateway.http1 import (
    BrokenMessage,
    Bytes,
    ChunkedReply,
    MessageBody,
    Slabs,
    head_of,
    kept,
    request_body,
)
from reverie.servers.gateway.recorder_process import RecorderProcess
from reverie.servers.gateway.saver import Saver
from reverie.servers.gateway.upstreams import Routes, upstream_of

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions"
EVENTS = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}\n\n'
    'event: ping\ndata: {"type": "ping"}\n\n'
    'event: of_next_year\r\ndata: {"type":"of_next_year",  "odd" : 1e2}\r\n\r\n: a comment\n\n'
    'event: content_block_delta\ndata: {"delta":{"text":"grüße 世界 \U0001f600"}}\n\n'
).encode()


def chunks(data: bytes, size: int, extension: bytes = b"") -> bytes:
    return b"".join(
        b"%x%s\r\n%s\r\n" % (len(data[at : at + size]), extension, data[at : at + size])
        for at in range(0, len(data), size)
    )


def random_request(draw: random.Random, port: int, body: bytes | None = None) -> bytes:
    """Return a request as a client could send it."""
    content = draw.randbytes(draw.choice([0, 1, 90, 5_000, 70_000])) if body is None else body
    names = [
        b"X-Api-Key: k",
        b"anthropic-beta: a-1,b-2",
        b"x-ODD-case:   two  spaces  ",
        b"Accept-Encoding: gzip, br, zstd",
    ]
    draw.shuffle(names)
    if draw.random() < 0.3:
        size = draw.choice([7, 997, 10**6] if len(content) < 100_000 else [997, 10**6])
        framing, sent = b"Transfer-Encoding: chunked", chunks(content, size) + b"0\r\n\r\n"
    else:
        framing, sent = b"Content-Length: %d" % len(content), content
    path = draw.choice(
        [b"/v1/messages?beta=true", b"/v1/chat/completions", b"/v1/messages/count_tokens", b"/other%20path"]
    )
    lines = [b"POST %s HTTP/1.1" % path, b"Host: 127.0.0.1:%d" % port, *names, framing, b"", b""]
    return b"\r\n".join(lines) + sent


def random_answer(draw: random.Random) -> bytes:
    """Return an answer as a server could give it: whole or in chunks, with events, interim answers and trailers."""
    content = draw.choice([EVENTS * draw.choice([1, 30]), draw.randbytes(draw.choice([0, 1, 300, 90_000]))])
    if draw.random() < 0.6:
        size = draw.choice([1, 13, 333, 10**6])
        framing = b"Transfer-Encoding: chunked\r\nX-a:b"
        sent = (
            chunks(content, size if len(content) < 9_000 else 333, draw.choice([b"", b";e=1"]))
            + b"0\r\nlate: 1\r\n\r\n"
        )
    else:
        framing, sent = b"Content-Length: %d" % len(content), content
    status = draw.choice([b"200 OK", b"529 ", b"400 Bad Request", b"299 Odd   words"])
    interim = draw.choice([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"])
    return interim + b"HTTP/1.1 %s\r\nServer: x\r\nretry-after: 3\r\n%s\r\n\r\n%s" % (status, framing, sent)


def stream_of(reply: Any, draw: random.Random) -> bytes:
    """Return an answer that streams a reply as events, in chunks that end anywhere."""
    text = json.dumps(reply, ensure_ascii=False)
    deltas = [{"type": "content_block_delta", "delta": {"text": text[at : at + 40]}} for at in range(0, len(text), 40)]
    events = [f"event: content_block_delta\ndata: {json.dumps(one, ensure_ascii=False)}\n\n" for one in deltas]
    sent = chunks("".join(events).encode(), draw.choice([61, 333, 5_000])) + b"0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + sent


class ReadStream:
    """The events of an answer in chunks, as a client reads them while they come."""

    def __init__(self) -> None:
        self.events = list[ServerEvent]()
        self._body = MessageBody(None, chunked=True)
        self._decoder = EventDecoder()
        self._head = b""

    def feed(self, data: bytes) -> None:
        if b"\r\n\r\n" not in self._head:
            self._head += data
            data = self._head.partition(b"\r\n\r\n")[2]
        self._body.content = []
        self._body.take(data)
        self.events += self._decoder.feed(b"".join(self._body.content))


async def compare(
    server: RawServer, port: int, draw: random.Random, requests: list[bytes], replies: Sequence[Any] = ()
) -> int:
    """Send requests on one connection, compare every byte on either side and every event, and return their number."""
    reader, writer = await connected(port)
    count = 0
    for number, request in enumerate(requests):
        answer = stream_of(replies[number], draw) if number < len(replies) else random_answer(draw)
        size = draw.choice([1, 3, 50]) if len(answer) < 3_000 else draw.choice([997, 4_096, 10**6])
        server.answers.append([answer[at : at + size] for at in range(0, len(answer), size)])
        writer.write(request)
        if number < len(replies):
            got, read, wanted = b"", ReadStream(), ReadStream()
            while len(got) < len(answer):
                got += (data := await reader.read(draw.choice([50, 70_000])))
                assert data
                read.feed(data)
            wanted.feed(answer)
            assert read.events == wanted.events
            count += len(read.events)
        else:
            got = await reader.readexactly(len(answer))
        assert got == answer
        theirs = request.replace(b"127.0.0.1:%d" % port, b"127.0.0.1:%d" % server.port, 1)  # type: ignore[attr-defined]
        assert b"".join(server.requests.pop()) == theirs
    writer.close()
    return count


@pytest.mark.slow
@pytest.mark.requirement("G1")
def test_no_byte_of_a_request_or_reply_changes(torture: bool, seed: int) -> None:
    draw = random.Random(seed)

    async def act(server: RawServer, port: int) -> None:
        for _ in range(40 if torture else 4):
            await compare(server, port, draw, [random_request(draw, port) for _ in range(50 if torture else 15)])

    recorder = ListedExchanges()
    with_gateway(act, recorder=recorder)
    assert all(one.whole for one in recorder.seen())


@pytest.mark.requirement("G1")
def test_no_byte_changes_on_the_way_to_a_server_with_tls(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    theirs, ours = loopback_certificate(tmp_path)
    monkeypatch.setattr(relay, "_tls", lambda: ours)

    async def act(server: RawServer, port: int) -> None:
        requests = [
            random_request(draw, port, draw.randbytes(3_000_000)),
            *(random_request(draw, port) for _ in "1234"),
        ]
        await compare(server, port, draw, requests, [["grüße 世界"] * 9_000])

    recorder = ListedExchanges()
    with_gateway(act, recorder=recorder, tls=theirs)
    monkeypatch.undo()

    async def refused(server: RawServer, port: int) -> None:
        reader, writer = await connected(port)
        writer.write(random_request(draw, port, b"{}"))
        assert b"certificate verify failed" in await reader.read()

    with_gateway(refused, tls=theirs)


@pytest.mark.slow
@pytest.mark.timeout(1_800)  # the whole corpus
@pytest.mark.requirement("G1")
def test_the_requests_of_played_sessions_arrive_as_they_were_sent(
    torture: bool, seed: int, request: pytest.FixtureRequest
) -> None:
    files = sorted(SAMPLE.rglob("*.jsonl"))[:1]
    if torture:
        files += sorted(find_sessions(request.getfixturevalue("corpus")))
    draw, sums = random.Random(seed), Counter[str]()

    async def act(server: RawServer, port: int) -> None:
        sums["events"] += await compare(
            server, port, draw, [random_request(draw, port, body) for body in bodies], replies
        )

    for session in (one for path in files for one in read_session(path)):
        log, sent = played(session.entries)
        bodies = [body.encode() for body in sent]
        if not torture:
            bodies = bodies[:40]
        replies = [entry.message["content"] for entry in log.entries if entry.kind == ASSISTANT and entry.message]
        with_gateway(act)
        sums += Counter(sessions=1, requests=len(bodies), bytes=sum(map(len, bodies)))
    print(dict(sums))
    assert sums["requests"] > 10
    assert sums["events"] > 100


@pytest.mark.parametrize("side", ["ServerSide", "ClientSide"])
def test_a_gateway_that_decodes_text_is_found_out(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"ServerSide": "write", "ClientSide": "reply"}[side]
    inner = getattr(getattr(relay, side), name)
    monkeypatch.setattr(
        getattr(relay, side), name, lambda self, data: inner(self, bytes(data).decode("utf-8", "ignore").encode())
    )

    async def act(server: RawServer, port: int) -> None:
        draw = random.Random(1)
        with pytest.raises((AssertionError, TimeoutError)):
            async with asyncio.timeout(0.5):
                await compare(server, port, draw, [random_request(draw, port, b"\xff\xfe" * 99)] * 20)

    with_gateway(act)


@pytest.mark.requirement("G1")
def test_a_reply_reaches_the_client_before_it_is_complete() -> None:
    async def act(server: RawServer, port: int) -> None:
        more = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        first = b"4\r\n\xe4\xb8\r\n\r\n"  # the chunk ends inside a character
        server.answers.append([head + first, more, b"1\r\n\x96\r\n0\r\n\r\n"])
        reader, writer = await connected(port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: 2\r\n\r\n{}" % port)
        assert await reader.readexactly(len(head + first)) == head + first
        more.set()
        assert await reader.readexactly(11) == b"1\r\n\x96\r\n0\r\n\r\n"
        writer.close()

    with_gateway(act)


@pytest.mark.requirement("G1")
@pytest.mark.parametrize("when", ["before the reply", "in the reply", "in the request"])
@pytest.mark.parametrize("how", ["closed", "killed", "reset"])
def test_a_client_that_goes_takes_its_request_along(when: str, how: str) -> None:
    async def act(server: RawServer, port: int) -> None:
        never = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        server.answers.append([never] if when == "before the reply" else [head, never])
        server.reads = when != "in the request"
        size = 2 if server.reads else 30_000_000
        reader, writer = await connected(port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n" % (port, size))
        writer.write(b"x" * size)
        await server.reached.wait()
        if when == "in the reply":
            await reader.readuntil(b"\r\n\r\n")
        if how == "closed":
            writer.close()
        elif how == "killed":
            writer.transport.abort()
        else:
            reset(writer)
        await server.gone.wait()

    with_gateway(act)


def test_a_reply_without_an_end_passes_and_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.servers.gateway.exchange.MAX_EXCHANGE_BYTES", 20_000)
    told: list[str] = []
    recorder, sizes = RecorderProcess(["true"], told.append), list[int]()
    keep = Exchange.came

    def came(exchange: Exchange, piece: Bytes) -> None:
        keep(exchange, piece)
        sizes.append(exchange.size)

    monkeypatch.setattr(Exchange, "came", came)

    async def act(server: RawServer, port: int) -> None:
        pieces = [b"data: " + b"x" * 994 for _ in range(100)]
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n"
        server.answers.append([head, *pieces])
        reader, writer = await connected(port)
        writer.write(f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        assert await reader.readexactly(len(head) + 100_000) == head + b"".join(pieces)

    with_gateway(act, recorder=recorder)
    assert max(sizes) <= 20_002
    assert told == ["a request passed unrecorded (it is too long with its reply); 1 so far"]


@pytest.mark.parametrize("saves", [False, True])
def test_a_request_without_an_end_passes_and_is_not_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, saves: bool
) -> None:
    monkeypatch.setattr("reverie.servers.gateway.exchange.MAX_EXCHANGE_BYTES", 20_000)
    told, sizes = list[str](), list[int]()
    recorder, body = RecorderProcess(["true"], told.append), bytes(range(250)) * 400
    offer = recorder.offer
    monkeypatch.setattr(recorder, "offer", lambda exchange: (sizes.append(exchange.size), offer(exchange)))

    async def act(server: RawServer, port: int) -> None:
        server.answers.append([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"])
        reader, writer = await connected(port)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b"{}")
        assert body in server.requests[0]

    with_gateway(act, recorder=recorder, rewriter=Saver(tmp_path) if saves else None)
    assert max(sizes) <= 20_000
    assert told == ["a request passed unrecorded (it is too long with its reply); 1 so far"]


def test_a_server_that_breaks_off_is_seen_as_broken_by_the_client() -> None:
    async def act(server: RawServer, port: int) -> None:
        part = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
        server.answers.append([part, b"CLOSE"])
        reader, writer = await connected(port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: 2\r\n\r\n{}" % port)
        assert await reader.read() == part
        writer.close()

    with_gateway(act)


def test_a_server_that_cannot_be_reached_is_named() -> None:
    async def act(server: RawServer, port: int) -> None:
        server._server.close()
        reader, writer = await connected(port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: 2\r\n\r\n{}" % port)
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 502")
        assert b"no connection to 127.0.0.1" in said
        writer.close()

    with_gateway(act)


@pytest.mark.requirement("G1")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"Host: evil.example", 421),
        (b"Host: 127.0.0.1:{port}\r\nOrigin: https://evil.example", 403),
        (b"Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site", 403),
        (b"Host: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked", 400),
        (b"Host: 127.0.0.1:{port}", 200),
    ],
)
def test_only_programs_of_this_machine_are_served(line: bytes, status: int) -> None:
    async def act(server: RawServer, port: int) -> None:
        server.answers.append([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
        reader, writer = await connected(port)
        head = line.replace(b"{port}", b"%d" % port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\n%s\r\nContent-Length: 0\r\n\r\n" % head)
        assert (await reader.readline()).split()[1] == b"%d" % status
        assert len(server.requests) == (status == 200)
        writer.close()

    with_gateway(act)


@pytest.mark.requirement("G1")
@pytest.mark.parametrize(
    ("path", "header", "arrives"),
    [
        ("/v1/messages", "", False),
        ("/token/wrong/v1/messages", "", False),
        ("/token/right-and-long-enough/v1/messages", "", True),
        ("/v1/messages", "X-Reverie-Token: right-and-long-enough\r\n", True),
    ],
)
def test_with_a_token_only_those_who_know_it_are_served_and_no_server_sees_it(
    path: str, header: str, arrives: bool
) -> None:
    async def act(server: RawServer, port: int) -> None:
        server.answers.append([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
        reader, writer = await connected(port)
        head = f"POST {path} HTTP/1.1\r\nHost: box.example\r\n{header}Content-Length: 0\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readline()).split()[1] == (b"200" if arrives else b"401")
        assert [b"right-and" in head for head, _ in server.requests] == [False] * arrives
        assert all(head.startswith(b"POST /v1/messages ") for head, _ in server.requests)
        writer.close()

    with_gateway(act, token="right-and-long-enough")


def test_the_provider_is_chosen_by_the_api_that_a_request_speaks() -> None:
    routes = Routes()
    for lines, target, host in (
        (["anthropic-version: 1"], b"/v1/models", "api.anthropic.com"),
        ([], b"/v1/messages?beta=true", "api.anthropic.com"),
        ([], b"/v1/responses", "api.openai.com"),
        (["x-goog-api-key: k"], b"/v1beta/models/g:generateContent", "generativelanguage.googleapis.com"),
    ):
        head = head_of("\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode())
        assert head is not None
        assert routes.of(head, target).host == host
    assert Routes("http://[::1]:9/base/")._only == upstream_of("http://[::1]:9/base")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad name: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ],
)
def test_a_request_whose_end_is_ambiguous_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenMessage):
        request_body(head_of(data))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
def test_a_chunked_body_ends_at_the_same_byte_however_it_comes(size: int) -> None:
    data = chunks(b"some content of a body", 3, b";x") + chunks(b"abc" * 9, 10) + b"0\r\nlate: 1\r\n\r\n"
    body, at = MessageBody(None, chunked=True), 0
    body.content = []
    sent = data + b"NEXT"
    while not body.done:
        at += body.take(sent[at : at + size])
    assert at == len(data)
    assert b"".join(body.content) == b"some content of a body" + b"abc" * 9
    for broken in (b"zz\r\n", b"3\r\nabcd\r\n", b"3\nabc\r\n", b"-1\r\n"):
        with pytest.raises(BrokenMessage):
            MessageBody(None, chunked=True).take(broken)


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("end", [b"0\r\n\r\n", b"000;x=1\r\n\r\n", b"0\r\nlate: 1\r\nmore: 2\r\n\r\n"])
def test_a_reply_in_chunks_ends_with_its_last_byte(size: int, end: bytes) -> None:
    data = chunks(b"data: 10\n\ndata: 0\n\n", 7) + end
    body = ChunkedReply()
    for at in range(0, len(data), size):
        assert not body.done
        body.take(memoryview(data)[at : at + size])
    assert body.done


def test_content_that_looks_like_the_end_of_a_reply_still_passes_whole() -> None:
    async def act(server: RawServer, port: int) -> None:
        more = asyncio.Event()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        first, rest = b"b\r\nodd\r\n0\r\n\r\n", b"x\r\n0\r\n\r\n"
        request = b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: 2\r\n\r\n{}" % port
        reader, writer = await connected(port)
        for _ in range(2):
            more.clear()
            server.answers.append([head + first, more, rest])
            writer.write(request)
            assert await reader.readexactly(len(head + first)) == head + first
            more.set()
            assert await reader.readexactly(len(rest)) == rest
        writer.close()

    with_gateway(act)


def test_memory_is_used_again_only_when_nobody_has_a_part_of_it() -> None:
    memory, draw = Slabs(), random.Random(3)
    held: list[tuple[Bytes, bytes]] = []
    used = set[int]()
    for _ in range(400):
        room = memory.room()
        data = draw.randbytes(draw.choice([10, 5_000, 200_000, len(room)]))[: len(room)]
        room[: len(data)] = data
        piece = memory.read(len(data))
        used.add(id(piece.obj))
        held.append((kept(piece), data))
        del room, piece
        if len(held) > 12:
            held.pop(draw.randrange(12))
        assert all(bytes(view) == was for view, was in held)
    assert len(used) < 40


def test_memory_that_is_used_again_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slabs, "_free", lambda self: self._used.popleft())
    with pytest.raises(AssertionError):
        test_memory_is_used_again_only_when_nobody_has_a_part_of_it()
