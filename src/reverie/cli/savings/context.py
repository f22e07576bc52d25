"""``reverie context``: what fills the window, as a bar and a table, and how far each threshold is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from ...cache.prices import capabilities_of
from ...settings import load_settings
from ..output import Styled, bar, bar_cell, coloured, console, emit_json, paint, say, table, tracked
from ..sessions.recordings import recordings
from .window_usage import filling, together

__all__ = ["command"]

# category -> its label, its colour, and the letter that stands for it where there are no colours
CATEGORIES: Final = {
    "human": ("human", "cyan", "H"),
    "assistant": ("assistant", "green", "A"),
    "local_command": ("local command", "magenta", "L"),
    "tool_requests": ("tool requests", "yellow", "q"),
    "tool_results": ("tool results", "blue", "R"),
    "other": ("other", "red", "O"),
    "beside": ("beside messages", "bright_black", "S"),
}
THRESHOLDS: Final = {
    "warning": "warning",
    "error": "error",
    "auto_compact": "auto-compact",
    "blocking": "blocking",
    "effective": "effective window",
}
LISTED: Final = 10
MAX_BAR: Final = 100


@click.command(short_help="Say what fills the window of a session or a recording.")
@click.argument("session", metavar="SESSION|FILE")
@click.option("--model", metavar="NAME", default="", help="Reckon with this model's window; NAME[1m] has a million.")
@click.option(
    "--window", "window_tokens", metavar="N", type=click.IntRange(min=1), help="A window smaller than the model's."
)
@click.option("--whole", is_flag=True, help="Everything ever said, as if no layer had taken anything out of view.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(session: str, model: str, window_tokens: int | None, whole: bool, as_json: bool) -> None:
    """Say what fills the window of a session or a recording.

    By category and tool, with files that are in there more than once and the way to each threshold. Categories are
    estimates, corrected by what replies reported; the count is what the last reply was billed and an estimate of
    what came after it. After a compaction only what is still in view counts.
    """
    settings = load_settings()
    found = [
        filling(one, settings=settings, lookup=capabilities_of, model=model, window_tokens=window_tokens, whole=whole)
        for one in tracked(recordings(session), "reckoning")
    ]
    if as_json:
        emit_json(together(found))
        return
    for number, one in enumerate(found):
        if number:
            say()
        draw(one)


def draw(one: dict[str, Any]) -> None:
    """Print one session."""
    window = one["window"]
    about = [one["format"], one["model"] or "unknown model", f"{one['messages']:,} messages in view"]
    if one["compactions"]:
        about.append(f"{one['compactions']} x compacted")
    paint([(f"{one['title'] or one['session']}\n", "bold"), (" · ".join(about) + "\n\n", "dim")], wrap=True)
    shares = {**one["by_category"], "beside": one["beside_messages_tokens"]}
    paint(window_bar(shares, window["window_tokens"]))
    paint(verdict(window))
    draw_categories(one, shares)
    draw_tools(one["tools"])
    draw_duplicates(one["duplicate_reads"])
    draw_thresholds(window)
    draw_notes(one)


def window_bar(shares: dict[str, int], window_tokens: int) -> list[tuple[str, str]]:
    """Return the window as one bar, a segment a category; what is free is dots."""
    screen = console()
    width = min(screen.width, MAX_BAR)
    whole = max(window_tokens, sum(shares.values()))
    cell = bar_cell() if coloured() else ""
    pieces: list[tuple[str, str]] = []
    reached = cells = 0
    for name, tokens in shares.items():
        reached += tokens
        here = round(reached / whole * width) - cells
        cells += here
        _, colour, letter = CATEGORIES[name]
        pieces.append(((cell or letter) * here, colour))
    return [*pieces, ("." * (width - cells) + "\n", "dim")]


def verdict(window: dict[str, Any]) -> list[tuple[str, str]]:
    """Say in one line how full the window is."""
    colour = {"fine": "green", "warning": "yellow", "error": "yellow"}.get(window["level"], "red")
    base = "auto-compact" if window["auto_compact_on"] else "the effective window"
    text = f"{window['used']:,} of {window['window_tokens']:,} tokens; {window['percent_left']} % left before {base}"
    return [(f"{text}\n\n", colour)]


def draw_categories(one: dict[str, Any], shares: dict[str, int]) -> None:
    """Print a row a category, largest first, then the sum and what the count has beyond it."""
    total = one["total_tokens"]
    width = max(8, min(40, console().width - 44))
    largest = max(shares.values())

    def row(name: str, share: str) -> tuple[object, ...]:
        drawn = Styled(bar(shares[name], largest, width=width), CATEGORIES[name][1])
        return label(name), f"{shares[name]:,}", share, drawn

    ordered = sorted(one["by_category"], key=lambda name: -shares[name])
    rows = [row(name, f"{percent(shares[name], total)} %") for name in ordered]
    rows.append(("messages in all", f"{total:,}", "", ""))
    if shares["beside"]:
        rows.append(row("beside", ""))
    table(["category", "tokens", "share", ""], rows, right=(1, 2))


def label(name: str) -> str:
    """Return a category's name and, where the bar is drawn with letters, its letter."""
    title, _, letter = CATEGORIES[name]
    return title if coloured() else f"{letter} {title}"


