"""The two charts of a session: the use of the window, and the cost of each policy so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from ..text.counts import counted
from ..values import record
from .markup import Html, el, join, text
from .outcome import LayerAction, Point, ReplayBreak, ReplayOutcome
from .report import OURS, UNCACHED, count_text, money_text, places
from .scales import Axis, buckets, nice_ticks

WIDTH, HEIGHT = 1000, 240
MARKS: Final = 60


@record
class ChartStyle:
    """Numbers that select the colour of each policy and layer, and the largest number of points of a curve."""

    policies: Mapping[str, int]
    layers: Mapping[str, int]
    most_points: int = 360

    def curve(self, policy: str) -> str:
        """Return the colour of a policy as a CSS value."""
        return "var(--c5)" if policy == OURS else f"var(--c{(0, 1, 2, 3, 4, 6, 7)[self.policies[policy] % 7]})"

    def mark(self, layer: str) -> str:
        """Return the colour of a layer as a CSS value."""
        return f"var(--l{self.layers[layer] % 7})"

    def shape(self, layer: str) -> str:
        """Return the CSS class for a layer's marks: one of two shapes, so that marks differ without colour too."""
        return "dot cut" if self.layers[layer] % 2 else "dot"


def window_chart(
    outcome: ReplayOutcome, other: ReplayOutcome | None, axis: Axis, look: ChartStyle, *, top: int, name: str
) -> Html:
    """Return a chart of each request's tokens by how they were billed, with the layers' actions and the breaks.

    The window under ``other``, another policy, is drawn as an outline.
    """
    points = outcome.points
    if not points:
        return el("p", "No request was sent.", class_="more")
    groups = buckets(range(len(points)), look.most_points)
    along = [axis.places[group[0]] for group in groups]
    # Each area reaches down to the axis, and a later one covers the lower part: the whole first, the cached part last.
    areas = [
        el("path", d=_path(along, edge, top) + f"V{HEIGHT}H{round(along[0] * WIDTH)}Z", fill=f"var(--{kind})")
        for kind, edge in _edges(points, groups)
    ]
    if other is not None and len(other.points) == len(points):
        outline = _path(along, [_mean([other.points[at].window for at in group]) for group in groups], top)
        areas.append(el("path", d=outline, class_="outline"))
    ticks = [(at / top, _round_text(at)) for at in nice_ticks(top, 4)]
    described = (
        f"Tokens of each of {len(points):,} requests under {outcome.policy}, split into read, written and uncached. "
        f"The fullest window is {outcome.peak_window:,} tokens, the mean {outcome.mean_window:,}."
    )
    drawn = _svg(f"{name}-w", f"Window over {axis.name}: {outcome.policy}", described, ticks, areas)
    lanes = [*_act_lanes(outcome.acts, axis, look), *_break_lane(outcome.breaks, axis)]
    return el("div", *lanes, _y(ticks), el("div", drawn, class_="plot"), _x(axis), class_="chart")


def cost_chart(outcomes: Sequence[ReplayOutcome], axes: Mapping[str, Axis], look: ChartStyle, *, name: str) -> Html:
    """Return a chart of each policy's summed input cost after each request; a far higher curve runs off."""
    curves = {one.policy: list(accumulate(point.input_usd for point in one.points)) for one in outcomes if one.points}
    for one in outcomes:
        if one.points:
            curves[one.policy][-1] += one.read_back_usd
    top = cost_top(outcomes)
    ordered = sorted(curves, key=lambda policy: policy == OURS)
    paths: list[Html] = []
    for policy in ordered:
        curve = curves[policy]
        kept = [group[-1] for group in buckets(range(len(curve)), look.most_points)]
        along = [axes[policy].places[at] for at in kept]
        path = _path(along, [curve[at] for at in kept], top)
        marked = "curve ours" if policy == OURS else "curve"
        paths.append(el("path", d=path, class_=marked, stroke=look.curve(policy)))
    amounts = nice_ticks(top, 4)
    decimals = 0 if all(amount == round(amount) for amount in amounts) else places([top]) if top < 1 else 2
    ticks = [(amount / top, money_text(amount, decimals)) for amount in amounts]
    axis = next(iter(axes.values()))
    ends = ", ".join(f"{policy} {money_text(curve[-1], places([curve[-1]]))}" for policy, curve in curves.items())
    title = f"Input cost over {axis.name}, summed up"
    drawn = _svg(f"{name}-c", title, f"At the end: {ends}.", ticks, paths)
    return el("div", _y(ticks), el("div", drawn, class_="plot"), _x(axis), class_="chart")


def cost_top(outcomes: Iterable[ReplayOutcome]) -> float:
    """Return the top of the cost chart in dollars: a little above the most expensive policy that caches."""
    costs = {one.policy: one.input_usd for one in outcomes}
    cached = [usd for policy, usd in costs.items() if policy != UNCACHED]
    return max(cached or costs.values(), default=0.0) * 1.06 or 1.0


