"""The ledger of calls: expected and actual tokens and cost of each call, and the loss of every cache miss.

The expected usage assumes that the call reads everything the previous call left in the cache; tokens that were written
or paid in full again would have been cheap reads. The difference in cost is the loss of the miss. An announced miss is
not a loss: its actual usage counts as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ..conversation.decisions import CallRecorded, PrefixRendered, decision_of
from ..conversation.entries import DECISION, Entry, iso
from ..conversation.wire.options import opening_of
from ..values import field, record, replace
from .prices import Prices
from .usage import Usage, reported_options, usage_of
from .watch import CacheBreak, CacheWatch, registered_by

MAIN: Final = "main"
LAYERS: Final[Mapping[str, str]] = {
    "session_memory": "notes",
    "skill": "notes",
    "compact": "compact",
    "extract": "extract",
    "recall": "recall",
    "dream": "dream",
    "cut_off": "model",
    "refused": "model",
    "keep_warm": "cache",
    MAIN: "model",
}
"""The layer of each source of calls; other sources are calls of sub-agents and belong to the relay."""
FORKS: Final = frozenset({"session_memory", "extract", "compact"})
"""Sources whose calls share the main conversation's prefix and can read its cache entries."""

LedgerAxis: TypeAlias = Literal["session", "day", "project", "layer"]
PriceList: TypeAlias = Callable[[str], Prices | None]


@record
class LedgerCall:
    """One model call with its expected and actual usage and cost."""

    session: str
    project: str
    at: float
    model: str
    source: str
    layer: str
    reason: str
    actual: Usage
    expected: Usage
    usd: float | None = None
    expected_usd: float | None = None
    broke: str = ""
    """The reason of a cache miss; empty if there was none."""
    id: str = ""

    @property
    def day(self) -> str:
        """The day of the call, in UTC."""
        return iso(self.at)[:10]

    @property
    def lost_tokens(self) -> int:
        """The tokens that were paid for again because of a cache miss."""
        return max(0, self.expected.read - self.actual.read) if self.broke else 0

    @property
    def lost_usd(self) -> float:
        """The US dollars lost by a cache miss; 0 if the model has no price."""
        if not self.broke or self.usd is None or self.expected_usd is None:
            return 0.0
        return max(0.0, self.usd - self.expected_usd)


@record
class Totals:
    """The sum of several calls."""

    calls: int = 0
    actual: Usage = Usage()
    expected: Usage = Usage()
    usd: float = 0.0
    expected_usd: float = 0.0
    unpriced: int = 0
    breaks: int = 0
    lost_tokens: int = 0
    lost_usd: float = 0.0
    lost_by_reason: Mapping[str, float] = field(default_factory=lambda: {})

    @property
    def hit_rate(self) -> float:
        """The share of input tokens that was read from the cache."""
        return self.actual.read / self.actual.input if self.actual.input else 0.0

    @property
    def expected_hit_rate(self) -> float:
        """The share of input tokens that could have been read from the cache."""
        return self.expected.read / self.expected.input if self.expected.input else 0.0

    def and_also(self, other: Totals) -> Totals:
        """Return the sum of both totals."""
        lost = dict(self.lost_by_reason)
        for reason, usd in other.lost_by_reason.items():
            lost[reason] = lost.get(reason, 0.0) + usd
        return Totals(
            self.calls + other.calls,
            self.actual.plus(other.actual),
            self.expected.plus(other.expected),
            self.usd + other.usd,
            self.expected_usd + other.expected_usd,
            self.unpriced + other.unpriced,
            self.breaks + other.breaks,
            self.lost_tokens + other.lost_tokens,
            self.lost_usd + other.lost_usd,
            lost,
        )

    def plus(self, call: LedgerCall) -> Totals:
        """Return the totals with one more call."""
        lost = {call.broke: call.lost_usd} if call.broke else {}
        return self.and_also(
            Totals(
                1,
                call.actual,
                call.expected,
                call.usd or 0.0,
                call.expected_usd or 0.0,
                int(call.usd is None),
                int(bool(call.broke)),
                call.lost_tokens,
                call.lost_usd,
                lost,
            )
        )


