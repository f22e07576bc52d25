"""Tables of a replay report: cost per policy, actions of the layers, and cost of cache breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...cache.watch import IDLE_SHORT, Cause, cause_of, shown_reason
from ...replay.compare import WARM
from ...replay.outcome import ReplayReport
from ...replay.report import (
    APPEND_ONLY,
    OURS,
    RECORDED,
    UNCACHED,
    BreakCosts,
    cheapest,
    costs_by_reason,
    count_text,
    figures,
    headline,
    losses,
    lost_by_reason,
    money_text,
    notes_of,
    places,
    program_bill,
    sessions_of,
    since_line,
    summary_line,
)
from ...settings import PRESETS
from ..output import StyledCell, bar, bar_cell, coloured, console, counted, dollars, paint, say, table
from .losses import draw_causes

WIDE: Final = 118
LISTED: Final = 12
MAX_BAR: Final = 30
_LEGEND: Final = "/uncached and /append: cost against that policy; peak and mean: tokens in the window.\n"


def show(report: ReplayReport, since: float | None = None) -> None:
    """Print the report's tables and notes; with ``since``, also the bills after it against the prediction before."""
    found = figures(report)
    if not found:
        say("Nothing was replayed.")
        return draw_left_out(report)
    said = headline(report, found)
    if said is not None:
        paint([(said[0], ""), (said[1], "bold"), (said[2] + "\n", "")], wrap=True)
        draw_lost(report, found)
    if since is not None:
        paint([(since_line(report, since) + "\n", "")], wrap=True)
    paint([(summary_line(report, found) + "\n\n", "dim")], wrap=True)
    if console().width >= WIDE:
        draw_all(report, found)
    else:
        rows = money_rows(report, found, taken=35)
        table(["policy", "input", "/uncached", "/append", ""], rows, right=(1, 2, 3))
        say()
        headings = ["policy", "read", "written", "uncached", "breaks", "backs", "peak", "mean"]
        table(headings, token_rows(found), right=range(1, 8))
    if cheapest(report):
        paint([("* cheapest input; the cost of read-backs (backs) is included. ", "dim"), (_LEGEND, "dim")], wrap=True)
    for one in losses(report, found):
        paint([(one + "\n", "dim")], wrap=True)
    draw_invalid(found)
    draw_presets(found)
    draw_needed(found)
    draw_layers(found)
    draw_breaks(costs_by_reason(report))
    draw_left_out(report)
    return None


def draw_lost(report: ReplayReport, found: dict[str, dict[str, Any]]) -> None:
    """Print the part of the bill that was lost to cache breaks, one line a cause with a remedy."""
    lost = lost_by_reason(report)
    usd = sum(amount for _, amount in lost)
    if usd > 0:
        say(f"{dollars(usd)} of the bill was lost to cache breaks:")
        draw_causes(lost, remedies(found))
        say()


def remedies(found: dict[str, dict[str, Any]]) -> dict[Cause, str]:
    """Return the remedy for pauses of 5 to 60 minutes by the simulated costs; empty without a simulation of both."""
    ours, warm = found.get(OURS), found.get(OURS + WARM)
    if ours is None or warm is None or ours["sessions"] != warm["sessions"]:
        return {}
    saved = ours["input_usd"] - warm["input_usd"]
    decimals = places([ours["input_usd"], warm["input_usd"]])
    amount = money_text(abs(saved), decimals)
    if round(abs(saved), decimals) == 0:
        effect = "keep_warm would change nothing"
    elif saved < 0:
        effect = f"keep_warm would cost {amount} more"
    else:
        effect = f"with keep_warm {amount} less: reverie config keep_warm true"
    left = ours["breaks_by_reason"].get(IDLE_SHORT, {}).get("usd", 0.0)
    return {cause_of(IDLE_SHORT): f"{OURS} loses {money_text(left, decimals)} to them; {effect}"}


def draw_all(report: ReplayReport, found: dict[str, dict[str, Any]]) -> None:
    """Print the cost and the tokens of each policy in one table, for wide screens."""
    money = money_rows(report, found, taken=90)
    rows = [[*one[:4], *tokens[1:], one[4]] for one, tokens in zip(money, token_rows(found), strict=True)]
    headings = ["policy", "input", "/uncached", "/append", "read", "written", "uncached", "breaks", "backs", "peak"]
    table([*headings, "mean", ""], rows, right=range(1, 11))


