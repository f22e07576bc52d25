"""Detection of cache misses: compare the tokens each call read with the tokens it could have read, and give the reason.

Before a call the watch hashes the request; after it, it compares the tokens read with the tokens the last call left
readable. A decision that changes the prefix is announced before (``registered``) and is not a miss, and neither is the
call after a cache edit. Reasons, in this order: the provider's diagnosis, a change by the client (named to the block),
an idle hour, five idle minutes, the server. A recording does not hold its requests; there a change by the client shows
only in the billed tokens: tokens that left the request, or a rewritten end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, lgamma, log, log1p
from typing import Any, Final, TypeVar, cast

from ..conversation.decisions import CacheEdits, Decision, PrefixRendered, Unknown, name_of
from ..values import record, replace
from .prefix import Part, Prefix, SettledMessages
from .usage import Usage, usage_of

T = TypeVar("T")

IDLE_LONG: Final = "idle over 1 h"
IDLE_SHORT: Final = "idle over 5 min"
SERVER: Final = "server"
REMOVED: Final = "content removed by the client"
REWRITTEN: Final = "client change near the end"
UNSEEN: Final = "unrecorded change before the messages, or server"
RESTARTED: Final = "change before the messages at a new prompt"
_CHANCE: Final = 0.05
"""A coincidence less likely than this is none: the usual level of significance."""
# The part of a request that each provider diagnosis is about; our reasons begin with the same word.
_DIAGNOSES: Final[Mapping[str, str]] = {
    "model_changed": "model",
    "tools_changed": "tools",
    "system_changed": "system",
    "messages_changed": "messages",
}
INERT_OPTIONS: Final = frozenset(
    {
        *("max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "metadata", "service_tier"),
        *("diagnostics", "timeout", "extra_headers"),
    }
)
"""Request options that do not affect a provider's cache."""


@record
class WatchPolicy:
    """The thresholds for a cache miss, and the lifetimes of cache entries that are not read."""

    least_share: float = 0.95
    least_tokens: int = 2_000
    short_seconds: float = 300.0
    long_seconds: float = 3_600.0


@record
class CacheBreak:
    """A cache miss: a call read fewer tokens than the call before it had left readable."""

    at: float
    reason: str
    expected: int
    actual: int
    changes: tuple[str, ...] = ()
    """All changes by the client; the reason is the first, or the first that fits the provider's diagnosis."""
    said: str = ""
    """The type of the provider's diagnosis, verbatim; empty if there is none."""

    @property
    def tokens(self) -> int:
        """The tokens that were expected from the cache and paid for again."""
        return self.expected - self.actual


@record
class CacheWatch:
    """The state of cache-miss detection between the calls of one conversation."""

    policy: WatchPolicy = WatchPolicy()
    sent: Prefix | None = None
    """The prefix of the last request that got a reply."""
    sent_at: float = 0.0
    readable: int = 0
    """The tokens that can be read from the cache now, according to the last reply."""
    readable_before: int = 0
    """The tokens that could be read before the last reply."""
    input_tokens: int = 0
    """The input tokens of the last call."""
    long_lived: bool = False
    """Whether the latest writes to the cache all have a lifetime of one hour."""
    asked: Prefix | None = None
    """The prefix of the request under way."""
    asked_at: float = 0.0
    registered: tuple[str, ...] = ()
    """The announced reasons why the call under way may read less."""

    def before(
        self,
        request: Mapping[str, Any],
        now: float,
        *,
        registered: Iterable[str] = (),
        settled: SettledMessages | None = None,
    ) -> CacheWatch:
        """Return the state with a request that is about to be sent; ``registered`` announces reasons for a miss.

        ``settled`` is passed to ``Prefix.next``.
        """
        prefix = (self.asked or self.sent or Prefix()).next(request, settled=settled)
        return replace(self, asked=prefix, asked_at=now, registered=(*self.registered, *registered))

    @property
    def expected(self) -> int | None:
        """The tokens the call under way should read; None before the first reply or if a miss was announced."""
        return None if self.sent is None or self.registered else self.readable

    def after(
        self, usage: Mapping[str, Any] | Usage, now: float, diagnostics: Any = None
    ) -> tuple[CacheWatch, CacheBreak | None]:
        """Return the state after a reply, and the cache miss, or None if there was none.

        A miss is a call that read fewer tokens than expected, by more than the thresholds of ``policy``.
        """
        used = usage if isinstance(usage, Usage) else usage_of(usage)
        expected, broke = self.expected, None
        policy = self.policy
        fallen = expected is not None and used.read < policy.least_share * expected
        if expected is not None and fallen and expected - used.read >= policy.least_tokens:
            broke = self._break(expected, used, now, diagnostics)
        long_lived = used.write_5m == 0 and (used.write_1h > 0 or self.long_lived)
        answered = replace(
            self,
            sent=self.asked or self.sent or Prefix(),
            sent_at=self.asked_at if self.asked is not None else now,
            readable=used.readable,
            readable_before=self.readable,
            input_tokens=used.input,
            long_lived=long_lived,
            asked=None,
            registered=(),
        )
        return answered, broke

    def _break(self, expected: int, used: Usage, now: float, diagnostics: Any) -> CacheBreak:
        found: list[str] = []
        if self.sent is not None and self.asked is not None:
            found = changes(self.sent, self.asked)
        said = _diagnosis(diagnostics)
        part = _DIAGNOSES.get(said)
        if part is not None:
            reason = next((one for one in found if one.startswith(part)), f"{part} changed")
        elif found:
            reason = found[0]
        else:
            reason = self._idle((self.asked_at if self.asked is not None else now) - self.sent_at)
            if self.asked is None or not self.asked.has_messages:
                reason = self._by_tokens(reason, used)
        return CacheBreak(now, reason, expected, used.read, tuple(found), said)

    def _by_tokens(self, reason: str, used: Usage) -> str:
        """Return the reason that fits the billed tokens of a call whose messages are unknown."""
        gone = self.input_tokens - used.input >= self.policy.least_tokens
        if gone and (reason == SERVER or used.read):
            return REMOVED  # an expired cache would have left nothing to read
        if reason != SERVER or not used.write:
            return reason
        if self.readable_before and used.read >= self.policy.least_share * self.readable_before:
            return REWRITTEN
        # The whole prefix was missed although it was live: the recording does not show why.
        known = self.asked is not None and bool(self.asked.tools or self.asked.system)
        return SERVER if used.read or known else UNSEEN

    def _idle(self, seconds: float) -> str:
        if seconds >= self.policy.long_seconds:
            return IDLE_LONG
        return IDLE_SHORT if seconds >= self.policy.short_seconds and not self.long_lived else SERVER


