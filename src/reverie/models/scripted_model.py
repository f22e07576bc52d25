"""A model that answers from a script, for tests.

    model = ScriptedModel(["Hello.", [{"type": "tool_use", "name": "Read", "input": {"path": "a"}}], "Done."])

It streams in pieces, counts tokens, simulates a provider's prompt cache, and keeps every request.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias, cast

import anyio.lowlevel

from ..cache.simulator import CacheRules, CacheSimulator, Mark, SimBlock
from ..cache.usage import usage_fields
from ..conversation.wire.canonical import canonical
from ..errors import ModelRefused, PromptTooLong, ReplyBroken
from ..ports import Capabilities, Reply, ReplyDelta
from ..values import record
from .wire import whole_reply

_BYTES_PER_TOKEN: Final = 4
_CAPABILITIES: Final = Capabilities(caching=True, window=200_000, max_output=64_000)
# The prompts of tests are short, so the simulated cache has no minimum length.
_RULES: Final = CacheRules(minimum_tokens=0)


@record
class BrokenReply:
    """A reply that stops after some pieces with an error; the default error is ``ReplyBroken``."""

    content: str | list[dict[str, Any]]
    after_pieces: int = 1
    error: Exception | None = None


ScriptedReply: TypeAlias = "str | list[dict[str, Any]] | dict[str, Any] | Reply | BrokenReply | Exception"
"""Text, blocks, the fields of a whole reply (``content`` and ``stop_reason``, ...), a broken reply, an error."""

Script: TypeAlias = "Callable[[dict[str, Any]], ScriptedReply | Awaitable[ScriptedReply]] | Iterable[ScriptedReply]"


class ScriptedModel:
    """A model that answers each request from a function, or with the next reply of a list."""

    def __init__(
        self,
        replies: Script,
        *,
        name: str = "scripted:model",
        capabilities: Capabilities = _CAPABILITIES,
        piece_chars: int = 24,
        clock: Callable[[], float] = time.monotonic,
        rules: CacheRules = _RULES,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        """All requests, in order."""
        self.closed = False
        self._name = name
        self._capabilities = capabilities
        self._piece_chars = piece_chars
        self._clock = clock
        self._cache = CacheSimulator(rules)
        self._function = replies if callable(replies) else None
        self._queue = iter(()) if callable(replies) else iter(replies)
        self._calls = 0

    @property
    def name(self) -> str:
        """The full name of the model, as given."""
        return self._name

    @property
    def model_id(self) -> str:
        """The part of the name after the first colon, else the whole name."""
        return self._name.partition(":")[2] or self._name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the model was created with."""
        return self._capabilities

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Keep the request, yield the pieces of the script's next reply, then the whole reply.

        Raise the script's errors, ``PromptTooLong`` beyond the window, and ``ModelRefused`` if no reply is left.
        """
        given = dict(request)
        self.requests.append(given)
        number = len(self.requests)
        tokens = self._admit(given)
        said = await self._said(given)
        await anyio.lowlevel.checkpoint()
        if isinstance(said, Exception):
            raise said
        usage = self._usage(given, tokens)
        body = self._body(said, number, given, usage)
        left = said.after_pieces if isinstance(said, BrokenReply) else None
        for piece in self._pieces(body["content"]):
            if left == 0:
                break
            left = None if left is None else left - 1
            yield piece
            await anyio.lowlevel.checkpoint()
        if isinstance(said, BrokenReply):
            raise said.error or ReplyBroken(f"{self._name}: the script broke off")
        yield Reply(body)

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Keep the request and return the script's next reply whole; raise the script's errors."""
        return await whole_reply(self.stream(request))

    async def aclose(self) -> None:
        """Record that the model was closed."""
        self.closed = True

    async def _said(self, request: dict[str, Any]) -> ScriptedReply:
        if self._function is not None:
            said = self._function(request)
            return await said if inspect.isawaitable(said) else said
        try:
            return next(self._queue)
        except StopIteration:
            raise ModelRefused(f"{self._name}: the script has no reply for request {len(self.requests)}") from None

    def _admit(self, request: Mapping[str, Any]) -> list[SimBlock]:
        """Return the request as blocks of the simulated cache; raise ``PromptTooLong`` beyond the window."""
        blocks = [
            SimBlock(blake2b(said, digest_size=16).digest(), max(1, len(said) // _BYTES_PER_TOKEN))
            for said in canonical(request)
        ]
        total, window = sum(block.tokens for block in blocks), self._capabilities.window
        if window is not None and total > window:
            said = f"{self._name}: prompt is too long: {total} tokens > {window} maximum"
            raise PromptTooLong(said, tokens=total, limit=window)
        return blocks

    def _usage(self, request: Mapping[str, Any], blocks: list[SimBlock]) -> dict[str, Any]:
        marks = list(_marks(request)) if self._capabilities.caching else []
        used = self._cache.request(blocks, marks, model=str(request.get("model")), now=self._clock())
        return usage_fields(used)

    def _body(
        self, said: ScriptedReply, number: int, request: Mapping[str, Any], usage: dict[str, Any]
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if isinstance(said, Reply):
            fields = dict(said.body)
        elif isinstance(said, dict):
            fields = dict(said)
        else:
            fields = {"content": said.content if isinstance(said, BrokenReply) else said}
        content = self._blocks(fields.pop("content", ""))
        used = any(block.get("type") == "tool_use" for block in content)
        output = sum(max(1, len(str(block)) // _BYTES_PER_TOKEN) for block in content)
        return {
            "id": f"msg_scripted_{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": request.get("model", self.model_id),
            "content": content,
            "stop_reason": "tool_use" if used else "end_turn",
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": output},
            **fields,
        }

    def _blocks(self, content: Any) -> list[dict[str, Any]]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        blocks: list[dict[str, Any]] = []
        for block in cast("list[dict[str, Any]]", content):
            whole = dict(block)
            if block.get("type") == "tool_use" and not block.get("id"):
                self._calls += 1
                id = f"toolu_scripted_{self._calls:06d}"
                whole = {"type": "tool_use", "id": id, "name": block["name"], "input": block.get("input", {}), **block}
            blocks.append(whole)
        return blocks

    def _pieces(self, content: list[dict[str, Any]]) -> Iterator[ReplyDelta]:
        for block in content:
            match block.get("type"):
                case "text":
                    yield from (ReplyDelta("text", text) for text in self._cut(block["text"]))
                case "thinking":
                    yield from (ReplyDelta("thinking", text) for text in self._cut(block["thinking"]))
                case "tool_use":
                    yield ReplyDelta("tool", block["name"])
                case _:
                    pass

    def _cut(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self._piece_chars):
            yield text[start : start + self._piece_chars]


def _marks(request: Mapping[str, Any]) -> Iterator[Mark]:
    """Yield the request's breakpoints by the position of their blocks: tools, system, messages."""
    position = 0
    system: Any = request.get("system")
    contents: list[Any] = [request.get("tools"), system]
    contents += [message.get("content") for message in request.get("messages") or ()]
    for content in contents:
        for block in [None] if isinstance(content, str) else content or ():
            ttl = mark_ttl(block)
            if ttl:
                yield Mark(position, ttl)
            position += 1


def mark_ttl(block: Any) -> str:
    """Return the lifetime of the breakpoint on a block or inside it; an empty string if there is none."""
    if not isinstance(block, Mapping):
        return ""
    fields = cast("Mapping[str, Any]", block)
    mark: Any = fields.get("cache_control")
    if mark:
        return str(mark.get("ttl", "5m"))
    inner: Any = fields.get("content")
    found = [mark_ttl(item) for item in cast("list[Any]", inner)] if isinstance(inner, list) else []
    return next(filter(None, found), "")
