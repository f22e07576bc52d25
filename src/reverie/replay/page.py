"""A replay report as one self-contained HTML page: no script, no request, any width, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from ..text.counts import counted
from .charts import ChartStyle
from .markup import Html, el, join
from .outcome import ReplayReport
from .report import (
    APPEND_ONLY,
    OURS,
    UNCACHED,
    cheapest,
    costs_by_reason,
    count_text,
    figures,
    headline,
    money_text,
    notes_of,
    places,
    sessions_of,
    subject,
    summary_line,
)
from .sections import panel_name, scrolling_table, session_section

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
MANY_SESSIONS: Final = 8
OPEN_SESSIONS: Final = 3
LISTED: Final = 40
FIRST: Final = 8
CURVES: Final = (
    "The cost of read-backs is added at the end of the curves. Where there are more requests than fit, "
    "neighbours are drawn as their mean and share a mark."
)


def page(report: ReplayReport) -> str:
    """Return a replay report as the text of one HTML page."""
    found = figures(report)
    layers = list(dict.fromkeys(act.layer for outcome in report.outcomes for act in outcome.acts))
    sessions = sessions_of(report)
    look = ChartStyle(
        {policy: index for index, policy in enumerate(report.policies)},
        {layer: index for index, layer in enumerate(layers)},
        most_points=360 if len(sessions) <= MANY_SESSIONS else 110,
    )
    body = [_header(report, found), _summary(report, found, look), _layers(found), _lost(report)]
    if len(sessions) > 1:
        body.append(_overview(report, sessions))
    opened = OPEN_SESSIONS if len(sessions) <= OPEN_SESSIONS else 1
    drawn = [session_section(report, one, look, at, at < opened) for at, one in enumerate(sessions)]
    main = el("main", *body[1:], class_="wrap")
    told_apart = el(
        "div", el("h2", "Session by session" if len(sessions) > 1 else "The session"), *drawn, class_="wrap"
    )
    parts = [body[0], main, *([_toolbar(list(found))] if sessions else []), told_apart, _footer(report)]
    return f"<!doctype html>\n{el('html', _head(report, list(found)), el('body', *parts), lang='en').source}\n"


def _head(report: ReplayReport, policies: Sequence[str]) -> Html:
    style = files("reverie.replay").joinpath("page.css").read_text("utf-8") + _switches(policies)
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"Replay of {counted(len(sessions_of(report)), 'session')}"),
        Html(f"<style>{style}</style>"),
    )


def _switches(policies: Sequence[str]) -> str:
    """Return CSS rules that show the panel of the chosen policy and axis and hide the others, without script."""
    shown = f".policy{{display:none}}.{panel_name(_chosen(policies))}{{display:block}}.by-time{{display:none}}"
    rules = [
        ".choice:checked+label{background:var(--ink);border-color:var(--ink);color:var(--paper)}",
        "body:has(#axis-time:checked) .by-request{display:none}",
        "body:has(#axis-time:checked) .by-time{display:block}",
    ]
    for index in range(len(policies)):
        rules.append(f"body:has(#pick-{index}:checked) .policy{{display:none}}")
        rules.append(f"body:has(#pick-{index}:checked) .{panel_name(index)}{{display:block}}")
    return shown + "".join(rules)


def _chosen(policies: Sequence[str]) -> int:
    """Return the index of the policy that is shown first: ``reverie``, else ``append-only``, else the last."""
    liked = [policy for policy in (OURS, APPEND_ONLY) if policy in policies]
    return policies.index(liked[0]) if liked else max(0, len(policies) - 1)


def _header(report: ReplayReport, found: dict[str, dict[str, Any]]) -> Html:
    return el(
        "header",
        el("p", "Replay", class_="kicker"),
        _headline(report, found),
        el("p", summary_line(report, found), class_="about"),
        class_="wrap",
    )


def _headline(report: ReplayReport, found: dict[str, dict[str, Any]]) -> Html:
    said, best = headline(report, found), cheapest(report)
    if said is not None:
        return el("h1", said[0], el("b", said[1]), said[2])
    if best is not None:
        usd = found[best]["input_usd"]
        return el("h1", f"{subject(report)} would have cost least with ", el("b", best), f": {_exact(usd)}.")
    return el("h1", "Nothing was replayed." if not found else "The cost of these sessions.")


def _summary(report: ReplayReport, found: dict[str, dict[str, Any]], look: ChartStyle) -> Html:
    headings = [
        "Policy", "Input", "Compared", "÷ uncached", "÷ append-only", "Read", "Written", "Uncached", "Breaks",
        "Read-backs", "Peak", "Mean",
    ]  # fmt: skip
    best, every = cheapest(report), len(sessions_of(report))
    decimals = places(one["input_usd"] for one in found.values())
    cached = [one["input_usd"] for policy, one in found.items() if policy != UNCACHED]
    whole = max(cached, default=0.0) or 1.0
    outputs = {round(one["output_usd"], 4) for one in found.values() if one["sessions"] == every}
    rows: list[Html] = []
    for policy, one in sorted(found.items(), key=lambda item: item[1]["input_usd"] / max(1, item[1]["sessions"])):
        tag = el("span", "cheapest", class_="tag") if policy == best else Html("")
        if one["sessions"] < every:
            tag = el("span", f"{one['sessions']} of {every} sessions", class_="tag part")
        cells = [
            el("td", money_text(one["input_usd"], decimals)),
            el("td", _meter(one["input_usd"], whole, look.curve(policy)), class_="meter"),
            *(el("td", "–" if ratio is None else f"{ratio:.3f}") for ratio in _ratios(one)),
            *(el("td", count_text(one[name])) for name in ("cache_read", "cache_write", "uncached")),
            *(el("td", f"{one[name]:,}") for name in ("breaks", "read_backs")),
            *(el("td", count_text(one[name])) for name in ("peak_window", "mean_window")),
        ]
        rows.append(el("tr", el("th", policy, tag, scope="row"), *cells, class_="best" if policy == best else None))
    refused = [
        el("p", f"{policy}: a provider would refuse {counted(one['invalid_requests'], 'request')}.", class_="warning")
        for policy, one in found.items()
        if one["invalid_requests"]
    ]
    lead = "The cost of the same requests under each policy. It includes reading back content that was removed."
    if len(outputs) == 1:
        lead += f" Output costs {_exact(outputs.pop())} in every case."
    return join(
        [
            el("h2", "Policies"),
            el("p", lead, class_="lead"),
            *refused,
            scrolling_table("Policies", headings, rows, text=(2,)),
        ]
    )


def _ratios(one: dict[str, Any]) -> tuple[float | None, float | None]:
    return one["cost_vs_uncached"], one["cost_vs_append_only"]


def _meter(amount: float, whole: float, colour: str) -> Html:
    """Return a bar that shows an amount as a share of ``whole``; a larger amount is cut off and marked."""
    width = f"width:{min(100.0, amount / whole * 100):.1f}%;--fill:{colour}"
    return el("span", class_="over" if amount > whole * 1.02 else None, style=width)


def _layers(found: dict[str, dict[str, Any]]) -> Html:
    chosen = [OURS] if found.get(OURS, {}).get("layers") else [name for name, one in found.items() if one["layers"]]
    rows = [
        el(
            "tr",
            el("th", layer, scope="row"),
            el("td", policy, class_="text"),
            el("td", f"{did['acts']:,}"),
            el("td", f"{did['items']:,}"),
            el("td", f"{did['tokens']:,}"),
        )
        for policy in chosen
        for layer, did in found[policy]["layers"].items()
    ]
    if not rows:
        return Html("")
    said = [
        f"Of {one['removed_tokens']:,} tokens that {policy} removed from view, {one['needed_share']:.1%} were needed "
        f"later; {counted(one['read_backs'], 'read-back')} cost {_exact(one['read_back_usd'])}."
        for policy in chosen
        if (one := found[policy])["removed_tokens"]
    ]
    lead = [el("p", line, class_="lead") for line in said]
    headings = ["Layer", "Policy", "Acts", "Items", "Tokens freed"]
    return join([el("h2", "Actions of the layers"), *lead, scrolling_table("Layers", headings, rows, text=(1,))])


def _exact(usd: float) -> str:
    return money_text(usd, places([usd]))


def _lost(report: ReplayReport) -> Html:
    lost = costs_by_reason(report)
    if not lost:
        return Html("")
    decimals = places(row.usd for row in lost)
    ordered = sorted(lost, key=lambda row: -row.usd)
    rows = [
        el(
            "tr",
            el("th", row.reason, scope="row"),
            el("td", row.policy, class_="text"),
            el("td", money_text(row.usd, decimals)),
            el("td", f"{row.count:,}"),
            el("td", f"{row.tokens:,}"),
            el("td", f"{row.unannounced:,}", class_="warning" if row.unannounced else None),
        )
        for row in ordered
    ]
    lead = (
        "A break is a cached part of the prompt that was billed again. "
        "Unannounced: no decision in the log announced it."
    )
    headings = ["Reason", "Policy", "Price", "Breaks", "Tokens", "Unannounced"]
    table = scrolling_table("Breaks by reason", headings, rows[:FIRST], text=(1,))
    rest = scrolling_table("Further breaks by reason", headings, rows[FIRST:], text=(1,))
    more = el("details", el("summary", f"and {len(rows) - FIRST:,} cheaper ones"), rest, class_="rest")
    parts = [el("h2", "Cache breaks"), el("p", lead, class_="lead"), table]
    return join([*parts, *([more] if len(rows) > FIRST else [])])


def _overview(report: ReplayReport, sessions: Sequence[tuple[str, str]]) -> Html:
    """Return a table with one row per session, each with a link to the session's charts."""
    named = [policy for policy in (APPEND_ONLY, OURS) if policy in report.policies] or list(report.policies[:2])
    rows: list[Html] = []
    for at, (file, session) in enumerate(sessions):
        found = figures(report, file=file, session=session)
        one = next(iter(found.values()))
        ratio = found.get(OURS, one)["cost_vs_append_only"]
        decimals = places(each["input_usd"] for each in found.values())
        costs = [el("td", money_text(found[each]["input_usd"], decimals) if each in found else "–") for each in named]
        link = el("a", el("bdi", file or session), href=f"#session-{at}")
        rows.append(
            el(
                "tr",
                el("th", link, scope="row"),
                el("td", f"{one['requests']:,}"),
                *costs,
                el("td", "–" if ratio is None else f"{ratio:.3f}"),
                el("td", count_text(max(each["peak_window"] for each in found.values()))),
                el("td", f"{found.get(OURS, one)['breaks']:,}"),
            )
        )
    headings = ["Session", "Requests", *named, "÷ append-only", "Peak window", "Breaks"]
    return join([el("h2", "Sessions"), scrolling_table("Sessions", headings, rows)])


