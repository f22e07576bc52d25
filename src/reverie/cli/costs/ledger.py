"""``reverie ledger``: sum tokens and cost of all model calls, and the losses from cache breaks."""

from __future__ import annotations

from typing import Any, cast

import click

from ...cache.ledger import LedgerAxis, Totals
from ...runtime.session.ledger import LedgerStore
from ...settings import load_settings
from ..output import bars, counted, emit_json, say, table, warn
from ..sessions.recordings import slug_of

AXES = ("session", "day", "project", "layer")
KINDS = ("read", "written", "uncached", "output")
FIGURES = (
    *("calls", "hit_rate", "expected_hit_rate", "actual", "expected", "usd", "expected_usd", "unpriced"),
    *("breaks", "lost_tokens", "lost_usd", "lost_by_reason"),
)


@click.command()
@click.option(
    "--by", "axis", type=click.Choice(AXES), default="session", show_default=True, help="Group the sums by this."
)
@click.option("--session", metavar="NAME", help="Only calls of this session.")
@click.option("--project", metavar="DIR", help="Only calls of the project that contains this directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the sums as JSON.")
def command(axis: str, session: str | None, project: str | None, as_json: bool) -> None:
    """Sum the tokens and cost of model calls, actual and expected, and the money lost to each kind of cache break."""
    slug = slug_of(project)
    with LedgerStore(load_settings().home) as store:
        found = store.by(cast(LedgerAxis, axis), session=session, project=slug)
        if store.notice:
            warn(store.notice)
    whole = summed(list(found.values()))
    if as_json:
        rows = [{axis: key, **as_json_row(one)} for key, one in found.items()]
        emit_json({"by": axis, "rows": rows, "total": as_json_row(whole)})
    elif found:
        draw(axis, found, whole)
    else:
        say("The ledger is empty: sessions add a row for each model call.")


def summed(rows: list[Totals]) -> Totals:
    """Return the sum of all rows, empty totals if there are none."""
    whole = Totals()
    for row in rows:
        whole = whole.and_also(row)
    return whole


def as_json_row(row: Totals) -> dict[str, Any]:
    """Return totals as a dict for JSON."""
    return {name: getattr(row, name) for name in FIGURES}


def draw(axis: str, found: dict[str, Totals], whole: Totals) -> None:
    """Print one row per group, their sum, the losses by reason of cache breaks, and the unpriced calls."""
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
        say(f"{counted(whole.unpriced, 'call')} used a model without a known price and counted as 0 USD.")


def cells(key: str, row: Totals) -> list[str]:
    """Return the cells of one table row: the name of a group and its totals."""
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
