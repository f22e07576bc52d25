"""Positions in a chart: ticks, axes, and groups where there are too many points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import floor, isfinite, log10
from typing import Final, TypeVar

from ..values import record
from .outcome import Point

T = TypeVar("T")

_MINUTE: Final = 60.0
_STEPS: Final = tuple(
    seconds * _MINUTE for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1_440, 2_880, 10_080, 43_200)
)


@record
class Axis:
    """The x axis of a session: the position of each request, from 0 to 1, and the labels below."""

    name: str
    places: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]
    numbers: dict[int, int]

    def at(self, number: int) -> float:
        """Return the position of a request by its number; 0 if the number is unknown."""
        index = self.numbers.get(number)
        return self.places[index] if index is not None else 0.0


def by_number(points: Sequence[Point]) -> Axis:
    """Return an axis with requests at equal distances, labelled by their position in the session."""
    count = len(points)
    whole = max(1, count - 1)
    ticks = [(at, at / whole) for at in nice_ticks(whole, 8)] if count > 1 else [(0.0, 0.0)]
    marks = tuple((place, f"{at:,.0f}") for at, place in ticks)
    return Axis("request", tuple(at / whole for at in range(count)), marks, _numbers(points))


def by_time(points: Sequence[Point]) -> Axis:
    """Return an axis with requests at their times; a time that goes backwards counts as the time before.

    If no time passes, return the axis of ``by_number``.
    """
    times = list(accumulate((point.at if isfinite(point.at) else 0.0 for point in points), max))
    whole = times[-1] - times[0] if times else 0.0
    if whole <= 0:
        return by_number(points)
    step = next((step for step in _STEPS if whole / step <= 8), _STEPS[-1] * max(1, floor(whole / _STEPS[-1] / 8)))
    count = floor(whole / step)
    marks = tuple((at * step / whole, _elapsed(at * step)) for at in range(count + 1))
    return Axis("time", tuple((at - times[0]) / whole for at in times), marks, _numbers(points))


def _numbers(points: Sequence[Point]) -> dict[int, int]:
    return {point.number: index for index, point in enumerate(points)}


def _elapsed(seconds: float) -> str:
    minutes = round(seconds / _MINUTE)
    if minutes == 0:
        return "start"
    days, hours = divmod(minutes / 60, 24)
    if days:
        return f"{days:.0f} d" + (f" {hours:.0f} h" if hours >= 1 else "")
    return f"{minutes // 60} h" + (f" {minutes % 60}" if minutes % 60 else "") if minutes >= 60 else f"{minutes} min"


def nice_ticks(largest: float, most: int = 5) -> list[float]:
    """Return round numbers from 0 up to the largest value, at most ``most`` beside 0."""
    if largest <= 0:
        return [0.0]
    unit = 10 ** floor(log10(largest / most))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10, 20) if largest / (unit * factor) <= most)
    return [step * at for at in range(floor(largest / step + 1e-9) + 1)]


def buckets(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return items in at most ``most`` groups of neighbours of about the same size."""
    count = min(len(items), most)
    edges = [len(items) * at // count for at in range(count + 1)] if count else [0]
    return [items[start:end] for start, end in pairwise(edges)]
