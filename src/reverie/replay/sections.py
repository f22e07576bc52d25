"""The part of the page for one session: its window, its cost, its breaks."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ..text.counts import counted
from .charts import ChartStyle, cost_chart, cost_top, window_chart
from .markup import Html, el, join
from .outcome import ReplayOutcome, ReplayReport
from .report import APPEND_ONLY, OURS, count_text, money_text, places
from .scales import by_number, by_time

__all__ = ["counted", "panel_name", "scrolling_table", "session_section"]

LISTED_BREAKS: Final = 40


def panel_name(index: int) -> str:
    """Return the CSS class of a panel that is shown for one policy only, by the policy's index."""
    return f"policy-{index}"


def scrolling_table(name: str, headings: Sequence[str], rows: Sequence[Html], *, text: Container[int] = ()) -> Html:
    """Return a table that scrolls by itself on a narrow screen; ``text`` are the indices of text columns."""
    heads = [
        el("th", heading, scope="col", class_="text" if at in text else None) for at, heading in enumerate(headings)
    ]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *rows))
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=name)


def session_section(report: ReplayReport, session: tuple[str, str], look: ChartStyle, at: int, opened: bool) -> Html:
    """Return the section of one session, given by file and name: its window, its cost and its breaks.

    ``at`` is the session's index in the page; the section is unfolded if ``opened``.
    """
    file, name = session
    outcomes = [one for one in report.of(file=file) if one.session == name]
    longest = max(outcomes, key=lambda one: len(one.points))
    about = [counted(len(longest.points), "request"), f"peak {count_text(longest.peak_window)} tokens"]
    ours = {one.policy: one.input_usd for one in outcomes}
    decimals = places(ours.values())
    about += [f"{policy} {money_text(ours[policy], decimals)}" for policy in (APPEND_ONLY, OURS) if policy in ours]
    shown = [el("bdi", file or name)]
    if name and name not in file:
        about.insert(0, name)
    summary = el("summary", *shown, el("small", el("bdi", " · ".join(about))))
    policies = [policy for policy in report.policies if report.of(policy=policy)]
    inside = [
        el("h3", "Window", id=f"session-{at}"),
        _window_legend(report, look),
        *_windows(outcomes, policies, look, at),
        el("h3", "Input cost so far"),
        *_costs(outcomes, look, at),
        el("h3", "Breaks"),
        *_breaks(outcomes, policies),
    ]
    return el("details", summary, el("div", *inside, class_="inside"), class_="session", open=opened)


def _windows(outcomes: Sequence[ReplayOutcome], policies: Sequence[str], look: ChartStyle, at: int) -> list[Html]:
    """Return one panel per policy, each with the window by request and by time."""
    top = max((one.peak_window for one in outcomes), default=0) or 1
    by_policy = {one.policy: one for one in outcomes}
    panels: list[Html] = []
    for index, policy in enumerate(policies):
        one = by_policy.get(policy)
        shown = f"policy {panel_name(index)}"
        if one is None or not one.points:
            panels.append(el("p", f"This session has no outcome under {policy}.", class_=f"more {shown}"))
            continue
        other = by_policy.get(APPEND_ONLY) if policy != APPEND_ONLY else None
        drawn = [
            el("div", window_chart(one, other, axis, look, top=top, name=f"s{at}p{index}{kind[3]}"), class_=kind)
            for kind, axis in (("by-request", by_number(one.points)), ("by-time", by_time(one.points)))
        ]
        panels.append(el("div", *drawn, class_=shown))
    return panels


def _window_legend(report: ReplayReport, look: ChartStyle) -> Html:
    kinds = (("read", "read from cache"), ("written", "written to cache"), ("uncached", "uncached"))
    items = [el("li", el("i", style=f"--fill:var(--{kind})"), label) for kind, label in kinds]
    if APPEND_ONLY in report.policies:
        items.append(el("li", el("i", class_="dots"), f"{APPEND_ONLY}, to compare"))
    for layer in look.layers:
        items.append(el("li", el("i", class_=look.shape(layer), style=f"--fill:{look.mark(layer)}"), layer))
    items.append(el("li", el("i", class_="tick", style="--fill:var(--soft)"), "break"))
    items.append(el("li", el("i", class_="tick", style="--fill:var(--bad)"), "unannounced break"))
    return el("ul", *items, class_="legend")


def _costs(outcomes: Sequence[ReplayOutcome], look: ChartStyle, at: int) -> list[Html]:
    found = [one for one in outcomes if one.points]
    if not found:
        return [el("p", "No request was sent.", class_="more")]
    along = (("by-request", by_number), ("by-time", by_time))
    charts = [
        el(
            "div",
            cost_chart(found, {one.policy: axis(one.points) for one in found}, look, name=f"s{at}{kind[3]}"),
            class_=kind,
        )
        for kind, axis in along
    ]
    decimals = places(one.input_usd for one in found)
    top = cost_top(found)
    items: list[Html] = []
    for one in sorted(found, key=lambda one: one.input_usd):
        off = " (runs off the chart)" if one.input_usd > top else ""
        cost = el("b", money_text(one.input_usd, decimals))
        key = el("i", class_="stroke", style=f"--fill:{look.curve(one.policy)}")
        items.append(el("li", key, el("span", f"{one.policy} ", cost, off)))
    return [*charts, el("ul", *items, class_="legend")]


def _breaks(outcomes: Sequence[ReplayOutcome], policies: Sequence[str]) -> list[Html]:
    """Return one panel per policy with a table of its breaks in order; of many breaks, only the most expensive."""
    by_policy = {one.policy: one for one in outcomes}
    unannounced = el("span", "unannounced", class_="tag loud")
    panels: list[Html] = []
    for index, policy in enumerate(policies):
        one = by_policy.get(policy)
        shown = f"policy {panel_name(index)}"
        if one is None or not one.breaks:
            panels.append(el("p", f"None under {policy}.", class_=f"more {shown}"))
            continue
        dearest = sorted(one.breaks, key=lambda each: -each.usd)[:LISTED_BREAKS]
        decimals = places(each.usd for each in dearest)
        rows = [
            el(
                "tr",
                el("th", f"{each.number:,}", scope="row"),
                el("td", money_text(each.usd, decimals)),
                el("td", f"{each.tokens:,}"),
                el("td", each.reason, *([] if each.registered else [unannounced]), class_="text wide"),
            )
            for each in sorted(dearest, key=lambda each: each.number)
        ]
        left = len(one.breaks) - len(dearest)
        table = scrolling_table(f"Breaks under {policy}", ["Request", "Price", "Tokens", "Reason"], rows, text=(3,))
        more = el("p", f"and {left:,} cheaper ones", class_="more") if left else Html("")
        panels.append(el("div", join([table, more]), class_=shown))
    return panels