def percent(part: int, whole: int) -> int:
    """Return a share in whole percents."""
    return round(part / whole * 100) if whole else 0


def draw_tools(tools: Sequence[dict[str, Any]]) -> None:
    """Print a row a tool."""
    if not tools:
        return
    say()
    rows = [(row["tool"], f"{row['request_tokens']:,}", f"{row['result_tokens']:,}") for row in tools[:LISTED]]
    table(["tool", "requests", "results"], rows, right=(1, 2))
    more(tools)


def draw_duplicates(reads: Sequence[dict[str, Any]]) -> None:
    """Print a row a file that was read more than once."""
    if not reads:
        return
    say()
    rows = [(f"{row['reads']} x", f"{row['tokens']:,}", f"{row['wasted_tokens']:,}", row["path"]) for row in reads]
    table(["reads", "tokens", "wasted", "read more than once"], rows[:LISTED], right=(0, 1, 2))
    more(reads)


def more(rows: Sequence[object]) -> None:
    """Say how many rows are not listed."""
    if len(rows) > LISTED:
        say(f"... and {len(rows) - LISTED} more; --json has them all")


def draw_thresholds(window: dict[str, Any]) -> None:
    """Print a row a threshold, lowest first."""
    say()
    ordered = sorted(THRESHOLDS, key=lambda name: window[name])
    rows = [(title(name, window), f"{window[name]:,}", away(window["distance"][name])) for name in ordered]
    table(["threshold", "at", "distance"], rows, right=(1, 2))


def title(name: str, window: dict[str, Any]) -> str:
    """Return a threshold's name, and whether it acts."""
    off = name == "auto_compact" and not window["auto_compact_on"]
    return THRESHOLDS[name] + (" (off)" if off else "")


def away(tokens: int) -> str:
    """Say how far a threshold is."""
    return f"{tokens:,} to go" if tokens > 0 else "reached" if tokens == 0 else f"passed by {-tokens:,}"


def draw_notes(one: dict[str, Any]) -> None:
    """Print what the figures rest on and what was left out."""
    notes: list[str] = []
    if one["beside_messages_tokens"]:
        notes.append("Beside messages: system prompt, tools and whatever else was billed and is not in the recording.")
    if not one["count_from_usage"]:
        notes.append("No reply reports usage for this view: the count is an estimate, padded against thresholds.")
    if one["window"].get("source") == "default" and one.get("model"):
        assumed = f"{one['window']['tokens']:,}" if "tokens" in one["window"] else "200,000"
        notes.append(
            f"The window of {one['model']} is not known: {assumed} is assumed; REVERIE_MODEL_WINDOW_TOKENS sets it."
        )
    left_out = sum(one["skipped"].values())
    if left_out:
        notes.append("Left out: " + ", ".join(f"{count} x {why}" for why, count in one["skipped"].items()) + ".")
    if one["damage"]:
        notes.append(f"{len(one['damage'])} damaged lines were left out; --json names them.")
    if notes:
        say()
        paint([(f"{note}\n", "dim") for note in notes], wrap=True)