def _edges(points: Sequence[Point], groups: Sequence[Sequence[int]]) -> Iterable[tuple[str, list[float]]]:
    """Yield the kind and the upper edge of each area, the highest first; a group of requests has their mean."""
    read = [point.read for point in points]
    written = [point.read + point.write_5m + point.write_1h for point in points]
    whole = [edge + point.uncached for edge, point in zip(written, points, strict=True)]
    for kind, edge in (("uncached", whole), ("written", written), ("read", read)):
        yield kind, [_mean([edge[at] for at in group]) for group in groups]


def _mean(amounts: Sequence[float]) -> float:
    return sum(amounts) / len(amounts)


def _svg(name: str, title: str, described: str, ticks: Sequence[tuple[float, str]], drawn: Sequence[Html]) -> Html:
    lines = [
        el("path", d=f"M0 {_height(at, 1.0)}H{WIDTH}", class_="zero" if at == 0 else "grid")
        for at, _ in ticks
        if at <= 1
    ]
    return el(
        "svg",
        el("title", title, id=f"{name}-t"),
        el("desc", described, id=f"{name}-d"),
        *lines,
        *drawn,
        role="img",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        aria_labelledby=f"{name}-t {name}-d",
    )


def _round_text(count: float) -> str:
    said = count_text(count)
    return f"{said[:-1].rstrip('0').rstrip('.')}{said[-1]}" if "." in said else said


def _height(amount: float, top: float) -> int:
    return round(HEIGHT - min(amount / top, 9.0) * HEIGHT)


def _path(along: Sequence[float], amounts: Sequence[float], top: float) -> str:
    """Return the SVG path of a step curve, in which each amount holds until the next request."""
    if not along:
        return ""
    x, y = round(along[0] * WIDTH), _height(amounts[0], top)
    steps = [f"M{x} {y}"]
    for at, amount in zip(along[1:], amounts[1:], strict=True):
        right, up = round(at * WIDTH), _height(amount, top)
        if up != y:
            steps.append(f"h{right - x}v{up - y}" if right != x else f"v{up - y}")
            x, y = right, up
    return "".join([*steps, f"H{WIDTH}"])


def _y(ticks: Sequence[tuple[float, str]]) -> Html:
    shown = [el("span", label, style=f"top:{(1 - at) * 100:.1f}%") for at, label in ticks if at <= 1]
    return el("div", *shown, class_="y", aria_hidden="true")


def _x(axis: Axis) -> Html:
    shown = [
        el("span", label, style=f"left:{at * 100:.1f}%", class_="end" if at > 0.97 else "odd" if index % 2 else None)
        for index, (at, label) in enumerate(axis.ticks)
    ]
    return el("div", *shown, class_="x", aria_hidden="true")


def _act_lanes(acts: Sequence[LayerAction], axis: Axis, look: ChartStyle) -> Iterable[Html]:
    """Yield the name and then the marks of each layer that acted; beyond 60 actions neighbours share marks."""
    for layer in look.layers:
        mine = [act for act in acts if act.layer == layer]
        if not mine:
            continue
        marks = [_act_mark(group, axis, look) for group in buckets(mine, MARKS)]
        yield el("span", layer, class_="lane", title=layer)
        yield el("div", *marks, class_="marks", role="img", aria_label=f"{len(mine):,} acts of {layer}")


def _act_mark(group: Sequence[LayerAction], axis: Axis, look: ChartStyle) -> Html:
    first, last = group[0], group[-1]
    where = (
        f"request {first.number:,}" if first.number == last.number else f"requests {first.number:,} to {last.number:,}"
    )
    items, tokens = sum(act.items for act in group), sum(act.tokens for act in group)
    said = f"{first.layer}, {where}: {counted(items, 'item')}, {tokens:,} tokens. {first.reason}"
    place = f"left:{axis.at(first.number) * 100:.2f}%;--fill:{look.mark(first.layer)}"
    return el("i", class_=look.shape(first.layer), style=place, title=said)


def _break_lane(breaks: Sequence[ReplayBreak], axis: Axis) -> Iterable[Html]:
    if not breaks:
        return
    marks: list[Html] = []
    for group in buckets(breaks, MARKS):
        dearest = max(group, key=lambda one: one.usd)
        loud = any(not one.registered for one in group)
        more = f" (and {len(group) - 1:,} near it)" if len(group) > 1 else ""
        usd = money_text(dearest.usd, places([dearest.usd]))
        said = f"break at request {dearest.number:,}: {dearest.reason}, {dearest.tokens:,} tokens, {usd}{more}"
        place = f"left:{axis.at(dearest.number) * 100:.2f}%"
        marks.append(el("i", class_="broke loud" if loud else "broke", style=place, title=said))
    yield el("span", text("breaks"), class_="lane")
    yield el("div", join(marks), class_="marks", role="img", aria_label=f"{len(breaks):,} breaks")
