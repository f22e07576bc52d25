"""The server behind a proxy under test: it keeps exact requests and plays the reply that the prompt names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ....testing.messages_server.wire import error_body, event_bytes, stream_events
from ...guard import open_listener
from ..http1 import BrokenMessage, head_of, request_body, unframed
from .client import Message

_CASE: Final = re.compile(rb"case-([a-z0-9]+)")
_SLOW_SECONDS: Final = 1.0
USAGE: Final[dict[str, Any]] = {
    "input_tokens": 11,
    "cache_creation_input_tokens": 220,
    "cache_read_input_tokens": 3_300,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 200},
    "output_tokens": 44,
}
REDACTED: Final = {
    "type": "redacted_thinking",
    "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP",
}
THINKING: Final = {"type": "thinking", "thinking": "Let me see. ", "signature": "ErUBCkYICBgCIkDK+/with=signs=="}
SEARCH: Final = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a  query", "n": 1.0}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"type": "web_search_result", "url": "https://example.com", "title": "t", "encrypted_content": "Ab+/="}
        ],
    },
)
CALLS: Final = tuple(
    {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {"z": at, "a": "é \U0001f600"}}
    for at, name in enumerate(("zeta", "alpha", "mid"))
)
TEXT: Final = {"type": "text", "text": "Grüße, 世界 \U0001f600. Done."}
LONG: Final = {"type": "text", "text": "".join(f"line {at} of a long reply\n" for at in range(10_000))}
_CONTENT: Final[dict[str, Sequence[dict[str, Any]]]] = {
    "thinking": (THINKING, TEXT),
    "redacted": (REDACTED, TEXT),
    "servertools": (*SEARCH, TEXT),
    "toolorder": CALLS,
    "long": (LONG,),
}


def message_for(case: str, model: str) -> dict[str, Any]:
    """Return the message that answers a case."""
    content = list(_CONTENT.get(case, (TEXT,)))
    stop = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
    head = {"id": f"msg_{case}", "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": stop, "stop_sequence": None, "usage": USAGE}


def events_for(case: str, model: str) -> list[bytes]:
    """Return the events of the stream that answers a case."""
    events = [event_bytes(event) for event in stream_events(message_for(case, model))]
    if case == "unknown":
        events.insert(2, b'event: of_next_year\ndata: {"type":"of_next_year","odd":1}\n\n')
    return events


class ScriptedServer:
    """The server, as long as its ``async with`` block."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[Message] = []
        self.gone: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {}
        self._tasks = set[asyncio.Task[None]]()

    async def __aenter__(self) -> ScriptedServer:
        listener = open_listener(self.port)
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._connection, sock=listener, limit=2**25)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def received(self, case: str) -> list[Message]:
        """Return the requests of a case."""
        return [one for one in self.requests if one.case == case]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _received(reader)) is not None:
                self.requests.append(request)
                await self._answer(request, reader, writer)
        except (ConnectionError, BrokenMessage, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the server ends; asyncio would report a cancelled connection as an error
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        case, asked = request.case, request.json
        model = str(asked.get("model") or "")
        turn = len(self.received(case))
        if request.head.request[1].partition(b"?")[0].endswith(b"/count_tokens"):
            _json(writer, 200, {"input_tokens": 4_321})
        elif case == "ratelimit":
            error = error_body("rate_limit_error", "case-ratelimit: slow down, é", "req_1")
            _json(writer, 429, error, "retry-after: 7", "anthropic-ratelimit-requests-remaining: 0")
        elif case == "badrequest":
            _json(writer, 400, error_body("invalid_request_error", "messages.0: a precise reason", "req_2"))
        elif case == "retry" and turn == 1:
            _json(writer, 529, error_body("overloaded_error", "Overloaded", "req_3"), "retry-after: 0")
        elif asked.get("stream"):
            await self._stream(request, model, reader, writer)
        else:
            _json(writer, 200, message_for(case, model), "request-id: req_4")
        await writer.drain()

    async def _stream(
        self, request: Message, model: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        case = request.case
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked"
        writer.write(f"{head}\r\nrequest-id: req_5\r\n\r\n".encode())
        events = events_for(case, model)
        for at, event in enumerate(events):
            if case == "utf8":
                for byte in range(0, len(event), 5):  # inside lines and inside characters
                    _chunk(writer, event[byte : byte + 5])
                    await writer.drain()
                continue
            _chunk(writer, event)
            await writer.drain()
            if at == len(events) // 2:
                if case == "cut":
                    writer.transport.abort()
                    raise ConnectionError
                if case == "midstream":
                    _chunk(writer, event_bytes(error_body("overloaded_error", "Overloaded in a stream", "req_6")))
                    break
                await self._pause(case, reader)
        writer.write(b"0\r\n\r\n")

    async def _pause(self, case: str, reader: asyncio.StreamReader) -> None:
        """Wait in the middle of a stream: for the client to go, or a second of a slow one."""
        if case == "cancel":
            self.begun.setdefault(case, asyncio.Event()).set()
            await reader.read(1)
            self.gone.setdefault(case, asyncio.Event()).set()
            raise ConnectionError
        if case in ("slow", "interleaved"):
            await asyncio.sleep(_SLOW_SECONDS)


async def _received(reader: asyncio.StreamReader) -> Message | None:
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    head = head_of(data)
    assert head is not None
    framing, body = request_body(head), b""
    while not framing.done:
        piece = await reader.read(2**20)
        if not piece:
            return None
        body += piece[: framing.take(piece)]
    content = unframed(body, chunked=framing.chunked)
    found = _CASE.search(content)
    return Message(head, content, case=found[1].decode() if found else "")


def _json(writer: asyncio.StreamWriter, status: int, body: Any, *headers: str) -> None:
    data = msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", *headers, f"content-length: {len(data)}"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
