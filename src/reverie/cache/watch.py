"""The watch over a provider's cache: it notices when less was read than could have been, and says why.

Before a call it takes the hashes of what is sent; after it, what was read is held against what the last call left to be
read. A decision that moves the prefix is announced before (``registered``) and is no break; nor is the call after a
deletion by cache edit. Reasons, in this order: what the provider says, a change of the client's named to the block, an
idle hour, five idle minutes, the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ..conversation.decisions import CacheEdits, Decision, PrefixRendered, Unknown, name_of
from ..values import record, replace
from .changes import changes
from .prefix import Prefix, SettledMessages
from .usage import Usage, usage_of

__all__ = ["CacheBreak", "CacheWatch", "WatchPolicy", "registered_by"]

IDLE_LONG: Final = "idle over 1 h"
IDLE_SHORT: Final = "idle over 5 min"
SERVER: Final = "server"
# What a provider's diagnosis is about, by the words ours begin with; other diagnoses say that there is none.
_DIAGNOSES: Final[Mapping[str, str]] = {
    "model_changed": "model",
    "tools_changed": "tools",
    "system_changed": "system",
    "messages_changed": "messages",
}


@record
class WatchPolicy:
    """When a fall counts as a break, and how long a cache lives without being read."""

    least_share: float = 0.95
    least_tokens: int = 2_000
    short_seconds: float = 300.0
    long_seconds: float = 3_600.0


@record
class CacheBreak:
    """A call that read less than the one before it had left to be read."""

    at: float
    reason: str
    expected: int
    actual: int
    changes: tuple[str, ...] = ()
    """Everything the client changed, the first of which is the reason."""
    said: str = ""
    """What the provider gave as its reason, in its own word."""

    @property
    def tokens(self) -> int:
        """The tokens that had to be paid for anew."""
        return self.expected - self.actual


@record
class CacheWatch:
    """What is remembered between calls of one conversation."""

    policy: WatchPolicy = WatchPolicy()
    sent: Prefix | None = None
    """The last request that was answered."""
    sent_at: float = 0.0
    readable: int = 0
    """Tokens that its reply says can now be read."""
    long_lived: bool = False
    """Say whether all that was written last lives for an hour."""
    asked: Prefix | None = None
    """The request under way."""
    asked_at: float = 0.0
    registered: tuple[str, ...] = ()
    """Why the call under way may read less, as announced."""

    def before(
        self,
        request: Mapping[str, Any],
        now: float,
        *,
        registered: Iterable[str] = (),
        settled: SettledMessages | None = None,
    ) -> CacheWatch:
        """Remember what is about to be sent, and the breaks that were announced since the last answer."""
        prefix = (self.asked or self.sent or Prefix()).next(request, settled=settled)
        return replace(self, asked=prefix, asked_at=now, registered=(*self.registered, *registered))

    @property
    def expected(self) -> int | None:
        """What the call under way should read; None where there is nothing to go by or a break was announced."""
        return None if self.sent is None or self.registered else self.readable

    def after(
        self, usage: Mapping[str, Any] | Usage, now: float, diagnostics: Any = None
    ) -> tuple[CacheWatch, CacheBreak | None]:
        """Hold what was read against what could have been, and remember what can be read from now on."""
        used = usage if isinstance(usage, Usage) else usage_of(usage)
        expected, broke = self.expected, None
        policy = self.policy
        fallen = expected is not None and used.read < policy.least_share * expected
        if expected is not None and fallen and expected - used.read >= policy.least_tokens:
            broke = self._break(expected, used.read, now, diagnostics)
        long_lived = used.write_5m == 0 and (used.write_1h > 0 or self.long_lived)
        answered = replace(
            self,
            sent=self.asked or self.sent or Prefix(),
            sent_at=self.asked_at if self.asked is not None else now,
            readable=used.readable,
            long_lived=long_lived,
            asked=None,
            registered=(),
        )
        return answered, broke

    def _break(self, expected: int, actual: int, now: float, diagnostics: Any) -> CacheBreak:
        found: list[str] = []
        if self.sent is not None and self.asked is not None:
            found = changes(self.sent, self.asked)
        said = _said(diagnostics)
        part = _DIAGNOSES.get(said)
        if part is not None:
            reason = next((one for one in found if one.startswith(part)), f"{part} changed")
        elif found:
            reason = found[0]
        else:
            reason = self._idle((self.asked_at if self.asked is not None else now) - self.sent_at)
        return CacheBreak(now, reason, expected, actual, tuple(found), said)

    def _idle(self, seconds: float) -> str:
        if seconds >= self.policy.long_seconds:
            return IDLE_LONG
        return IDLE_SHORT if seconds >= self.policy.short_seconds and not self.long_lived else SERVER


def registered_by(decisions: Iterable[Decision | Unknown]) -> list[str]:
    """Name the decisions that announce a break.

    One that renders the prefix anew does not: it records what the client changed, and that is to be named.
    """
    return [
        name_of(decision)
        for decision in decisions
        if not isinstance(decision, (Unknown, PrefixRendered))
        and (decision.cause.moves_prefix or isinstance(decision, CacheEdits))
    ]


def _said(diagnostics: Any) -> str:
    """Return the type of the provider's diagnosis, or nothing."""
    found: Any = _get(diagnostics, "cache_miss_reason")
    kind = found if isinstance(found, str) else _get(found, "type")
    return kind if isinstance(kind, str) else ""


def _get(value: Any, name: str) -> Any:
    return cast(Mapping[str, Any], value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)
