"""Requests and replies of three APIs as the recorder reads them: in the shape of the Messages API that the log uses."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any, Final, cast

import msgspec

from ...conversation.entries import ASSISTANT, ATTACHMENT, USER, Entry
from ...errors import ModelError
from ...importers.chat_shape import CallIds, content_of, declared_tools, tool_uses
from ...importers.codex import CALLS, OUTPUTS, call_of, result_of
from ...importers.foreign_values import Record, as_list, as_text
from ...importers.import_result import plain, sound_content
from ...models.chat_reply import ChatAssembly
from ...models.messages_stream import MessageAssembly
from ...models.responses_reply import ResponsesAssembly
from ...models.wire import EventDecoder, ReplyAssembly, ServerEvent
from ...values import object_of, record, rows_of
from .exchange import SeenExchange, hidden

MAX_DECODED_BYTES: Final = 128_000_000
_IDENTITY_CHARS: Final = 500
_LEFT_OUT: Final = frozenset({"messages", "input", "instructions", "system", "tools", "model", "stream", "metadata"})
"""The fields of a request that are no options of it."""
_SPOKEN: Final = frozenset({"text", "tool_use", "server_tool_use", "mcp_tool_use"})
_SESSION: Final = re.compile(r'session[_"]+(?:id"\s*:\s*")?([0-9a-fA-F-]{36})')
_DIRECTORY: Final = re.compile(r"(?i)(?:working directory:? *|<cwd>)`?(/[^\s<`\"']+)")


class Unreadable(Exception):
    """An exchange that is not recorded, and why."""


@record
class SeenMessage:
    """One message of a request: the kind of its entry, its role and content, and its digest."""

    kind: str
    role: str
    content: str | list[Any]
    digest: str
    attachment: str = ""


@record
class SeenRequest:
    """A request in the shape of the Messages API."""

    model: str
    system: Any
    tools: list[Record]
    messages: tuple[SeenMessage, ...]
    options: Record
    follows: str = ""
    """The id of the response that a request continues, whose messages are not in it."""
    session: str = ""
    """The session that the body names, where the API has no header for it."""

    @property
    def body(self) -> Record:
        """The request as the cache watch compares it."""
        said = [{"role": one.role, "content": one.content} for one in self.messages]
        return {"model": self.model, "system": self.system or [], "tools": self.tools, "messages": said}

    @property
    def directory(self) -> str:
        """The working directory that the system prompt or the first messages name; empty if none does."""
        texts = [plain(self.system), *(plain(one.content) for one in self.messages[:4])]
        return next((found[1].rstrip(".,;") for text in texts if (found := _DIRECTORY.search(text))), "")


def identity_of(system: Any, tools: list[Record]) -> str:
    """Return a digest of the names of the tools and the beginning of the system prompt, which tells agents apart."""
    texts = [system] if isinstance(system, str) else [as_text(one.get("text")) for one in rows_of(system)]
    names = sorted(as_text(tool.get("name")) for tool in tools)
    return digest_of([names, max(texts, key=len, default="")[:_IDENTITY_CHARS]])


def request_of(exchange: SeenExchange) -> SeenRequest:
    """Return the request of an exchange; raise ``Unreadable`` if it cannot be read."""
    body = object_of(_json(_decoded(exchange.request, exchange.headers)))
    made = {"messages": _messages, "chat": _chat, "responses": _responses}[exchange.api](body)
    if not made.messages:
        raise Unreadable("the request has no messages")
    return made


def reply_of(exchange: SeenExchange, model: str) -> Record | None:
    """Return the reply of an exchange as a message, also one that broke off; None if none has begun."""
    assembly: ReplyAssembly
    if exchange.api == "messages":
        assembly = MessageAssembly("the server")
    elif exchange.api == "chat":
        assembly = ChatAssembly("the server", model=model)
    else:
        assembly = ResponsesAssembly("the server", model=model)
    body = _decoded(exchange.response, exchange.reply_headers)
    try:
        if "event-stream" in exchange.reply_headers.get("content-type", ""):
            for event in EventDecoder().feed(body):
                for _ in assembly.feed(event):
                    pass
            if not assembly.done:
                _close(assembly, exchange.api)
        else:
            for _ in assembly.take_whole(body):
                pass
        said = assembly.reply().body
        return msgspec.json.decode(hidden(msgspec.json.encode(said), exchange.secrets)) if exchange.secrets else said
    except (ModelError, UnicodeDecodeError):
        return None


def _close(assembly: ReplyAssembly, api: str) -> None:
    """Tell an assembly of a stream that broke off that its blocks and its message are over."""
    if api != "messages":
        return
    for index in range(1_000):
        try:
            for _ in assembly.feed(_event({"type": "content_block_stop", "index": index})):
                pass
        except ModelError:
            continue
    for end in ({"type": "message_delta", "delta": {"stop_reason": "cancelled"}}, {"type": "message_stop"}):
        for _ in assembly.feed(_event(end)):
            pass


def _event(fields: Record) -> ServerEvent:
    return ServerEvent(fields["type"], msgspec.json.encode(fields).decode())


def _decoded(data: bytes, headers: Mapping[str, str]) -> bytes:
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return data
    decode = _DECODERS.get(coding)
    if decode is None:
        raise Unreadable(f"its encoding {coding!r} is unknown")
    try:
        return decode(data)[:MAX_DECODED_BYTES]
    except ImportError:
        raise Unreadable(f"its encoding {coding!r} needs an optional package, and of brotli 1.2 or later") from None
    except Exception as error:
        raise Unreadable(f"its encoding {coding!r} is broken: {error}") from None


def _inflated(data: bytes, wbits: int) -> bytes:
    return zlib.decompressobj(wbits).decompress(data, MAX_DECODED_BYTES)


def _zstd(data: bytes) -> bytes:
    return import_module("zstandard").ZstdDecompressor().stream_reader(data).read(MAX_DECODED_BYTES)


def _brotli(data: bytes) -> bytes:
    decompressor = import_module("brotli").Decompressor()
    if not hasattr(decompressor, "can_accept_more_data"):  # before 1.2 it unpacks without a bound
        raise ImportError
    return decompressor.process(data, output_buffer_limit=MAX_DECODED_BYTES)


_DECODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: _inflated(data, 31),
    "x-gzip": lambda data: _inflated(data, 31),
    "deflate": lambda data: _inflated(data, 15),
    "br": _brotli,
    "zstd": _zstd,
}


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unreadable(f"the request is no JSON: {error}") from None


# -- the three APIs


def _messages(body: Record) -> SeenRequest:
    said = [_message(one) for one in rows_of(body.get("messages"))]
    return SeenRequest(
        as_text(body.get("model")),
        _unmarked(body.get("system")) or None,
        [_unmarked(tool) for tool in rows_of(body.get("tools"))],
        tuple(one for one in said if one is not None),
        _options(body),
        session=request_session(body),
    )


def request_session(body: Record) -> str:
    """Return the session that the metadata of a request names; empty if it names none."""
    user = as_text(object_of(body.get("metadata")).get("user_id"))
    found = _SESSION.search(user)
    return found[1] if found else ""


def _message(row: Record) -> SeenMessage | None:
    content = sound_content(_unmarked(row.get("content")))
    if content is None:
        return None
    if row.get("role") == "assistant":
        return _said(ASSISTANT, "assistant", content)
    return _said(USER, "user", content) if row.get("role") == "user" else _told(content, as_text(row.get("role")))


def _chat(body: Record) -> SeenRequest:
    system: list[str] = []
    said: list[SeenMessage] = []
    ids = CallIds()
    for row in rows_of(body.get("messages")):
        role, content = as_text(row.get("role")), content_of(row.get("content"))
        if role in ("system", "developer") and not said:
            system.append(plain(content))
        elif role == "tool":
            called = ids.name_of(as_text(row.get("tool_call_id")))
            said.append(_said(USER, "user", [{"type": "tool_result", "tool_use_id": called, "content": content}]))
        elif role == "assistant":
            texts = [{"type": "text", "text": content}] if isinstance(content, str) and content else as_list(content)
            if blocks := [*texts, *ids.renamed(tool_uses(row.get("tool_calls")))]:
                said.append(_said(ASSISTANT, "assistant", blocks))
        elif content:
            said.append(_said(USER, "user", content) if role == "user" else _told(content, role))
    tools = declared_tools(body.get("tools"))
    return SeenRequest(as_text(body.get("model")), "\n\n".join(system) or None, tools, tuple(said), {})


def _responses(body: Record) -> SeenRequest:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else rows_of(given)
    return SeenRequest(
        as_text(body.get("model")),
        as_text(body.get("instructions")) or None,
        declared_tools(body.get("tools")),
        tuple(_items(items)),
        {},
        as_text(body.get("previous_response_id")),
        as_text(body.get("prompt_cache_key")),
    )


def _items(items: list[Record]) -> Iterator[SeenMessage]:
    """Yield the messages of items; the items of one reply are one message."""
    reply: list[Any] = []
    for item in items:
        kind, role = as_text(item.get("type")) or "message", as_text(item.get("role"))
        spoken = kind in CALLS or (kind == "message" and role == "assistant")
        if spoken:
            content = content_of(item.get("content")) if kind == "message" else call_of(item, kind)
            reply += [{"type": "text", "text": content}] if isinstance(content, str) else content
            continue
        if kind == "reasoning":
            continue
        if reply:
            yield _said(ASSISTANT, "assistant", reply)
            reply = []
        if kind in OUTPUTS:
            yield _said(USER, "user", [result_of(as_text(item.get("call_id")), item.get("output"))])
        elif content := content_of(item.get("content")):
            yield _said(USER, "user", content) if role == "user" else _told(content, role or kind)
    if reply:
        yield _said(ASSISTANT, "assistant", reply)


# -- messages


def reply_message(reply: Mapping[str, Any]) -> SeenMessage | None:
    """Return a reply as a message of the next request; None without content."""
    content = sound_content(reply.get("content"))
    return None if content is None else _said(ASSISTANT, "assistant", content)


def message_of(entry: Entry) -> SeenMessage | None:
    """Return the message of an entry that was recorded earlier; None if it holds none."""
    if entry.message is None:
        return None
    content: Any = entry.message["content"]
    role = as_text(object_of(entry.body.get("attachment")).get("type"))
    if entry.kind == ATTACHMENT and role:
        return _told(content, role)
    return _said(entry.kind, as_text(entry.message.get("role")), content)


def _said(kind: str, role: str, content: Any) -> SeenMessage:
    return SeenMessage(kind, role, content, digest_of([role, _essence(role, content)]))


def _told(content: Any, role: str) -> SeenMessage:
    return SeenMessage(ATTACHMENT, "user", content, digest_of([role, _essence(role, content)]), role)


def _essence(role: str, content: Any) -> Any:
    """Return the parts of a content by which a message is known again.

    Clients send a reply back without its thinking, or with other spacing in its calls; so a reply is known by its text
    and the ids of its calls.
    """
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else rows_of(content)
    if role != "assistant":
        return blocks
    spoken = [block for block in blocks if block.get("type") in _SPOKEN]
    text = "".join(as_text(block.get("text")) for block in spoken)
    return [text.strip(), [block["id"] for block in spoken if "id" in block]] if spoken else blocks


def digest_of(value: Any) -> str:
    """Return the digest of a value by its JSON."""
    return sha256(msgspec.json.encode(value)).hexdigest()


def _unmarked(value: Any) -> Any:
    """Return a content, a tool or a system prompt without cache marks, which move from request to request."""
    if isinstance(value, list):
        return [_unmarked(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: one for key, one in cast(Record, value).items() if key != "cache_control"}
    return value


def _options(body: Record) -> Record:
    return {key: value for key, value in body.items() if key not in _LEFT_OUT}
