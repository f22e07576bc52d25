"""The figures of a replay for all outputs: JSON, terminal, page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from ..cache.prices import prices_for
from ..model_facts import default_model
from ..text.counts import counted
from ..values import record
from .outcome import AS_RECORDED, ReplayBreak, ReplayOutcome, ReplayReport, totals

UNCACHED: Final = "uncached"
APPEND_ONLY: Final = "append-only"
OURS: Final = "balanced"
RECORDED: Final = "recorded"
_LEAST_SHARE: Final = 0.005
"""A smaller share of the cost is no difference."""
SINCE_POLICIES: Final = (UNCACHED, RECORDED, OURS)
"""The policies that ``since_line`` compares."""


@record
class BreakCosts:
    """The number, tokens and cost of the breaks with one reason under one policy; some may be unannounced."""

    policy: str
    reason: str
    count: int
    tokens: int
    usd: float
    unannounced: int


def report_json(report: ReplayReport) -> dict[str, Any]:
    """Return the report as plain JSON: the totals of each policy, and the same for each file."""
    found = figures(report)
    return {
        "sessions": len(sessions_of(report)),
        "model": report.model,
        "ttl": report.ttl,
        "policies": found,
        "cheapest": cheapest(report),
        "files": [
            {
                "file": file,
                "sessions": list(dict.fromkeys(outcome.session for outcome in report.of(file=file))),
                "policies": figures(report, file=file),
            }
            for file in report.files
        ],
        "skipped": list(report.skipped),
        "program_bill": program_bill(report),
        "simulator": None if report.simulator is None else asdict(report.simulator),
        "notes": notes_of(report),
        "losses": losses(report, found),
    }


def figures(report: ReplayReport, *, file: str | None = None, session: str | None = None) -> dict[str, dict[str, Any]]:
    """Return, by policy, the totals of its outcomes and its cost relative to ``uncached`` and ``append-only``.

    ``file`` and ``session`` limit the outcomes. A policy with outcomes for only some sessions (``recorded`` needs
    a bill) is compared on those sessions.
    """
    found: dict[str, dict[str, Any]] = {}
    for policy in report.policies:
        outcomes = [one for one in report.of(policy=policy, file=file) if session is None or one.session == session]
        if not outcomes:
            continue
        unannounced = sum(1 for outcome in outcomes for one in outcome.breaks if not one.registered)
        found[policy] = {
            "sessions": len(outcomes),
            **totals(outcomes),
            "unannounced_breaks": unannounced,
            "cost_vs_uncached": _cost_ratio(report, outcomes, UNCACHED),
            "cost_vs_append_only": _cost_ratio(report, outcomes, APPEND_ONLY),
        }
    return found


def _cost_ratio(report: ReplayReport, outcomes: Sequence[ReplayOutcome], policy: str) -> float | None:
    """Return the input cost of outcomes over that of the same sessions under a policy; None if it is unknown."""
    wanted = {(outcome.file, outcome.session) for outcome in outcomes}
    base = [one for one in report.of(policy=policy) if (one.file, one.session) in wanted]
    usd = sum(outcome.input_usd for outcome in base)
    if len(base) < len(outcomes) or usd <= 0:
        return None
    return sum(outcome.input_usd for outcome in outcomes) / usd


def cheapest(report: ReplayReport) -> str | None:
    """Return the policy with the lowest input cost among those that ran on every session; None without costs."""
    every = len(sessions_of(report))
    costs = {
        policy: sum(outcome.input_usd for outcome in report.of(policy=policy))
        for policy in _comparable(report)
        if len(report.of(policy=policy)) == every
    }
    return min(costs, key=lambda policy: costs[policy], default=None) if any(costs.values()) else None


def _comparable(report: ReplayReport) -> list[str]:
    """Return the policies that followed the same cache rules; bills of another provider did not."""
    return [name for name in report.policies if name != RECORDED or not (report.simulator and report.simulator.foreign)]


def sessions_of(report: ReplayReport) -> list[tuple[str, str]]:
    """Return a list of pairs of file and session name, in the order of the report."""
    return list(dict.fromkeys((outcome.file, outcome.session) for outcome in report.outcomes))


def break_costs(policy: str, breaks: Iterable[ReplayBreak]) -> list[BreakCosts]:
    """Return a list of the costs of breaks, one per reason, the most expensive first."""
    found: dict[str, list[ReplayBreak]] = {}
    for one in breaks:
        found.setdefault(one.reason, []).append(one)
    rows = [
        BreakCosts(
            policy,
            reason,
            len(ones),
            sum(one.tokens for one in ones),
            sum(one.usd for one in ones),
            sum(1 for one in ones if not one.registered),
        )
        for reason, ones in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.usd, -row.count, row.reason))


def costs_by_reason(report: ReplayReport) -> list[BreakCosts]:
    """Return a list of the costs of breaks, by policy and then by reason, the most expensive reason first."""
    return [
        row
        for policy in report.policies
        for row in break_costs(policy, (one for outcome in report.of(policy=policy) for one in outcome.breaks))
    ]


def count_text(count: float) -> str:
    """Return a number of tokens as text of three digits with ``k``, ``M`` or ``G``, below 1,000 without a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size * 0.9995:
            amount = count / size
            return (
                f"{amount:.2f}{unit}"
                if amount < 9.995
                else f"{amount:.1f}{unit}"
                if amount < 99.95
                else f"{amount:.0f}{unit}"
            )
    return f"{count:.0f}"