@record
class Ledger:
    """The totals of a session's calls, overall and by layer, folded from its log.

    ``broken`` holds the calls that missed the cache, ``opening`` the current request without its messages, and
    ``registered`` the names of decisions since the last main call that announce a miss.
    """

    session: str
    project: str = ""
    totals: Totals = Totals()
    layers: Mapping[str, Totals] = field(default_factory=lambda: {})
    broken: tuple[LedgerCall, ...] = ()
    last: LedgerCall | None = None
    watch: CacheWatch = CacheWatch()
    opening: Mapping[str, Any] = field(default_factory=lambda: {})
    registered: tuple[str, ...] = ()

    def add(self, call: LedgerCall) -> Ledger:
        """Return a new ledger with one more call."""
        layer = self.layers.get(call.layer, Totals()).plus(call)
        broken = (*self.broken, call) if call.broke else self.broken
        return replace(
            self, totals=self.totals.plus(call), layers={**self.layers, call.layer: layer}, broken=broken, last=call
        )

    def fold(self, entry: Entry, prices: PriceList) -> Ledger:
        """Return the ledger after one more log entry; only decisions about calls or the cache change it."""
        if entry.kind != DECISION:
            return self
        decision = decision_of(entry.body)
        if isinstance(decision, PrefixRendered):
            return replace(self, opening=opening_of(decision))
        if not isinstance(decision, CallRecorded):
            found = registered_by([decision])
            return replace(self, registered=(*self.registered, *found)) if found else self
        return self.called(decision, entry, prices)

    def called(self, decision: CallRecorded, entry: Entry, prices: PriceList) -> Ledger:
        """Return a new ledger with a recorded call added; only main-conversation calls update the cache watch."""
        watch, broke = self.watch, None
        if decision.source == MAIN:
            request = {**self.opening, **reported_options(entry), "model": decision.model}
            watch = watch.before(request, entry.at, registered=self.registered)
            readable = watch.expected
            watch, broke = watch.after(decision.usage, entry.at, decision.usage.get("diagnostics"))
        else:
            readable = watch.readable if decision.source in FORKS and watch.sent is not None else None
        call = call_of(
            decision,
            session=self.session,
            project=self.project,
            at=entry.at,
            prices=prices(decision.model),
            readable=readable,
            broke=broke,
            id=entry.uuid,
        )
        entered = self.add(call)
        return replace(entered, watch=watch, registered=()) if decision.source == MAIN else entered


def call_of(
    decision: CallRecorded,
    *,
    session: str,
    at: float,
    project: str = "",
    prices: Prices | None = None,
    readable: int | None = None,
    broke: CacheBreak | None = None,
    id: str = "",
) -> LedgerCall:
    """Return a recorded call as a ledger row; ``readable`` is the number of tokens it could have read, if known."""
    actual = usage_of(decision.usage)
    expected = actual if readable is None else expected_usage(actual, readable)
    usd = decision.cost_usd if decision.cost_usd is not None else prices.cost_of(actual) if prices else None
    expected_usd = usd
    if usd is not None and prices is not None:
        # The bill may differ from the price table, so only the difference between the usages is priced by the table.
        expected_usd = max(0.0, usd - (prices.cost_of(actual) - prices.cost_of(expected)))
    return LedgerCall(
        session=session,
        project=project,
        at=at,
        model=decision.model,
        source=decision.source,
        layer=decision.cause.layer,
        reason=decision.cause.reason,
        actual=actual,
        expected=expected,
        usd=usd,
        expected_usd=expected_usd,
        broke=broke.reason if broke is not None else "",
        id=id,
    )


def layer_of(source: str) -> str:
    """Return the layer that a model call with this ``source`` is counted under; ``relay`` if it is unknown."""
    return LAYERS.get(source, "relay")


def expected_usage(actual: Usage, readable: int) -> Usage:
    """Return the usage if all readable tokens had been read, taken first from the written, then the uncached ones."""
    missing = max(0, min(readable, actual.input) - actual.read)
    short = min(missing, actual.write_5m)
    long = min(missing - short, actual.write_1h)
    rest = missing - short - long
    return Usage(
        actual.read + missing,
        actual.write_5m - short,
        actual.write_1h - long,
        actual.uncached - rest,
        actual.output,
    )
