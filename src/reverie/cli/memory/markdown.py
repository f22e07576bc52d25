"""``reverie memory export|import``: memories as a folder of Markdown files."""

from __future__ import annotations

from pathlib import Path

import click

from ...runtime.memory.markdown import export_memories, import_memories
from ..output import as_plain, counted, emit_json, say, warn
from .project_store import opened


@click.command(short_help="Write the memories into a new folder.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="List the files and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def export(folder: Path, dry_run: bool, as_json: bool) -> None:
    """Write the private memories and their index into a new folder, as Markdown files.

    'reverie memory import' takes them over, in another project, on another machine or for another tenant.
    """
    files = export_memories(opened(), folder, dry_run=dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, "folder": str(folder), "files": files})
    else:
        say(f"{'would write' if dry_run else 'wrote'} {counted(len(files), 'file')} to {folder}")


@click.command("import", short_help="Save a folder of Markdown files as memories.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--replace", "replaces", is_flag=True, help="Replace memories here that have another content.")
@click.option("--dry-run", is_flag=True, help="Show the result and save nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def import_folder(folder: Path, replaces: bool, dry_run: bool, as_json: bool) -> int:
    """Save the Markdown files of a folder as private memories, byte for byte, in one change.

    An imported memory has the trust of an agent at most. 'reverie memory review --accept' raises it to yours.

    Exits with 1 if it leaves out a file whose memory here has another content, or that has a secret.
    """
    made = import_memories(opened(), folder, replaces=replaces, dry_run=dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, **as_plain(made)})
    else:
        verb, undo = (
            "would be imported" if dry_run else "imported",
            f" ({made.id}; 'reverie memory undo {made.id}' undoes this)" if made.id else "",
        )
        say(f"{counted(len(made.imported), 'memory')} {verb}{undo}, {len(made.same)} were there already")
        for file in made.different:
            warn(f"{file} has another content here, which stays (--replace takes that of the folder)")
        for file, reason in made.refused.items():
            warn(f"{file}: {reason}")
    return 1 if made.different or made.refused else 0