def places(amounts: Iterable[float]) -> int:
    """Return the number of decimals for a column: 2 if the largest amount is at least 10, 3 from 1 on, else 4."""
    largest = max((abs(amount) for amount in amounts), default=0.0)
    return 2 if largest >= 10 else 3 if largest >= 1 else 4


def money_text(usd: float, decimals: int = 2) -> str:
    """Return an amount of dollars as text."""
    sign = "-" if usd < 0 and round(-usd, decimals) > 0 else ""
    return f"{sign}${abs(usd):,.{decimals}f}"


def headline(report: ReplayReport, found: dict[str, dict[str, Any]]) -> tuple[str, str, str] | None:
    """Return a sentence in three parts, the middle one to stress: our cost beside the bill, else beside append-only.

    None if our policy was not replayed.
    """
    ours = found.get(OURS)
    if ours is None:
        return None
    bills = comparable_bills(report)
    billed, sessions = totals(bills), {(one.file, one.session) for one in bills}
    usd = sum(one.input_usd for one in report.of(policy=OURS) if (one.file, one.session) in sessions)
    if billed["input_usd"]:
        decimals = places([billed["input_usd"], usd])
        whole, amount = (
            money_text(one, decimals) for one in (billed["input_usd"] + billed["output_usd"], billed["input_usd"])
        )
        models = priced_model(report) if report.model != AS_RECORDED else "the recorded models"
        verb = "You would have paid" if report.is_repriced else "You paid"
        every = len(sessions_of(report))
        part = f" for {len(bills)} of {counted(every, 'session')}" if len(bills) < every else ""
        paid = (
            f"{verb} {whole}{part} at the prices of {models}, {amount} of it for input. With Reverie the input costs "
        )
        ratio, accuracy = usd / billed["input_usd"], report.simulator.cost_ratio if report.simulator else 1.0
        if ratio != 1 and abs(ratio / accuracy - 1) < _LEAST_SHARE * 2:  # the simulator's own error is the difference
            return (
                paid,
                "about the same",
                f": {money_text(usd, decimals)}; the simulator's own error here is {accuracy - 1:+.1%}.",
            )
        return paid, _compared(ratio), f": {money_text(usd, decimals)}."
    ratio = ours["cost_vs_append_only"]
    if ratio is None:
        return None
    end = (
        " with Reverie as with an append-only window."
        if "same" in _compared(ratio)
        else " with Reverie than append-only."
    )
    return f"{subject(report)} would have cost ", _compared(ratio), end


def comparable_bills(report: ReplayReport) -> list[ReplayOutcome]:
    """Return the sessions as billed, without those that followed the cache rules of another provider."""
    foreign = report.simulator.foreign if report.simulator is not None else ()
    return [one for one in report.of(policy=RECORDED) if one.file not in foreign]


def lost_by_reason(report: ReplayReport) -> list[tuple[str, float]]:
    """Return the dollars that each reason of cache breaks has cost in the sessions as they were billed."""
    bills = comparable_bills(report) or report.of(policy=RECORDED)
    breaks: dict[str, dict[str, float]] = totals(bills)["breaks_by_reason"]
    return [(reason, one["usd"]) for reason, one in breaks.items()]


def subject(report: ReplayReport) -> str:
    """Return the subject of a sentence about the sessions of a report."""
    return "This session" if len(sessions_of(report)) == 1 else "These sessions"


