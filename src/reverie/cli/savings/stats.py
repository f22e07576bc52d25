"""``reverie stats``: what some days cost, by layer, day, project and session, and how well we did."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from ...cache.ledger import Totals
from ...errors import InputError
from ...runtime.places.projects import project_slug
from ...runtime.reports.stats import Budget, Stats, stats_of
from ...settings import load_settings
from ..output import bar, bars, emit_json, say, table, tracked
from .ledger import as_json_row
from .measures import as_row

__all__ = ["command"]

_MOST_SESSIONS = 10
_WIDTH = 30


@click.command(short_help="Say what the last days cost and how well the layers did.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="How many days, today included."
)
@click.option("--project", metavar="DIR", help="Only the project this directory belongs to.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(days: int, project: str | None, as_json: bool) -> None:
    """Sum the last days: cache-hit share, money and tokens by layer, day, project and session, compactions a session,
    facts kept per token, background spend against its budget, and how many memories are of no use."""
    if project is not None and not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    settings, now = load_settings(), datetime.now(UTC)
    slug = None if project is None else project_slug(Path(project))
    found = stats_of(settings, days=days, now=now, project=slug, track=lambda keys: tracked(keys, "measuring"))
    if as_json:
        emit_json(as_figures(found))
    elif found.total.calls or found.measures.sessions or found.memories:
        draw(found, days, now)
    else:
        say(f"Nothing was called in the last {days} days: figures come as sessions run. 'reverie demo' shows a bill.")


def as_figures(found: Stats) -> dict[str, Any]:
    """Return the figures as JSON has them."""

    def rows(by: Mapping[str, Totals]) -> dict[str, Any]:
        return {key: as_json_row(one) for key, one in by.items()}

    return {
        "since": found.since,
        "total": as_json_row(found.total),
        "background_usd": found.background_usd,
        "by_layer": rows(found.by_layer),
        "by_day": rows(found.by_day),
        "by_project": rows(found.by_project),
        "by_session": rows(found.by_session),
        "measures": as_row(found.measures),
        "budgets": found.budgets,
        "memories": found.memories,
    }


def draw(found: Stats, days: int, now: datetime) -> None:
    """Print the figures, a chart for each way to look at the money."""
    total, measures = found.total, found.measures
    say(f"{'Today' if days == 1 else f'The last {days} days'}: {measures.sessions:,} sessions, {total.calls:,} calls")
    say()
    rows = [
        ("cache-hit share", f"{total.hit_rate:.1%}", bar(total.hit_rate, 1.0, width=_WIDTH)),
        ("money", f"{total.usd:.2f} USD", f"{found.background_usd:.2f} of it behind conversations"),
        (
            "tokens",
            f"{total.actual.input + total.actual.output:,}",
            f"{total.actual.read:,} read from the cache, {total.actual.output:,} output",
        ),
        ("lost to broken caches", f"{total.lost_usd:.2f} USD", f"{total.breaks:,} breaks"),
        ("compactions a session", _number(measures.compactions_per_session), f"{measures.compactions:,} in all"),
        (
            "facts kept",
            _percent(measures.facts.share),
            f"{_number(measures.facts.per_1000_tokens, 0)} uses of exact names in 1,000 tokens of summary",
        ),
        ("memories of no use", *_pollution(found)),
    ]
    table(["", "", ""], rows, right=(1,))
    _money("layer", found.by_layer)
    _money("day", _every_day(found, now))
    _money("project", found.by_project)
    _money("session", dict(list(found.by_session.items())[:_MOST_SESSIONS]), of=len(found.by_session))
    say()
    say("background work, of what it may cost")
    bars([_spent(one) for one in found.budgets], whole=1.0, width=_WIDTH)


def _money(axis: str, by: Mapping[str, Totals], *, of: int = 0) -> None:
    if not by:
        return
    say()
    say(f"by {axis}" + (f", the {len(by)} most expensive of {of}" if of > len(by) else ""))
    most = max(one.usd for one in by.values())
    rows = [
        (key or "(none)", bar(one.usd, most, width=_WIDTH), f"{one.usd:.2f} USD", _tokens(one), _hit(one))
        for key, one in by.items()
    ]
    table(["", "", "", "", ""], rows, right=(2, 3, 4), cut=0)


def _every_day(found: Stats, now: datetime) -> dict[str, Totals]:
    """Return the days in their order, those on which nothing happened between the first and today too."""
    if not found.by_day:
        return {}
    first = datetime.fromisoformat(min(found.by_day)).replace(tzinfo=UTC)
    count = (now - first).days + 1
    names = [(first + timedelta(days=at)).strftime("%Y-%m-%d") for at in range(count)]
    return {name: found.by_day.get(name, Totals()) for name in names}


def _pollution(found: Stats) -> tuple[str, str]:
    memories = found.memories
    if memories is None:
        return "-", "there are no memories here"
    why = ", ".join(f"{count} {reason}" for reason, count in memories.reasons.items())
    dreamt = ""
    if memories.before is not None and memories.after is not None:
        dreamt = f"; the last dream: {memories.before:.1%} before, {memories.after:.1%} after"
    return _percent(memories.rate), f"{memories.wrong:,} of {memories.memories:,}{f' ({why})' if why else ''}{dreamt}"


def _spent(one: Budget) -> tuple[str, float, str]:
    share = max(one.usd / one.of_usd if one.of_usd else 0.0, one.tokens / one.of_tokens if one.of_tokens else 0.0)
    when = "today" if one.per == "day" else "last run"
    note = f"{one.usd:.2f} of {one.of_usd:.2f} USD, {one.tokens:,} of {one.of_tokens:,} tokens"
    return f"{one.what}, {when}", share, note


def _tokens(one: Totals) -> str:
    return f"{one.actual.input + one.actual.output:,} tokens"


def _hit(one: Totals) -> str:
    return f"{one.hit_rate:.0%} hit" if one.actual.input else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
