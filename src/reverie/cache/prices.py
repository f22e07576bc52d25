"""Token prices and window sizes of models, from the installed ``genai-prices`` table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from ..conversation.tokens.window import MILLION
from ..model_facts import ModelFacts, bare_model, facts_of
from ..values import record, replace
from .economics import RelativeRates
from .usage import Usage

_MILLION: Final = 1_000_000
_LATEST: Final = datetime(9999, 1, 1, 12, tzinfo=UTC)


@record
class DollarRates:
    """Prices in US dollars per million tokens, by kind of token."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float


@record
class Prices:
    """The prices of a model in US dollars per million tokens, and its window size."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    window_tokens: int | None = None
    source: str = ""
    tiers: tuple[tuple[int, DollarRates], ...] = ()
    """Rates for requests with more input tokens than the given number, lowest number first."""

    def rates(self, input_tokens: int) -> DollarRates:
        """Return the rates of a request with this many input tokens."""
        found = [rates for above, rates in self.tiers if input_tokens > above]
        return found[-1] if found else self.base

    @property
    def base(self) -> DollarRates:
        """The rates of a request that is too short for every tier."""
        return DollarRates(self.input, self.output, self.cache_read, self.cache_write_5m, self.cache_write_1h)

    def cost(self, read: int = 0, write_5m: int = 0, write_1h: int = 0, uncached: int = 0, output: int = 0) -> float:
        """Return the cost of one call with these numbers of tokens, in US dollars."""
        rates = self.rates(read + write_5m + write_1h + uncached)
        total = read * rates.cache_read + write_5m * rates.cache_write_5m + write_1h * rates.cache_write_1h
        return (total + uncached * rates.input + output * rates.output) / _MILLION

    def cost_of(self, usage: Usage) -> float:
        """Return the cost of one call's usage in US dollars."""
        return self.cost(usage.read, usage.write_5m, usage.write_1h, usage.uncached, usage.output)


def prices_for(model: str, *, at: float | None = None) -> Prices | None:
    """Return a model's prices at a time in seconds since 1970, by default the latest; None if unknown.

    The name may carry its provider (``anthropic:``, ``openrouter/``), a date, a region or the suffix ``[1m]``.
    """
    day = _LATEST if at is None else datetime.fromtimestamp(at, UTC).replace(minute=0, second=0, microsecond=0)
    return _prices(model.strip(), day)


def listed_window(model: str) -> int | None:
    """Return the window of a model in tokens as the price list has it, or None."""
    found = _found(bare_model(model))
    window = found[1].context_window if found is not None else None
    return window if isinstance(window, int) and window > 0 else None


def rates_of(prices: Prices | None, facts: ModelFacts) -> RelativeRates:
    """Return a model's prices relative to its input price, with their steps; without prices, those in its facts."""
    if prices is None or prices.input <= 0:
        return RelativeRates(facts.cache_read, facts.cache_write_5m, facts.cache_write_1h, facts.output_price)
    steps = tuple((above, _relative(rates, prices.input)) for above, rates in prices.tiers)
    return replace(_relative(prices.base, prices.input), steps=steps)


def _relative(rates: DollarRates, unit: float) -> RelativeRates:
    return RelativeRates(
        rates.cache_read / unit,
        rates.cache_write_5m / unit,
        rates.cache_write_1h / unit,
        rates.output / unit,
        input=rates.input / unit,
    )


@lru_cache(maxsize=512)
def _prices(model: str, day: datetime) -> Prices | None:
    found = _found(bare_model(model))
    if found is None:
        return None
    provider, info = found
    table = info.get_prices(day)
    facts = facts_of(model)
    base = _rates(table, 0, facts)
    if base is None:
        return None
    starts = {tier.start for name in _KEYS for tier in getattr(getattr(table, name), "tiers", None) or ()}
    tiers = [(start, _rates(table, start + 1, facts)) for start in sorted(starts)]
    window = MILLION if bare_model(model) != model else info.context_window
    return Prices(
        base.input,
        base.output,
        base.cache_read,
        base.cache_write_5m,
        base.cache_write_1h,
        window,
        f"genai-prices: {provider.id}/{info.id}",
        tuple((start, rates) for start, rates in tiers if rates is not None),
    )


_KEYS: Final = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")


def _rates(table: Any, input_tokens: int, facts: ModelFacts) -> DollarRates | None:
    """Return the rates of a table for an input length; None if it has no input price.

    Cache reads and writes without a price count as plain input; if only one write price is given, the other one is
    the multiple of the input price in the model facts.
    """
    each, output, read, write_5m, write_1h = (_at(getattr(table, name), input_tokens) for name in _KEYS)
    if each is None:
        return None
    if write_5m is None:
        write_5m = each if write_1h is None else each * facts.cache_write_5m
        write_1h = each if write_1h is None else write_1h
    elif write_1h is None:
        write_1h = each * facts.cache_write_1h
    return DollarRates(each, output or 0.0, each if read is None else read, write_5m, write_1h)


def _at(price: Any, input_tokens: int) -> float | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return float(price)
    return float(next((tier.price for tier in reversed(tiers) if input_tokens > tier.start), price.base))


@lru_cache(maxsize=512)
def _found(model: str) -> tuple[Any, Any] | None:
    """Return the provider and model of the price table for a model's name, or None if it has no such model."""
    if not model:
        return None
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    for name, provider in _spellings(model):
        try:
            return snapshot.find_provider_model(name, None, provider, None)
        except LookupError:
            continue
    return None


def _spellings(model: str) -> Iterator[tuple[str, str | None]]:
    """Yield (name, provider) pairs to look up: split at the provider, unchanged, then without any prefix."""
    name = model.lstrip("@")
    for mark in (":", "/"):
        provider, found, rest = name.partition(mark)
        if found and rest:
            yield rest, provider
    yield name, None
    if "anthropic." in name:
        yield name, "aws"  # as Bedrock spells it, with or without a region
    for mark in (":", "/"):
        rest = name.partition(mark)[2]
        if rest:
            yield rest, None
    if "/" in name:
        yield name.rsplit("/", 1)[1], None
