"""``reverie context``: show context usage as a bar and tables, and the tokens left to each threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from ...cache.prices import listed_window
from ...settings import load_settings
from ..options import number_option
from ..output import (
    StyledCell,
    bar,
    bar_cell,
    coloured,
    console,
    counted,
    emit_json,
    paint,
    say,
    sparkline,
    table,
    tracked,
)
from ..sessions.recordings import recordings, session_argument
from .window_usage import combined_usage, window_usage

# category -> its label, its colour, and the letter that replaces the colour on a plain terminal
CATEGORIES: Final = {
    "human": ("human", "cyan", "H"),
    "context": ("added context", "white", "C"),
    "assistant": ("assistant", "green", "A"),
    "local_command": ("local command", "magenta", "L"),
    "tool_requests": ("tool requests", "yellow", "q"),
    "tool_results": ("tool results", "blue", "R"),
    "other": ("other", "red", "O"),
    "beside": ("system and tools", "bright_black", "S"),
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


@click.command()
@session_argument("SESSION|FILE")
@click.option(
    "--model", metavar="NAME", default="", help="Use this model's context window; NAME[1m] means one million tokens."
)
@number_option("--window", "Use a smaller window than the model's.", 1)
@click.option("--whole", is_flag=True, help="Count all messages, including those that layers removed from view.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(session: str, model: str, window: int | None, whole: bool, as_json: bool) -> None:
    """Show the context usage of a session or a recording.

    Prints tokens by category and tool, files included more than once, and tokens left to each threshold. Categories
    are estimates, corrected by the usage that replies reported; the count is the billed input of the last reply plus
    an estimate of everything after it. After a compaction, only messages still in view count.
    """
    settings = load_settings()
    found = [
        window_usage(one, settings=settings, lookup=listed_window, model=model, window_tokens=window, whole=whole)
        for one in tracked(recordings(session), "counting")
    ]
    if as_json:
        emit_json(combined_usage(found))
        return
    for number, one in enumerate(found):
        if number:
            say()
        draw(one)


def draw(one: dict[str, Any]) -> None:
    """Print the context usage of one session, given as a result of ``window_usage``."""
    window = one["window"]
    about = [one["format"], one["model"] or "unknown model", f"{counted(one['messages'], 'message')} in view"]
    if one["compactions"]:
        about.append(f"compacted {counted(one['compactions'], 'time')}")
    paint([(f"{one['title'] or one['session']}\n", "bold"), (" · ".join(about) + "\n\n", "dim")], wrap=True)
    cleared = one["cleared_by_provider"]["tokens"]
    shares = {**one["by_category"], "beside": one["beside_messages_tokens"]}
    sent = {**shares, "tool_results": max(0, shares["tool_results"] - cleared)}
    paint(window_bar(sent, window["window_tokens"]))
    paint(verdict(one), wrap=True)
    draw_history(one["window_over_requests"])
    draw_categories(one, shares)
    draw_tools(one["tools"])
    draw_deferred(one["deferred_tools"])
    draw_duplicates(one["duplicate_reads"])
    draw_cleared(one["cleared_by_provider"])
    draw_thresholds(window)
    draw_notes(one)


def draw_history(tokens: Sequence[int]) -> None:
    """Print the window over the requests as a line, if there were several."""
    if len(tokens) > 1:
        about = f"{counted(len(tokens), 'request')}, at most {max(tokens):,} tokens"
        width = max(8, min(40, console().width - len(about) - 20))
        pieces = [("over the session  ", ""), (sparkline(tokens, width=width), "blue"), (f"  {about}\n\n", "dim")]
        paint(pieces, wrap=True)


def window_bar(shares: dict[str, int], window_tokens: int) -> list[tuple[str, str]]:
    """Return the window as a bar in (text, style) pieces, one per category; dots show free space."""
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


def verdict(one: dict[str, Any]) -> list[tuple[str, str]]:
    """Return one line as a (text, style) piece: tokens used, window size, and percent left."""
    window = one["window"]
    colour = {"fine": "green", "warning": "yellow", "error": "yellow"}.get(window["level"], "red")
    base = "auto-compact" if window["auto_compact_on"] else "the effective window"
    text = f"{one['count']:,} of {window['window_tokens']:,} tokens; {window['percent_left']}% left before {base}"
    text += ", with a margin for safety" if window["used"] > one["count"] else ""
    return [(f"{text}\n\n", colour)]


def draw_categories(one: dict[str, Any], shares: dict[str, int]) -> None:
    """Print a row per category, largest first, then the sum, then the tokens billed outside messages, if any."""
    total = one["total_tokens"]
    width = max(8, min(40, console().width - 44))
    largest = max(shares.values())

    def row(name: str, share: str) -> tuple[object, ...]:
        drawn = StyledCell(bar(shares[name], largest, width=width), CATEGORIES[name][1])
        return label(name), f"{shares[name]:,}", share, drawn

    ordered = sorted(one["by_category"], key=lambda name: -shares[name])
    rows = [row(name, f"{percent(shares[name], total)}%") for name in ordered]
    rows.append(("all messages", f"{total:,}", "", ""))
    if shares["beside"]:
        rows.append(row("beside", ""))
    table(["category", "tokens", "share", ""], rows, right=(1, 2))


def label(name: str) -> str:
    """Return a category's label, with its letter in front if the bar consists of letters."""
    title, _, letter = CATEGORIES[name]
    return title if coloured() else f"{letter} {title}"


