"""The HTTP side: the endpoints and the prompt caches, on a thread that lives as long as its ``with`` block."""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import msgspec

from ...cache.usage import Usage
from ...model_facts import default_model, facts_of
from ...values import rows_of
from ..loopback import LoopbackServer
from ..messages_server import ManualClock, count_block_tokens
from .ledger import BreakpointCache, PrefixCache, prompt_units
from .refusals import Body, ChatRefusal
from .replies import Tokens, chat_events, chat_reply, response_body, response_events, response_output
from .response_rules import ItemRules, refuse_chat, refuse_response, response_items

if TYPE_CHECKING:
    from starlette.requests import Request

_COMPACT_FIELDS: Final = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "service_tier"),
    }
)
_CACHE_FIELDS: Final = ("model", "tools", "parallel_tool_calls", "text", "response_format", "context_management")
Answer = tuple[Body, Callable[[], Iterator[bytes]]]
_SIZE = 16


class ChatServer(LoopbackServer):
    """A server of Chat Completions and Responses on loopback, which runs as long as its ``with`` block."""

    def __init__(
        self,
        reply: Callable[[Mapping[str, Any]], str | list[Body]],
        *,
        clock: ManualClock | None = None,
        window: int = 400_000,
        models: Sequence[str] = (default_model("chat"),),
    ) -> None:
        """Answer with ``reply``, a function from a request to text or to blocks of the Messages API.

        A block of type ``refusal`` refuses, and one with ``cut`` ends the reply at its limit of tokens. ``models``
        are the names that the server lists; it answers for every name, by the rules of that model.
        """
        self.clock = clock or ManualClock()
        self.requests: list[Body] = []
        self.paths: list[str] = []
        self.refusals: list[tuple[int, str]] = []
        self.usages: list[tuple[str, dict[str, int]]] = []
        """The model and the usage of every answered request, in the fields of the Messages API."""
        self.seal = Seal()
        self._reply = reply
        self._window = window
        self._models = models
        self._prefixes = PrefixCache()
        self._breakpoints = BreakpointCache()
        self._stored: dict[str, list[Body]] = {}
        """The items that the provider stores for each response id: those of its request and its own."""
        self._followers: dict[str, frozenset[str]] = {}
        self._signed: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._ids = count(1)

    @property
    def base_url(self) -> str:
        """The address of the server with ``/v1``; raises ``InputError`` while it does not run."""
        return f"{super().base_url}/v1"

    def _application(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def models(request: Request) -> Any:
            listed = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            return JSONResponse({"object": "list", "data": listed})

        routes = [
            Route("/v1/models", models),
            Route("/v1/chat/completions", self._endpoint(self._chat), methods=["POST"]),
            Route("/v1/responses", self._endpoint(self._response), methods=["POST"]),
            Route("/v1/responses/compact", self._endpoint(self._compact), methods=["POST"]),
        ]
        return Starlette(routes=routes)

    def _endpoint(self, answer: Callable[[Body], Answer]) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        async def endpoint(request: Request) -> Any:
            body: Any = msgspec.json.decode(await request.body())
            self.requests.append(body)
            self.paths.append(request.url.path)
            try:
                whole, events = await anyio.to_thread.run_sync(answer, body)
            except ChatRefusal as refused:
                self.refusals.append((400, refused.message))
                said = {"message": refused.message, "type": "invalid_request_error", "code": refused.code}
                return JSONResponse({"error": said}, status_code=400)
            if body.get("stream"):
                return StreamingResponse(events(), media_type="text/event-stream")
            return JSONResponse(whole)

        return endpoint

    def _chat(self, body: Body) -> Answer:
        refuse_chat(body, facts_of(str(body.get("model"))), self._signed)
        blocks, tokens = self._called(body, rows_of(body["messages"]))
        self._signed.update({one["id"]: one["extra_content"] for one in blocks if "extra_content" in one})
        whole = chat_reply(f"chat{next(self._ids):08d}", str(body["model"]), blocks, tokens)
        usage: Body = body.get("stream_options") or {}
        return whole, lambda: chat_events(whole, usage=bool(usage.get("include_usage")))

    def _response(self, body: Body) -> Answer:
        refuse_response(body, facts_of(str(body.get("model"))))
        items = self._items(body)
        model = str(body["model"])
        blocks, tokens = self._called(body, items)
        identity = f"chat{next(self._ids):08d}"
        output = response_output(identity, blocks, lambda text: self.seal.close(text, model))
        for at, item in enumerate(output):
            following: Body = next((one for one in output[at + 1 :] if one["type"] != "reasoning"), Body())
            if item["type"] == "reasoning":
                names = (following.get("id"), following.get("call_id"))
                self._followers[item["id"]] = frozenset(str(name) for name in names if name)
        whole = response_body(identity, model, output, tokens, cut=any(block.get("cut") for block in blocks))
        if body.get("store") is not False:
            self._stored[whole["id"]] = [*items, *output]
        return whole, lambda: response_events(whole)

    def _compact(self, body: Body) -> Answer:
        """Return a compacted history: the user's messages and one opaque item with the text of a model call."""
        unknown = sorted(body.keys() - _COMPACT_FIELDS)
        if unknown:
            raise ChatRefusal(f"Unknown parameter: '{unknown[0]}'.", "unknown_parameter")
        items = self._items(body)
        said = [{"type": "message", **item} for item in items if item.get("role") == "user"]
        blocks, tokens = self._called({**body, "tools": []}, items)
        sealed = self.seal.close("".join(block.get("text", "") for block in blocks), str(body["model"]))
        identity = f"resp_{next(self._ids):08d}"
        kept = [*said, {"type": "compaction", "id": f"cmp_{identity}", "encrypted_content": sealed}]
        whole = {**response_body(identity, str(body["model"]), kept, tokens), "object": "response.compaction"}
        return whole, lambda: response_events(whole)

    def _items(self, body: Body) -> list[Body]:
        """Return the items of a request and those it continues; raise ``ChatRefusal`` if one breaks a rule."""
        items = response_items(body, self._before(body))
        model = str(body["model"])
        stored = frozenset(str(item.get("id")) for kept in self._stored.values() for item in kept)
        ItemRules(
            facts_of(model),
            followers=self._followers,
            stored=stored,
            open_sealed=lambda sealed, item: self.seal.open(sealed, model, item),
        ).refuse(items)
        return items

    def _before(self, body: Body) -> list[Body]:
        """Return the stored items of the response that a request continues, if any; refuse an unknown id."""
        named = body.get("previous_response_id")
        if named is None:
            return []
        if named not in self._stored:
            raise ChatRefusal(f"Previous response with id '{named}' not found.", "previous_response_not_found")
        return self._stored[named]

    def _called(self, body: Body, items: Sequence[Body]) -> tuple[list[Body], Tokens]:
        """Charge a prompt, record the usage, and return the scripted reply's blocks and the tokens.

        Raise ``ChatRefusal`` for a prompt longer than the window.
        """
        model = str(body["model"])
        with self._lock:
            total, cached, written = self._charge(body, items)
            if total > self._window:
                raise ChatRefusal(
                    f"This model's maximum context length is {self._window} tokens. However, your messages resulted in "
                    f"{total} tokens. Please reduce the length of the messages.",
                    "context_length_exceeded",
                )
            said = self._reply(body)
            blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
            output = sum(count_block_tokens(block) for block in blocks)
            usage = Usage(cached, written, uncached=total - cached - written, output=output)
            self.usages.append((model, usage.body()))
        return blocks, Tokens(total, cached, written, output)

    def _charge(self, body: Body, items: Sequence[Body]) -> tuple[int, int, int]:
        """Return the tokens of a prompt, those read from the cache and those written to it."""
        model, reasoning = str(body["model"]), body.get("reasoning")
        options: Body = body.get("prompt_cache_options") or {}
        effort: Any = body.get("reasoning_effort") or (rows_of([reasoning]) or [{}])[0].get("effort")
        key = [[body.get(name) or None for name in _CACHE_FIELDS], effort, body.get("instructions") or ""]
        units = list(prompt_units(items))
        if facts_of(model).api == "responses":
            explicit = options.get("mode") == "explicit"
            return self._breakpoints.charge(key, units, self.clock.now, explicit=explicit)
        return *self._prefixes.charge(model, [key, *(unit.value for unit in units)], self.clock.now), 0


class Seal:
    """Makes and opens encrypted content; after ``renew`` it opens nothing made before."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_SIZE)

    def renew(self) -> None:
        """Take a new key, as a change of the organisation would."""
        self._key = secrets.token_bytes(_SIZE)

    def close(self, text: str, model: str) -> str:
        """Return text as encrypted content that only this model opens."""
        return base64.b64encode(self._tag(text.encode(), model) + text.encode()).decode()

    def open(self, sealed: str, model: str, item: str) -> str:
        """Return the text of encrypted content; raise ``ChatRefusal`` if it was changed or is another model's."""
        try:
            data = base64.b64decode(sealed, validate=True)
        except ValueError:
            data = b""
        if not hmac.compare_digest(data[:_SIZE], self._tag(data[_SIZE:], model)):
            raise ChatRefusal(
                f"The encrypted content for item {item} could not be verified. "
                "Reason: Encrypted content could not be decrypted or parsed.",
                "invalid_encrypted_content",
            )
        return data[_SIZE:].decode()

    def _tag(self, data: bytes, model: str) -> bytes:
        return blake2b(model.encode() + b"\0" + data, key=self._key, digest_size=_SIZE).digest()
