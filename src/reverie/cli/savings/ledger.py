"""``reverie ledger``: what the calls of all sessions read, wrote and cost, and what broken caches lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import click

from ...cache.ledger import Axis, Totals
from ...errors import InputError
from ...runtime.places.projects import project_slug
from ...runtime.session.ledger import LedgerStore
from ...settings import load_settings
from ..output import bars, emit_json, say, table

__all__ = ["command"]

AXES = ("session", "day", "project", "layer")
KINDS = ("read", "written", "uncached", "output")


@click.command(short_help="Say what calls cost and what broken caches lost.")
@click.option("--by", "axis", type=click.Choice(AXES), default="session", show_default=True, help="What to sum by.")
@click.option("--session", metavar="NAME", help="Only the calls of this session.")
@click.option("--project", metavar="DIR", help="Only the calls of the project this directory belongs to.")
@click.option("--json", "as_json", is_flag=True, help="Print the sums as JSON.")
def command(axis: str, session: str | None, project: str | None, as_json: bool) -> None:
    """Sum what calls were expected to read, write and cost, what they did, and what every break of the cache lost."""
    if project is not None and not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    slug = None if project is None else project_slug(Path(project))
    with LedgerStore(load_settings().home) as store:
        found = store.by(cast(Axis, axis), session=session, project=slug)
    whole = summed(list(found.values()))
    if as_json:
        rows = [{axis: key, **as_json_row(one)} for key, one in found.items()]
        emit_json({"by": axis, "rows": rows, "total": as_json_row(whole)})
    elif found:
        draw(axis, found, whole)
    else:
        say("The ledger is empty: calls enter it as sessions make them.")


def summed(rows: list[Totals]) -> Totals:
    """Add up totals."""
    whole = Totals()
    for row in rows:
        whole = whole.and_also(row)
    return whole


def as_json_row(row: Totals) -> dict[str, Any]:
    """Return totals as JSON has them."""
    return {
        "calls": row.calls,
        "hit_rate": row.hit_rate,
        "expected_hit_rate": row.expected_hit_rate,
        "actual": row.actual,
        "expected": row.expected,
        "usd": row.usd,
        "expected_usd": row.expected_usd,
        "unpriced": row.unpriced,
        "breaks": row.breaks,
        "lost_tokens": row.lost_tokens,
        "lost_usd": row.lost_usd,
        "lost_by_reason": dict(row.lost_by_reason),
    }


def draw(axis: str, found: dict[str, Totals], whole: Totals) -> None:
    """Print a row each, the sum, and what was lost by reason."""
    headings = [axis, "calls", *KINDS, "hit rate", "expected", "USD", "breaks", "lost USD"]
    rows = [cells(key or "(none)", row) for key, row in found.items()]
    if len(rows) > 1:
        rows.append(cells("all", whole))
    table(headings, rows, right=range(1, len(headings)), cut=0)
    if whole.lost_by_reason:
        say()
        ordered = sorted(whole.lost_by_reason.items(), key=lambda item: (-item[1], item[0]))
        bars([(reason, usd, f"{usd:.4f} USD") for reason, usd in ordered])
    if whole.unpriced:
        say()
        say(f"{whole.unpriced} calls are of models without a price in the installed table; they count as 0 USD.")


def cells(key: str, row: Totals) -> list[str]:
    """Return one line of the table."""
    used = row.actual
    return [
        key,
        f"{row.calls:,}",
        f"{used.read:,}",
        f"{used.write:,}",
        f"{used.uncached:,}",
        f"{used.output:,}",
        f"{row.hit_rate:.1%}",
        f"{row.expected_hit_rate:.1%}",
        f"{row.usd:.4f}",
        f"{row.breaks:,}",
        f"{row.lost_usd:.4f}",
    ]
