"""A replay report as the data of the page: totals of each policy, breaks by reason, and the curves of each session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final, TypeVar

from ...replay.outcome import Point, ReplayOutcome, ReplayReport
from ...replay.report import (
    APPEND_ONLY,
    OURS,
    cheapest,
    costs_by_reason,
    figures,
    headline,
    notes_of,
    sessions_of,
    subject,
    summary_line,
)

T = TypeVar("T")
_MANY_SESSIONS: Final = 8
_FEW_POINTS, _MOST_POINTS = 110, 400
_LISTED: Final = 40


def replay_data(report: ReplayReport) -> dict[str, Any]:
    """Return everything that the page shows of a replay, as values of JSON."""
    found, best = figures(report), cheapest(report)
    sessions = sessions_of(report)
    most = _MOST_POINTS if len(sessions) <= _MANY_SESSIONS else _FEW_POINTS
    said = headline(report, found)
    if said is None and best is not None:
        said = (f"{subject(report)} would have cost least with ", best, ".")
    return {
        "headline": said or ("The cost of these sessions.", "", ""),
        "about": summary_line(report, found),
        "policies": found,
        "cheapest": best,
        "ours": OURS,
        "base": APPEND_ONLY,
        "breaks": [asdict(row) for row in sorted(costs_by_reason(report), key=lambda row: -row.usd)],
        "sessions": [
            {
                "file": file,
                "session": name,
                "outcomes": [_outcome(one, most) for one in report.of(file=file) if one.session == name],
            }
            for file, name in sessions
        ],
        "notes": [*notes_of(report)[:_LISTED], *report.skipped[:_LISTED]],
    }


def _outcome(one: ReplayOutcome, most: int) -> dict[str, Any]:
    """Return the curves of one session under one policy: of many requests, neighbours as their mean."""
    dearest = sorted(one.breaks, key=lambda each: -each.usd)[:_LISTED]
    return {
        "policy": one.policy,
        "usd": one.input_usd,
        "beside_usd": one.read_back_usd + one.summary_usd + one.ping_usd,
        "peak": one.peak_window,
        "requests": len(one.points),
        "points": [_mean(group) for group in buckets(one.points, most)],
        "acts": [
            {"n": act.number, "at": act.at, "layer": act.layer, "reason": act.reason, "tokens": act.tokens}
            for act in (group[0] for group in buckets(one.acts, most))
        ],
        "breaks": [
            {"n": each.number, "at": each.at, "reason": each.reason, "tokens": each.tokens, "usd": each.usd}
            | {"announced": each.registered}
            for each in sorted(dearest, key=lambda each: each.number)
        ],
        "break_count": len(one.breaks),
    }


def _mean(points: Sequence[Point]) -> list[float]:
    """Return the first request of neighbours and its time, their mean tokens read, written, uncached, their cost."""
    count = len(points)
    written = sum(one.write_5m + one.write_1h for one in points) / count
    read, uncached = (sum(getattr(one, name) for one in points) / count for name in ("read", "uncached"))
    usd = sum(one.input_usd for one in points)
    return [points[0].number, points[0].at, round(read), round(written), round(uncached), usd]


def buckets(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return all items in order in at most ``most`` groups of neighbours, none empty."""
    count = min(len(items), most)
    edges = [at * len(items) // count for at in range(count + 1)] if count else [0]
    return [items[start:end] for start, end in pairwise(edges)]
