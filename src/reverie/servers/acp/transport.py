"""Messages of the protocol as lines on stdin and stdout, which carry nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from typing import Any, Final, cast

from acp.stdio import stdio_streams

from ...errors import InputError
from ...values import object_of, rows_of

MOST_BYTES: Final = 64 * 1024 * 1024
"""The longest line that is read: images arrive as text in a message."""
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
_SHOWN_PROBLEMS: Final = 3


class LineTransport:
    """Moves messages as lines of JSON; a line that is no message is answered with an error that says why."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end of the input."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:
                await self._refuse(PARSE_ERROR, f"a message has at most {MOST_BYTES:,} bytes")
                continue
            if not line:
                return None
            if not line.strip():
                continue
            try:
                message: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                await self._refuse(PARSE_ERROR, f"this line is no JSON: {error}")
                continue
            if problem := message_problem(message):
                known = object_of(message).get("id")
                await self._refuse(INVALID_REQUEST, problem, known if isinstance(known, str | int) else None)
            else:
                return message

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message; the error of an invalid request names the fields that are wrong."""
        text = json.dumps(_with_clear_error(message), separators=(",", ":"), default=str)
        self._writer.write(text.encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """Close the output after all that was written."""
        self._writer.close()

    async def _refuse(self, code: int, problem: str, id: str | int | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": problem}})


def message_problem(message: Any) -> str:
    """Return why a value is no message of the protocol; an empty text if it is one."""
    if not isinstance(message, dict):
        return "a message is one JSON object on a line; lists of messages are not supported"
    fields = cast("dict[str, Any]", message)
    id = fields.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        return "the id of a message is a text or a whole number"
    if "method" not in fields:
        is_response = "id" in fields and ("result" in fields or "error" in fields)
        return "" if is_response else "a message has a method, or the id of a request and its result or error"
    if not isinstance(fields["method"], str):
        return "the method of a message is a text"
    if not isinstance(fields.get("params"), dict | None):
        return f"the params of {fields['method']} are a JSON object"
    return ""


def _with_clear_error(message: dict[str, Any]) -> dict[str, Any]:
    error = object_of(message.get("error"))
    problems = rows_of(object_of(error.get("data")).get("errors"))
    if error.get("code") != INVALID_PARAMS or not problems:
        return message
    named = [f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}" for one in problems[:_SHOWN_PROBLEMS]]
    more = f" and {len(problems) - len(named)} more" if len(problems) > len(named) else ""
    return {**message, "error": {**error, "message": f"Invalid params: {'; '.join(named)}{more}"}}


async def open_stdio() -> LineTransport:
    """Return the transport over stdin and stdout; from now on prints go to stderr, and commands have no input."""
    if not (_is_waited_on(0) and _is_waited_on(1)):
        raise InputError("stdin and stdout must be pipes of an editor; see docs/guides/acp.md")
    sys.stdin, sys.stdout = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    reader, writer = await stdio_streams(limit=MOST_BYTES)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return LineTransport(reader, writer)


def _is_waited_on(descriptor: int) -> bool:
    """Return whether an event loop can wait for a descriptor: a pipe, a socket or a terminal, no file or device."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False  # it is closed
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
