"""Heads and bodies of HTTP/1.1 as bytes: find where a message ends, and keep every line as it was spelled. Pure."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from ...values import record

Bytes = bytes | memoryview
_SLAB_BYTES: Final = 1_048_576
_LEAST_ROOM: Final = 262_144
_LEAST_VIEW: Final = 65_536
"""Smaller pieces are copied: one that is kept for long must not hold a slab of others."""
_MOST_SLABS: Final = 128
_TRIES: Final = 4
MAX_HEAD_BYTES: Final = 262_144
_END: Final = b"\r\n\r\n"
_LINE: Final = b"\r\n"
_MAX_CHUNK_LINE: Final = 16_384
_MAX_LENGTH_DIGITS: Final = 18
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_REQUEST: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/1\.[01]\Z")
_RESPONSE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n\0]*)?\Z")
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")
_NO_BODY: Final = frozenset({204, 304})
_LAST_CHUNK: Final = re.compile(rb"(?:\A|\r\n)0+[ \t]*(?:;[^\r\n]*)?\r\n(?:[!-9;-~]+:[^\r\n]*\r\n)*\r\n\Z")
_TAIL_BYTES: Final = 4_096


class Slabs:
    """The memory of all connections of one event loop: a read goes behind the last one, and nothing is overwritten.

    A slab comes into use again when no view of it is left: no exchange and no write buffer has a part of it.
    """

    def __init__(self) -> None:
        self._slab = bytearray(_SLAB_BYTES)
        self._at = 0
        self._used = deque[bytearray](maxlen=_MOST_SLABS)

    def room(self) -> memoryview:
        """Return memory for the next read."""
        if _SLAB_BYTES - self._at < _LEAST_ROOM:
            self._used.append(self._slab)
            self._slab, self._at = self._free(), 0
        return memoryview(self._slab)[self._at :]

    def read(self, count: int) -> memoryview:
        """Return the bytes of a read into ``room``."""
        start, self._at = self._at, self._at + count
        return memoryview(self._slab)[start : self._at]

    def _free(self) -> bytearray:
        for _ in range(min(_TRIES, len(self._used))):
            slab = self._used.popleft()
            try:
                slab.pop()  # impossible while a view exists
            except BufferError:
                self._used.append(slab)
            else:
                slab.append(0)
                return slab
        return bytearray(_SLAB_BYTES)


def kept(piece: Bytes) -> Bytes:
    """Return a piece to keep for long."""
    return piece if len(piece) >= _LEAST_VIEW else bytes(piece)


class BrokenMessage(Exception):
    """Bytes that are no valid HTTP/1.1 message."""


@record
class Head:
    """The start line and the header lines of a message, each as it was spelled."""

    start: bytes
    lines: tuple[bytes, ...]
    size: int
    """The bytes of the head, with the empty line at its end."""

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers with names in small letters, in order."""
        return [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in self.lines)]

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all headers with a name, which is in small letters."""
        return [value for one, value in self.fields if one == name]

    @property
    def request(self) -> tuple[bytes, bytes]:
        """The method and the target of a request; raises ``BrokenMessage`` for another start line."""
        if (found := _REQUEST.match(self.start)) is None:
            raise BrokenMessage("the request line is invalid")
        return found[1], found[2]

    @property
    def status(self) -> int:
        """The status of a response; raises ``BrokenMessage`` for another start line."""
        if (found := _RESPONSE.match(self.start)) is None:
            raise BrokenMessage("the status line is invalid")
        return int(found[1])


def head_of(data: bytes | bytearray) -> Head | None:
    """Return the head that data starts with; None if it is not complete; raise ``BrokenMessage`` if it is invalid."""
    end = data.find(_END)
    if end < 0 or end > MAX_HEAD_BYTES:
        if len(data) > MAX_HEAD_BYTES:
            raise BrokenMessage("the head is too long")
        return None
    start, *lines = bytes(data[:end]).split(_LINE)
    for line in lines:
        name, colon, _ = line.partition(b":")
        if not colon or not _NAME.match(name) or b"\n" in line or b"\r" in line or b"\0" in line:
            raise BrokenMessage("a header line is invalid")
    return Head(start, tuple(lines), end + len(_END))


def request_body(head: Head) -> MessageBody:
    """Return the body that follows the head of a request, before its first byte."""
    return _body(head, until_close=False)


def response_body(head: Head, method: bytes) -> MessageBody:
    """Return the body that follows the head of a response to a request with this method.

    A body in chunks takes all bytes and ends when they end like one.
    """
    if method == b"HEAD" or head.status < 200 or head.status in _NO_BODY:
        return MessageBody(0)
    body = _body(head, until_close=True)
    return ChunkedReply() if body.chunked else body


def _body(head: Head, *, until_close: bool) -> MessageBody:
    codings, lengths = head.values(b"transfer-encoding"), set(head.values(b"content-length"))
    if codings:
        if lengths or len(codings) != 1 or codings[0].lower() != b"chunked":
            raise BrokenMessage("the length of the body is ambiguous")
        return MessageBody(None, chunked=True)
    if not lengths:
        return MessageBody(None if until_close else 0)
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS:
        raise BrokenMessage("the length of the body is ambiguous")
    return MessageBody(int(length))


class MessageBody:
    """A body that is taken piece by piece: which bytes belong to it, and where it ends."""

    def __init__(self, length: int | None, *, chunked: bool = False) -> None:
        """Expect ``length`` bytes; None means chunks, or all bytes until the connection closes."""
        self.done = length == 0
        self.chunked = chunked
        self.until_close = length is None and not chunked
        self.content: list[bytes] | None = None
        """The content of the chunks without their framing, if the caller sets a list."""
        self._left = length or 0
        self._line = b""
        self._expects = b"size"

    def take(self, data: Bytes) -> int:
        """Take this body's bytes from the start of data, return their number; raise ``BrokenMessage`` if invalid."""
        if self.done:
            return 0
        if self.until_close:
            return len(data)
        if not self.chunked:
            taken = min(len(data), self._left)
            self._left -= taken
            self.done = not self._left
            return taken
        at, data = 0, bytes(data)
        while at < len(data) and not self.done:
            at = self._counted(data, at) if self._left else self._framing(data, at)
        return at

    def _counted(self, data: bytes, start: int) -> int:
        """Take the rest of a chunk and return where it ends."""
        end = min(len(data), start + self._left)
        self._left -= end - start
        if self.content is not None:
            self.content.append(data[start:end])
        return end

    def _framing(self, data: bytes, start: int) -> int:
        """Take a line of the framing, or its beginning, and return where it ends."""
        end = data.find(b"\n", start) + 1
        self._line += data[start : end or len(data)]
        if len(self._line) > _MAX_CHUNK_LINE:
            raise BrokenMessage("a line between chunks is too long")
        if not end:
            return len(data)
        line, self._line = self._line, b""
        if not line.endswith(_LINE):
            raise BrokenMessage("a line between chunks is invalid")
        self._interpret(line[:-2])
        return end

    def _interpret(self, line: bytes) -> None:
        if self._expects == b"size":
            size = line.partition(b";")[0].strip(b" \t")
            if not _HEX.match(size):
                raise BrokenMessage("the size of a chunk is invalid")
            self._left = int(size, 16)
            self._expects = b"end" if self._left else b"trailer"
        elif self._expects == b"end":
            if line:
                raise BrokenMessage("a chunk is longer than its size")
            self._expects = b"size"
        else:
            self.done = not line


class ChunkedReply(MessageBody):
    """Chunks of a reply, unread: the server sends nothing behind them, so their end shows in the last bytes.

    Content that ends a piece in the form of a last chunk is taken for the end too early. Its rest passes all the same,
    as bytes behind a reply do, and the recorder reads the chunks themselves.
    """

    def __init__(self) -> None:
        super().__init__(None, chunked=True)
        self._tail = b""

    def take(self, data: Bytes) -> int:
        """Take all bytes."""
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self.done = self._tail.endswith(_END) and _LAST_CHUNK.search(self._tail) is not None
        return len(data)


def unframed(data: bytes, *, chunked: bool) -> bytes:
    """Return the content of a body; of one that broke off, the part that came; raise ``BrokenMessage`` if invalid."""
    if not chunked:
        return data
    body = MessageBody(None, chunked=True)
    body.content = []
    body.take(data)
    return b"".join(body.content)
