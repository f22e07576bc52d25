"""Ask the provider for a signed summary of the messages that were already sent, on their cached prefix."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final, cast

import anyio

from ....cache.breakpoints import with_marks
from ....conversation.cuts import Item
from ....conversation.side_query import adapted
from ....conversation.view import View
from ....conversation.wire.request import build_request, messages_added_before
from ....errors import CompactionError, ModelError, ModelUnavailable, PromptTooLong, ReplyBroken
from ....layers.l4_compact import MAX_INSTRUCTIONS, CutRange, SignedSummary
from ....model_facts import ModelFacts, facts_of
from ....ports import Model, Reply
from ....values import record
from ..host import SessionHost
from ..thinking import ThinkingWatch

SOURCE: Final = "compact"
_BETWEEN: Final = ("context_management", "stop_sequences", "stream")
_NO_TOOLS: Final = "\n\nAnswer with the summary only. Do not call a tool."
_TRIES: Final = 3


@record
class ProviderSummary:
    """A signed summary with the number and the cost of the calls that it took."""

    signed: SignedSummary
    calls: int
    cost_usd: float | None


class SummaryRefused(CompactionError):
    """The provider gave no summary; ``too_long`` if a shorter range may work, ``later`` if the same one may."""

    def __init__(self, message: str, *, calls: int = 0, too_long: bool = False, later: bool = False) -> None:
        super().__init__(message, calls=calls)
        self.too_long = too_long
        self.later = later


class ProviderSummaries:
    """Builds requests for signed summaries, sends them, and reads the replies."""

    def __init__(self, session: SessionHost, thinking: ThinkingWatch) -> None:
        self._session = session
        self._thinking = thinking

    def offered(self, model: Model | None) -> bool:
        """Say whether the conversation's provider writes summaries, and this model reaches that provider."""
        prefix, policy = self._session.log.view.facts.prefix, self._session.policy
        if model is None or prefix is None or not (model.capabilities.compaction and policy.facts.compaction):
            return False
        asked = facts_of(model.model_id, policy.settings.models)
        return asked.compaction and asked.name == policy.facts.name

    async def request(self, taking: CutRange, instructions: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the request for a summary of a range, and the digests of the messages it covers."""
        session, facts = self._session, self._session.policy.facts
        request = await self._thinking.side_request(session.log, facts)
        messages = _messages_of(request, session.log.view, taking)
        kept = {key: value for key, value in request.items() if key not in _BETWEEN}
        plain = {**_without_refused_options(kept), "messages": messages}
        asked = adapted(plain, facts, answer_tokens=self._max_tokens(facts))
        covers = self._thinking.digests_of(asked).as_covered()
        if not facts.checks_thinking:  # a summary by such a model keeps no thinking valid
            covers["opening"] = ""
        asked["compaction"] = {"type": "summarize", "instructions": instructions}
        marked = with_marks(asked, session.mark_fork(session.log.view, messages))
        return {**marked, **session.policy.request_extras}, covers

    def covers(self, taking: CutRange) -> Mapping[str, Any]:
        """Return the digests of the messages in a range, as the next request would send them."""
        view = self._session.log.view
        request = build_request(view)
        return self._thinking.digests_of({**request, "messages": _messages_of(request, view, taking)}).as_covered()

    async def write(self, model: Model, taking: CutRange, instructions: str) -> ProviderSummary:
        """Ask for a summary of a range and return it; raise ``SummaryRefused`` with the reason if there is none."""
        request, covers = await self.request(taking, instructions)
        cost: float | None = 0.0
        for calls in range(1, _TRIES + 1):
            try:
                body = await self._sent(model, request)
            except PromptTooLong as error:
                raise SummaryRefused(str(error), calls=calls, too_long=True) from error
            except ModelError as error:
                later = isinstance(error, ModelUnavailable | ReplyBroken)
                raise SummaryRefused(f"the provider did not summarise: {error}", calls=calls, later=later) from error
            price = await self._session.record_call(body, source=SOURCE)
            cost = None if price is None or cost is None else cost + price
            block = signed_block(body)
            if block is not None:
                return ProviderSummary(SignedSummary(block, covers), calls, cost)
            request = self._next_try(request, str(body.get("stop_reason") or ""), calls)
        raise SummaryRefused("the provider gave no summary", calls=_TRIES)

    def _next_try(self, request: dict[str, Any], stopped: str, calls: int) -> dict[str, Any]:
        """Return a request that may succeed where the last one stopped for a reason; raise if there is none."""
        most = self._session.policy.facts.max_output_tokens
        if stopped == "max_tokens" and request["max_tokens"] < most and calls < _TRIES:
            return {**request, "max_tokens": min(most, request["max_tokens"] * 4)}
        asked = cast("dict[str, Any]", request["compaction"])
        if stopped == "tool_use" and not asked["instructions"].endswith(_NO_TOOLS) and calls < _TRIES:
            told = str(asked["instructions"])[: MAX_INSTRUCTIONS - len(_NO_TOOLS)] + _NO_TOOLS
            return {**request, "compaction": {**asked, "instructions": told}}
        too_long = stopped == "model_context_window_exceeded"
        raise SummaryRefused(
            f"the provider gave no summary and stopped with {stopped!r}", calls=calls, too_long=too_long
        )

    def _max_tokens(self, facts: ModelFacts) -> int:
        at = self._session.policy.thresholds
        reserve = max(1, at.window - at.effective)
        return min(self._session.policy.settings.compact.summary_tokens, reserve, facts.max_output_tokens)

    async def _sent(self, model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        seconds = self._session.policy.settings.compact.summary_seconds
        with anyio.move_on_after(seconds):
            async with aclosing(model.stream(request)) as stream:
                async for piece in stream:
                    self._session.patience.hear()
                    if isinstance(piece, Reply):
                        return piece.body
            raise SummaryRefused("the provider's stream ended without a reply", calls=1, later=True)
        raise SummaryRefused(f"the summary was not written within {seconds:g} s", calls=1, later=True)


def _messages_of(request: Mapping[str, Any], view: View, taking: CutRange) -> list[Any]:
    """Return the messages of a request that a range at its front consists of."""
    upto = _index_of(view, taking.kept[0]) if taking.kept else view.length
    return request["messages"][: upto + messages_added_before(view)]


def signed_block(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the signed summary in a reply, exactly as it came; None if there is none."""
    content: Any = reply.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    found = (cast("dict[str, Any]", block) for block in blocks if isinstance(block, dict))
    return next((block for block in found if block.get("type") == "compaction"), None)


def _index_of(view: View, item: Item) -> int:
    """Return the index of the message in which an item is the first piece."""
    for at in range(view.length - 1, -1, -1):
        if any(piece.uuid == item.uuid for piece in view.group(at).pieces):
            return at
    raise CompactionError("the conversation has changed since this compaction was planned: plan it again")


def _without_refused_options(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request without options that a request for a summary may not have."""
    output: Any = request.get("output_config")
    if isinstance(output, dict):
        settings = cast("dict[str, Any]", output)
        kept = {key: settings[key] for key in settings if key not in ("format", "task_budget")}
        request = {**request, "output_config": kept}
    return request
