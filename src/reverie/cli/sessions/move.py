"""``reverie move``: copy sessions, memories and mail between this home and a database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from ...errors import InputError
from ...memories.store.head_files import JOURNAL
from ...memories.store.journal_files import SHARED_NAME, JournalFiles
from ...runtime.memory.shared_journal import bring_home, is_in_copy, working_copies
from ...runtime.places.move import SHARED, MoveReport, copy_stored
from ...runtime.places.storage import storage_of
from ...runtime.session.ledger import copy_calls, open_ledger
from ...settings import load_settings
from ...storage.files import FileStorage
from ...values import replace
from ..output import counted, emit_json, say, size, tracked, warn, warn_of_fallback

_SHOWN = 10


@click.command()
@click.option("--to", "there", metavar="URL", help="Copy from this home to a database.")
@click.option("--from", "back", metavar="URL", help="Copy from a database to this home.")
@click.option("--release", "releases", is_flag=True, help="Use the memories of this home without their database.")
@click.option("--tenant", help="The tenant in the database; else the setting 'tenant'.")
@click.option("--replace", "replaces", is_flag=True, help="Replace other content in the target.")
@click.option("--dry-run", is_flag=True, help="Show the result and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    there: str | None,
    back: str | None,
    releases: bool,
    tenant: str | None,
    replaces: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy sessions, memories and mail between this home and a database, byte for byte.

    The source stays as it is. Each copy is read again and compared. Run it again to finish an interrupted copy or to
    bring logs up to date. Priced calls are added to the ledger of the target. Settings, trust and typed lines stay on
    their machine; the search index is rebuilt.

    With a database, memory directories are working copies of it. --from completes them and makes them this home's own
    again; --release does so if the database cannot be reached, without the changes that are only there.

    Exits with 1 if the target has other content and with 2 if another process uses a session.
    """
    if [there is not None, back is not None, releases].count(True) != 1:
        raise InputError("give one of --to URL, --from URL and --release")
    settings = load_settings()
    if releases:
        return _release(settings.home, dry_run, as_json)
    chosen = replace(settings, database=there or back, tenant=tenant or settings.tenant)
    with closing(FileStorage(settings.home)) as files, closing(storage_of(chosen)) as database:
        source, target = (files, database) if there is not None else (database, files)
        own = (
            bring_home(database, chosen.tenant or "", files, settings.home, dry_run=dry_run) if back is not None else []
        )
        report = copy_stored(
            source,
            target,
            replace=replaces,
            dry_run=dry_run,
            track=lambda keys: tracked(keys, "copying"),
            skips=lambda key: key.endswith(f"/{JOURNAL}/{SHARED_NAME}") or is_in_copy(key, own),
        )
        report.released.extend(own)
        if not dry_run:
            alone = replace(settings, database=None)
            with (
                open_ledger(alone, listener=warn_of_fallback) as ours,
                open_ledger(chosen, database, listener=warn_of_fallback) as theirs,
            ):
                copy_calls(*((ours, files, theirs) if there is not None else (theirs, database, ours)))
    if as_json:
        emit_json({"dry_run": dry_run, "folders": SHARED, **vars_of(report)})
    else:
        draw(report, dry_run)
    return 2 if report.busy else 1 if report.different else 0


def _release(home: Path, dry_run: bool, as_json: bool) -> int:
    """Make all working copies of memories in a home its own, as they are here."""
    with closing(FileStorage(home)) as files:
        folders = working_copies(files)
    if not dry_run:
        for folder in folders:
            JournalFiles(str(home / folder)).release()
    if as_json:
        emit_json({"dry_run": dry_run, "released": folders})
    else:
        _say_released(folders, dry_run)
    return 0


def _say_released(folders: list[str], dry_run: bool) -> None:
    verb = "would be this home's own" if dry_run else "is this home's own"
    for folder in folders:
        say(f"{folder} {verb}; it was a working copy of memories in a database")


def vars_of(report: MoveReport) -> dict[str, object]:
    """Return the counts and the exceptional keys of a report as a dict for JSON."""
    return {
        "copied": len(report.copied),
        "bytes": report.bytes,
        "same": len(report.same),
        "different": report.different,
        "busy": report.busy,
        "released": report.released,
    }


def draw(report: MoveReport, dry_run: bool) -> None:
    """Print the report in words."""
    verb = "would be copied" if dry_run else "copied"
    say(f"{counted(len(report.copied), 'file')} ({size(report.bytes)}) {verb}, {len(report.same)} were there already")
    _say_released(report.released, dry_run)
    for keys, why in (
        (report.different, "has other content there (--replace overwrites it)"),
        (report.busy, "is open"),
    ):
        for key in keys[:_SHOWN]:
            warn(f"{key} {why}")
        if len(keys) > _SHOWN:
            warn(f"and {len(keys) - _SHOWN} more like this")
