"""The HTTP side: the application, its thread, and the methods that a test uses."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
import msgspec

from ...cache.simulator import CacheRules
from ...conversation.wire.images import GENERAL
from ...conversation.wire.validate import Limits
from ...model_facts import facts_of
from ..loopback import LoopbackServer
from .compaction import listed_messages
from .edits import TokenCounter, count_block_tokens
from .faults import Faults, InjectedFailure, StreamGate, first_of
from .models import model_row, served_models
from .provider import Caller, Provider
from .refusals import ProviderRefusal, betas_of, check_access
from .replies import ReplyFunction, ServerReply
from .thinking import Behavior
from .wire import JsonReply, StreamReply, error_body

if TYPE_CHECKING:
    from starlette.requests import Request


class ManualClock:
    """A clock that the test sets, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def advance(self, seconds: float) -> None:
        """Advance the clock by a number of seconds."""
        self.now += seconds


class MessagesServer(LoopbackServer):
    """A Messages API on loopback that lives as long as its ``with`` block."""

    def __init__(
        self,
        reply: ReplyFunction,
        *,
        clock: ManualClock | None = None,
        window: int | None = None,
        models: Iterable[str] | None = None,
        limits: Limits | None = None,
        count: TokenCounter = count_block_tokens,
        rules: CacheRules | None = None,
        api_keys: Iterable[str] | None = None,
        checks_thinking: bool = True,
        preserved_thinking: Behavior = "error",
        summary: ReplyFunction = listed_messages,
    ) -> None:
        """Take the model's replies from ``reply``, and the text of compaction blocks from ``summary``.

        ``window`` and ``models`` are by default those of the model facts. ``preserved_thinking`` is the account's
        treatment of thinking whose prefix has changed; ``silent`` is that of older accounts. Without
        ``checks_thinking`` no signature is checked.
        """
        self.clock = clock or ManualClock()
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, str]] = []
        self.errors: list[Exception] = []
        self.usages: list[tuple[str, dict[str, Any]]] = []
        """The model and the usage of every answered request: the provider's side of the bill."""
        self._reply = reply
        self._summary = summary
        self._limits = limits or Limits()
        self._api_keys = None if api_keys is None else frozenset(api_keys)
        self._faults = Faults()
        self._provider = Provider(
            models=served_models() if models is None else tuple(models),
            window=window,
            limits=self._limits,
            count=count,
            rules=rules or CacheRules(),
            checks_thinking=checks_thinking,
            preserved_thinking=preserved_thinking,
        )

    @property
    def calls_without_thinking(self) -> set[str]:
        """The ids of calls that came back in their tool round without the thinking that led to them."""
        return self._provider.calls.left_out

    def fail(
        self,
        status: int = 500,
        *,
        retry_after: float | None = None,
        times: int = 1,
        message: str = "",
        after_events: int | None = None,
        code: str = "",
    ) -> None:
        """Fail the next ``times`` requests; with ``after_events``, a streamed reply fails after so many events.

        ``code`` is the error code in the body, for example ``compaction_unavailable``.
        """
        words = message or f"a fault the test asked for ({status})"
        self._faults.failures.extend([InjectedFailure(status, words, retry_after, after_events, code)] * times)

    def cut_stream(self, after_bytes: int, *, times: int = 1) -> None:
        """Break the connection of the next ``times`` replies, streamed or not, after so many bytes of the body."""
        self._faults.cuts.extend([after_bytes] * times)

    def hold_stream(self, after_events: int = 1) -> StreamGate:
        """Hold the next stream after some events until the returned gate is opened, 30 seconds at most."""
        gate = StreamGate(after_events)
        self._faults.gates.append(gate)
        self._faults.all_gates.append(gate)
        return gate

    def _stop(self) -> None:
        for gate in self._faults.all_gates:
            gate.open()
        super()._stop()

    def _application(self) -> Any:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route

        routes = [
            Route("/v1/messages", self._endpoint(self._messages), methods=["POST"]),
            Route("/v1/messages/count_tokens", self._endpoint(self._count_tokens), methods=["POST"]),
            Route("/v1/models", self._endpoint(self._models), methods=["GET"]),
            Route("/v1/models/{model}", self._endpoint(self._model), methods=["GET"]),
        ]

        async def not_here(request: Request, error: Exception) -> Any:
            status = error.status_code if isinstance(error, HTTPException) else 500
            return self._refused(ProviderRefusal(status, "Not Found" if status == 404 else str(error)), "req_none")

        return Starlette(routes=routes, exception_handlers={404: not_here, 405: not_here})

    def _endpoint(self, inner: Any) -> Any:
        """Return an endpoint that checks the key first and turns every refusal into an error reply."""
        from starlette.requests import ClientDisconnect
        from starlette.responses import Response

        async def endpoint(request: Request) -> Any:
            request_id = self._provider.next_id("req")
            try:
                key = check_access(request.headers, self._api_keys)
                return await inner(
                    request, request_id, Caller(key, request.headers["anthropic-version"], betas_of(request.headers))
                )
            except ProviderRefusal as refusal:
                return self._refused(refusal, request_id)
            except ClientDisconnect:  # it was killed while it sent its request, and reads no reply
                return Response(status_code=400)
            except Exception as error:
                self.errors.append(error)
                return self._refused(ProviderRefusal(500, f"the test server failed: {error!r}"), request_id)

        return endpoint

    def _refused(self, refusal: ProviderRefusal, request_id: str) -> JsonReply:
        self.refusals.append((refusal.status, refusal.message))
        headers = {"request-id": request_id}
        if refusal.retry_after is not None:
            headers["retry-after"] = f"{refusal.retry_after:g}"
        body = error_body(refusal.kind, refusal.message, request_id, refusal.code)
        return JsonReply(body, status=refusal.status, headers=headers)

    async def _body(self, request: Request) -> dict[str, Any]:
        raw = await request.body()
        most = self._limits.max_body_bytes
        if len(raw) > (GENERAL.max_body_bytes if most is None else most):
            raise ProviderRefusal(413, "Request exceeds the maximum size")
        try:
            body: Any = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProviderRefusal(400, f"The request body is not valid JSON: {error}") from None
        if not isinstance(body, dict):
            raise ProviderRefusal(400, "The request body is not a JSON object")
        return cast("dict[str, Any]", body)

    async def _messages(self, request: Request, request_id: str, caller: Caller) -> Any:
        body = await self._body(request)
        self.requests.append(body)
        failure = first_of(self._faults.failures)
        if failure is not None and (failure.after_events is None or not body.get("stream")):
            raise ProviderRefusal(
                failure.status,
                failure.message,
                retry_after=failure.retry_after,
                kind=failure.kind,
                code=failure.code,
            )
        admitted = self._provider.admit(body, caller, self.clock.now)
        summarizes = admitted.threshold is not None or body.get("compaction") is not None
        summary = await self._said(self._summary, body) if summarizes else None
        ready = summary if body.get("compaction") is not None or admitted.pauses else None
        said = ready if ready is not None else await self._said(self._reply, body)
        message = self._provider.answer(admitted, said, self.clock.now, summary)
        self.usages.append((body["model"], message["usage"]))
        headers = {"request-id": request_id}
        cut = first_of(self._faults.cuts)
        if not body.get("stream"):
            return JsonReply(message, headers=headers, cut=cut)
        gate = first_of(self._faults.gates)
        return StreamReply(message, headers=headers, request_id=request_id, cut=cut, gate=gate, failure=failure)

    async def _said(self, script: ReplyFunction, body: dict[str, Any]) -> Any:
        """Return the scripted reply or summary; nothing for 0 tokens."""
        if body["max_tokens"] == 0:
            return ServerReply([], "max_tokens")
        said: Any = await anyio.to_thread.run_sync(script, body, abandon_on_cancel=True)
        return await said if inspect.isawaitable(said) else said

    async def _count_tokens(self, request: Request, request_id: str, caller: Caller) -> Any:
        answer = self._provider.count_tokens(await self._body(request), caller)
        return JsonReply(answer, headers={"request-id": request_id})

    async def _models(self, request: Request, request_id: str, caller: Caller) -> Any:
        names: Sequence[str] = self._provider.models
        after = request.query_params.get("after_id")
        start = names.index(after) + 1 if after in names else 0
        page = names[start : start + int(request.query_params.get("limit", 20))]
        answer = {
            "data": [self._describe(name, caller) for name in page],
            "has_more": start + len(page) < len(names),
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }
        return JsonReply(answer, headers={"request-id": request_id})

    async def _model(self, request: Request, request_id: str, caller: Caller) -> Any:
        name = request.path_params["model"]
        if name not in self._provider.models:
            raise ProviderRefusal(404, f"model: {name}")
        return JsonReply(self._describe(name, caller), headers={"request-id": request_id})

    def _describe(self, name: str, caller: Caller) -> dict[str, Any]:
        facts = facts_of(name)
        return model_row(name, facts, window=self._provider.window_of(facts), betas=caller.betas)
