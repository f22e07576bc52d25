"""The metric instruments, and the attributes of models and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..conversation.decisions import Decision, name_of
from ..events import CompactionEnded
from . import semconv as names

_PROVIDERS: Final = {"claude": "anthropic", "gpt": "openai", "gemini": "gcp.gemini", "mistral": "mistral_ai"}


class Metrics:
    """All metric instruments, created from one OpenTelemetry meter."""

    def __init__(self, meter: Any) -> None:
        counter, histogram = meter.create_counter, meter.create_histogram
        self.sessions = counter("reverie.sessions", "{session}", "Sessions opened.")
        self.entries = counter("reverie.entries", "{entry}", "Messages and metadata logged.")
        self.decisions = counter("reverie.decisions", "{decision}", "Decisions logged.")
        self.freed = counter("reverie.tokens.freed", "{token}", "Tokens that decisions took out of view.")
        self.moves = counter("reverie.prefix.moves", "{move}", "Decisions that moved the cached prefix.")
        self.breaks = counter("reverie.cache.breaks", "{break}", "Calls that read less from the cache.")
        self.damaged = counter("reverie.log.damaged_lines", "{line}", "Lines of logs that could not be read.")
        self.commands = counter("reverie.inbox.drained", "{command}", "Commands taken from inboxes.")
        self.fallbacks = counter("reverie.fallbacks", "{fallback}", "Fallbacks taken.")
        self.unanswered = counter("reverie.requests.unanswered", "{request}", "Requests without an observed reply.")
        self.retries = counter("reverie.requests.retried", "{retry}", "Requests that were sent again.")
        self.permissions = counter("reverie.permissions", "{decision}", "Tool calls allowed or denied.")
        self.hooks = counter("reverie.hooks", "{run}", "Hooks that ran.")
        self.queries = counter("reverie.queries", "{query}", "Queries, by how they ended.")
        self.compactions = counter("reverie.compactions", "{compaction}", "Compactions.")
        self.compacted = counter("reverie.compactions.tokens_freed", "{token}", "Tokens that compactions freed.")
        self.notes = counter("reverie.notes.updates", "{update}", "Updates of running notes.")
        self.background = counter("reverie.background", "{change}", "Background work, by state.")
        self.agents = counter("reverie.agents", "{agent}", "Agents started, by type.")
        self.agents_ended = counter("reverie.agents.ended", "{agent}", "Agents ended, by status.")
        self.messages = counter("reverie.messages", "{message}", "Messages from other agents.")
        self.share = histogram("reverie.window.share", "1", "Share of the window a request counts.")
        self.tokens = histogram(names.TOKEN_USAGE, "{token}", "Tokens of a reply, by type.")
        self.duration = histogram(names.OPERATION_DURATION, "s", "From request to reply.")
        self.tool_duration = histogram("reverie.tool.duration", "s", "How long a tool ran.")

    def decision(self, decision: Decision) -> None:
        """Count a decision, the tokens it frees and whether it moves the cached prefix."""
        made = {names.DECISION: name_of(decision), names.LAYER: decision.cause.layer}
        self.decisions.add(1, made)
        if decision.cause.frees > 0:
            self.freed.add(decision.cause.frees, made)
        if decision.cause.moves_prefix:
            self.moves.add(1, made)

    def compaction(self, event: CompactionEnded) -> None:
        """Count a finished compaction and the tokens it freed."""
        how = {names.TRIGGER: event.trigger, names.METHOD: event.method}
        self.compactions.add(1, how)
        self.compacted.add(max(0, event.tokens_before - event.tokens_after), how)


def decision_attributes(decision: Decision) -> dict[str, Any]:
    """Return a dict of a decision's name, layer, reason and effect, without any words of the conversation."""
    cause = decision.cause
    return {
        names.DECISION: name_of(decision),
        names.LAYER: cause.layer,
        names.REASON: cause.reason,
        names.FREES: cause.frees,
        names.MOVES_PREFIX: cause.moves_prefix,
    }


def model_attributes(model: str) -> dict[str, Any]:
    """Return a dict of the operation, the model and, if the model's name implies it, the provider."""
    bare = model.lower().split("/")[-1]
    provider = next((name for start, name in _PROVIDERS.items() if bare.startswith(start)), None)
    found: dict[str, Any] = {names.OPERATION_NAME: names.CHAT}
    if model:
        found[names.REQUEST_MODEL] = model
    if provider is not None:
        found.update(dict.fromkeys(names.PROVIDER_NAMES, provider))
    return found


def token_counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of a reply by kind, without kinds that the usage does not report.

    ``input`` includes cached input, as the conventions define it.
    """
    read, written = _whole(usage, "cache_read_input_tokens"), _whole(usage, "cache_creation_input_tokens")
    uncached, output = _whole(usage, "input_tokens"), _whole(usage, "output_tokens")
    counts = {"cache_read": read, "cache_write": written, "output": output}
    found = {kind: tokens for kind, tokens in counts.items() if tokens is not None}
    if uncached is not None:
        found["input"] = uncached + (read or 0) + (written or 0)
    return found


def _whole(usage: Mapping[str, Any], key: str) -> int | None:
    value = usage.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
