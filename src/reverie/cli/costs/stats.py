"""``reverie stats``: cost of the last days with its losses, by layer, day, project and session, and quality figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

from ...cache.ledger import LedgerAxis, Totals
from ...conversation.entries import Entry, marked_imported
from ...importers import ImportedSession
from ...replay.report import count_text
from ...runtime.agent.budgets import BudgetUse
from ...runtime.reports.measures import Measures, measure, total_of
from ...runtime.reports.stats import AXES, Stats, price_list, stats_of, total_of_rows
from ...settings import load_settings
from ...values import picked
from ..options import number_option
from ..output import (
    bar,
    console,
    counted,
    dollars,
    emit_json,
    folded,
    is_fitted,
    say,
    sparkline,
    table,
    tracked,
    warn,
)
from ..sessions.recordings import SESSION, recordings, slug_of
from ..sessions.sessions import RANDOM_NAME
from .losses import draw_causes

_MOST_SESSIONS = 10
_MOST_MEMORIES = 3
_WIDTH = 30
_LINE = 40
_TABLE = 110  # columns of a table with all figures
_KINDS = ("read", "written", "uncached", "output")
_FIGURES = "calls hit_rate expected_hit_rate actual expected usd expected_usd unpriced"
_LOSSES = "breaks lost_tokens lost_usd lost_by_reason"


@click.command()
@click.argument("sessions", metavar="[SESSION|FILE]...", nargs=-1, type=SESSION)
@number_option("--days", "Number of days, including today.", 1, 36_500, default=30)
@click.option("--by", "axis", type=click.Choice(AXES), help="Only a table of tokens, cost and losses by this.")
@click.option("--project", metavar="DIR", help="Only the project that contains this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(sessions: tuple[str, ...], days: int, axis: str | None, project: str | None, as_json: bool) -> None:
    """Show the cost of the last days, the losses from cache breaks, and figures about cache, compaction and memory.

    Each call counts on its own day, also in imported sessions. With SESSION or FILE, show the quality figures of these
    sessions or recordings alone.
    """
    settings, now, slug = load_settings(), datetime.now(UTC), slug_of(project)
    if sessions:
        return _show_sessions(sessions, settings.compact.failures, as_json)
    found = stats_of(settings, days=days, now=now, project=slug, track=lambda keys: tracked(keys, "measuring"))
    if found.notice:
        warn(found.notice)
    if axis is not None:
        rows = found.by(cast(LedgerAxis, axis))
        if as_json:
            total = _json_row(total_of_rows(rows.values()))
            emit_json(
                {"by": axis, "rows": [{axis: key, **_json_row(one)} for key, one in rows.items()], "total": total}
            )
        elif rows:
            _draw_table(axis, rows)
        else:
            _say_nothing(found, days, now)
    elif as_json:
        emit_json(_figures(found))
    elif found.total.calls or found.measures.sessions or found.memories:
        _draw(found, days, now)
    else:
        _say_nothing(found, days, now)


def _say_nothing(found: Stats, days: int, now: datetime) -> None:
    advice = "'reverie demo' shows an example bill."
    if found.newest:
        ago = (now.date() - datetime.fromisoformat(found.newest).date()).days
        advice = f"The newest session ended on {found.newest}: try --days {ago + 30}."
    say(f"No model calls in the last {counted(days, 'day')}. {advice}")


def _figures(found: Stats) -> dict[str, Any]:
    """Return the figures as a dict for JSON."""
    return {
        "since": found.since,
        "total": _json_row(found.total),
        **picked(found, "background_usd conversation_usd extraction_usd"),
        **{f"by_{axis}": {key: _json_row(one) for key, one in found.by(axis).items()} for axis in AXES},
        "measures": _measures_row(found.measures),
        **picked(found, "budgets memories jobs"),
    }


def _json_row(row: Totals) -> dict[str, Any]:
    return picked(row, _FIGURES) | picked(row, _LOSSES)


def _draw(found: Stats, days: int, now: datetime) -> None:
    """Print the cost, its losses, the quality figures, and one cost chart each by layer, project and session."""
    total, measures = found.total, found.measures
    when = "Today" if days == 1 else f"In the last {days} days"
    sums = f"{counted(total.calls, 'call')} of {counted(len(found.by_session), 'session')}"
    say(folded(f"{when} you paid {dollars(total.usd)} for {sums}, at list prices."))
    _draw_losses(total)
    say()
    rows = [
        ("cache hits", f"{total.hit_rate:.1%}", bar(total.hit_rate, 1.0, width=_WIDTH)),
        (
            "tokens",
            f"{total.actual.input + total.actual.output:,}",
            f"{total.actual.read:,} read from the cache, {total.actual.output:,} output",
        ),
        ("background work", dollars(found.background_usd), "part of the cost"),
        ("extraction of memories", dollars(found.extraction_usd), _beside_conversation(found)),
        *_quality_rows(measures),
        ("useless memories", *_pollution(found)),
        *_job_rows(found),
    ]
    table(["", "", ""], rows, right=(1,))
    _draw_faults(found)
    each = _every_day(found, now)
    if len(each) > 1:
        most = max(one.usd for one in each.values())
        say()
        about = f"  {min(each)} to today, at most {dollars(most)}"
        room = min(_LINE, console().width - len(about) - 13) if is_fitted() else _LINE
        say(f"cost a day  {sparkline([one.usd for one in each.values()], width=max(8, room))}{about}")
    _draw_costs("layer", found.by_layer)
    _draw_costs("project", found.by_project)
    shown = dict(list(found.by_session.items())[:_MOST_SESSIONS])
    _draw_costs("session, agent and dream", shown, of=len(found.by_session))
    say()
    say("cost against budgets")
    table(["", "", ""], [_spent(one) for one in found.budgets])


def _job_rows(found: Stats) -> list[tuple[str, str, str]]:
    """Return a row about the jobs of a database, if any wait, run or failed."""
    names = {"todo": "waiting", "doing": "running", "failed": "failed"}
    jobs = found.jobs or {}
    parts = [f"{jobs[status]} {name}" for status, name in names.items() if jobs.get(status)]
    hint = "'reverie db jobs --retry' queues them again" if "failed" in jobs else "'reverie db jobs' lists them"
    return [("background jobs", ", ".join(parts), hint)] if parts else []


def _draw_losses(total: Totals) -> None:
    if total.breaks:
        lost = f"{dollars(total.lost_usd)} of it was lost to {counted(total.breaks, 'cache break')}"
        say(folded(f"{lost}; otherwise it would have been {dollars(total.usd - total.lost_usd)}."))
        draw_causes(total.lost_by_reason.items())
    if total.unpriced:
        say(folded(f"{counted(total.unpriced, 'call')} used a model without a known price and counted as nothing."))


def _draw_costs(axis: str, by: Mapping[str, Totals], *, of: int = 0) -> None:
    if len(by) < 2:
        return  # one bar says nothing
    say()
    say(f"by {axis}" + (f", the {len(by)} most expensive of {of}" if of > len(by) else ""))
    most = max(one.usd for one in by.values())
    rows = [
        (_short(key), bar(one.usd, most, width=_WIDTH), dollars(one.usd), _tokens(one), _hit(one))
        for key, one in by.items()
    ]
    table(["", "", "", "", ""], rows, right=(2, 3, 4), cut=0)


def _short(key: str) -> str:
    """Return the name of a group; of a session with a random name only its start, where the width is limited."""
    return (key[:8] if RANDOM_NAME.match(key) and is_fitted() else key) or "(none)"


def _draw_table(axis: str, found: Mapping[str, Totals]) -> None:
    """Print one row per group, their sum, and the losses by reason of cache breaks."""
    headings = [axis, "calls", *_KINDS, "hit rate", "expected", "cost", "breaks", "lost"]
    whole = total_of_rows(found.values())
    named = [*found.items(), *([("all", whole)] if len(found) > 1 else [])]
    is_narrow = console().width < _TABLE
    rows = [_cells(_short(key), row, count_text if is_narrow else "{:,}".format) for key, row in named]
    if is_narrow:  # the figures that decide, in three digits
        headings = ["hits" if heading == "hit rate" else heading for heading in headings]
        left_out = {headings.index("uncached"), headings.index("expected")}
        headings, *rows = ([one for at, one in enumerate(row) if at not in left_out] for row in (headings, *rows))
    table(headings, rows, right=range(1, len(headings)), cut=0)
    if whole.breaks or whole.unpriced:
        say()
        _draw_losses(whole)


def _cells(key: str, row: Totals, shown: Callable[[int], str]) -> list[str]:
    used = row.actual
    return [
        key,
        f"{row.calls:,}",
        *(shown(count) for count in (used.read, used.write, used.uncached, used.output)),
        f"{row.hit_rate:.1%}",
        f"{row.expected_hit_rate:.1%}",
        dollars(row.usd),
        f"{row.breaks:,}",
        dollars(row.lost_usd),
    ]


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
    return _percent(memories.rate), f"{memories.wrong:,} of {memories.memories:,}{f' ({why})' if why else ''}{dreamt}"


def _draw_faults(found: Stats) -> None:
    """Name the first memories with a fault, with their first reason."""
    if found.memories is None or not found.memories.files:
        return
    faulty = found.memories.files
    say()
    say("useless memories")
    for name, reasons in list(faulty.items())[:_MOST_MEMORIES]:
        say(folded(f"{name}: {reasons[0]}", "  "))
    if len(faulty) > _MOST_MEMORIES:
        say(f"  and {len(faulty) - _MOST_MEMORIES:,} more; 'reverie stats --json' names them all")


def _beside_conversation(found: Stats) -> str:
    spent = found.conversation_usd
    share = f"{found.extraction_usd / spent:.1%} of" if spent else "beside"
    return f"{share} the {dollars(spent)} of the conversations"


def _spent(one: BudgetUse) -> tuple[str, str, str]:
    share = max(one.usd / one.of_usd if one.of_usd else 0.0, one.tokens / one.of_tokens if one.of_tokens else 0.0)
    when = {"day": "today", "month": "this month"}.get(one.per, "last run")
    tokens = f", {one.tokens:,} of {one.of_tokens:,} tokens" if one.of_tokens else ""
    note = f"{dollars(one.usd)} of {dollars(one.of_usd)}{tokens}"
    return f"{one.what}, {when}", note, bar(share, 1.0, width=_WIDTH)


def _tokens(one: Totals) -> str:
    return f"{one.actual.input + one.actual.output:,} tokens"


def _hit(one: Totals) -> str:
    return f"{one.hit_rate:.0%} hit" if one.actual.input else ""


# -- named sessions


def _show_sessions(names: tuple[str, ...], failures_open: int, as_json: bool) -> None:
    logs = [(one.session_id, _with_marks(one)) for name in names for one in recordings(name)]
    found = {
        name: measure(entries, price_list(entries), failures_open=failures_open)
        for name, entries in tracked(logs, "measuring")
    }
    total = total_of(found.values())
    if as_json:
        rows = [{"session": name, **_measures_row(one)} for name, one in found.items()]
        emit_json({"total": _measures_row(total), "sessions": rows})
        return
    breaks = f"{counted(total.breaks, 'cache break')} lost {dollars(total.lost_usd)} of it"
    hits = f"{total.read_tokens:,} of {total.input_tokens:,} input tokens"
    share = _percent(total.background_share)
    rows = [
        ("cost", dollars(total.usd), breaks),
        ("cache hits", _percent(total.hit_rate), hits),
        *_quality_rows(total),
        ("background work", dollars(total.background_usd), f"{counted(total.background_calls, 'call')}, {share} of it"),
        (
            "unused memories",
            _percent(total.pollution.rate),
            f"{total.pollution.unused:,} of {total.pollution.surfaced:,} shown memories were not used",
        ),
    ]
    table(["", "", ""], rows, right=(1,))


def _with_marks(one: ImportedSession) -> Sequence[Entry]:
    """Return the entries of a session; those of another program's file are marked as imported, as in the library."""
    if one.format == "reverie" or any(entry.imported for entry in one.entries):
        return one.entries
    return marked_imported(one.entries, one.session_id)


