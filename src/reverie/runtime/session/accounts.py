"""The accounts of a session: watch its cache, price its calls, and enter them in the ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

from ...cache.ledger import call_of, layer_of
from ...cache.prefix import SettledMessages
from ...cache.prices import Prices, prices_for
from ...cache.usage import usage_of
from ...cache.watch import CacheBreak, CacheWatch
from ...conversation.decisions import CallRecorded, Cause
from ...conversation.entries import Entry
from ...conversation.tokens.counting import cleared_tokens
from ...values import record, replace
from .ledger import LedgerStore, logged_calls
from .log import MAX_LATER


@record
class CallBill:
    """The bill of one reply: the call to log, the input token counts, and the cache break it reveals, if any."""

    call: CallRecorded
    broke: CacheBreak | None
    lost_usd: float | None
    expected: int | None
    input: int = 0


class Accounts:
    """Watches one session's cache, prices its calls, and enters them in the ledger if there is one."""

    def __init__(self, store: LedgerStore | None, *, session: str, project: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._session = session
        self._project = project
        self._clock = clock
        self._watch = CacheWatch()
        self._prices: dict[str, Prices | None] = {}
        self._cleared_tokens = 0
        self._last: deque[Entry] = deque(maxlen=MAX_LATER)

    def read(self, entry: Entry) -> None:
        """Take a call of the log that is being opened."""
        self._last.append(entry)

    def heal(self) -> None:
        """Enter the last calls of a log that was opened; a killed process may have logged them and not entered them."""
        if self._store is not None and self._last:
            self._store.enter_all(logged_calls(self._last, self._session, self._project))

    def resume(self, request: Mapping[str, Any], call: CallRecorded, reply: Entry | None) -> None:
        """Restart the cache watch from the last logged call, its request and reply, unless it has no cache time."""
        self._cleared_tokens = cleared_tokens(reply.reply) if reply is not None else 0
        at = call.cache.get("at")
        if isinstance(at, int | float) and "model" in request:
            watch = CacheWatch(long_lived=call.cache.get("long_lived") is True).before(_answered(request), float(at))
            self._watch, _ = watch.after(usage_of(call.usage), float(at))

    def before(self, request: Mapping[str, Any], registered: list[str], settled: SettledMessages | None) -> None:
        """Tell the cache watch of the next request; ``registered`` names decisions that explain a cache miss."""
        self._watch = self._watch.before(request, self._clock(), registered=registered, settled=settled)

    def renewed(self) -> None:
        """Tell the cache watch that the last request was sent again, so that its cache lives on."""
        self._watch = replace(self._watch, sent_at=self._clock())

    def prices(self, model: str) -> Prices | None:
        """Return a model's prices, None if unknown; cached, but the first look-up may take half a second."""
        if model not in self._prices:
            self._prices[model] = prices_for(model, at=self._clock()) if model else None
        return self._prices[model]

    def knows(self, reply: Mapping[str, Any]) -> bool:
        """Return whether a reply's model has cached prices, or the reply reports no usage and needs none."""
        return not isinstance(reply.get("usage"), Mapping) or _model(reply) in self._prices

    def learn(self, reply: Mapping[str, Any]) -> None:
        """Load the prices of a reply's model into the cache; this may block."""
        self.prices(_model(reply))

    def after(self, reply: Mapping[str, Any], *, cache: dict[str, Any], source: str = "main") -> CallBill | None:
        """Compare a reply's usage with the expected cache read and return its bill; None if it has no usage."""
        if not isinstance(reply.get("usage"), Mapping):
            return None
        usage = cast(Mapping[str, Any], reply["usage"])
        used = usage_of(usage)
        said, before = clearing_reported(reply), self._cleared_tokens
        self._cleared_tokens = cleared_tokens(reply)
        if said and self._cleared_tokens != before:  # a clearing that we requested is not a break
            self._watch = replace(self._watch, registered=(*self._watch.registered, said))
        expected = self._watch.expected
        self._watch, broke = self._watch.after(used, self._clock(), reply.get("diagnostics"))
        if cache and self._watch.long_lived:
            cache = {**cache, "long_lived": True}
        model = _model(reply)
        prices = self.prices(model)
        cost = prices.cost_of(used) if prices is not None else None
        reason = broke.reason if broke is not None else said or "reply"
        call = CallRecorded(Cause("model", reason), model, dict(usage), cost, source, str(reply.get("id") or ""), cache)
        lost = None
        if broke is not None and prices is not None:
            entered = call_of(call, session=self._session, at=0.0, prices=prices, readable=expected, broke=broke)
            lost = entered.lost_usd
        return CallBill(call, broke, lost, expected, used.input)

    def side_call(self, reply: Mapping[str, Any], *, source: str) -> CallBill | None:
        """Return the bill of a call outside the conversation, without the cache watch; None if it has no usage."""
        if not isinstance(reply.get("usage"), Mapping):
            return None
        usage = cast(Mapping[str, Any], reply["usage"])
        used, model = usage_of(usage), _model(reply)
        prices = self.prices(model)
        cost = prices.cost_of(used) if prices is not None else None
        cause = Cause(layer_of(source), source)
        call = CallRecorded(cause, model, dict(usage), cost, source, str(reply.get("id") or ""))
        return CallBill(call, None, None, None, used.input)

    def enter(self, billed: CallBill, entry_id: str) -> None:
        """Enter a logged call in the ledger, if there is one; ``entry_id`` is the uuid of the call's log entry."""
        if self._store is None:
            return
        prices = self._prices.get(billed.call.model)
        self._store.enter(
            call_of(
                billed.call,
                session=self._session,
                at=self._clock(),
                project=self._project,
                prices=prices,
                readable=billed.expected,
                broke=billed.broke,
                id=entry_id,
            )
        )

    def close(self) -> None:
        """Close the ledger, if there is one."""
        if self._store is not None:
            self._store.close()


def _answered(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request without its last reply and the content after it, which may be a placeholder."""
    messages: list[Any] = request["messages"]
    last = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=len(messages))
    return {**request, "messages": messages[:last]}


def clearing_reported(reply: Mapping[str, Any]) -> str:
    """Return a sentence about the input tokens that the provider says it cleared; "" if it applied no edit."""
    managed: Any = reply.get("context_management")
    found: Any = cast(Mapping[str, Any], managed).get("applied_edits") if isinstance(managed, Mapping) else None
    names = {str(cast(Mapping[str, Any], one).get("type")) for one in found or () if isinstance(one, Mapping)}
    return f"the provider cleared {cleared_tokens(reply):,} tokens: {', '.join(sorted(names))}" if names else ""


def _model(reply: Mapping[str, Any]) -> str:
    return str(reply.get("model") or "")
