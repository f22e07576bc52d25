"""``reverie trust``: whose settings, hooks, servers and skills are believed."""

from __future__ import annotations

from pathlib import Path

import click

from ...runtime.places.trust import TrustList, root_of
from ...settings import default_home
from ..output import emit_json, say, table

__all__ = ["command"]


@click.command(short_help="Trust a directory, or stop trusting it.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List the directories that are trusted.")
@click.option("--remove", is_flag=True, help="Stop trusting the directory.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(path: Path | None, listing: bool, remove: bool, as_json: bool) -> int:
    """Trust a directory, or stop trusting it.

    What a repository brings along (hooks, servers, skills, instruction files that import from elsewhere) counts only
    where you trust it. PATH is the current directory unless given; inside a repository the whole repository is meant.
    """
    if listing and (remove or path is not None):
        raise click.UsageError("--list stands alone")
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
        words = "is trusted now" if changed else "is trusted already"
    root = root_of(directory)
    if as_json:
        emit_json({"directory": str(root), "trusted": trust.is_trusted(directory), "changed": changed})
    else:
        say(f"{root} {words}")
    return 0


def show(trust: TrustList, as_json: bool) -> int:
    """Print what is trusted."""
    entries = trust.list()
    if as_json:
        rows = [{"directory": each.path, "since": each.since, "stands": each.still_stands()} for each in entries]
        emit_json({"trusted": rows})
    elif entries:
        states = ["" if each.still_stands() else "no longer the same directory: not trusted" for each in entries]
        table(["directory", "since", ""], [(e.path, e.since, state) for e, state in zip(entries, states, strict=True)])
    else:
        say("no directory is trusted; 'reverie trust PATH' trusts one")
    return 0
