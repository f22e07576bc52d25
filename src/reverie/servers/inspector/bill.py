"""The bill of a session: usage and cost of each call, and every break of the cache with its cause and its loss.

A session of our own is billed as its ledger was: by the same accounts, from the same requests. A recording of another
program is billed as a replay of it is: by its billed tokens and times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...cache.ledger import MAIN
from ...cache.prices import prices_for
from ...cache.usage import Usage, reported_usage, usage_of
from ...cache.watch import UNSEEN, Cause, WatchPolicy, cause_of, registered_by
from ...conversation.decisions import CallRecorded, decision_of
from ...conversation.entries import DECISION, Entry, iso
from ...importers import ImportedSession
from ...replay.drops import drops
from ...replay.recording import recording_of
from ...runtime.session.accounts import Accounts
from ...runtime.session.cache_renewal import KEEP_WARM
from ...values import picked, record
from .requests import LoggedRequest


@record
class BilledCall:
    """One model call: its usage and cost, and the number of the request; None for a call beside the conversation."""

    at: float
    layer: str
    source: str
    model: str
    usage: Usage | None
    usd: float | None
    number: int | None = None

    @property
    def tokens(self) -> list[int] | None:
        """The tokens read, written for 5 minutes, for 1 hour, uncached, and output; None without usage."""
        used = self.usage
        return None if used is None else [used.read, used.write_5m, used.write_1h, used.uncached, used.output]


@record
class PricedBreak:
    """A request that read less from the cache than the one before had left in it."""

    number: int
    reason: str
    expected: int
    actual: int
    input: int
    """All input tokens of the request."""
    usd: float | None
    announced: bool
    """Whether a logged decision explains it; then it is part of a plan and no loss."""

    @property
    def cause(self) -> Cause:
        """The cause in plain words, and its remedy."""
        if self.announced:
            return Cause(self.reason, "nothing; the log holds the decision and its reason")
        return cause_of(self.reason)

    @property
    def tokens(self) -> int:
        """The tokens that were billed again; others may have left the request."""
        return max(0, min(self.expected, self.input) - self.actual)

    @property
    def is_named(self) -> bool:
        """Whether the cause is known; a recording without system prompt and tools leaves two possible causes."""
        return self.reason != UNSEEN

    def data(self) -> dict[str, Any]:
        """Return the break as values of JSON."""
        return {
            "n": self.number,
            "cause": self.cause.title,
            "remedy": self.cause.remedy,
            **picked(self, "reason expected actual tokens usd announced"),
            "named": self.is_named,
        }


def billed(session: ImportedSession, requests: Sequence[LoggedRequest]) -> tuple[list[BilledCall], list[PricedBreak]]:
    """Return the calls of a session in the order of time, and the breaks of its cache."""
    if any(one.call is not None for one in requests):
        calls, breaks = _own(session, requests)
    else:
        calls, breaks = _recorded(session, requests)
    return sorted([*calls, *_side_calls(session.entries)], key=lambda call: call.at), breaks


def _own(session: ImportedSession, requests: Sequence[LoggedRequest]) -> tuple[list[BilledCall], list[PricedBreak]]:
    now = [0.0]
    accounts = Accounts(None, session=session.session_id, project="", clock=lambda: now[0])
    calls: list[BilledCall] = []
    breaks: list[PricedBreak] = []
    readable, late = 0, tuple[Entry, ...]()
    for one in requests:
        now[0] = one.at
        sent = one.entries[: len(one.entries) - len(one.later)]
        since = [entry for entry in (*late, *sent) if entry.kind == DECISION]
        late = one.later
        if any(entry.body.get("source") == KEEP_WARM for entry in since):
            accounts.renewed()
        registered = registered_by(decision_of(entry.body) for entry in since)
        accounts.before(one.request, registered, one.view.finished_messages)
        if one.call is None:
            calls.append(_reported(one))
            continue
        entry, call = one.call
        now[0], used = entry.at, usage_of(call.usage)
        found = accounts.after({**one.reply[0].reply, "usage": call.usage, "model": call.model}, cache={})
        calls.append(BilledCall(entry.at, call.cause.layer, MAIN, call.model, used, call.cost_usd, one.number))
        if found is not None and found.broke is not None:
            broke = found.broke
            breaks.append(
                PricedBreak(
                    one.number,
                    broke.reason,
                    broke.expected,
                    broke.actual,
                    used.input,
                    found.lost_usd,
                    announced=False,
                )
            )
        elif registered and _falls(readable, used):
            why = ", ".join(dict.fromkeys(name.replace("_", " ") for name in registered))
            breaks.append(PricedBreak(one.number, why, readable, used.read, used.input, None, announced=True))
        readable = used.readable
    return calls, breaks


def _falls(readable: int, used: Usage) -> bool:
    policy = WatchPolicy()
    return used.read < policy.least_share * readable and readable - used.read >= policy.least_tokens


def _recorded(
    session: ImportedSession, requests: Sequence[LoggedRequest]
) -> tuple[list[BilledCall], list[PricedBreak]]:
    calls = [_reported(one) for one in requests]
    breaks = [
        PricedBreak(
            one.number,
            one.reason.removesuffix(" (registered)"),
            one.expected,
            one.actual,
            used.input if (used := calls[one.number].usage) is not None else 0,
            one.usd,
            announced=one.registered,
        )
        for one in drops(recording_of(session, session.session_id))
    ]
    return calls, breaks


def _reported(one: LoggedRequest) -> BilledCall:
    """Return the call of a reply that no call records, from the usage that the reply reports."""
    reported = reported_usage(one.reply)
    model = str(one.reply[0].reply.get("model") or "")
    used = usage_of(reported) if reported is not None else None
    prices = prices_for(model) if model and used is not None else None
    usd = prices.cost_of(used) if prices is not None and used is not None else None
    return BilledCall(one.reply[0].at or one.at, "model", MAIN, model, used, usd, one.number)


def _side_calls(entries: Iterable[Entry]) -> Iterable[BilledCall]:
    """Yield the calls beside the conversation: summaries, notes, memories, agents, pings."""
    for entry in entries:
        call = decision_of(entry.body) if entry.kind == DECISION and entry.body.get("source") != MAIN else None
        if isinstance(call, CallRecorded):
            used = usage_of(call.usage)
            prices = prices_for(call.model) if call.cost_usd is None and call.model else None
            usd = prices.cost_of(used) if prices is not None else call.cost_usd
            yield BilledCall(entry.at, call.cause.layer, call.source, call.model, used, usd)


def bill_data(calls: Sequence[BilledCall], breaks: Sequence[PricedBreak]) -> dict[str, Any]:
    """Return the sums of calls by day and layer, and of losses by cause, as values of JSON."""
    causes: dict[str, dict[str, Any]] = {}
    for one in breaks:
        if one.announced:
            continue
        row = causes.setdefault(
            one.cause.title,
            {"cause": one.cause.title, "remedy": one.cause.remedy, "breaks": 0, "tokens": 0, "usd": 0.0},
        )
        row["breaks"] += 1
        row["tokens"] += one.tokens
        row["usd"] += one.usd or 0.0
    rewritten = sum(one.tokens for one in breaks)
    named = sum(one.tokens for one in breaks if one.is_named)
    return {
        "total": _summed("total", calls),
        "days": _sums(calls, lambda call: iso(call.at)[:10] if call.at > 0 else "unknown day"),
        "layers": _sums(calls, lambda call: call.layer if call.source == MAIN else f"{call.layer} ({call.source})"),
        "causes": sorted(causes.values(), key=lambda row: (-row["usd"], -row["tokens"])),
        "usd": sum(call.usd or 0.0 for call in calls),
        "lost_usd": sum(one.usd or 0.0 for one in breaks),
        "named_share": named / rewritten if rewritten else 1.0,
    }


def _sums(calls: Sequence[BilledCall], key: Callable[[BilledCall], str]) -> list[dict[str, Any]]:
    groups: dict[str, list[BilledCall]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return [_summed(name, rows) for name, rows in groups.items()]


def _summed(name: str, calls: Sequence[BilledCall]) -> dict[str, Any]:
    total = Usage()
    for call in calls:
        total = total.plus(call.usage) if call.usage is not None else total
    return {
        "name": name,
        "calls": len(calls),
        "read": total.read,
        "written": total.write,
        "uncached": total.uncached,
        "output": total.output,
        "usd": sum(call.usd or 0.0 for call in calls),
        "unpriced": sum(call.usd is None for call in calls),
    }
