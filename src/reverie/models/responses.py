"""Models behind OpenAI's Responses, called through the official SDK and without state at the provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from ..cache.prices import listed_window
from ..errors import ModelRefused
from ..ports import Capabilities, Reply, ReplyDelta
from ..values import replace
from .openai import OpenAIModel
from .responses_reply import CompactionAssembly, ResponsesAssembly, compact_body
from .responses_request import encrypted_ids, responses_body
from .wire import ReplyAssembly, body_bytes

if TYPE_CHECKING:
    import httpx2

_UNREADABLE: Final = "invalid_encrypted_content"


class ResponsesModel(OpenAIModel):
    """A model of OpenAI, or of a server at ``base_url`` that speaks its Responses.

    A request with the field ``compaction`` is answered by the provider's compacted conversation. Where the provider
    cannot read reasoning that it wrote, the request goes again without it, once, and later ones leave it out too.
    """

    provider = "openai-responses"
    _unreadable: frozenset[str] = frozenset()

    @property
    def capabilities(self) -> Capabilities:
        """The window, as given or from the installed table, and whether the provider caches at marks."""
        return Capabilities(
            caching=self._facts.api == "responses",
            compaction=self._facts.api == "responses" and self._facts.compaction,
            window=self._window or listed_window(self._id),
            max_output=self._facts.max_output_tokens if self._facts.api == "responses" else None,
        )

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Send a request and yield the pieces of the reply as they arrive, then the whole reply."""
        begun = False
        try:
            async with aclosing(super().stream(request)) as parts:
                async for part in parts:
                    begun = True
                    yield part
            return
        except ModelRefused as error:
            dropped = encrypted_ids((await self._translated(request))[1])
            if error.error_code != _UNREADABLE or begun or not dropped:
                raise
            self._unreadable |= dropped
        async with aclosing(super().stream(request)) as parts:
            async for part in parts:
                yield _with_dropped(part, dropped) if isinstance(part, Reply) else part

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        request, body = await self._translated(request)
        headers: Mapping[str, str] = request.get("extra_headers") or {}
        model = str(body["model"])
        if request.get("compaction") is not None:
            response = await self._post("/responses/compact", body_bytes(compact_body(body, request)), headers)
            return response, CompactionAssembly(self.name, model=model)
        extra: Mapping[str, Any] = request.get("extra_body") or {}
        body = {**body, **extra, "stream": True}
        response = await self._post("/responses", body_bytes(body), headers)
        return response, ResponsesAssembly(self.name, model=model)

    async def _translated(self, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        request, facts = await self._named(request)
        return request, responses_body(request, facts=facts, unreadable=self._unreadable)


def _with_dropped(reply: Reply, dropped: set[str]) -> Reply:
    told = [{"type": "thinking_dropped", "reason": _UNREADABLE, "path": item} for item in sorted(dropped)]
    return replace(reply, body={**reply.body, "input_transformations": told})
