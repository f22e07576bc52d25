"""A model behind the test server's provider, without HTTP: it enforces every public rule and remembers its refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import anyio
import msgspec

from reverie.cache.simulator import CacheRules
from reverie.conversation.wire.validate import Limits
from reverie.model_facts import facts_of
from reverie.models.anthropic import wire_request
from reverie.models.failures import failure_of_status
from reverie.ports import Capabilities, Reply, ReplyDelta
from reverie.testing.messages_server.edits import count_block_tokens
from reverie.testing.messages_server.provider import Caller, Provider
from reverie.testing.messages_server.refusals import ProviderRefusal
from reverie.testing.messages_server.thinking import BINDING_BETA

API_VERSION = "2026-10-21"
Script = Callable[[dict[str, Any]], Any]


class EnforcingModel:
    """One model of an in-process provider; models that share a provider share its signatures and its window."""

    def __init__(self, model_id: str, provider: Provider, script: Script, *, clock: Callable[[], float]) -> None:
        self.model_id = model_id
        self.name = f"anthropic:{model_id}"
        self.provider = provider
        self.script = script
        self.clock = clock
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.reported: list[dict[str, Any]] = []
        self.reports = False
        """Whether every reply reports the thinking that was dropped, as with the beta."""
        self.pause: Callable[[dict[str, Any]], Any] | None = None

    @property
    def capabilities(self) -> Capabilities:
        facts = facts_of(self.model_id)
        window = self.provider.window_of(facts)
        return Capabilities(
            caching=True,
            context_management=True,
            compaction=facts.compaction,
            window=window,
            max_output=facts.max_output_tokens,
        )

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        yield await self.complete(request)

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        body, headers = wire_request(request)
        body = msgspec.json.decode(msgspec.json.encode(body))
        self.requests.append(body)
        if self.pause is not None and body.get("compaction") is not None:
            await self.pause(body)
        await anyio.lowlevel.checkpoint()
        betas = frozenset(part.strip() for part in headers.get("anthropic-beta", "").split(",") if part)
        betas |= {BINDING_BETA} if self.reports else frozenset()
        try:
            caller = Caller("account", headers.get("anthropic-version", API_VERSION), betas)
            admitted = self.provider.admit(body, caller, self.clock())
        except ProviderRefusal as refusal:
            failure = failure_of_status(
                self.name, refusal.status, {"error": {"type": refusal.kind, "message": refusal.message}}
            )
            if "too long" not in refusal.message:
                self.refusals.append(refusal.message)
            raise failure from refusal
        message = self.provider.answer(admitted, self.script(body), self.clock())
        self.reported += message.get("input_transformations") or []
        return Reply(msgspec.json.decode(msgspec.json.encode(message)))

    async def aclose(self) -> None:
        return None


def enforcing_provider(window: int | None, models: tuple[str, ...], behavior: Any = "error") -> Provider:
    return Provider(
        models=models,
        window=window,
        limits=Limits(),
        count=count_block_tokens,
        rules=CacheRules(),
        checks_thinking=True,
        preserved_thinking=behavior,
    )
