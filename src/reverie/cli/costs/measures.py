"""``reverie measures``: quality figures computed from session logs."""

from __future__ import annotations

from typing import Any

import click

from ...conversation.entries import Entry
from ...runtime.reports.measures import FactRetention, Measures, measure, total_of
from ...runtime.reports.stats import price_list
from ...settings import load_settings
from ..output import counted, emit_json, say, table, tracked
from ..sessions.recordings import SESSION, opened_library, recordings


@click.command()
@click.argument("sessions", metavar="[SESSION|FILE]...", nargs=-1, type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, total and per session.")
def command(sessions: tuple[str, ...], as_json: bool) -> None:
    """Measure sessions or recordings; without a name, every session in the library.

    Prints cache-hit rate and cache breaks, compactions per session, the share of exact names (paths, shas, test names,
    error lines, numbers) they keep, cost of background work, breaker openings, and memories shown but never used.
    """
    failures_open = load_settings().compact.failures
    found: dict[str, Measures] = {}
    for name, entries in tracked(_logs(sessions), "measuring"):
        found[name] = measure(entries, price_list(entries), failures_open=failures_open)
    if as_json:
        rows = [{"session": name, **as_row(one)} for name, one in found.items()]
        emit_json({"total": as_row(total_of(found.values())), "sessions": rows})
    elif found:
        draw(total_of(found.values()))
    else:
        say("No sessions to measure yet: name a recording, or add sessions with 'reverie import'.")


def _logs(names: tuple[str, ...]) -> list[tuple[str, tuple[Entry, ...]]]:
    if names:
        return [(one.session_id, one.entries) for name in names for one in recordings(name)]
    with opened_library() as library:
        keys = list(library.keys())
        return [(key.split("/", 1)[1].removesuffix(".jsonl"), tuple(library.load(key).entries)) for key in keys]


def as_row(one: Measures) -> dict[str, Any]:
    """Return measures as a dict for JSON, with None for an unknown rate."""
    return {
        "sessions": one.sessions,
        "calls": one.calls,
        "cache_hit_rate": one.hit_rate,
        "breaks": one.breaks,
        "lost_usd": one.lost_usd,
        "usd": one.usd,
        "compactions": one.compactions,
        "compactions_per_session": one.compactions_per_session,
        "compactions_undone": one.undone,
        "compactions_failed": one.failed,
        "breaker_openings": one.breaker_openings,
        "thinking_dropped": one.thinking_dropped,
        "facts_used": one.facts.used,
        "facts_kept": one.facts.kept,
        "facts_kept_share": one.facts.share,
        "facts_kept_per_1000_tokens": one.facts.per_1000_tokens,
        "background_calls": one.background_calls,
        "background_usd": one.background_usd,
        "background_share": one.background_share,
        "memories_surfaced": one.pollution.surfaced,
        "memories_unused": one.pollution.unused,
        "memory_pollution_rate": one.pollution.rate,
    }


def draw(one: Measures) -> None:
    """Print one measure per line: its value and the counts behind it."""
    facts, memories = one.facts, one.pollution
    rows = [
        ("cache-hit rate", percent_text(one.hit_rate), f"{one.read_tokens:,} of {one.input_tokens:,} input tokens"),
        ("cache breaks", f"{one.breaks:,}", f"{one.lost_usd:.4f} USD lost"),
        (
            "compactions per session",
            number_text(one.compactions_per_session),
            f"{one.compactions:,} in {counted(one.sessions, 'session')}, {one.undone:,} undone, {one.failed:,} failed",
        ),
        facts_row(facts),
        (
            "background spend",
            f"{one.background_usd:.4f} USD",
            f"{counted(one.background_calls, 'call')}, {percent_text(one.background_share)} of the total cost",
        ),
        ("breaker openings", f"{one.breaker_openings:,}", "automatic compaction paused after failures"),
        (
            "memory pollution",
            percent_text(memories.rate),
            f"{memories.unused:,} of {memories.surfaced:,} shown memories were not used",
        ),
    ]
    table(["measure", "value", "details"], rows, right=(1,))


def facts_row(facts: FactRetention) -> tuple[str, str, str]:
    """Return the table row about the exact names that summaries keep: title, share, and uses per 1,000 tokens."""
    density = facts.per_1000_tokens
    detail = "no summary yet" if density is None else f"{density:,.0f} uses of exact names per 1,000 tokens of summary"
    return "facts kept", percent_text(facts.share), detail


def percent_text(share: float | None) -> str:
    """Return a share as a percentage, or "-" if it is unknown."""
    return "-" if share is None else f"{share:.1%}"


def number_text(value: float | None) -> str:
    """Return a number with two decimals, or "-" if it is unknown."""
    return "-" if value is None else f"{value:,.2f}"
