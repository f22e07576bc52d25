"""The cost rules of caching: when to clear old results, when to compact, and how long a cache entry should live.

All costs are in uncached input tokens at the price of a short request, so the decisions need the price ratios of the
model and the steps of its price, but no price list.

Clearing costs a rewrite of everything after the first change, and saves carrying the cleared results on every later
request. The number of later requests is unknown, so this is the ski-rental problem: carry the results until carrying
has cost as much as clearing would, then clear. This never costs more than twice the optimum, and for a steady stream
of results it gives exactly the best batch size. A forecast may prevent clearing but never makes it earlier.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, log1p, sqrt
from typing import Literal, TypeAlias

from ..values import record, replace
from .usage import Usage

# A session may cost 1 % more than one that only appends; a quarter of it is for the error of estimated tokens.
_RISKED_SHARE = 0.0075
SHORT_SESSION = 30
"""The requests of a session that must not cost more than one that only appends, wherever it ends."""
PING_SECONDS = 295.0
"""The age at which a cache entry of five minutes is renewed: just before its end."""
MOST_PINGS = int(3600 / PING_SECONDS)
Life: TypeAlias = Literal["live", "tail dead", "cold"]
IdleChoice: TypeAlias = Literal["ping", "compact", "let go"]
"""The decision about the cache of an idle session before it ends."""


@record
class RelativeRates:
    """Prices of a model relative to an uncached input token of a short request."""

    read: float
    write_5m: float
    write_1h: float
    output: float
    steps: tuple[tuple[int, RelativeRates], ...] = ()
    """The rates of requests with more input tokens than the given number, lowest number first."""
    input: float = 1.0

    @property
    def first_step(self) -> float:
        """The number of input tokens above which the price rises first; infinite if it never does."""
        return min((float(above) for above, _ in self.steps), default=float("inf"))

    def write(self, ttl: str) -> float:
        """Return the price of writing one token to the cache with this lifetime."""
        return self.write_1h if ttl == "1h" else self.write_5m

    def at(self, input_tokens: float) -> RelativeRates:
        """Return the rates of a request with this many input tokens."""
        found = self
        for above, rates in self.steps:
            if input_tokens > above:
                found = rates
        return found

    def carrying(self, window: float) -> float:
        """Return the price of reading a whole window from the cache once."""
        return self.at(window).read * window

    @property
    def uncached(self) -> RelativeRates:
        """The rates of a session in which nothing is cached: every token costs as much as a new one."""
        steps = tuple((above, rates.uncached) for above, rates in self.steps)
        return replace(self, read=self.input, write_5m=self.input, write_1h=self.input, steps=steps)


@record
class ClearingOption:
    """One possible clearing, in tokens: the results to remove, the cached part to write again, and the carrying cost.

    ``live`` is the part after the first change that stays and that the cache still holds. ``lost_thinking`` are the
    tokens of thinking that the model loses and may have to produce again. ``later`` is the expected extra
    price of later calls that the clearing makes dearer.
    """

    items: int
    frees: int
    live: int
    carried: float
    lost_thinking: int = 0
    later: float = 0.0


@record
class Forecast:
    """The expected requests before the next cut, and the probability that a cleared result is needed again.

    ``window`` is the number of tokens that a request has, which a repeated read of a result costs; ``growth`` is the
    number by which it grows with each turn.
    """

    turns: float
    need: float
    window: int
    growth: float = 0.0


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


def weigh_clearing(clearing: ClearingOption, forecast: Forecast, *, rates: RelativeRates, room: float = inf) -> Verdict:
    """Return the verdict on clearing old results now; ``room`` is the highest price that the session may risk."""
    left = rates.at(forecast.window - clearing.frees)
    # Live tokens would have been read; expired ones are written either way.
    rewrite = (left.write_5m - left.read) * clearing.live
    unwritten = 0.0 if clearing.live else rates.at(forecast.window).write_5m * clearing.frees
    risk = forecast.need * (clearing.items * left.read * forecast.window + left.write_5m * clearing.frees)
    cost = max(0.0, rewrite - unwritten) + left.output * clearing.lost_thinking
    carrying = _saved_reads(clearing.frees, forecast, rates)
    saves = carrying + max(0.0, unwritten - rewrite) - risk - clearing.later
    if saves <= cost:
        return Verdict(False, cost, saves, "carrying on is cheaper for the turns likely to come")
    if clearing.carried * _dearer(clearing.frees, forecast.window, rates) < cost:
        return Verdict(False, cost, saves, "carrying has not yet cost as much as clearing would")
    if cost > room:
        return Verdict(False, cost, saves, "the session has not saved enough to risk the price")
    return Verdict(
        True, cost, saves, f"saves about {saves - cost:,.0f} input tokens over the next {forecast.turns:.0f} turns"
    )


def _saved_reads(frees: float, forecast: Forecast, rates: RelativeRates) -> float:
    """Return the price of carrying ``frees`` tokens for the expected turns, with the price steps that they cross."""
    if not rates.steps:
        return rates.read * frees * forecast.turns
    crossings = [0.0, forecast.turns]
    for above, _ in rates.steps:
        for start in (forecast.window, forecast.window - frees):
            turn = (above - start) / forecast.growth if forecast.growth > 0 else 0.0
            if 0 < turn < forecast.turns:
                crossings.append(turn)
    crossings.sort()
    saved = 0.0
    # Between two crossings the saving grows evenly, so the turn in the middle has the average.
    for begin, end in pairwise(crossings):
        window = forecast.window + forecast.growth * (begin + end) / 2
        saved += (end - begin) * (rates.carrying(window) - rates.carrying(window - frees))
    return saved


def _dearer(frees: int, window: int, rates: RelativeRates) -> float:
    """Return how much more carrying costs a turn than below every price step."""
    if not rates.steps or frees <= 0:
        return 1.0
    return (rates.carrying(window) - rates.carrying(window - frees)) / (rates.read * frees)


@record
class Compaction:
    """A possible compaction: the tokens before and after it, and the cost of writing the summary.

    ``live`` is the part of the window that the cache still holds. ``stays`` is the part before the first change, which
    can be read afterwards too if it is live. ``call`` is the cost of the summary call in uncached input tokens.
    ``lost_thinking`` are the tokens of thinking that kept turns lose and the model may have to produce again.
    """

    window: int
    after: int
    live: int = 0
    stays: int = 0
    call: float = 0.0
    lost_thinking: int = 0

    @property
    def frees(self) -> int:
        """The tokens that leave the window."""
        return max(0, self.window - self.after)


def compaction_price(compaction: Compaction, *, rates: RelativeRates, ttl: str = "5m") -> float:
    """Return the price of compacting now instead of sending the window as it is, in uncached input tokens.

    It is at least the price of writing summary and kept messages: the next request's saving alone never makes a
    compaction free, because each one costs the model something that no bill shows.
    """
    full, small = rates.at(compaction.window), rates.at(compaction.after)
    live, stays = min(compaction.live, compaction.window), min(compaction.stays, compaction.after)
    carried = live * full.read + (compaction.window - live) * full.write(ttl)
    readable = min(stays, live)
    sent = readable * small.read + (compaction.after - readable) * small.write(ttl)
    least = (compaction.after - stays) * small.write(ttl)
    return max(least, compaction.call + sent - carried) + small.output * compaction.lost_thinking


def weigh_compaction(
    compaction: Compaction, *, turns: float, rates: RelativeRates, growth: float = 0.0, ttl: str = "5m"
) -> Verdict:
    """Return the verdict on compacting now instead of carrying the window for the expected turns."""
    price = compaction_price(compaction, rates=rates, ttl=ttl)
    saves = _saved_reads(compaction.frees, Forecast(turns, 0.0, compaction.window, growth), rates)
    if saves <= price:
        return Verdict(False, price, saves, "carrying the window on is cheaper for the turns likely to come")
    return Verdict(True, price, saves, f"saves about {saves - price:,.0f} input tokens over the next {turns:.0f} turns")


@record
class CarryingMeter:
    """The price, since the last compaction, of carrying a window above the size that a compaction leaves."""

    spent: float = 0.0
    window: int = 0
    """The tokens of the last request and its reply, which the next request has again."""

    def after(
        self,
        *,
        read: int,
        total: int,
        output: int,
        compacted: float,
        rates: RelativeRates,
        cleared: bool = False,
    ) -> CarryingMeter:
        """Return the meter after a request with these tokens; ``compacted`` is the size that a compaction leaves.

        Old content that was written again counts at the write price: a smaller window would have had less of it. If it
        was ``cleared`` on a live cache, clearing had that price, and carrying it costs no more than a read.
        """
        paid = rates.at(total)
        again = max(0.0, min(self.window, total) - max(read, compacted))
        spent = paid.read * max(0.0, read - compacted) + (paid.read if cleared else paid.write_5m) * again
        return CarryingMeter(self.spent + spent, total + output)

    def kept_warm(self, window: int, *, compacted: float, rates: RelativeRates) -> CarryingMeter:
        """Return the meter after a ping, which reads the window as a request does."""
        return CarryingMeter(self.spent + rates.at(window).read * max(0.0, window - compacted), self.window)

    def turns_until(self, price: float, *, excess: float, growth: float, read: float) -> float:
        """Return the requests until carrying has cost this price, at least 1.

        ``excess`` are the tokens above the compacted size now, ``growth`` is their growth with each request.
        """
        left = max(0.0, price - self.spent) / read
        return max(1.0, (sqrt(excess * excess + 2 * growth * left) - excess) / growth)


def compaction_due(
    meter: CarryingMeter,
    compaction: Compaction,
    *,
    requests: int,
    growth: float,
    patience: float,
    rates: RelativeRates,
    room: float = inf,
) -> Verdict:
    """Return whether to compact by price (L4.18): carrying has cost ``patience`` times the price of compacting.

    A session is expected to have as many requests again as it had so far, which must pay for the compaction. Before a
    step of the price that is reason enough, because beyond it every request costs more. Otherwise the session may end
    before the compaction has paid, and ``room`` must cover the loss to expect; in a short session, the whole price.
    A price is no reason to cut results that the model has not seen: not more tokens may be new since the last reply
    than stay.
    """
    price = compaction_price(compaction, rates=rates)
    next_window = compaction.window + growth
    crosses = compaction.after < rates.first_step <= next_window
    saves = requests * (
        rates.carrying(next_window if crosses else compaction.window) - rates.carrying(compaction.after)
    )
    if crosses:
        reason = f"the price rises at {rates.first_step:,.0f} tokens"
    else:
        reason = f"carrying the window has cost {meter.spent:,.0f} input tokens, and compacting costs {price:,.0f}"
    risked = price if requests <= SHORT_SESSION else expected_loss(price, saves)
    is_due = crosses or (risked <= room and meter.spent >= patience * price)
    is_seen = compaction.window - meter.window <= compaction.after
    return Verdict(is_due and is_seen and saves >= price, price, saves, reason)


def expected_loss(price: float, saves: float) -> float:
    """Return the loss to expect of a price because the session may end before it has paid.

    ``saves`` is the saving over as many requests again as the session had. A session of ``n`` requests goes on beyond
    ``n + t`` with a chance of ``n / (n + t)``, which has the median ``n``; the loss is the mean of the unpaid rest.
    """
    if price <= 0:
        return 0.0
    share = price / saves if saves > 0 else inf
    return price * (1 - log1p(share) / share) if share < inf else price


def call_price(window: int, *, live: int, output: int, rates: RelativeRates) -> float:
    """Return the cost of a fork call in uncached input tokens; ``live`` of the ``window`` tokens are cached."""
    live, paid = min(live, window), rates.at(window)
    return live * paid.read + (window - live) * paid.input + output * paid.output


def max_pings(rates: RelativeRates, lost: float = 1.0) -> int:
    """Return how often an idle cache entry of five minutes is renewed: until that cost a third of its rewrite (C9).

    ``lost`` is the share of the prompt that no entry of an hour keeps.
    """
    if rates.read <= 0:
        return MOST_PINGS
    return min(MOST_PINGS, int(lost * (rates.write_5m - rates.read) / (3 * rates.read) + 1e-9))


def growth_per_turn(*, turns: int, window: int, opening: int) -> float:
    """Return the tokens by which a session grew with each of its turns, at least 1."""
    return max(1.0, (window - opening) / max(1, turns))


def turns_ahead(*, turns: int, window: int, opening: int, limit: int) -> float:
    """Return the estimated number of requests before the next cut, at least 3.

    A session is expected to have as many turns again as it had so far, unless its window is full before that.
    """
    growth = growth_per_turn(turns=turns, window=window, opening=opening)
    return max(3.0, min(float(turns), (limit - window) / growth))


@record
class SessionBill:
    """The price of a session's input so far, beside that of one that only appends, with a lifetime of 5 minutes.

    A price that pays only if the session goes on may take it above that one by a small share.
    """

    spent: float = 0.0
    """The price of all input and summaries so far, in uncached input tokens."""
    plain: float = 0.0
    """The price of the same session if nothing had left its window and no entry lived longer than 5 minutes."""
    removed: int = 0
    """The tokens that left the window, less those that were added to it."""
    risk: float = 0.0
    """The expected price of rewrites after a pause, summed over the requests since the last long-lived breakpoint."""
    cached: int = 0
    """The tokens of the last request."""
    kept: int = 0
    """The tokens before the last long-lived breakpoint."""
    misses: int = 0
    """The requests in a row that reported no token of a cache although they changed nothing old."""

    def rates(self, listed: RelativeRates) -> RelativeRates:
        """Return the rates that the session pays now: those of uncached tokens while nothing is cached."""
        return listed.uncached if self.misses else listed

    @property
    def room(self) -> float:
        """The price that the session may risk now."""
        return (1 + _RISKED_SHARE) * self.plain - self.spent

    def summarised(self, output: int, rates: RelativeRates) -> SessionBill:
        """Return the bill with that of a summary of so many tokens, whose request read the last prompt."""
        paid = self.rates(rates).at(self.cached)
        return replace(self, spent=self.spent + paid.read * self.cached + paid.output * output)

    def lifetime(self, window: int, life: Life, rates: RelativeRates) -> str:
        """Return the lifetime, ``5m`` or ``1h``, of the breakpoint at the end of a request.

        A long-lived breakpoint keeps the whole prompt before it and costs more only for the tokens that it writes. So
        it is set where the rewrites that it may save are worth its extra price, and where there is room for that.
        """
        paid = rates.at(window)
        if paid.write_1h <= paid.write_5m:
            return "1h"
        held = {"live": self.cached, "tail dead": self.kept, "cold": 0}[life]
        price = (paid.write_1h - paid.write_5m) * max(0, window - held)
        return "1h" if price < min(self.room, self.risk) else "5m"

    def after(
        self,
        used: Usage,
        *,
        is_late: bool,
        pauses: int,
        requests: int,
        rates: RelativeRates,
        is_changed: bool = False,
        added: int = 0,
    ) -> SessionBill:
        """Return the bill after a request; ``is_late`` if it came 5 minutes or more after the one before.

        ``pauses`` of the ``requests`` so far came 5 to 60 minutes after it. The prior is one pause in 80 requests.
        ``is_changed`` if it changed old messages: then its growth may be removed tokens that came back. ``added`` are
        the tokens that its new results have more than the session was given.
        """
        is_miss = not (used.read or used.write_5m or used.write_1h)
        misses = self.misses + 1 if is_miss and (self.misses or not is_changed) else 0
        rates = rates.uncached if misses else rates
        paid = rates.at(used.input)
        spent = used.read * paid.read + used.write_5m * paid.write_5m + used.write_1h * paid.write_1h
        shrunk = self.cached - used.input
        removed = (max(0, self.removed + shrunk) if is_changed else self.removed + max(0, shrunk)) - added
        whole = removed + used.input
        full = rates.at(whole)
        # A prefix that another session left in the cache would have been read in any case.
        read = max(0, used.read - self.kept) if is_late else self.removed + max(self.cached, used.read)
        read = min(read, whole)
        kept = used.input if used.write_1h and not used.write_5m else self.kept if used.read >= self.kept else 0
        chance = (0.5 + pauses) / (40 + requests)
        risk = chance * (paid.write_5m - paid.read) * (used.input - kept)
        return SessionBill(
            self.spent + spent + used.uncached * paid.input,
            self.plain + full.read * read + full.write_5m * (whole - read),
            removed,
            risk + (self.risk if kept == self.kept else 0.0),
            used.input,
            kept,
            misses,
        )