def restarts(unseen: Collection[T], prompted: Collection[T], calls: int) -> set[T]:
    """Return those unseen losses of a session that a change by the client between two prompts explains.

    A server loses a cache at any call. So if the losses fall on calls after a new prompt more often than by chance,
    the client changed the system prompt or the tools there.
    """
    hits = set(prompted).intersection(unseen)
    share = len(prompted) / max(1, calls)
    of = len(unseen)
    if not hits or share >= 1:
        return set()
    shares = log(share), log1p(-share)
    by_chance = sum(
        exp(lgamma(of + 1) - lgamma(hit + 1) - lgamma(of - hit + 1) + hit * shares[0] + (of - hit) * shares[1])
        for hit in range(len(hits), of + 1)
    )
    return hits if by_chance < _CHANCE else set()


def registered_by(decisions: Iterable[Decision | Unknown]) -> list[str]:
    """Return the names of those decisions that change the cached prefix or edit the cache: announced misses.

    ``PrefixRendered`` is left out: it records a change by the client, which should be reported as the reason.
    """
    return [
        name_of(decision)
        for decision in decisions
        if not isinstance(decision, (Unknown, PrefixRendered))
        and (decision.cause.moves_prefix or isinstance(decision, CacheEdits))
    ]


def _diagnosis(diagnostics: Any) -> str:
    """Return the type of the provider's diagnosis, or an empty string."""
    found: Any = _get(diagnostics, "cache_miss_reason")
    kind = found if isinstance(found, str) else _get(found, "type")
    return kind if isinstance(kind, str) else ""


