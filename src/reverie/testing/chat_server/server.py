"""The HTTP side: the endpoints and the prefix cache, on a thread that lives as long as its ``with`` block."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec

from ...errors import InputError
from ..loopback import LoopbackThread
from ..messages_server import ManualClock, count_block_tokens
from .dialects import (
    ChatRefusal,
    chat_parts,
    chat_reply,
    response_body,
    response_items,
    response_parts,
    response_reply,
)
from .ledger import PrefixCache

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["ChatServer"]

Body = dict[str, Any]


class ChatServer:
    """A server of Chat Completions and Responses on loopback, which runs as long as its ``with`` block."""

    def __init__(
        self,
        reply: Callable[[Mapping[str, Any]], str | list[Body]],
        *,
        clock: ManualClock | None = None,
        window: int = 400_000,
    ) -> None:
        self.clock = clock or ManualClock()
        self.requests: list[Body] = []
        self.refusals: list[tuple[int, str]] = []
        self.usages: list[tuple[str, Body]] = []
        """The model and the usage of every answered request, in the fields of the Messages API."""
        self._reply = reply
        self._window = window
        self._cache = PrefixCache()
        self._stored: dict[str, list[Body]] = {}
        """The items that the provider stores for each response id: those of its request and its own."""
        self._lock = threading.Lock()
        self._ids = count(1)
        self._thread: LoopbackThread | None = None

    @property
    def base_url(self) -> str:
        """The address of the server with ``/v1``; raises ``InputError`` while it does not run."""
        if self._thread is None:
            raise InputError("the server does not run yet: use it in a `with` block")
        return f"{self._thread.url}/v1"

    def __enter__(self) -> ChatServer:
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError as error:
            raise InputError("ChatServer needs starlette and uvicorn: install reverie[testing]") from error
        routes = [
            Route("/v1/chat/completions", self._endpoint(self._chat), methods=["POST"]),
            Route("/v1/responses", self._endpoint(self._response), methods=["POST"]),
            Route("/v1/responses/compact", self._endpoint(self._compact), methods=["POST"]),
        ]
        self._thread = LoopbackThread(Starlette(routes=routes), "chat-server")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.stop()
        self._thread = None

    def _endpoint(self, answer: Callable[[Body], Body]) -> Any:
        from starlette.responses import JSONResponse

        async def endpoint(request: Request) -> Any:
            body: Any = msgspec.json.decode(await request.body())
            self.requests.append(body)
            try:
                if body.get("stream"):
                    raise ChatRefusal("this test server does not stream")
                return JSONResponse(await anyio.to_thread.run_sync(answer, body))
            except ChatRefusal as refused:
                self.refusals.append((400, refused.message))
                said = {"message": refused.message, "type": "invalid_request_error", "code": refused.code}
                return JSONResponse({"error": said}, status_code=400)

        return endpoint

    def _chat(self, body: Body) -> Body:
        return self._answered(body, chat_parts(body), chat_reply)

    def _response(self, body: Body) -> Body:
        items = response_items(body, self._before(body))
        reply = self._answered(body, response_parts(body, items), response_reply)
        if body.get("store") is not False:
            self._stored[reply["id"]] = [*items, *reply["output"]]
        return reply

    def _before(self, body: Body) -> list[Body]:
        """Return the stored items of the response that a request continues, if any; refuse an unknown id."""
        named = body.get("previous_response_id")
        if named is None:
            return []
        if named not in self._stored:
            raise ChatRefusal(f"Previous response with id '{named}' not found.", "previous_response_not_found")
        return self._stored[named]

    def _compact(self, body: Body) -> Body:
        """Return a compacted history: the user's messages and one opaque item with the text of a model call."""
        items = response_items(body, self._before(body))
        parts = response_parts(body, items)
        said = [{"type": "message", **item} for item in items if item.get("role") == "user"]
        blocks, usage = self._called({**body, "tools": []}, parts)
        sealed = base64.b64encode("".join(block.get("text", "") for block in blocks).encode()).decode()
        identity = f"resp_{next(self._ids):08d}"
        kept = [*said, {"type": "compaction", "id": f"cmp_{identity}", "encrypted_content": sealed}]
        return {**response_body(identity, str(body["model"]), kept, usage), "object": "response.compaction"}

    def _answered(self, body: Body, parts: list[Any], told: Callable[..., Body]) -> Body:
        blocks, usage = self._called(body, parts)
        return told(f"chat{next(self._ids):08d}", str(body["model"]), blocks, usage)

    def _called(self, body: Body, parts: list[Any]) -> tuple[list[Body], tuple[int, int, int]]:
        """Charge a prompt, record the usage, and return the scripted reply's blocks and the tokens.

        The tokens are input, cached and output. Raise ``ChatRefusal`` for a prompt longer than the window.
        """
        model = str(body["model"])
        with self._lock:
            total, cached = self._cache.charge(model, parts, self.clock.now)
            if total > self._window:
                raise ChatRefusal(
                    f"This model's maximum context length is {self._window} tokens. However, your messages resulted in "
                    f"{total} tokens. Please reduce the length of the messages.",
                    "context_length_exceeded",
                )
            said = self._reply(body)
            blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
            output = sum(count_block_tokens(block) for block in blocks)
            usage = {"input_tokens": total - cached, "cache_read_input_tokens": cached, "output_tokens": output}
            self.usages.append((model, usage))
        return blocks, (total, cached, output)
