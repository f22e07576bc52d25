"""``reverie memory add|edit|rm|reindex``: commands that change memories."""

from __future__ import annotations

import sys

import click

from ...errors import InputError
from ...hosts.word_cache import delete_word_caches
from ...memories.rules.taxonomy import TYPES, MemoryType
from ...memories.store.records import Scope
from ...runtime.memory.results import ForgottenMemories, SavedMemory
from ...settings import load_settings
from ..output import as_plain, emit_json, say, warn
from .project_store import agreed, as_change, given_text, opened


@click.command(short_help="Save a new memory.")
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--type",
    "type_name",
    type=click.Choice(list(TYPES)),
    default="project",
    show_default=True,
    help="The type of the memory.",
)
@click.option("--name", help="The title; default: the first words of TEXT.")
@click.option("--description", help="One line for search; default: the first words of TEXT.")
@click.option("--why", default="", help="The reason.")
@click.option("--how", default="", help="When and how it applies.")
@click.option("--scope", type=click.Choice(["private", "team"]), help="Private or shared with the team.")
@click.option("--expires", metavar="DATE", help="The last day on which the memory is valid.")
@click.option("--dry-run", is_flag=True, help="Show the result and save nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def add(
    text: tuple[str, ...],
    type_name: MemoryType,
    name: str | None,
    description: str | None,
    why: str,
    how: str,
    scope: Scope | None,
    expires: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Save a new memory; if TEXT is '-', read it from stdin.

    Refuses secrets, and facts that the code, version history or instruction files already contain.
    """
    memory = opened()
    known = [one.file for one in memory.list()]
    saved = memory.save(
        given_text(text),
        type=type_name,
        name=name,
        description=description,
        why=why,
        how=how,
        scope=scope,
        expires=expires,
        dry_run=dry_run,
    )
    for file in known:
        if file != saved.file and file.partition("_")[2] == saved.file.partition("_")[2]:
            warn(f"{file} has the same text under another type; 'reverie memory rm {file}' deletes it")
    print_saved(saved, as_json=as_json)


@click.command(short_help="Change a memory.")
@click.argument("name")
@click.option("--text", help="The new text; '-' reads it from stdin.")
@click.option("--title", help="The new title.")
@click.option("--description", help="The new description.")
@click.option("--type", "type_name", type=click.Choice(list(TYPES)), help="The new type.")
@click.option("--why", default="", help="The reason.")
@click.option("--how", default="", help="When and how it applies.")
@click.option("--expires", metavar="DATE", help="The last day on which the memory is valid.")
@click.option("--dry-run", is_flag=True, help="Show the result and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def edit(
    name: str,
    text: str | None,
    title: str | None,
    description: str | None,
    type_name: MemoryType | None,
    why: str,
    how: str,
    expires: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change a memory; without options, open it in your editor."""
    memory = opened()
    if (text, title, description, type_name, expires) == (None, None, None, None, None):
        there = memory.get(name)
        path = memory.path_of(there.file)
        if dry_run:
            raise InputError("--dry-run needs an option such as --text: it does not work with an editor")
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InputError("the editor needs a terminal; --text TEXT changes the memory without one")
        content = click.edit(path.read_text("utf-8"), extension=".md")
        if content is None:
            say("nothing changed")
            return
        saved = memory.write(there.file, content, author="user", why=why or "edited", expect=there.version)
        print_saved(saved, as_json=as_json)
        return
    saved = memory.update(
        name,
        given_text([text]) if text is not None else None,
        name=title,
        description=description,
        type=type_name,
        why=why,
        how=how,
        expires=expires,
        dry_run=dry_run,
    )
    print_saved(saved, as_json=as_json)


def print_saved(saved: SavedMemory, *, as_json: bool) -> None:
    """Print whether a memory was saved, in which file, and any warnings; with ``as_json`` as a document."""
    if as_json:
        emit_json({**as_plain(saved), "changed": saved.changed})
        return
    for warning in saved.warnings if saved.changed or saved.dry_run else ():
        say(f"note: {warning}")
    if saved.conflict:
        warn(f"another writer changed {saved.conflict} at the same time; both versions exist: keep one, 'rm' the other")
    if saved.dry_run:
        say(f"would save {saved.file}")
    elif saved.changed:
        say(f"saved {saved.file} ({saved.id}; 'reverie memory undo {saved.id}' undoes this)")
    else:
        say(f"{saved.file} already contains this")


@click.command(short_help="Delete memories.")
@click.argument("names", nargs=-1)
@click.option(
    "--source",
    help="Delete all memories from this source: a session, 'outside' (written by hand or by other programs), or 'team' "
    "(written by others into the shared folder).",
)
@click.option("--why", default="", help="The reason.")
@click.option("--erase", is_flag=True, help="Also remove every version from the journal; this cannot be undone.")
@click.option("--yes", is_flag=True, help="Erase without confirmation.")
@click.option("--dry-run", is_flag=True, help="List the memories and delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def rm(
    names: tuple[str, ...], source: str | None, why: str, erase: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Delete memories by file or name, or all memories from one source."""
    if bool(names) == bool(source):
        raise InputError("pass either the names of memories or --source")
    memory = opened()

    def delete(*, trial: bool) -> ForgottenMemories:
        if source:
            return memory.forget_source(source, erase=erase, dry_run=trial)
        return memory.forget(*names, why=why, erase=erase, dry_run=trial)

    planned = delete(trial=True)
    if dry_run or (
        erase
        and not yes
        and not agreed(f"Erase {', '.join(planned.files)} permanently?", "--yes erases without asking")
    ):
        print_forgotten(planned, dry_run=True, as_json=as_json)
        return 0 if dry_run else 1
    gone = delete(trial=False)
    if erase:
        delete_word_caches(load_settings().home)
    print_forgotten(gone, dry_run=False, as_json=as_json)
    for id in gone.id.split(", ") if gone.id and not (erase or as_json) else ():
        say(f"recorded as {id}; 'reverie memory undo {id}' undoes this")
    return 0


def print_forgotten(gone: ForgottenMemories, *, dry_run: bool, as_json: bool) -> None:
    """Print the deleted and restored files; warn about copies in session logs and links in other memories."""
    if as_json:
        emit_json({"dry_run": dry_run, **as_plain(gone)})
        return
    for file in gone.files:
        say(f"{'would delete' if dry_run else 'deleted'} {file}")
    for file in gone.restored:
        say(f"{'would restore' if dry_run else 'restored'} an earlier version of {file}")
    if not gone.files and not gone.restored:
        say("nothing to delete")
    if gone.surfaced:
        warn(f"copies remain in the logs of {', '.join(gone.surfaced)}; 'reverie delete' removes a session")
    if gone.links:
        warn(f"these memories still link to it: {', '.join(gone.links)}")


@click.command(short_help="Rebuild the index from the files.")
@click.option("--dry-run", is_flag=True, help="Report whether the index would change, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reindex(dry_run: bool, as_json: bool) -> None:
    """Rebuild the index from the files, also that of the team."""
    memory = opened()
    scopes: tuple[Scope, ...] = ("private", "team") if memory.is_shared else ("private",)
    made = {scope: memory.reindex(scope, dry_run=dry_run) for scope in scopes}
    if as_json:
        changes = {scope: as_change(entry) if entry is not None else None for scope, entry in made.items()}
        emit_json({"dry_run": dry_run, "change": changes.pop("private"), **changes})
        return
    ids = ", ".join(entry.id for entry in made.values() if entry is not None)
    say(("the index would change" if dry_run else f"the index was rebuilt ({ids})") if ids else "nothing to change")