def _quality_rows(one: Measures) -> list[tuple[str, str, str]]:
    """Return the rows about compactions: their number, failures, and the exact names that summaries keep."""
    names = (
        "no summary yet"
        if one.facts.share is None
        else "of the paths, ids and numbers in the messages that they replace"
    )
    if one.imported and one.facts.share is not None:
        names += f"; {one.imported:,} of {counted(one.compactions, 'compaction')} by other programs"
    each = one.compactions_per_session
    details = f"{one.compactions:,} in total, {one.undone:,} undone, {one.failed:,} failed"
    if one.breaker_openings:
        details += f"; automatic compaction paused {counted(one.breaker_openings, 'time')}"
    return [
        ("compactions per session", "-" if each is None else f"{each:,.2f}", details),
        ("thinking dropped", f"{one.thinking_dropped:,}", "replies; 0 unless you asked for a change"),
        ("names kept by summaries", _percent(one.facts.share), names),
    ]


def _measures_row(one: Measures) -> dict[str, Any]:
    """Return measures as a dict for JSON, with None for an unknown rate."""
    return {
        **picked(one, "sessions calls"),
        "cache_hit_rate": one.hit_rate,
        **picked(one, "breaks lost_usd usd compactions compactions_per_session"),
        "compactions_imported": one.imported,
        "compactions_undone": one.undone,
        "compactions_failed": one.failed,
        **picked(one, "breaker_openings thinking_dropped"),
        **{f"facts_{name}": value for name, value in picked(one.facts, "used kept").items()},
        "facts_kept_share": one.facts.share,
        "facts_kept_per_1000_tokens": one.facts.per_1000_tokens,
        **picked(one, "background_calls background_usd background_share"),
        "memories_surfaced": one.pollution.surfaced,
        "memories_unused": one.pollution.unused,
        "memory_pollution_rate": one.pollution.rate,
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
