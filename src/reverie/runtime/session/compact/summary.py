"""Asking a model for a summary: a fork on the warm prefix first, then a plain request; two answers at most."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from ....conversation.entries import Message
from ....conversation.tokens.estimate import estimate_text
from ....conversation.wire.blocks import as_blocks
from ....errors import CompactionError, ModelError, ModelUnavailable, PromptTooLong
from ....layers.l4_compact import (
    CompactPolicy,
    directive,
    dropped_rounds,
    fitted_messages,
    plain_messages,
    plain_request,
    summary_of,
)
from ....ports import Model, Reply
from ....values import record
from ..replies import plain_reply

if TYPE_CHECKING:
    from ..parts import Kept

__all__ = ["SOURCE", "Summarised", "summarise"]

SOURCE = "compact"


@record
class Summarised:
    """A summary in a model's words, and what it took."""

    text: str
    calls: int
    cost_usd: float | None


class _Asking:
    """One summary being asked for."""

    def __init__(self, session: Kept, model: Model, on_text: Callable[[int], None]) -> None:
        lines = session.lines
        self.max_tokens = min(session.settings.compact.summary_tokens, max(1, lines.window - lines.effective))
        self._session = session
        self._model = model
        self._policy: CompactPolicy = session.settings.compact
        self._on_text = on_text
        self._characters = 0
        self.calls = 0
        self.cost: float | None = 0.0

    def heard(self, text: str) -> None:
        """Tell how much has been written."""
        self._characters += len(text)
        self._on_text(self._characters)

    def spent(self, cost: float | None) -> None:
        """Add what a call cost; one without a price leaves the sum unknown."""
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    async def by_fork(self, asked: str) -> str:
        """Ask on the warm prefix; return the summary, or nothing."""
        policy = self._policy
        self.calls += 1
        reply = await self._session.forks(self._model).ask(
            asked,
            source=SOURCE,
            max_tokens=self.max_tokens,
            timeout_seconds=policy.summary_seconds,
            on_text=self.heard,
        )
        self.spent(reply.cost_usd)
        return summary_of(reply.text)

    async def plainly(self, asked: str, limit: int) -> str:
        """Ask with a request of its own, cutting the oldest rounds away while it is too long."""
        policy, view = self._policy, self._session.view
        messages = fitted_messages(plain_messages(view), limit - self.max_tokens - estimate_text(asked))
        self.calls += 1
        for attempt in range(policy.retries + 1):
            request = plain_request(view, messages, asked, model=self._model.model_id, max_tokens=self.max_tokens)
            self._characters = 0
            try:
                body = await self._sent({**request, **self._session.beside})
            except PromptTooLong as error:
                gap = error.tokens - error.limit if error.tokens is not None and error.limit is not None else None
                fewer = dropped_rounds(messages, gap) if attempt < policy.retries else None
                if fewer is None:
                    raise CompactionError(
                        f"the summary request is too long itself and was cut {attempt} times: {error}"
                    ) from error
                messages = fewer
                continue
            self.spent(await self._session.spent(body, source=SOURCE))
            message, _ = plain_reply(body)
            return summary_of(_text_of(message))
        raise AssertionError("unreachable")

    async def _sent(self, request: dict[str, Any]) -> dict[str, Any]:
        with anyio.move_on_after(self._policy.summary_seconds):
            async with aclosing(self._model.stream(request)) as stream:
                async for piece in stream:
                    if isinstance(piece, Reply):
                        return piece.body
                    if piece.kind == "text":
                        self.heard(piece.text)
            raise CompactionError("the model gave no reply to the summary request")
        raise ModelUnavailable(f"the summary was not written within {self._policy.summary_seconds:g} s")


async def summarise(
    session: Kept,
    model: Model,
    method: str,
    *,
    quote: str,
    instructions: str,
    limit: int,
    on_text: Callable[[int], None],
) -> Summarised:
    """Return a model's summary of the view, or raise ``CompactionError`` that says what went wrong."""
    asked = directive(method, quote=quote, instructions=instructions)
    asking = _Asking(session, model, on_text)
    wrong = ""
    room = session.view.counted.tokens + estimate_text(asked) + asking.max_tokens
    if room <= limit:
        try:
            text = await asking.by_fork(asked)
        except ModelError as error:
            text, wrong = "", str(error)
        if text:
            return Summarised(text, asking.calls, asking.cost)
    try:
        text = await asking.plainly(asked, limit)
    except ModelError as error:
        raise CompactionError(f"the model did not summarise: {error}", calls=asking.calls) from error
    except CompactionError as error:
        raise CompactionError(str(error), calls=asking.calls) from error
    if not text:
        raise CompactionError(
            f"the model's reply holds no summary{f'; before that: {wrong}' if wrong else ''}", calls=asking.calls
        )
    return Summarised(text, asking.calls, asking.cost)


def _text_of(message: Message) -> str:
    return "".join(str(block["text"]) for block in as_blocks(message) if block.get("type") == "text")
