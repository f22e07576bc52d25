"""Renew the provider's cache between two requests: send the last request again, for no output (C9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...cache.economics import IdleChoice
from ...values import object_of, replace
from .log import SessionLog
from .parts import SessionParts

KEEP_WARM: Final = "keep_warm"
"""The source of such a call in the log and the ledger."""


def keeps_warm(parts: SessionParts) -> bool:
    """Say whether the user turned it on and the provider has such a cache."""
    return parts.policy.settings.keep_warm and parts.policy.facts.api == "messages"


async def when_idle(log: SessionLog, parts: SessionParts, pings: int) -> IdleChoice:
    """Compact while the prefix is cached if that is due by price, else ping as often as it pays, else let it go.

    While results are awaited, nothing is compacted.
    """
    if not keeps_warm(parts):
        return "let go"
    if not log.view.unanswered() and await parts.compact.when_idle():
        return "compact"
    return "ping" if pings < parts.cache.max_pings() else "let go"


def warming_request(log: SessionLog, parts: SessionParts) -> dict[str, Any] | None:
    """Return the last request with ``max_tokens`` 0; None if it cannot be sent so or would write a cold cache anew."""
    sent = parts.sent
    if sent is None or parts.cache.life(log.clock()) != "live" or not _may_be_empty(sent):
        return None
    return {**sent, "max_tokens": 0}


async def record_ping(log: SessionLog, parts: SessionParts, reply: Mapping[str, Any]) -> None:
    """Log a ping and its price, and count the cache as renewed."""
    now = log.clock()
    parts.cache.pinged(now, parts.compacted_tokens())
    parts.accounts.renewed()
    await parts.host.load_prices(reply)
    billed = parts.accounts.side_call(reply, source=KEEP_WARM)
    if billed is None:
        return
    billed = replace(billed, call=replace(billed.call, cache={**parts.cache.state(), **parts.trim.state()}))
    entry = await log.decide(billed.call, sync=False)
    log.run_later(lambda: parts.accounts.enter(billed, entry.uuid))
    await log.sync()


def _may_be_empty(request: Mapping[str, Any]) -> bool:
    """Say whether a provider takes a request with ``max_tokens`` 0 and these options."""
    thinking, choice, output = (object_of(request.get(name)) for name in ("thinking", "tool_choice", "output_config"))
    forced = choice.get("type") in ("any", "tool")
    return thinking.get("type") != "enabled" and not forced and "format" not in output
