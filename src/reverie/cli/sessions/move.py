"""``reverie move``: copy sessions, memories and mail between this home and a database."""

from __future__ import annotations

from contextlib import closing

import click

from ...errors import InputError
from ...runtime.places.move import SHARED, MoveReport, copy_stored
from ...runtime.places.storage import storage_of
from ...settings import load_settings
from ...storage.files import FileStorage
from ...values import replace
from ..output import counted, emit_json, say, size, tracked, warn

_SHOWN = 10


@click.command()
@click.option("--to", "there", metavar="URL", help="Copy from this home to a database.")
@click.option("--from", "back", metavar="URL", help="Copy from a database to this home.")
@click.option("--tenant", help="The tenant in the database; else the setting 'tenant'.")
@click.option("--replace", "replaces", is_flag=True, help="Replace other content in the target.")
@click.option("--dry-run", is_flag=True, help="Show the result and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    there: str | None, back: str | None, tenant: str | None, replaces: bool, dry_run: bool, as_json: bool
) -> int:
    """Copy sessions, memories and mail between this home and a database, byte for byte.

    The source stays as it is. Each copy is read again and compared. Run it again to finish an interrupted copy or to
    bring logs up to date. Settings, trust and typed lines stay on their machine; the search index and the ledger are
    rebuilt. Exits with 1 if the target has other content
    and with 2 if another process uses a session.
    """
    if (there is None) == (back is None):
        raise InputError("give --to URL, or --from URL")
    settings = load_settings()
    chosen = replace(settings, database=there or back, tenant=tenant or settings.tenant)
    with closing(FileStorage(settings.home)) as files, closing(storage_of(chosen)) as database:
        source, target = (files, database) if there is not None else (database, files)
        report = copy_stored(
            source, target, replace=replaces, dry_run=dry_run, track=lambda keys: tracked(keys, "copying")
        )
    if as_json:
        emit_json({"dry_run": dry_run, "folders": SHARED, **vars_of(report)})
    else:
        draw(report, dry_run)
    return 2 if report.busy else 1 if report.different else 0


def vars_of(report: MoveReport) -> dict[str, object]:
    """Return the counts and the exceptional keys of a report as a dict for JSON."""
    return {
        "copied": len(report.copied),
        "bytes": report.bytes,
        "same": len(report.same),
        "different": report.different,
        "busy": report.busy,
    }


def draw(report: MoveReport, dry_run: bool) -> None:
    """Print the report in words."""
    verb = "would be copied" if dry_run else "copied"
    say(f"{counted(len(report.copied), 'file')} ({size(report.bytes)}) {verb}, {len(report.same)} were there already")
    for keys, why in (
        (report.different, "has other content there (--replace overwrites it)"),
        (report.busy, "is open"),
    ):
        for key in keys[:_SHOWN]:
            warn(f"{key} {why}")
        if len(keys) > _SHOWN:
            warn(f"and {len(keys) - _SHOWN} more like this")
