"""``reverie trust``: choose the directories whose settings, hooks, servers and skills are used."""

from __future__ import annotations

from pathlib import Path

import click

from ...runtime.places.trust import TrustList, root_of
from ...settings import default_home
from ..output import emit_json, say, table

__all__ = ["command"]


@click.command(short_help="Trust a directory, or stop trusting it.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List the trusted directories.")
@click.option("--remove", is_flag=True, help="Stop trusting the directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(path: Path | None, listing: bool, remove: bool, as_json: bool) -> int:
    """Trust a directory, or stop trusting it.

    Hooks, servers, skills and importing instruction files of a repository are used only if you trust its directory.
    PATH defaults to the current directory; inside a repository, trust applies to the whole repository.
    """
    if listing and (remove or path is not None):
        raise click.UsageError("--list takes no PATH and no --remove")
    trust = TrustList.open(default_home())
    if listing:
        return show(trust, as_json)
    directory = Path.cwd() if path is None else path
    if remove:
        changed = trust.forget(directory)
        words = "is no longer trusted" if changed else "was not trusted"
    else:
        changed = not trust.is_trusted(directory)
        trust.trust(directory)
        words = "is now trusted" if changed else "was trusted already"
    root = root_of(directory)
    if as_json:
        emit_json({"directory": str(root), "trusted": trust.is_trusted(directory), "changed": changed})
    else:
        say(f"{root} {words}")
    return 0


def show(trust: TrustList, as_json: bool) -> int:
    """Print the trusted directories, and whether each was replaced since; return 0."""
    entries = trust.list()
    if as_json:
        rows = [{"directory": each.path, "since": each.since, "stands": each.is_same_directory()} for each in entries]
        emit_json({"trusted": rows})
    elif entries:
        states = ["" if each.is_same_directory() else "not trusted: the directory was replaced" for each in entries]
        table(["directory", "since", ""], [(e.path, e.since, state) for e, state in zip(entries, states, strict=True)])
    else:
        say("no trusted directories; 'reverie trust PATH' adds one")
    return 0
