"""The cost rules of caching: when to clear old results, when to compact, and how long a cache entry should live.

All costs are in uncached input tokens, so the decisions need price ratios but no price list.

Clearing costs a rewrite of everything after the first change, and saves carrying the cleared results on every later
request. The number of later requests is unknown, so this is the ski-rental problem: carry the results until carrying
has cost as much as clearing would, then clear. This never costs more than twice the optimum, and for a steady stream
of results it gives exactly the best batch size. A forecast may prevent clearing but never makes it earlier.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..values import record

__all__ = [
    "CLASSIC",
    "OUTPUT_RATE",
    "ClearingOption",
    "Compaction",
    "Forecast",
    "Life",
    "RelativeRates",
    "Verdict",
    "call_price",
    "choose_ttl",
    "turns_ahead",
    "weigh_clearing",
    "weigh_compaction",
]

OUTPUT_RATE = 5.0
"""The price of an output token relative to an input token, if no price list is available."""
_HORIZON_REQUESTS = 30
Life: TypeAlias = Literal["live", "tail dead", "cold"]


@record
class RelativeRates:
    """Prices relative to an uncached input token."""

    read: float = 0.1
    write_5m: float = 1.25
    write_1h: float = 2.0

    def write(self, ttl: str) -> float:
        """Return the price of writing one token to the cache with this lifetime."""
        return self.write_1h if ttl == "1h" else self.write_5m


CLASSIC = RelativeRates()


@record
class ClearingOption:
    """One possible clearing, in tokens: the results to remove, the part to write again, and the carrying cost so far.

    ``settled`` is the part after the first change that is not expected to change again soon; ``tail`` is the rest.
    ``settled_live`` and ``tail_live`` are the portions of each that the cache still holds.
    """

    items: int
    frees: int
    settled: int
    tail: int
    settled_live: int
    tail_live: int
    carried: float


@record
class Forecast:
    """The expected requests before the next cut, and the probability that a cleared result is needed again.

    ``window`` is the number of tokens that a request has, which a repeated read of a result costs.
    """

    turns: float
    need: float
    window: int


@record
class Verdict:
    """The cost and savings of an action in uncached input tokens, and whether to take it."""

    act: bool
    cost: float
    saves: float
    reason: str

    @property
    def net(self) -> float:
        """The savings minus the cost."""
        return self.saves - self.cost


def weigh_clearing(
    clearing: ClearingOption, forecast: Forecast, *, ttl: str, tail_ttl: str, rates: RelativeRates = CLASSIC
) -> Verdict:
    """Return the verdict on clearing old results now instead of carrying them on.

    ``ttl`` is the cache lifetime of the settled part, ``tail_ttl`` that of the tail.
    """
    settled_price, tail_price = rates.write(ttl), rates.write(tail_ttl)
    # Live tokens would have been read; expired ones are written either way, at the tail's price if nothing is cleared.
    rewrite = (settled_price - rates.read) * clearing.settled_live + (tail_price - rates.read) * clearing.tail_live
    rewrite += (settled_price - tail_price) * (clearing.settled - clearing.settled_live)
    unwritten = tail_price * clearing.frees if not (clearing.settled_live or clearing.tail_live) else 0.0
    risk = forecast.need * (clearing.items * rates.read * forecast.window + rates.write(tail_ttl) * clearing.frees)
    cost = max(0.0, rewrite - unwritten)
    saves = rates.read * clearing.frees * forecast.turns + max(0.0, unwritten - rewrite) - risk
    if saves <= cost:
        return Verdict(False, cost, saves, "carrying on is cheaper for the turns likely to come")
    if clearing.carried < cost:
        return Verdict(False, cost, saves, "carrying has not yet cost as much as clearing would")
    return Verdict(True, cost, saves, f"saves {saves - cost:,.0f} token prices over {forecast.turns:.0f} turns")


@record
class Compaction:
    """A possible compaction: the tokens before and after it, and the cost of writing the summary.

    ``live`` is the part of the window that the cache still holds. ``stays`` is the part of it before the first change,
    which can be read afterwards too. ``call`` is the cost of the summary call in uncached input tokens.
    """

    window: int
    after: int
    live: int = 0
    stays: int = 0
    call: float = 0.0

    @property
    def frees(self) -> int:
        """The tokens that leave the window."""
        return max(0, self.window - self.after)


def weigh_compaction(
    compaction: Compaction,
    *,
    turns: float,
    need: float,
    margin: float = 1.0,
    ttl: str = "5m",
    rates: RelativeRates = CLASSIC,
) -> Verdict:
    """Return the verdict on compacting now instead of carrying the window for the expected turns.

    Carrying reads the live part, writes the rest once, and reads all of it on every later turn. Compacting pays for
    the summary call, writes the new part and reads the smaller window; the share ``need`` of the removed tokens is
    assumed to be needed again and written once more. With a cold cache the window must be written anyway, so compacting
    is nearly free; with a live cache it rarely pays before the window is full. The verdict is to compact if the
    savings are at least ``margin`` times the cost.
    """
    write = rates.write(ttl)
    later = max(0.0, turns - 1)
    live, stays = min(compaction.live, compaction.window), min(compaction.stays, compaction.after)
    carried = live * rates.read + (compaction.window - live) * write
    rewritten = stays * rates.read + (compaction.after - stays) * write
    wanted = need * compaction.frees * write
    cost = compaction.call + max(0.0, rewritten - carried) + wanted
    saves = max(0.0, carried - rewritten) + rates.read * compaction.frees * later
    if saves < margin * cost or saves <= 0:
        return Verdict(False, cost, saves, "carrying the window on is cheaper for the turns likely to come")
    return Verdict(True, cost, saves, f"saves {saves - cost:,.0f} token prices over {turns:.0f} turns")


def call_price(window: int, *, live: int, output: int, rates: RelativeRates = CLASSIC) -> float:
    """Return the cost of a fork call in uncached input tokens; ``live`` of the ``window`` tokens are cached."""
    live = min(live, window)
    return live * rates.read + (window - live) * rates.write_5m + output * OUTPUT_RATE


def turns_ahead(*, turns: int, window: int, opening: int, limit: int, least: float = 3.0) -> float:
    """Return the estimated number of requests before the next cut, at least ``least``.

    A session is expected to have as many turns again as it had so far, unless its window is full before that.
    """
    growth = max(1.0, (window - opening) / max(1, turns))
    return max(least, min(float(turns), (limit - window) / growth))


def choose_ttl(*, pauses: int, requests: int, rates: RelativeRates = CLASSIC) -> str:
    """Return the cheaper cache lifetime for the settled part of a prompt: ``5m`` or ``1h``.

    ``pauses`` counts requests that came 5 to 60 minutes after the previous one; each of them costs a rewrite with the
    short lifetime. The prior is one pause in 80 requests, so an unattended agent never pays for the long lifetime,
    while one early pause of a person predicts more of them.
    """
    expected = (0.5 + pauses) / (40 + requests) * max(_HORIZON_REQUESTS, requests)
    saved = (rates.write_5m - rates.read) * expected
    return "1h" if saved > rates.write_1h - rates.write_5m else "5m"
