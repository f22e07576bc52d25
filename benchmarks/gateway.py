"""Measure what the gateway adds on loopback: to a round trip, to the first byte under load, to the end of a client.

    python benchmarks/gateway.py [--check] [--rounds N]

Three processes share the machine: a scripted server, the gateway as `reverie gateway` starts it (recording into a new
home), and this client. Every figure is taken direct and through the gateway in turns; before each turn the recorder has
ended its work, so that it slows neither. The scripted server reads the whole body, parses it as JSON, as any server of
these APIs must, and answers; `bare` is the same without parsing: the worst case for a gateway, because then nothing but
copying is left. Clients are killed before the reply, in it, and while a server does not read their request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import IO

BODY = 2_000_000
STREAM = 1_000_000
AT_ONCE = 32
MAX_ADDED, MAX_FIRST_BYTE, MAX_CANCEL = 3.0, 1.2, 1.0
PHASES = ("before the reply", "in the reply", "in the request")
SIZES = {"1 kB": 1_000, "100 kB": 100_000, "2 MB": BODY}


def events(size: int) -> bytes:
    """Return a stream of about this many bytes, in chunks of one event each."""
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word " * 40}}
    event = b"event: content_block_delta\ndata: " + json.dumps(delta).encode() + b"\n\n"
    chunk = b"%x\r\n%s\r\n" % (len(event), event)
    return chunk * (size // len(event)) + b"0\r\n\r\n"


async def hang(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Leave a request without an end, and print the time at which its connection ended."""
    phase = next(name for name in PHASES if name.replace(" ", "-").encode() in head)
    if phase == "in the reply":
        await reader.readexactly(2)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
    print("reached", flush=True)
    if phase == "in the request":
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        poll = select.poll()
        poll.register(writer.get_extra_info("socket").fileno(), select.POLLRDHUP | select.POLLHUP)
        while not poll.poll(0):
            await asyncio.sleep(0.001)
    else:
        with contextlib.suppress(ConnectionError):
            await reader.read()
    print(time.monotonic(), flush=True)
    writer.close()


async def serve() -> None:
    """Answer requests: the path says whether the body is parsed, and how long the stream is."""
    streams = {0: b"2\r\n{}\r\n0\r\n\r\n", STREAM: events(STREAM)}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if b"/hang/" in head:
                    return await hang(head, reader, writer)
                body = await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                if b"/parsed/" in head:
                    json.loads(body)
                kind = b"text/event-stream" if b"/stream/" in head else b"application/json"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % kind)
                writer.write(streams[STREAM if b"/stream/" in head else 0])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**25)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Client:
    """One kept connection."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**25)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def ask(self, path: str, body: bytes) -> tuple[float, float]:
        """Return the seconds to the first byte of the body and to the last."""
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-length: {len(body)}\r\n\r\n"
        begun = time.perf_counter()
        self.writer.write(head.encode() + body)
        await self.reader.readuntil(b"\r\n\r\n")
        data = await self.reader.read(2**16)
        first = time.perf_counter() - begun
        while not data.endswith(b"0\r\n\r\n"):
            data = data[-8:] + await self.reader.read(2**20)
        return first, time.perf_counter() - begun


def request(size: int) -> bytes:
    """Return a request of about this many bytes."""
    text = "The quick brown fox jumps over the lazy dog. " * (size // 2 // 45)
    said = [{"role": "user", "content": text[: max(10, size // 20)]}] * 10
    body = {"model": "claude-sonnet-5", "max_tokens": 10, "stream": True, "messages": said}
    rest = size - len(json.dumps(body))
    return json.dumps({**body, "system": "x" * max(0, rest)}).encode()


async def round_trips(ports: dict[str, int], size: int, rounds: int) -> dict[str, float]:
    """Return the median round trip in milliseconds, direct and through the gateway, one request at a time."""
    body, found = request(size), {name: list[float]() for name in ports}
    clients = {name: await Client(port).__aenter__() for name, port in ports.items()}
    for turn in range(rounds + 5):
        for name, client in clients.items():
            _, whole = await client.ask("/bare/v1/messages", body)
            if turn >= 5:
                found[name].append(whole)
    for client in clients.values():
        await client.__aexit__()
    return {name: median(values) * 1_000 for name, values in found.items()}


def processor_ticks() -> int:
    """Return the processor time of all processes that this one started, and of theirs."""
    found: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return sum(found[pid][1] for pid in ours - {os.getpid()})


async def quiet() -> None:
    """Wait until the processes have been idle for more than the time that the recorder waits for a pause."""
    last = -1
    while last != (last := processor_ticks()):
        await asyncio.sleep(1.2)


async def first_bytes(ports: dict[str, int], mode: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median time to the first byte and to the last in milliseconds, 32 requests at once."""
    body, found = request(BODY), {name: list[tuple[float, float]]() for name in ports}
    for turn in range(rounds + 1):
        for name, port in ports.items():
            clients = [await Client(port).__aenter__() for _ in range(AT_ONCE)]
            for client in clients:  # the connection to the server behind is open too
                await client.ask(f"/{mode}/v1/messages", b"{}")
            await quiet()
            got = await asyncio.gather(*(client.ask(f"/{mode}/stream/v1/messages", body) for client in clients))
            for client in clients:
                await client.__aexit__()
            if turn:
                found[name] += got
    return {
        name: (median(a for a, _ in rows) * 1_000, median(b for _, b in rows) * 1_000) for name, rows in found.items()
    }


