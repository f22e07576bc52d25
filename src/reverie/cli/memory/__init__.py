"""``reverie memory``: read, change, undo and approve the memories of a project."""

from __future__ import annotations

from pathlib import Path

import click

from .changes import add, edit, reindex, rm
from .extract import extract
from .history import blame, log, rewind, undo
from .markdown import export, import_folder
from .read import lint, list_memories, path, search, show
from .review import review
from .sync import sync

__all__ = ["command"]


def _use(ctx: click.Context, _parameter: click.Parameter, project: Path | None) -> None:
    ctx.obj = project or ctx.obj


PROJECT = click.Option(
    ["--project"],
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    expose_value=False,
    callback=_use,
    help="The project's directory; default: the current one.",
)


@click.group(name="memory", params=[PROJECT])
def command() -> None:
    """Read, change, undo and approve memories.

    Memories are Markdown files; 'reverie memory path' prints their directory. You may edit them in any editor: manual
    changes are detected and can be undone like all others.
    """


for one in (
    list_memories,
    show,
    search,
    add,
    edit,
    rm,
    log,
    blame,
    undo,
    rewind,
    extract,
    lint,
    reindex,
    path,
    export,
    import_folder,
    review,
    sync,
):
    one.params.append(PROJECT)
    command.add_command(one)