def _toolbar(policies: Sequence[str]) -> Html:
    chosen = _chosen(policies)
    picks: list[Html] = [el("span", "Window under", id="pick-name")]
    for index, policy in enumerate(policies):
        picks += _choice("pick", f"pick-{index}", policy, index == chosen)
    axis = [el("span", "along", id="axis-name"), *_choice("axis", "axis-request", "requests", True)]
    axis += _choice("axis", "axis-time", "time", False)
    groups = [
        el("div", *picks, class_="group", role="radiogroup", aria_labelledby="pick-name"),
        el("div", *axis, class_="group", role="radiogroup", aria_labelledby="axis-name"),
    ]
    return el("div", el("div", *groups, class_="wrap"), class_="bar")


def _choice(group: str, name: str, label: str, checked: bool) -> list[Html]:
    return [
        el("input", type="radio", class_="choice", name=group, id=name, checked=checked),
        el("label", label, for_=name),
    ]


def _footer(report: ReplayReport) -> Html:
    left_out = [el("p", f"Note: {one}") for one in report.skipped[:LISTED]]
    more = len(report.skipped) - len(left_out)
    return el(
        "footer",
        el("p", CURVES),
        *(el("p", note) for note in notes_of(report)[:LISTED]),
        *left_out,
        *([el("p", f"and {more:,} more left out")] if more > 0 else []),
        class_="wrap",
    )
