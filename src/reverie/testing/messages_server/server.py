"""The HTTP side: an application, a thread that serves it, and the doors a test uses."""

from __future__ import annotations

import inspect
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
import msgspec

from ...cache.simulator import CacheRules
from ...conversation.wire.validate import Limits
from ...errors import InputError
from .faults import Cut, Failure, Faults, Gate
from .provider import Provider
from .refusals import Refusal, check_access
from .replies import ReplyFunction
from .token_count import TokenCounter, count_block_tokens
from .wire import JsonWire, StreamWire, error_body

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Clock", "MessagesServer"]

MODELS: Final = (
    "claude-fable-5",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-opus-4-8",
    "claude-opus-4-7",
    "claude-opus-4-6",
    "claude-opus-4-5",
    "claude-sonnet-4-6",
    "claude-sonnet-4-5",
    "claude-sonnet-4-5-20250929",
    "claude-haiku-4-5",
)
_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0


class Clock:
    """Time as the test sets it, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        """Move time on."""
        self.now += seconds


class MessagesServer:
    """A Messages API on loopback that lives as long as its ``with`` block."""

    def __init__(
        self,
        reply: ReplyFunction,
        *,
        clock: Clock | None = None,
        window: int = 200_000,
        models: Iterable[str] = MODELS,
        limits: Limits | None = None,
        count: TokenCounter = count_block_tokens,
        rules: CacheRules | None = None,
        api_keys: Iterable[str] | None = None,
        checks_thinking: bool = True,
    ) -> None:
        self.clock = clock or Clock()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, str]] = []
        self.errors: list[Exception] = []
        self.usages: list[tuple[str, dict[str, Any]]] = []
        """What every answered request was charged, with its model: the provider's side of the bill."""
        self._reply = reply
        self._limits = limits or Limits()
        self._api_keys = None if api_keys is None else frozenset(api_keys)
        self._faults = Faults()
        self._provider = Provider(
            models=tuple(models),
            window=window,
            limits=self._limits,
            count=count,
            rules=rules or CacheRules(),
            checks_thinking=checks_thinking,
        )
        self._base_url = ""
        self._thread: threading.Thread | None = None
        self._uvicorn: Any = None

    @property
    def base_url(self) -> str:
        """Where the server listens; only known while it runs."""
        if not self._base_url:
            raise InputError("the server does not run yet: use it in a `with` block")
        return self._base_url

    def fail(
        self,
        status: int = 500,
        *,
        retry_after: float | None = None,
        times: int = 1,
        message: str = "",
        after_events: int | None = None,
    ) -> None:
        """Answer the next requests with an error; with ``after_events``, as an error event within the stream."""
        failure = Failure(status, message or f"a fault the test asked for ({status})", retry_after, after_events)
        self._faults.add_failures(failure, times)

    def cut_stream(self, after_bytes: int, *, times: int = 1) -> None:
        """Break the connection of the next replies after so many bytes of the body."""
        self._faults.add_cuts(Cut(after_bytes), times)

    def hold_stream(self, after_events: int = 1) -> Gate:
        """Hold the next stream after so many events until the returned gate is opened, 30 seconds at most."""
        gate = Gate(after_events)
        self._faults.add_gate(gate)
        return gate

    def __enter__(self) -> MessagesServer:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    async def __aenter__(self) -> MessagesServer:
        await anyio.to_thread.run_sync(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._stop)

    def _start(self) -> None:
        try:
            import uvicorn
        except ImportError as error:
            raise InputError("MessagesServer needs starlette and uvicorn: install reverie[testing]") from error
        # Named as TCP, so that the event loop turns off Nagle's delay: 40 ms a reply without it.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(
            self._application(),
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
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=([listener],), name="messages-server", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._uvicorn.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                listener.close()
                raise InputError(f"the test server did not start within {_START_SECONDS:.0f} seconds")
            time.sleep(0.005)
        self._base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def _stop(self) -> None:
        if self._thread is None:
            return
        self._faults.open_all()
        self._uvicorn.should_exit = True
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._uvicorn.force_exit = True
            self._thread.join(_STOP_SECONDS)
        self._base_url, self._thread = "", None

    def _application(self) -> Any:
        try:
            from starlette.applications import Starlette
            from starlette.exceptions import HTTPException
            from starlette.routing import Route
        except ImportError as error:
            raise InputError("MessagesServer needs starlette and uvicorn: install reverie[testing]") from error
        routes = [
            Route("/v1/messages", self._door(self._messages), methods=["POST"]),
            Route("/v1/messages/count_tokens", self._door(self._count_tokens), methods=["POST"]),
            Route("/v1/models", self._door(self._models), methods=["GET"]),
            Route("/v1/models/{model}", self._door(self._model), methods=["GET"]),
        ]

        async def not_here(request: Request, error: Exception) -> Any:
            status = error.status_code if isinstance(error, HTTPException) else 500
            return self._refused(Refusal(status, "Not Found" if status == 404 else str(error)), "req_none")

        return Starlette(routes=routes, exception_handlers={404: not_here, 405: not_here})

    def _door(self, inner: Any) -> Any:
        """Return an endpoint that checks the key first and turns every refusal into an error reply."""

        async def endpoint(request: Request) -> Any:
            request_id = self._provider.next_id("req")
            try:
                check_access(request.headers, self._api_keys)
                return await inner(request, request_id)
            except Refusal as refusal:
                return self._refused(refusal, request_id)
            except Exception as error:
                self.errors.append(error)
                return self._refused(Refusal(500, f"the test server failed: {error!r}"), request_id)

        return endpoint

    def _refused(self, refusal: Refusal, request_id: str) -> JsonWire:
        self.refusals.append((refusal.status, refusal.message))
        headers = {"request-id": request_id}
        if refusal.retry_after is not None:
            headers["retry-after"] = f"{refusal.retry_after:g}"
        body = error_body(refusal.kind, refusal.message, request_id)
        return JsonWire(body, status=refusal.status, headers=headers)

    async def _body(self, request: Request) -> dict[str, Any]:
        raw = await request.body()
        if len(raw) > self._limits.max_body_bytes:
            raise Refusal(413, "Request exceeds the maximum size")
        try:
            body: Any = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refusal(400, f"The request body is not valid JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refusal(400, "The request body is not a JSON object")
        return cast("dict[str, Any]", body)

    async def _messages(self, request: Request, request_id: str) -> Any:
        body = await self._body(request)
        self.requests.append(body)
        failure = self._faults.next_failure()
        if failure is not None and (failure.after_events is None or not body.get("stream")):
            raise Refusal(failure.status, failure.message, retry_after=failure.retry_after, kind=failure.kind)
        admitted = self._provider.admit(body, request.headers, self.clock.now)
        said: Any = await anyio.to_thread.run_sync(self._reply, body, abandon_on_cancel=True)
        if inspect.isawaitable(said):
            said = await said
        message = self._provider.answer(admitted, said, self.clock.now)
        self.usages.append((body["model"], message["usage"]))
        headers = {"request-id": request_id}
        cut = self._faults.next_cut()
        if not body.get("stream"):
            return JsonWire(message, headers=headers, cut=cut)
        gate = self._faults.next_gate()
        return StreamWire(message, headers=headers, request_id=request_id, cut=cut, gate=gate, failure=failure)

    async def _count_tokens(self, request: Request, request_id: str) -> Any:
        answer = self._provider.count_tokens(await self._body(request), request.headers)
        return JsonWire(answer, headers={"request-id": request_id})

    async def _models(self, request: Request, request_id: str) -> Any:
        names: Sequence[str] = self._provider.models
        after = request.query_params.get("after_id")
        start = names.index(after) + 1 if after in names else 0
        page = names[start : start + int(request.query_params.get("limit", 20))]
        answer = {
            "data": [self._describe(name) for name in page],
            "has_more": start + len(page) < len(names),
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }
        return JsonWire(answer, headers={"request-id": request_id})

    async def _model(self, request: Request, request_id: str) -> Any:
        name = request.path_params["model"]
        if name not in self._provider.models:
            raise Refusal(404, f"model: {name}")
        return JsonWire(self._describe(name), headers={"request-id": request_id})

    def _describe(self, name: str) -> dict[str, Any]:
        return {
            "type": "model",
            "id": name,
            "display_name": name.replace("-", " ").title(),
            "created_at": "2025-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": self._provider.window,
            "max_tokens": 64_000,
        }
