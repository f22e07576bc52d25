"""What to do about bytes that cost money: clear now or carry on, and how long an entry should live.

Everything is counted in tokens at the input price, so that no price list is needed to decide, only ratios.

Clearing is a purchase: it costs rewriting what follows the first change, and saves carrying what was cleared on every
later request. Nobody knows how many requests will come, so the choice is the ski-rental one: carry until what has been
paid for carrying equals the price of clearing, then clear; that is never more than twice the cost of knowing the
future, and for a steady stream of results it is exactly the best batch size. A forecast may veto it, never hasten it.
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
"""What an output token costs beside an input token, where no price list says otherwise."""
Life: TypeAlias = Literal["live", "tail dead", "cold"]


@record
class RelativeRates:
    """Prices relative to an uncached input token."""

    read: float = 0.1
    write_5m: float = 1.25
    write_1h: float = 2.0

    def write(self, ttl: str) -> float:
        """The price of writing one token for that long."""
        return self.write_1h if ttl == "1h" else self.write_5m


CLASSIC = RelativeRates()


@record
class ClearingOption:
    """One way to clear: what leaves, what would have to be written again, what carrying it has cost so far.

    ``settled`` follows the first change and will not change again soon, ``tail`` is what comes after that;
    ``settled_live`` and ``tail_live`` are the parts of each that the cache still holds.
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
    """What is likely to come: requests before the next cut, and the chance that a cleared result is wanted again."""

    turns: float
    need: float
    window: int


@record
class Verdict:
    """What clearing would cost and save, and whether to do it."""

    act: bool
    cost: float
    saves: float
    reason: str

    @property
    def net(self) -> float:
        """What is left over, in tokens at the input price."""
        return self.saves - self.cost


def weigh_clearing(
    clearing: ClearingOption, forecast: Forecast, *, ttl: str, tail_ttl: str, rates: RelativeRates = CLASSIC
) -> Verdict:
    """Price clearing now against carrying on."""
    settled_price, tail_price = rates.write(ttl), rates.write(tail_ttl)
    # What is live would have been read; what is dead is written either way, at the tail's price if nothing is cleared.
    rewrite = (settled_price - rates.read) * clearing.settled_live + (tail_price - rates.read) * clearing.tail_live
    rewrite += (settled_price - tail_price) * (clearing.settled - clearing.settled_live)
    unwritten = tail_price * clearing.frees if not (clearing.settled_live or clearing.tail_live) else 0.0
    risk = forecast.need * (clearing.items * rates.read * forecast.window + rates.write(tail_ttl) * clearing.frees)
    cost = max(0.0, rewrite - unwritten)
    saves = rates.read * clearing.frees * forecast.turns + max(0.0, unwritten - rewrite) - risk
    if saves <= cost:
        return Verdict(False, cost, saves, "carrying on is cheaper for the turns likely to come")
    if clearing.carried < cost:
        return Verdict(False, cost, saves, "carrying has not cost as much as clearing would yet")
    return Verdict(True, cost, saves, f"saves {saves - cost:,.0f} token prices over {forecast.turns:.0f} turns")


@record
class Compaction:
    """A compaction to be priced: the window before and after it, and what making the summary takes.

    ``live`` is how much of the window the cache still holds, ``stays`` how much of that stands before the first change
    and can be read afterwards too; ``call`` is what the summary's own call costs, in tokens at the input price.
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
    """Price compacting now against carrying the window for the turns likely to come.

    Carrying: what is live is read, the rest written once, and all of it read on every later turn. Compacting: the call
    that makes the summary, what is new written, the smaller window read; and the share ``need`` of what left is taken
    to be wanted again, which is written once more. With a cold cache the window would have to be written anyway, so
    that compacting is nearly free; with a live one it hardly ever pays before the window is full.
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


def call_price(
    window: int, *, live: int, output: int, rates: RelativeRates = CLASSIC, output_rate: float = OUTPUT_RATE
) -> float:
    """Return what asking a fork for so much output costs, in tokens at the input price."""
    live = min(live, window)
    return live * rates.read + (window - live) * rates.write_5m + output * OUTPUT_RATE


def turns_ahead(*, turns: int, window: int, opening: int, limit: int, least: float = 3.0) -> float:
    """Estimate how many requests come before the next cut.

    A session that has had so many turns is likely to have as many again, unless its window is full before that.
    """
    growth = max(1.0, (window - opening) / max(1, turns))
    return max(least, min(float(turns), (limit - window) / growth))


def choose_ttl(*, pauses: int, requests: int, rates: RelativeRates = CLASSIC, horizon: int = 30) -> str:
    """Choose how long the settled part of a prompt should live.

    ``pauses`` counts requests that came 5 to 60 minutes after the one before: each of them costs a rewrite with the
    short lifetime. Before anything is known, one request in 80 is taken to be such a pause, so an agent left to itself
    never pays for the long one, and a person who pauses once early is expected to do so again.
    """
    expected = (0.5 + pauses) / (40 + requests) * max(horizon, requests)
    saved = (rates.write_5m - rates.read) * expected
    return "1h" if saved > rates.write_1h - rates.write_5m else "5m"