def cancellations(port: int, server: IO[str], rounds: int) -> bool:
    """Kill clients in each phase of a request, print the time until the server sees it, and return if it is short."""
    held = True
    print(f"\n| client killed, {rounds} times | its server sees it after, at most (limit {MAX_CANCEL} s) |\n|---|---|")
    for phase in PHASES:
        size, slowest = (30_000_000 if phase == "in the request" else 2), 0.0
        path = f"/hang/{phase.replace(' ', '-')}/v1/messages"
        head = f"POST {path} HTTP/1.1\\r\\nhost: 127.0.0.1:{port}\\r\\ncontent-length: {size}\\r\\n\\r\\n"
        code = f"import socket; s = socket.create_connection(('127.0.0.1', {port}))\n"
        code += f"s.sendall(b'{head}' + b'x' * {size}); s.recv(9); s.recv(1 << 20); input()"
        for _ in range(rounds):
            client = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
            assert server.readline() == "reached\n"
            time.sleep(0.5)  # the pipes between them are full, or empty
            killed = time.monotonic()
            client.kill()
            slowest = max(slowest, float(server.readline()) - killed)
            client.wait()
        held &= slowest <= MAX_CANCEL
        print(f"| {phase} | {slowest:.3f} s |")
    return held


async def measure(ports: dict[str, int], rounds: int) -> bool:
    """Print both tables and return whether every limit holds."""
    held = True
    print("| one at a time, body | direct, p50 | through the gateway | added, of direct (limit 3) |\n|---|---|---|---|")
    for name, size in SIZES.items():
        got = await round_trips(ports, size, rounds * 10)
        added = got["gateway"] / got["direct"] - 1
        held &= added <= MAX_ADDED
        print(f"| {name} | {got['direct']:.2f} ms | {got['gateway']:.2f} ms | {added:.2f} |")
    print(f"\n| {AT_ONCE} at once, 2 MB body, 1 MB stream | first byte direct | gateway | ratio | last byte ratio |")
    print("|---|---|---|---|---|")
    for mode, limit in (("parsed", MAX_FIRST_BYTE), ("bare", None)):
        rows = await first_bytes(ports, mode, rounds)
        (first, last), (first_gate, last_gate) = rows["direct"], rows["gateway"]
        held &= limit is None or first_gate / first <= limit
        ratio = f"{first_gate / first:.2f}" + (f" (limit {limit})" if limit else " (no limit)")
        print(f"| server: {mode} | {first:.0f} ms | {first_gate:.0f} ms | {ratio} | {last_gate / last:.2f} |")
    return held


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit does not hold")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
        return 0
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, **env: str) -> str:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
        running.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    with tempfile.TemporaryDirectory() as home:
        try:
            direct = int(start(sys.executable, __file__, "--serve"))
            words = [sys.executable, "-m", "reverie", "gateway", "--port", "0", "--json"]
            words += ["--upstream", f"http://127.0.0.1:{direct}"]
            said = start(*words, REVERIE_HOME=str(Path(home) / "reverie"))
            port = int(json.loads(said)["url"].rsplit(":", 1)[1])
            assert running[0].stdout is not None
            held = cancellations(port, running[0].stdout, given.rounds)
            held &= asyncio.run(measure({"direct": direct, "gateway": port}, given.rounds))
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait(60)
    return 0 if held or not given.check else 1


if __name__ == "__main__":
    raise SystemExit(main())