def _compared(ratio: float) -> str:
    share = f"{abs(1 - ratio):.0%}"
    return "the same" if share == "0%" else f"{share} less" if ratio < 1 else f"{share} more"


def losses(report: ReplayReport, found: dict[str, dict[str, Any]]) -> list[str]:
    """Return sentences on where our default policy loses: to other policies, and in single sessions."""
    ours = found.get(OURS)
    if ours is None or not ours["input_usd"]:
        return []
    said: list[str] = []
    every = ours["sessions"]
    better = {name: found[name]["input_usd"] for name in _comparable(report) if found[name]["sessions"] == every}
    shares = {name: 1 - usd / ours["input_usd"] for name, usd in better.items()}
    cheaper = [f"{name} ({share:.0%})" for name, share in shares.items() if share >= _LEAST_SHARE]
    if cheaper:
        said.append(f"Cheaper than {OURS} here: {', '.join(cheaper)}.")
    plain = {(one.file, one.session): one.input_usd for one in report.of(policy=APPEND_ONLY)}
    ratios = {
        (one.file, one.session): (one.input_usd - one.after_usd) / usd
        for one in report.of(policy=OURS)
        if (usd := plain.get((one.file, one.session)))
    }
    if ratios:
        worst = max(ratios, key=lambda one: ratios[one])
        dearer = sum(ratio > 1.01 for ratio in ratios.values())
        said.append(
            f"{OURS} is more than 1% dearer than {APPEND_ONLY} in {dearer} of {counted(len(ratios), 'session')}; "
            f"the worst is {worst[0]} at {ratios[worst]:.3f}."
        )
    return said


def since_line(report: ReplayReport, since: float) -> str:
    """Return a sentence that compares the prediction from the sessions before a time with the bills after it."""
    shares: list[dict[str, float]] = []
    for is_after in (False, True):
        sessions = {
            (one.file, one.session)
            for one in comparable_bills(report) or report.of(policy=RECORDED)
            if one.points and (one.points[0].at >= since) == is_after
        }
        usd = {
            name: sum(one.input_usd for one in report.of(policy=name) if (one.file, one.session) in sessions)
            for name in SINCE_POLICIES
        }
        shares.append({name: usd[name] / usd[UNCACHED] for name in usd} if usd[UNCACHED] else {})
    before, after = shares
    if not before or not after:
        return "no billed session before that date" if not before else "no billed session since that date"
    return (
        f"Before, you paid {before[RECORDED]:.3f} of the uncached price, and {before[OURS]:.3f} was predicted with "
        f"{OURS}. Since then you paid {after[RECORDED]:.3f}, and the simulator predicts {after[OURS]:.3f} for these "
        "sessions."
    )


def summary_line(report: ReplayReport, found: dict[str, dict[str, Any]]) -> str:
    """Return the number of sessions and requests, the model and the cache lifetime in one line."""
    requests = max((one["requests"] for one in found.values()), default=0)
    priced = priced_model(report)
    model = report.model if priced == report.model else f"{report.model} at the prices of {priced}"
    about = [counted(len(sessions_of(report)), "session"), counted(requests, "request"), model]
    return " · ".join(part for part in (*about, ttl_text(report.ttl)) if part)


def priced_model(report: ReplayReport) -> str:
    """Return the model whose prices a report has: the default one if no price of its own is known."""
    is_known = report.model == AS_RECORDED or prices_for(report.model) is not None
    return report.model if is_known else default_model()


def notes_of(report: ReplayReport) -> list[str]:
    """Return a list of the notes of all outcomes, each once; they name assumptions of a replay."""
    return list(dict.fromkeys(note for outcome in report.outcomes for note in outcome.notes))


def program_bill(report: ReplayReport) -> dict[str, float] | None:
    """Return the total that programs counted for their calls, and the price of the same calls; None without one."""
    counted = [one for one in report.of(policy=RECORDED) if one.program_usd is not None]
    if not counted:
        return None
    return {
        "program_usd": sum(one.program_usd or 0.0 for one in counted),
        "priced_usd": sum(one.priced_usd for one in counted),
        "other_calls_usd": sum(one.other_calls_usd for one in counted),
    }


def ttl_text(ttl: str) -> str:
    """Return a cache's lifetime as text for people."""
    return {"5m": "5-minute cache", "1h": "1-hour cache"}.get(ttl, f"{ttl} cache" if ttl else "cache")
