"""A model that repeats failed requests, and falls back to another model.

It repeats after ``ModelUnavailable`` (429, 5xx, 529, no connection, timeout) and ``ReplyBroken``, and after no other
error: a provider that refused a request will refuse it again. The delay doubles with each try, with jitter, and is at
least the provider's ``retry-after``. The libraries below do not retry.

A stream that broke in the middle is repeated as a whole. The pieces of the broken stream were already yielded, so
``on_retry`` is called first and its ``pieces`` says how many the reader must discard. Only the ``Reply`` counts, and
it is always complete.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import anyio

from ..conversation.wire.fields import REQUEST_FIELDS
from ..conversation.wire.options import refused_options
from ..errors import InputError, ModelError, ModelUnavailable, ReplyBroken
from ..model_facts import facts_of
from ..ports import Capabilities, Connectable, Model, Reply, ReplyDelta
from ..values import record
from .wire import whole_reply

_PROVIDERS_OWN: Final = ("context_management", "betas", "extra_headers", "extra_body")


@record
class Retry:
    """A failed try of a request, and the delay and the model of the next one."""

    error: ModelError
    attempt: int
    """The number of tries of this model for this request, including this one."""
    delay_seconds: float
    pieces: int
    """The number of pieces of the broken reply that the reader must discard."""
    model: str
    """The name of the model for the next try."""
    attempts: int = 0
    """The number of tries of this model if all fail."""


@record
class RetryPolicy:
    """How often a failed request is repeated, and after which delays."""

    attempts: int = 6
    first_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0
    no_server_attempts: int = 2
    """The number of tries where nothing listens at the provider's address."""
    max_retry_after_seconds: float = 120.0
    """The longest ``retry-after`` of a provider that is waited for; a longer one ends the tries."""


class RetryingModel:
    """A model with retries, then the fallback.

    After another model took over, the first one gets one try per request until it answers again, so that a user
    waits for an outage only once.
    """

    def __init__(
        self,
        model: Model,
        *,
        fallback: Model | None = None,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
        on_retry: Callable[[Retry], None] | None = None,
        is_replaceable: bool = False,
    ) -> None:
        """Ask ``model``, then ``fallback``; ``is_replaceable`` if the caller asks another model by itself."""
        self._policy = policy or RetryPolicy()
        if self._policy.attempts < 1:
            raise InputError(f"attempts is {self._policy.attempts}: give 1 or more")
        self._model = model
        self._fallback = fallback
        self._sleep = sleep
        self._jitter = jitter
        self._absent = False
        self._is_replaceable = is_replaceable or fallback is not None
        self.on_retry = on_retry
        """Called before each new try, including the fallback's first."""

    @property
    def name(self) -> str:
        """The first model's name."""
        return self._model.name

    @property
    def model_id(self) -> str:
        """The first model's id."""
        return self._model.model_id

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the first model."""
        return self._model.capabilities

    @property
    def inner(self) -> Model:
        """The model that is asked first."""
        return self._model

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Yield pieces as they arrive, then the whole reply; retry failed tries, then ask the fallback.

        Pieces of a failed try were yielded already; ``on_retry`` says how many the reader must discard.
        """
        attempt, model, asked = 0, self._model, request
        while True:
            attempt += 1
            pieces = 0
            try:
                async with aclosing(model.stream(asked)) as parts:
                    async for part in parts:
                        if isinstance(part, Reply):
                            self._absent = self._absent and model is not self._model
                        pieces += 1
                        yield part
                return
            except (ModelUnavailable, ReplyBroken) as error:
                failure = error
            delay = self._delay(failure, attempt)
            tries = self._tries(model, failure)
            if attempt >= tries or delay is None:
                self._absent = True
                if self._fallback is None or model is self._fallback:
                    raise failure
                model, asked, delay = self._fallback, _request_for(self._fallback, request), 0.0
                self._tell(Retry(failure, attempt, delay, pieces, model.name))
                attempt = 0
                continue
            self._tell(Retry(failure, attempt, delay, pieces, model.name, tries))
            await self._sleep(delay)

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Return the whole reply, which may be the fallback's, after retries if needed."""
        return await whole_reply(self.stream(request))

    async def connect(self) -> None:
        """Open the client of the first model, if it has one that can be opened early."""
        if isinstance(self._model, Connectable):
            await self._model.connect()

    async def aclose(self) -> None:
        """Close the connections of both models."""
        try:
            await self._model.aclose()
        finally:
            if self._fallback is not None:
                await self._fallback.aclose()

    def _tries(self, model: Model, failure: ModelError) -> int:
        if self._absent and model is self._model and self._is_replaceable:
            return 1
        has_server = not (isinstance(failure, ModelUnavailable) and failure.no_server)
        return self._policy.attempts if has_server else min(self._policy.attempts, self._policy.no_server_attempts)

    def _delay(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds to wait before the next try; None if the provider asks for more than is allowed."""
        asked = error.retry_after if isinstance(error, ModelUnavailable) else None
        if asked is not None and asked > self._policy.max_retry_after_seconds:
            return None
        backed_off = min(self._policy.max_delay_seconds, self._policy.first_delay_seconds * 2.0 ** (attempt - 1))
        return max(asked or 0.0, backed_off * (0.5 + self._jitter() / 2))

    def _tell(self, retry: Retry) -> None:
        if self.on_retry is not None:
            self.on_retry(retry)


def _request_for(model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with another model's id and output limit, without fields that it does not accept."""
    known = model.capabilities
    lost = {"diagnostics"}  # names a message of the other model
    if not known.caching:
        lost |= set(_PROVIDERS_OWN)
    if not known.context_management:
        lost.add("context_management")
    asked = {key: value for key, value in request.items() if key not in lost}
    asked["model"] = model.model_id
    most = known.max_output
    if most is not None and isinstance(asked.get("max_tokens"), int):
        asked["max_tokens"] = min(asked["max_tokens"], most)
    options = {key: asked[key] for key in REQUEST_FIELDS & asked.keys()}
    for key in refused_options(options, asked.get("tools") or [], facts_of(model.model_id)).keys() - {"max_tokens"}:
        del asked[key]
    return asked