def _get(value: Any, name: str) -> Any:
    return cast(Mapping[str, Any], value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def changes(earlier: Prefix, later: Prefix) -> list[str]:
    """Return a list of texts such as ``tools[1] added``, one for each change of model, tools, system and options.

    The first changed message comes last; messages added at the end are no change.
    """
    found = ["model changed"] if earlier.model != later.model else []
    if earlier.tools is not later.tools:
        found += _tools(earlier.tools, later.tools)
    if earlier.system is not later.system:
        found += _system(earlier.system, later.system)
    found += _options(earlier.options, later.options)
    position = later.message_difference(earlier)
    if position is not None:
        message, block = later.message_at(position)
        gone = position >= later.blocks - len(later.tools) - len(later.system)
        found.append(f"messages[{message}] removed" if gone else f"messages[{message}].content[{block}] changed")
    return found


def _tools(earlier: Sequence[Part], later: Sequence[Part]) -> list[str]:
    """Return texts that name the tools added, removed, moved or changed, by their index in the later list.

    A removed tool is named by its index in the earlier list.
    """
    if [part.digest for part in earlier] == [part.digest for part in later]:
        return []
    before = {_name(part, at): (at, part) for at, part in enumerate(earlier)}
    after = {_name(part, at): (at, part) for at, part in enumerate(later)}
    found = [(at, f"tools[{at}] removed") for name, (at, _) in before.items() if name not in after]
    for name, (at, part) in after.items():
        if name not in before:
            found.append((at, f"tools[{at}] added"))
        elif before[name][1].digest != part.digest:
            found += [(at, f"tools[{at}]{field} changed") for field in _fields(before[name][1].value, part.value)]
    stayed = [name for name in before if name in after]
    order = [name for name in after if name in before]
    if stayed != order:
        moved = next(name for name, other in zip(order, stayed, strict=True) if name != other)
        found.append((after[moved][0], f"tools[{after[moved][0]}] moved"))
    return [said for _, said in sorted(found)] or [f"tools[{min(len(earlier), len(later))}] changed"]


def _name(part: Part, at: int) -> str:
    value: Any = part.value
    name: Any = cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else f"#{at}"


def _fields(earlier: Any, later: Any) -> list[str]:
    """Return the fields of a tool that differ, as ``.name``; one empty text if only their order differs."""
    if not (isinstance(earlier, dict) and isinstance(later, dict)):
        return [""]
    one, other = cast("dict[str, Any]", earlier), cast("dict[str, Any]", later)
    names = [name for name in dict.fromkeys([*one, *other]) if name != "cache_control"]
    return [f".{name}" for name in names if _unlike(one, other, name)] or [""]


def _unlike(earlier: Mapping[str, Any], later: Mapping[str, Any], name: str) -> bool:
    return (name in earlier) != (name in later) or repr(earlier.get(name)) != repr(later.get(name))


def _system(earlier: Sequence[Part], later: Sequence[Part]) -> list[str]:
    both = enumerate(zip(earlier, later, strict=False))
    found = [f"system[{at}] changed" for at, (one, other) in both if one.digest != other.digest]
    found += [f"system[{at}] removed" for at in range(len(later), len(earlier))]
    return found + [f"system[{at}] added" for at in range(len(earlier), len(later))]


def _options(earlier: Mapping[str, Part], later: Mapping[str, Part]) -> list[str]:
    found: list[str] = []
    for name in sorted({*earlier, *later} - INERT_OPTIONS):
        one, other = earlier.get(name), later.get(name)
        if one is None or other is None:
            found.append(f"options.{name} {'added' if one is None else 'removed'}")
        elif one.digest != other.digest:
            found.append(f"options.{name} changed")
    return found


@record
class Cause:
    """A cause of cache breaks as a person would name it, and its remedy."""

    title: str
    remedy: str


_CHANGED: Final = Cause(
    "earlier messages were changed or removed", "keep the history as it is; Reverie clears and compacts when it pays"
)
_PREFIX: Final = Cause(
    "the system prompt changed", "keep times, file lists and other changing text out of the system prompt"
)
# By the beginning of a reason of the watch; the first that fits counts.
_CAUSES: Final = (
    (
        IDLE_SHORT,
        Cause(
            "pauses of 5 to 60 minutes",
            "'reverie replay --policy balanced --policy balanced-warm' shows whether keep_warm pays",
        ),
    ),
    (IDLE_LONG, Cause("pauses of more than an hour", "compact before a long break, or begin a new session after it")),
    ("model", Cause("the model was switched", "switch models at a compaction or in a new session")),
    ("tools", Cause("the list of tools changed", "connect all tools and MCP servers before the first prompt")),
    ("system", _PREFIX),
    ("options", Cause("an option of the request changed", "choose thinking and effort when the session begins")),
    ("messages", _CHANGED),
    (REMOVED, _CHANGED),
    (REWRITTEN, _CHANGED),
    (
        RESTARTED,
        Cause("the system prompt or tools changed between two prompts, as after a restart", _PREFIX.remedy),
    ),
    (UNSEEN, Cause("the system prompt or tools changed, or the provider lost the cache", _PREFIX.remedy)),
    (SERVER, Cause("the provider lost the cache", "nothing; it is not on your side")),
)


def cause_of(reason: str) -> Cause:
    """Return the cause that a reason of the cache watch belongs to; an unknown reason is its own title."""
    return next((cause for start, cause in _CAUSES if reason.startswith(start)), Cause(reason, ""))


def shown_reason(reason: str) -> str:
    """Return a reason in the words of its cause, with the changed part if it names one."""
    title = cause_of(reason).title
    return title if reason == title or reason in dict(_CAUSES) else f"{title} ({reason})"


def losses_by_cause(losses: Iterable[tuple[str, float]]) -> list[tuple[Cause, float]]:
    """Return the dollars that reasons have cost, summed by cause, the most expensive first; none without cost.

    The title of a cause also names the block that cost most, where the reason names one.
    """
    found: dict[Cause, dict[str, float]] = {}
    for reason, usd in losses:
        reasons = found.setdefault(cause_of(reason), {})
        reasons[reason] = reasons.get(reason, 0.0) + usd
    rows = [(_with_block(cause, reasons), sum(reasons.values())) for cause, reasons in found.items()]
    return sorted(((cause, usd) for cause, usd in rows if usd > 0), key=lambda one: (-one[1], one[0].title))


def _with_block(cause: Cause, reasons: Mapping[str, float]) -> Cause:
    worst = max(reasons, key=lambda reason: reasons[reason])
    return replace(cause, title=f"{cause.title} ({worst})") if "[" in worst else cause
