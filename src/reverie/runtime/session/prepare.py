"""The order of everything that happens before a request."""

from __future__ import annotations

from typing import Any

from ...cache.breakpoints import with_marks
from ...cache.watch import registered_by
from ...conversation.wire.request import build_request, repairs
from ...events import RequestPrepared
from .log import SessionLog
from .parts import SessionParts
from .prefix import RequestOptions, render_prefix

__all__ = ["prepare"]


async def prepare(log: SessionLog, parts: SessionParts, asked: RequestOptions) -> dict[str, Any]:
    """Run the inbox's commands and layers 1, 2 and 4, and return the next request with its cache breakpoints."""
    await log.settle()
    await parts.inbox.drain(log)
    await parts.configure(log, asked)
    await render_prefix(
        log, asked, mode=parts.trim.policy.mode, compact_at=parts.cache.compact_at, capabilities=parts.capabilities
    )
    await parts.offload.before_request(log)  # layer 1: results of one message
    await parts.trim.before_request(log)  # layer 2: old results
    await parts.compact.before_request()  # layer 4: the past
    await log.decide_all(repairs(log.view))
    return _marked(log, parts, build_request(log.view))


def _marked(log: SessionLog, parts: SessionParts, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its cache breakpoints, after telling the cache watch and emitting its event."""
    parts.accounts.before(request, registered_by(log.pop_decisions()), log.view.finished_messages)
    messages: list[Any] = request["messages"]
    settled, tail_offset = parts.trim.unsettled()
    planned = parts.cache.mark(log.view, messages, log.clock(), settled=settled, tail_offset=tail_offset)
    tokens, window = log.view.token_count.tokens, parts.policy.window_tokens
    log.emit(RequestPrepared(log.name, len(messages), tokens, window))
    return with_marks(request, planned, own=True)
