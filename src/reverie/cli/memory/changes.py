"""``reverie memory add|edit|rm|reindex``."""

from __future__ import annotations

import click

from ...errors import InputError
from ...hosts.word_cache import delete_word_caches
from ...memories.rules.taxonomy import TYPES
from ...memories.store.records import Scope
from ...runtime.memory.results import Forgotten, Saved
from ...settings import load_settings
from ..output import emit_json, say, warn
from .project_store import agreed, given_text, opened, tell_change

__all__ = ["add", "edit", "reindex", "rm"]


@click.command(short_help="Keep something as a new memory.")
@click.argument("text", nargs=-1, required=True)
@click.option("--type", "type_name", type=click.Choice(list(TYPES)), required=True, help="What kind of memory it is.")
@click.option("--name", help="Its title; else the first words.")
@click.option("--description", help="The line by which it is found again; else the first words.")
@click.option("--why", default="", help="The reason.")
@click.option("--how", default="", help="When and how it applies.")
@click.option("--scope", type=click.Choice(["private", "team"]), help="Whose it is, where memories are shared.")
@click.option("--expires", metavar="DATE", help="The day after which it no longer holds.")
@click.option("--dry-run", is_flag=True, help="Say what would be saved and save nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def add(
    text: tuple[str, ...],
    type_name: str,
    name: str | None,
    description: str | None,
    why: str,
    how: str,
    scope: Scope | None,
    expires: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Keep something as a new memory; with '-' for TEXT it is read from stdin.

    What code, version history or instruction files say already is refused, and so are secrets.
    """
    saved = opened().save(
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
    tell_saved(saved, as_json=as_json)


@click.command(short_help="Write another version of a memory.")
@click.argument("name")
@click.option("--text", help="The new text; '-' reads it from stdin.")
@click.option("--title", help="Another name.")
@click.option("--description", help="Another description.")
@click.option("--type", "type_name", type=click.Choice(list(TYPES)), help="Another type.")
@click.option("--why", default="", help="The reason.")
@click.option("--how", default="", help="When and how it applies.")
@click.option("--expires", metavar="DATE", help="The day after which it no longer holds.")
@click.option("--dry-run", is_flag=True, help="Say what would be changed and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def edit(
    name: str,
    text: str | None,
    title: str | None,
    description: str | None,
    type_name: str | None,
    why: str,
    how: str,
    expires: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write another version of a memory; without options, in your editor."""
    memory = opened()
    if (text, title, description, type_name, expires) == (None, None, None, None, None):
        there = memory.get(name)
        path = memory.path_of(there.file)
        if dry_run:
            raise InputError("say what to change; an editor has no dry run")
        content = click.edit(path.read_text("utf-8"), extension=".md")
        if content is None:
            say("nothing changed")
            return
        saved = memory.write(there.file, content, author="user", why=why or "edited", expect=there.version)
        tell_saved(saved, as_json=as_json)
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
    tell_saved(saved, as_json=as_json)


def tell_saved(saved: Saved, *, as_json: bool) -> None:
    """Say what was saved and what could be better about it."""
    if as_json:
        emit_json(
            {
                "file": saved.file,
                "name": saved.name,
                "path": str(saved.path),
                "id": saved.id,
                "changed": saved.changed,
                "scope": saved.scope,
                "trust": saved.trust,
                "warnings": saved.warnings,
                "conflict": saved.conflict,
                "dry_run": saved.dry_run,
            }
        )
        return
    for warning in saved.warnings:
        warn(warning)
    if saved.conflict:
        warn(f"someone else changed {saved.conflict} meanwhile; both were kept, so choose one and forget the other")
    if saved.dry_run:
        say(f"would save {saved.file}")
    elif saved.changed:
        say(f"saved {saved.file} ({saved.id}; 'reverie memory undo {saved.id}' takes it back)")
    else:
        say(f"{saved.file} says so already")


@click.command(short_help="Forget memories.")
@click.argument("names", nargs=-1)
@click.option(
    "--source",
    help="Forget all that came from this source: a session, 'outside' (written by other programs or by hand), 'team' "
    "(by others into the shared folder).",
)
@click.option("--why", default="", help="The reason.")
@click.option("--erase", is_flag=True, help="Take every version out of the journal too; this cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask before erasing.")
@click.option("--dry-run", is_flag=True, help="Say what would be forgotten and forget nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def rm(
    names: tuple[str, ...], source: str | None, why: str, erase: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Forget memories, by file or name, or all that came from one source."""
    if bool(names) == bool(source):
        raise InputError("say which memories to forget, or give --source")
    memory = opened()

    def forget(*, trial: bool) -> Forgotten:
        if source:
            return memory.forget_source(source, erase=erase, dry_run=trial)
        return memory.forget(*names, why=why, erase=erase, dry_run=trial)

    planned = forget(trial=True)
    if dry_run or (erase and not yes and not agreed(f"Erase {', '.join(planned.files)} for good?", "--yes erases")):
        tell_forgotten(planned, dry_run=True, as_json=as_json)
        return 0 if dry_run else 1
    gone = forget(trial=False)
    if erase:
        delete_word_caches(load_settings().home)
    tell_forgotten(gone, dry_run=False, as_json=as_json)
    return 0


def tell_forgotten(gone: Forgotten, *, dry_run: bool, as_json: bool) -> None:
    """Say what went, and where copies stand that cannot be reached."""
    if as_json:
        emit_json(
            {
                "dry_run": dry_run,
                "files": gone.files,
                "restored": gone.restored,
                "id": gone.id,
                "surfaced": gone.surfaced,
                "links": gone.links,
            }
        )
        return
    for file in gone.files:
        say(f"{'would forget' if dry_run else 'forgot'} {file}")
    for file in gone.restored:
        say(f"{'would bring' if dry_run else 'brought'} {file} back to what it was before")
    if not gone.files and not gone.restored:
        say("nothing to forget")
    if gone.surfaced:
        warn(f"copies stand in the logs of {', '.join(gone.surfaced)}; 'reverie purge' removes a session")
    if gone.links:
        warn(f"these still point to it: {', '.join(gone.links)}")


@click.command(short_help="Make the index say what the files say.")
@click.option("--dry-run", is_flag=True, help="Say whether it would change and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reindex(dry_run: bool, as_json: bool) -> None:
    """Make the index say what the files say."""
    entry = opened().reindex(dry_run=dry_run)
    if as_json or entry is None:
        tell_change(entry, dry_run=dry_run, as_json=as_json)
    else:
        say("the index would change" if dry_run else f"the index was rebuilt ({entry.id})")
