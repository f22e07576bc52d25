"""``reverie measures``: how well we do, in numbers that follow from the logs."""

from __future__ import annotations

from typing import Any

import click

from ...conversation.entries import Entry
from ...runtime.reports.measures import Measures, measure, summed
from ...runtime.reports.stats import price_list
from ...settings import load_settings
from ..output import emit_json, say, table, tracked
from ..sessions.recordings import opened_library, recordings

__all__ = ["command"]


@click.command(short_help="Say how well cache, compaction, memory and background work do.")
@click.argument("sessions", metavar="[SESSION|FILE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, in sum and by session.")
def command(sessions: tuple[str, ...], as_json: bool) -> None:
    """Measure sessions or recordings; without a name, every session of the library.

    Cache-hit rate and breaks, compactions a session and what they keep of exact names (paths, shas, test names, error
    lines, numbers), money spent behind the conversation, breaker openings, and memories that were shown and never used.
    """
    failures_open = load_settings().compact.failures
    found: dict[str, Measures] = {}
    for name, entries in tracked(_logs(sessions), "measuring"):
        found[name] = measure(entries, price_list(entries), failures_open=failures_open)
    if as_json:
        rows = [{"session": name, **as_row(one)} for name, one in found.items()]
        emit_json({"total": as_row(summed(found.values())), "sessions": rows})
    elif found:
        draw(summed(found.values()))
    else:
        say("There are no sessions yet to measure: name a recording, or 'reverie import' some.")


def _logs(names: tuple[str, ...]) -> list[tuple[str, tuple[Entry, ...]]]:
    if names:
        return [(one.session, one.entries) for name in names for one in recordings(name)]
    with opened_library() as library:
        keys = list(library.keys())
        return [(key.split("/", 1)[1].removesuffix(".jsonl"), tuple(library.load(key).entries)) for key in keys]


def as_row(one: Measures) -> dict[str, Any]:
    """Return measures as JSON has them; a rate nothing is known about is null."""
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
    """Print one measure a line: its number and what it is made of."""
    facts, memories = one.facts, one.pollution
    rows = [
        ("cache-hit rate", _percent(one.hit_rate), f"{one.read_tokens:,} of {one.input_tokens:,} input tokens"),
        ("cache breaks", f"{one.breaks:,}", f"{one.lost_usd:.4f} USD lost"),
        (
            "compactions a session",
            _number(one.compactions_per_session),
            f"{one.compactions:,} in {one.sessions:,} sessions, {one.undone:,} undone, {one.failed:,} failed",
        ),
        (
            "facts kept",
            _percent(facts.share),
            f"{_number(facts.per_1000_tokens, 0)} uses of exact names kept in 1,000 tokens of summary",
        ),
        (
            "background spend",
            f"{one.background_usd:.4f} USD",
            f"{one.background_calls:,} calls, {_percent(one.background_share)} of all money",
        ),
        ("breaker openings", f"{one.breaker_openings:,}", "automatic compaction stopped after failures"),
        ("memory pollution", _percent(memories.rate), f"{memories.unused:,} of {memories.surfaced:,} shown, not used"),
    ]
    table(["measure", "", "of"], rows, right=(1,))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
