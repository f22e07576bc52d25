"""``reverie trust``: choose the directories whose settings, hooks, servers and skills are used."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...errors import InputError
from ...runtime.places.shared_settings import SharedSettings, shared_settings
from ...runtime.places.trust import TrustList, root_of
from ...settings import default_home
from ..output import emit_json, one_word, say, table, warn


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List the trusted directories.")
@click.option("--remove", is_flag=True, help="Stop trusting the directory.")
@click.option("--rules", is_flag=True, help="List the rules that answers 'always in this project' have kept.")
@click.option("--drop-rule", type=click.IntRange(1), metavar="NUMBER", help="Drop a rule by its number in --rules.")
@click.option("--dry-run", is_flag=True, help="Only print the effect.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(path: Path | None, listing: bool, remove: bool, rules: bool, drop_rule: int | None, **how: bool) -> int:
    """Trust a directory, or stop trusting it.

    Rules, hooks, skills and importing instruction files of a repository are used only if you trust its directory. The
    rules and hooks that its .reverie.toml shares are printed; after a change of them, trust it again.
    PATH defaults to the current directory; inside a repository, trust applies to the whole repository.
    """
    dry_run, as_json = how["dry_run"], how["as_json"]
    is_about_rules = rules or drop_rule is not None
    if (listing or is_about_rules) and (remove or path is not None or (listing and is_about_rules)):
        raise click.UsageError("--list, --rules and --drop-rule take no PATH and no other option")
    if is_about_rules:
        return show_rules(drop_rule, as_json, dry_run)
    trust = TrustList.open(default_home())
    if listing:
        return show(trust, as_json)
    directory = Path.cwd() if path is None else path
    root = root_of(directory)
    shared = SharedSettings() if remove else shared_settings(root)
    if remove:
        listed = bool({str(root), os.path.abspath(directory)} & {each.path for each in trust.list()})
        changed = listed if dry_run else trust.forget(directory)
        words = "is no longer trusted" if changed else "was not trusted"
    else:
        changed = not trust.is_trusted(directory) or trust.settings_of(root) != shared.digest
        known = None if dry_run else trust.trust(directory, settings=shared.digest)
        if known is not None and not known.born_ns:
            warn(f"{known.path}: its file system records no birth time, so another directory put there may be trusted")
        words = "is now trusted" if changed else "was trusted already"
    if dry_run:
        words = words.replace("is no longer", "would no longer be").replace("is now", "would be")
    if as_json:
        emit_json({"directory": str(root), "trusted": trust.is_trusted(directory), "changed": changed})
    else:
        say(f"{root} {words}{'' if remove or dry_run else '; reverie trust --remove takes it back'}")
        if shared.lines:
            say("It shares these rules and hooks; a change of them needs your trust again:")
            for line in shared.lines:
                say(f"  {line}")
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


def show_rules(drop: int | None, as_json: bool, dry_run: bool) -> int:
    """Drop the rule of that number if one is given, print the rules kept for projects, and return 0."""
    from ...runtime.guard.kept_rules import KeptRules

    kept = KeptRules(default_home())
    entries = kept.list()
    if drop is not None:
        if drop > len(entries):
            raise InputError(f"there is no rule {drop}; 'reverie trust --rules' lists them")
        if not dry_run:
            kept.remove(Path(entries[drop - 1].path), entries[drop - 1].rule)
        entries = [*entries[: drop - 1], *entries[drop:]]
    if as_json:
        rows = [
            {"directory": e.path, "rule": e.rule, "since": e.since, "holds": e.is_same_directory()} for e in entries
        ]
        emit_json({"rules": rows})
    elif entries:
        states = ["" if each.is_same_directory() else "not used: the directory was replaced" for each in entries]
        rows = [(at, e.path, one_word(e.rule), e.since, states[at - 1]) for at, e in enumerate(entries, 1)]
        table(["", "project", "allowed without asking", "since", ""], rows)
    else:
        say("no rules are kept for a project")
    return 0