def percent(part: int, whole: int) -> int:
    """Return ``part`` as a rounded percentage of ``whole``, 0 if that is 0."""
    return round(part / whole * 100) if whole else 0


def draw_tools(tools: Sequence[dict[str, Any]]) -> None:
    """Print one row with request and result tokens per tool, at most 10, and count the others."""
    if not tools:
        return
    say()
    rows = [(row["tool"], f"{row['request_tokens']:,}", f"{row['result_tokens']:,}") for row in tools[:LISTED]]
    table(["tool", "requests", "results"], rows, right=(1, 2))
    more(tools)


def draw_deferred(deferred: dict[str, int]) -> None:
    """Print how many tools are deferred and found, and the tokens that this saves in every request."""
    if not deferred["tools"]:
        return
    say()
    say(
        f"{counted(deferred['tools'], 'deferred tool')}, {deferred['found']:,} found: about "
        f"{deferred['saved_tokens']:,} tokens of definitions are not sent."
    )


def draw_cleared(cleared: dict[str, Any]) -> None:
    """Print how many results the provider leaves out of requests, their tokens, and at most 10 of their handles."""
    if not cleared["results"]:
        return
    say()
    say(f"The provider cleared {counted(cleared['results'], 'result')} ({cleared['tokens']:,} tokens, not billed).")
    say("Read one with 'reverie read SESSION HANDLE':")
    for handle in cleared["handles"][:LISTED]:
        say(f"  {handle}")
    more(cleared["handles"])


def draw_duplicates(reads: Sequence[dict[str, Any]]) -> None:
    """Print one row per file that was read more than once, at most 10, and count the others."""
    if not reads:
        return
    say()
    rows = [(f"{row['reads']} x", f"{row['tokens']:,}", f"{row['wasted_tokens']:,}", row["path"]) for row in reads]
    table(["reads", "tokens", "wasted", "read more than once"], rows[:LISTED], right=(0, 1, 2))
    more(reads)


def more(rows: Sequence[object]) -> None:
    """Print the number of rows beyond the 10 that were listed, if any."""
    if len(rows) > LISTED:
        say(f"... and {len(rows) - LISTED} more; --json has them all")


def draw_thresholds(window: dict[str, Any]) -> None:
    """Print one row per token count that is a threshold, lowest first."""
    say()
    named: dict[int, list[str]] = {}
    for name in sorted(THRESHOLDS, key=lambda name: window[name]):
        named.setdefault(window[name], []).append(name)
    rows = [
        (", ".join(title(name, window) for name in names), f"{at:,}", away(window["distance"][names[0]]))
        for at, names in named.items()
    ]
    table(["threshold", "at", "tokens left"], rows, right=(1, 2))


def title(name: str, window: dict[str, Any]) -> str:
    """Return a threshold's label, marked if it is switched off."""
    off = name == "auto_compact" and not window["auto_compact_on"]
    return THRESHOLDS[name] + (" (off)" if off else "")


def away(tokens: int) -> str:
    """Return the tokens left to a threshold, or by how many it was passed."""
    return f"{tokens:,}" if tokens > 0 else "reached" if tokens == 0 else f"passed by {-tokens:,}"


def draw_notes(one: dict[str, Any]) -> None:
    """Print notes about estimates, unknown window sizes and skipped lines."""
    notes: list[str] = []
    if one["beside_messages_tokens"]:
        notes.append("System and tools: everything that was billed but is not in the recorded messages.")
    if not one["count_from_usage"]:
        notes.append("No reply reported usage for these messages: the count is an estimate.")
        if (used := one["window"]["used"]) > one["count"]:
            notes.append(f"Thresholds compare the estimate with a margin for safety: {used:,} tokens.")
    if one["window"].get("source") == "strict" and one.get("model"):
        assumed = f"{one['window']['window_tokens']:,}"
        notes.append(f"The window of {one['model']} is unknown: assuming {assumed} tokens; the setting models sets it.")
    left_out = sum(one["skipped"].values())
    if left_out:
        notes.append("Skipped: " + ", ".join(f"{count} x {why}" for why, count in one["skipped"].items()) + ".")
    if one["damage"]:
        notes.append(f"Skipped {counted(len(one['damage']), 'damaged line')}; --json lists them.")
    if notes:
        say()
        paint([(f"{note}\n", "dim") for note in notes], wrap=True)
