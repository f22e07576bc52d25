"""The order of everything that happens before a request."""

from __future__ import annotations

from typing import Any

from ...cache.breakpoints import with_marks
from ...cache.watch import registered_by
from ...conversation.boundary import CLEARS
from ...conversation.wire.request import awaits_provider, repairs
from ...events import RequestPrepared
from ...values import replace
from .log import SessionLog
from .parts import SessionParts
from .prefix import RequestOptions, amend_prefix, render_prefix


async def prepare(log: SessionLog, parts: SessionParts, asked: RequestOptions) -> dict[str, Any]:
    """Run the inbox's commands, layers 1, 2 and 4, say changed context, and return the next request."""
    await log.settle()
    if not awaits_provider(log.view):
        if log.view.facts.prefix is not None:  # a command may compact a resumed session
            await parts.load_prices(log.view, parts.policy.model_name)
        await parts.inbox.drain(log)
    await parts.configure(log, asked)
    facts = parts.policy.facts
    clears = {CLEARS} if parts.trim.may_clear(asked) else set[str]()
    asked = replace(parts.trim.with_clearing(asked), program=parts.program)
    prefix = log.view.facts.prefix
    is_other_model = prefix is not None and prefix.model != asked.model
    capabilities = parts.capabilities_of(facts) | clears
    await render_prefix(log, asked, facts, mode=parts.trim.policy.mode, capabilities=capabilities)
    await parts.offload.before_request(log)  # layer 1: results of one message
    log.begin_sync()  # the rest logs nothing in most turns, and takes as long as the disk
    await parts.trim.before_request(log, summary_at=parts.compact.summary_at)  # layer 2: old results
    await parts.compact.before_request()  # layer 4: the past
    await parts.standing.before_request()  # standing context: new and changed items, and those that a cut took
    await log.decide_all(repairs(log.view), sync=False)
    binds = facts.checks_thinking or parts.thinking.binds
    if not awaits_provider(log.view):
        anew, declares = _reason_to_render(log, parts), parts.policy.messages_only
        is_cut = is_other_model or log.view.cuts != parts.cache.cuts
        await amend_prefix(log, asked, facts, binds=binds, declares=declares, anew=anew, is_cut=is_cut)
    request = await parts.thinking.request(log, facts)
    request = _marked(log, parts, request)
    await log.sync_briefly()  # a request leaves only after its log is on disk
    parts.sent = request
    tokens, window = log.view.token_count.tokens, parts.policy.window_tokens
    log.emit(RequestPrepared(log.name, len(request["messages"]), tokens, window))
    return request


def _reason_to_render(log: SessionLog, parts: SessionParts) -> str:
    """Return why system prompt and tools are rendered anew: on request, or since a cut broke the prefix anyway.

    Bound thinking comes back when a cut is undone, so a model that takes all changes as messages keeps the old prefix.
    """
    if log.view.facts.reload_asked:
        return "a reload was asked for"
    facts, thinking = parts.policy.facts, parts.thinking
    if log.view.cuts == parts.cache.cuts or (thinking.binds and facts.system_messages and facts.tool_changes):
        return ""
    return "" if thinking.keeps(log.view) else "the past was cut, so changes take effect"


def _marked(log: SessionLog, parts: SessionParts, request: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its cache breakpoints, after telling the cache watch."""
    parts.accounts.before(request, registered_by(log.pop_decisions()), log.view.finished_messages)
    messages: list[Any] = request["messages"]
    planned = parts.cache.mark(log.view, messages, log.clock())
    return with_marks(request, planned, own=True)
