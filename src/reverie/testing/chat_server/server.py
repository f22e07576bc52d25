"""The HTTP side: two endpoints and one ledger, on a thread that lives as long as its ``with`` block."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import msgspec

from ...errors import InputError
from ..messages_server import Clock, count_block_tokens
from .dialects import Refused, chat_parts, chat_reply, response_body, response_items, response_parts, response_reply
from .ledger import PrefixCache

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["ChatServer"]

Body = dict[str, Any]
_START_SECONDS: Final = 10.0


class ChatServer:
    """Chat Completions and Responses on loopback, with what every answered request was charged."""

    def __init__(
        self,
        reply: Callable[[Mapping[str, Any]], str | list[Body]],
        *,
        clock: Clock | None = None,
        window: int = 400_000,
    ) -> None:
        self.clock = clock or Clock()
        self.requests: list[Body] = []
        self.refusals: list[tuple[int, str]] = []
        self.usages: list[tuple[str, Body]] = []
        """What every answered request was charged, with its model, in the words of the Messages API."""
        self._reply = reply
        self._window = window
        self._cache = PrefixCache()
        self._stored: dict[str, list[Body]] = {}
        """What the provider keeps of every response: the items it answered, and its own."""
        self._lock = threading.Lock()
        self._ids = count(1)
        self._base_url = ""
        self._thread: threading.Thread | None = None
        self._uvicorn: Any = None

    @property
    def base_url(self) -> str:
        """Where the server listens; only known while it runs."""
        if not self._base_url:
            raise InputError("the server does not run yet: use it in a `with` block")
        return self._base_url

    def __enter__(self) -> ChatServer:
        try:
            import uvicorn
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError as error:
            raise InputError("ChatServer needs starlette and uvicorn: install reverie[testing]") from error
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        routes = [
            Route("/v1/chat/completions", self._door(self._chat), methods=["POST"]),
            Route("/v1/responses", self._door(self._response), methods=["POST"]),
            Route("/v1/responses/compact", self._door(self._compact), methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), name="chat-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._uvicorn.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise InputError(f"the test server did not start within {_START_SECONDS:.0f} seconds")
            time.sleep(0.005)
        self._base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uvicorn.should_exit = True
        if self._thread is not None:
            self._thread.join(_START_SECONDS)
        self._base_url, self._thread = "", None

    def _door(self, answer: Callable[[Body], Body]) -> Any:
        from starlette.responses import JSONResponse

        async def endpoint(request: Request) -> Any:
            body: Any = msgspec.json.decode(await request.body())
            self.requests.append(body)
            try:
                if body.get("stream"):
                    raise Refused("this test server does not stream")
                return JSONResponse(await anyio.to_thread.run_sync(answer, body))
            except Refused as refused:
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
        """Return the items of the response that a request goes on from."""
        named = body.get("previous_response_id")
        if named is None:
            return []
        if named not in self._stored:
            raise Refused(f"Previous response with id '{named}' not found.", "previous_response_not_found")
        return self._stored[named]

    def _compact(self, body: Body) -> Body:
        """Turn the past into what the user said and one opaque item, as a model call of its own."""
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
        """Charge a prompt, ask the script, and enter both in the ledger."""
        model = str(body["model"])
        with self._lock:
            total, cached = self._cache.charge(model, parts, self.clock.now)
            if total > self._window:
                raise Refused(
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
