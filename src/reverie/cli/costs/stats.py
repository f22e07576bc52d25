"""``reverie stats``: cost of the last days by layer, day, project and session, and quality figures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from ...cache.ledger import Totals
from ...runtime.reports.stats import BudgetUse, Stats, stats_of
from ...settings import load_settings
from ..output import bar, bars, counted, emit_json, say, table, tracked
from ..sessions.recordings import slug_of
from .ledger import as_json_row
from .measures import as_row, facts_row, number_text, percent_text

_MOST_SESSIONS = 10
_WIDTH = 30


@click.command()
@click.option(
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="Number of days, including today."
)
@click.option("--project", metavar="DIR", help="Only the project that contains this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(days: int, project: str | None, as_json: bool) -> None:
    """Show the last days: share of cache hits, cost and tokens by layer, day, project and session, compactions per
    session, facts kept per token, background cost against its budget, and the share of useless memories."""
    settings, now, slug = load_settings(), datetime.now(UTC), slug_of(project)
    found = stats_of(settings, days=days, now=now, project=slug, track=lambda keys: tracked(keys, "measuring"))
    if as_json:
        emit_json(as_figures(found))
    elif found.total.calls or found.measures.sessions or found.memories:
        draw(found, days, now)
    else:
        say(f"No model calls in the last {counted(days, 'day')}. 'reverie demo' shows an example bill.")


def as_figures(found: Stats) -> dict[str, Any]:
    """Return the figures as a dict for JSON."""

    def rows(by: Mapping[str, Totals]) -> dict[str, Any]:
        return {key: as_json_row(one) for key, one in by.items()}

    return {
        "since": found.since,
        "total": as_json_row(found.total),
        "background_usd": found.background_usd,
        "conversation_usd": found.conversation_usd,
        "extraction_usd": found.extraction_usd,
        "by_layer": rows(found.by_layer),
        "by_day": rows(found.by_day),
        "by_project": rows(found.by_project),
        "by_session": rows(found.by_session),
        "measures": as_row(found.measures),
        "budgets": found.budgets,
        "memories": found.memories,
    }


def draw(found: Stats, days: int, now: datetime) -> None:
    """Print the figures and one cost chart each by layer, day, project and session."""
    total, measures = found.total, found.measures
    sums = f"{counted(measures.sessions, 'session')}, {counted(total.calls, 'call')}"
    say(f"{'Today' if days == 1 else f'The last {days} days'}: {sums}")
    say()
    rows = [
        ("cache hits", f"{total.hit_rate:.1%}", bar(total.hit_rate, 1.0, width=_WIDTH)),
        ("cost", f"{total.usd:.2f} USD", f"{found.background_usd:.2f} of it for background work"),
        ("extraction of memories", f"{found.extraction_usd:.2f} USD", _beside_conversation(found)),
        (
            "tokens",
            f"{total.actual.input + total.actual.output:,}",
            f"{total.actual.read:,} read from the cache, {total.actual.output:,} output",
        ),
        ("lost to cache breaks", f"{total.lost_usd:.2f} USD", counted(total.breaks, "break")),
        (
            "compactions per session",
            number_text(measures.compactions_per_session),
            f"{measures.compactions:,} in total",
        ),
        ("thinking dropped", f"{measures.thinking_dropped:,}", "replies; 0 unless you asked for a change"),
        facts_row(measures.facts),
        ("useless memories", *_pollution(found)),
    ]
    table(["", "", ""], rows, right=(1,))
    _draw_costs("layer", found.by_layer)
    _draw_costs("day", _every_day(found, now))
    _draw_costs("project", found.by_project)
    _draw_costs("session", dict(list(found.by_session.items())[:_MOST_SESSIONS]), of=len(found.by_session))
    say()
    say("background work, against its budget")
    bars([_spent(one) for one in found.budgets], whole=1.0, width=_WIDTH)


def _draw_costs(axis: str, by: Mapping[str, Totals], *, of: int = 0) -> None:
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
    """Return totals for every day from the first one with calls until today, including days without calls."""
    if not found.by_day:
        return {}
    first = datetime.fromisoformat(min(found.by_day)).replace(tzinfo=UTC)
    count = (now - first).days + 1
    names = [(first + timedelta(days=at)).strftime("%Y-%m-%d") for at in range(count)]
    return {name: found.by_day.get(name, Totals()) for name in names}


def _pollution(found: Stats) -> tuple[str, str]:
    memories = found.memories
    if memories is None:
        return "-", "no memories yet"
    why = ", ".join(f"{count} {reason}" for reason, count in memories.reasons.items())
    dreamt = ""
    if memories.before is not None and memories.after is not None:
        dreamt = f"; last dream: {memories.before:.1%} before, {memories.after:.1%} after"
    return percent_text(
        memories.rate
    ), f"{memories.wrong:,} of {memories.memories:,}{f' ({why})' if why else ''}{dreamt}"


def _beside_conversation(found: Stats) -> str:
    spent = found.conversation_usd
    share = f"{found.extraction_usd / spent:.1%} of" if spent else "beside"
    return f"{share} the {spent:.2f} USD of the conversations"


def _spent(one: BudgetUse) -> tuple[str, float, str]:
    share = max(one.usd / one.of_usd if one.of_usd else 0.0, one.tokens / one.of_tokens if one.of_tokens else 0.0)
    when = "today" if one.per == "day" else "last run"
    note = f"{one.usd:.2f} of {one.of_usd:.2f} USD, {one.tokens:,} of {one.of_tokens:,} tokens"
    return f"{one.what}, {when}", share, note


def _tokens(one: Totals) -> str:
    return f"{one.actual.input + one.actual.output:,} tokens"


def _hit(one: Totals) -> str:
    return f"{one.hit_rate:.0%} hit" if one.actual.input else ""