def money_rows(report: ReplayReport, found: dict[str, dict[str, Any]], *, taken: int) -> list[list[object]]:
    """Return a row per policy: label, input cost, its ratios to uncached and append-only, and a bar."""
    best, labels = cheapest(report), labels_of(report, found)
    width = max(6, min(MAX_BAR, console().width - taken - max(map(len, labels.values()))))
    decimals = places(one["input_usd"] for one in found.values())
    cached = [one["input_usd"] for policy, one in found.items() if policy != UNCACHED]
    whole = max(cached, default=0.0) or max(one["input_usd"] for one in found.values())
    rows: list[list[object]] = []
    for policy, one in found.items():
        style = "bold green" if policy == best else ""
        usd = one["input_usd"]
        # A policy that costs many times more would shrink all other bars: its bar is cut off instead.
        drawn = bar(usd, whole, width=width - 1) + ("»" if usd > whole * 1.02 and fits("»") else "")
        rows.append(
            [
                StyledCell(labels[policy], style),
                StyledCell(money_text(usd, decimals), style),
                share(one["cost_vs_uncached"]),
                share(one["cost_vs_append_only"]),
                StyledCell(drawn, "green" if policy == best else "blue"),
            ]
        )
    return rows


def labels_of(report: ReplayReport, found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return each policy's label: its name, with a star if cheapest, or a session count if it skipped sessions."""
    best, every = cheapest(report), len(sessions_of(report))
    partly = {policy: f" ({one['sessions']} of {every})" for policy, one in found.items() if one["sessions"] < every}
    foreign = " (other rules)" if report.simulator is not None and report.simulator.foreign else ""
    marks = {policy: partly.get(policy, "") + (foreign if policy == RECORDED else "") for policy in found}
    return {policy: policy + (" *" if policy == best else marks[policy]) for policy in found}


def fits(character: str) -> bool:
    """Return whether stdout can show a character: it is ASCII, or the encoding has the block of bars."""
    return bar_cell() != "#" or character.isascii()


def share(ratio: float | None) -> str:
    """Return a ratio with three decimals, or "-" if there is none."""
    return "-" if ratio is None else f"{ratio:.3f}"


def token_rows(found: dict[str, dict[str, Any]]) -> list[list[object]]:
    """Return one row per policy: its tokens, cache breaks, read-backs, and peak and mean window."""
    return [
        [
            policy,
            count_text(one["cache_read"]),
            count_text(one["cache_write"]),
            count_text(one["uncached"]),
            f"{one['breaks']:,}",
            f"{one['read_backs']:,}",
            count_text(one["peak_window"]),
            count_text(one["mean_window"]),
        ]
        for policy, one in found.items()
    ]


def draw_invalid(found: dict[str, dict[str, Any]]) -> None:
    """Warn about policies that made requests a provider would refuse."""
    for policy, one in found.items():
        if one["invalid_requests"]:
            count = counted(one["invalid_requests"], "request")
            paint([(f"\n{policy}: a provider would refuse {count} of {one['requests']:,}.\n", "bold red")], wrap=True)


def draw_layers(found: dict[str, dict[str, Any]]) -> None:
    """Print each layer's actions under Reverie's own policy, or without that, under each policy with layers."""
    chosen = [OURS] if found.get(OURS, {}).get("layers") else [name for name, one in found.items() if one["layers"]]
    for policy in chosen:
        one = found[policy]
        paint([(f"\nActions of the layers under {policy}\n", "bold")])
        rows = [
            (layer, f"{did['acts']:,}", f"{did['items']:,}", count_text(did["tokens"]))
            for layer, did in one["layers"].items()
        ]
        table(["layer", "actions", "items", "tokens freed"], rows, right=(1, 2, 3))


def draw_presets(found: dict[str, dict[str, Any]]) -> None:
    """Print the effect of each preset in words, with its cost on these sessions."""
    shown = {name: effect for name, effect in PRESETS.items() if name in found}
    if not shown:
        return
    paint([("\nPresets\n", "bold")])
    decimals = places(found[name]["input_usd"] for name in shown)
    rows = [(name, money_text(found[name]["input_usd"], decimals), effect) for name, effect in shown.items()]
    table(["preset", "input", "effect"], rows, right=(1,))


def draw_needed(found: dict[str, dict[str, Any]]) -> None:
    """Print, for each policy that removed content, how much of it the agent needed again, and in how many requests."""
    rows = [
        (
            policy,
            count_text(one["removed_tokens"]),
            f"{one['needed_share']:.1%}",
            f"{one['needing_requests']:,} of {one['requests']:,}",
            money_text(one["read_back_usd"], places([one["read_back_usd"]])),
        )
        for policy, one in found.items()
        if one["removed_tokens"]
    ]
    if rows:
        paint([("\nNeeded again: removed content that the agent quoted or read again later\n", "bold")])
        headings = ["policy", "tokens removed", "needed again", "in requests", "read back for"]
        table(headings, rows, right=(1, 2, 3, 4))
        about = "Charged is content that a reply quotes; files that the agent read again itself are in its requests."
        if any(policy.startswith((UNCACHED, APPEND_ONLY)) for policy, *_ in rows):
            about += f" {UNCACHED} and {APPEND_ONLY} keep everything until the window is full; then they must compact."
        paint([(f"{about}\n", "dim")], wrap=True)


def draw_breaks(rows: Sequence[BreakCosts]) -> None:
    """Print the 12 most expensive rows of cache breaks per policy and reason, with count, tokens and cost."""
    if not rows:
        return
    paint([("\nCache breaks\n", "bold")])
    decimals = places(row.usd for row in rows)
    ordered = sorted(rows, key=lambda row: -row.usd)[:LISTED]
    listed = [
        (row.policy, f"{row.count:,}", count_text(row.tokens), money_text(row.usd, decimals), reason(row))
        for row in ordered
    ]
    table(["policy", "breaks", "tokens", "cost", "reason"], listed, right=(1, 2, 3), cut=4)
    if len(rows) > LISTED:
        say(f"... and {len(rows) - LISTED} more; --json has them all")


def reason(row: BreakCosts) -> StyledCell:
    """Return a cell with the reason for cache breaks, highlighted if no decision announced some of them."""
    shown = shown_reason(row.reason)
    if not row.unannounced:
        return StyledCell(shown, "")
    return StyledCell(f"{shown} ({row.unannounced:,} unannounced)", "yellow" if coloured() else "")


def draw_left_out(report: ReplayReport) -> None:
    """Print the assumptions, the check of the simulator, and the sessions that could not be replayed."""
    notes = notes_of(report)
    left_out = [f"note: {one}" for one in report.skipped]
    if bill := program_bill(report):
        decimals = places(bill.values())
        counted_usd, priced, other = (money_text(usd, decimals) for usd in bill.values())
        notes.append(
            f"the program's own total for input and output is {counted_usd}; the same calls cost {priced} here, "
            f"{other} of it for calls outside the recording (compactions, titles, agents)"
        )
    if report.simulator is not None:
        check = report.simulator
        notes.append(
            f"check of the simulator on the sessions as recorded: cost {check.cost_ratio - 1:+.1%} against the real "
            f"bill; cache hits {check.read_share:.1%}, in reality {check.billed_read_share:.1%}"
        )
        alike = [one for one in check.sessions if one[0] not in check.foreign] or check.sessions
        errors = sorted(alike, key=lambda one: -abs(one[1] - 1))
        shown = ", ".join(f"{file} {ratio - 1:+.1%}" for file, ratio in errors[:LISTED])
        notes.append(f"by session: {shown}{' ...' if len(errors) > LISTED else ''}")
        if check.foreign:
            notes.append(
                f"{RECORDED}: {counted(len(check.foreign), 'session')} followed the cache rules of another provider; "
                "do not compare that row with the others"
            )
    lines = [*notes[:LISTED], *left_out[:LISTED]]
    hidden = len(notes) + len(left_out) - len(lines)
    if lines:
        say()
        paint([(f"{' '.join(line.split())}\n", "dim") for line in lines], wrap=True)
    if hidden:
        say(f"... and {hidden} more; --json has them all")
