"""Every request of a session again, from its log alone: content, cache breakpoints, time and reply.

A request is the fold of the log up to its time. The cache state that a call logs says when its request was made, and
which breakpoints it must have had; breakpoints that do not lead to this state are left out instead of guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...cache.breakpoints import BreakpointPlan
from ...cache.economics import RelativeRates
from ...cache.ledger import MAIN
from ...conversation.decisions import CallRecorded, Cause, PrefixRendered, decision_of
from ...conversation.entries import ASSISTANT, DECISION, Entry, reply_id
from ...conversation.view import View
from ...conversation.wire.request import build_request
from ...importers import ImportedSession
from ...runtime.session.cache_plan import CachePlan
from ...runtime.session.cache_renewal import KEEP_WARM
from ...values import object_of, record

_RATES: Final = RelativeRates(0.1, 1.25, 2.0, 5.0)  # of no effect: the log holds the lifetime that prices chose
_STATE: Final = ("ttl", "end", "held")


@record
class LoggedRequest:
    """One request of a session, without its breakpoints, which are in ``marks`` where the log proves them."""

    number: int
    at: float
    request: dict[str, Any]
    view: View
    entries: tuple[Entry, ...]
    """The entries since the reply before."""
    later: tuple[Entry, ...]
    """Those of them that were logged while the reply was on its way, so that this request does not hold them."""
    reply: tuple[Entry, ...]
    call: tuple[Entry, CallRecorded] | None
    """The logged call, which has the usage and cost; None in a recording of another program."""
    marks: BreakpointPlan | None


def logged_requests(session: ImportedSession) -> Iterator[LoggedRequest]:
    """Yield the requests of a session, one before each reply, in order."""
    replies, calls = _replies(session.entries), _calls(session.entries)
    marks, prefix = _Breakpoints(), _recorded_prefix(session)
    view, waiting, number = View(), list[Entry](), 0
    for entry in session.entries:
        id = reply_id(entry) if entry.kind == ASSISTANT else ""
        if not id or replies[id][0] is not entry:
            waiting.append(entry)
            continue
        call = calls.get(id)
        state = call[1].cache if call is not None else {}
        sent_at = float(state["at"]) if isinstance(state.get("at"), int | float) else None
        count = _sent(waiting, sent_at)
        view = view.fold_all(waiting[:count])
        request = build_request(view, prefix if view.facts.prefix is None else None)
        marks.follow(waiting)
        at = sent_at if sent_at is not None else max([one.at for one in waiting[-1:]] or [0.0]) or entry.at
        planned = marks.of(view, request["messages"], at, state)
        yield LoggedRequest(
            number, at, request, view, tuple(waiting), tuple(waiting[count:]), tuple(replies[id]), call, planned
        )
        view = view.fold_all(waiting[count:])
        waiting, number = [entry], number + 1


def _replies(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == ASSISTANT:
            found.setdefault(reply_id(entry), []).append(entry)
    return found


def _calls(entries: Sequence[Entry]) -> dict[str, tuple[Entry, CallRecorded]]:
    """Return the logged call of each reply, by the reply's id."""
    found: dict[str, tuple[Entry, CallRecorded]] = {}
    last = ""
    for entry in entries:
        if entry.kind == ASSISTANT:
            last = reply_id(entry)
        elif entry.kind == DECISION and entry.body.get("source") == MAIN and last not in found:
            decision = decision_of(entry.body)
            if isinstance(decision, CallRecorded):
                found[last] = entry, decision
    return found


def _sent(waiting: Sequence[Entry], sent_at: float | None) -> int:
    """Return how many of these entries the request holds: all but those logged while its reply was on its way."""
    count = len(waiting)
    while sent_at is not None and count and waiting[count - 1].at > sent_at:
        count -= 1
    return count


def _recorded_prefix(session: ImportedSession) -> PrefixRendered:
    cause = Cause("request", "as recorded")
    return PrefixRendered(cause, session.model, session.system, session.tools or [])


class _Breakpoints:
    """Places the breakpoints of each request as the session did, and checks them against the logged cache states."""

    def __init__(self) -> None:
        self._plan = CachePlan(compact_at=1, rates=_RATES, least_cached=0)

    def follow(self, entries: Sequence[Entry]) -> None:
        """Count the cache as renewed by each ping among these entries."""
        for entry in entries:
            if entry.kind == DECISION and entry.body.get("source") == KEEP_WARM:
                at = object_of(entry.body.get("cache")).get("at")
                if isinstance(at, int | float):
                    self._plan.pinged(float(at))

    def of(self, view: View, messages: list[Any], at: float, state: dict[str, Any]) -> BreakpointPlan | None:
        """Return the breakpoints of a request; None if the log holds no cache state or another one."""
        if not state.get("held"):
            return None
        self._plan.fixed_ttl = str(state["held"][-1][2])
        planned = self._plan.mark(view, messages, at)
        reached = self._plan.state()
        if all(reached[name] == state.get(name) for name in _STATE):
            return planned
        self._plan.read(state)
        self._plan.resume(messages)
        return None
