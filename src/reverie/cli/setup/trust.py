"""``reverie trust``: choose the directories whose settings, hooks, servers and skills are used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from ...errors import InputError
from ...runtime.places.projects import canonical_root
from ...runtime.places.shared_settings import SharedSettings, shared_settings
from ...runtime.places.trust import TrustList
from ...settings.load import usable_home
from ..output import confirmed, emit_json, folded, one_word, say, table, warn

PLACES: Final = (".reverie", ".claude")
PROVIDED: Final = {"skills": "*/SKILL.md", "agents": "*.md", "commands": "*.md"}
"""The folders of a project that are used with trust, and the files that count in each."""
EFFECT: Final = (
    "Its instruction files may import files from outside of it. Skills, agents and slash commands that are added later "
    "are used too; a change of rules, hooks or files that hooks name needs your trust again."
)


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List the trusted directories.")
@click.option("--remove", is_flag=True, help="Stop trusting the directory.")
@click.option("--rules", is_flag=True, help="List the rules that answers 'always in this project' have kept.")
@click.option("--drop-rule", type=click.IntRange(1), metavar="NUMBER", help="Drop a rule by its number in --rules.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show the rules, hooks and other content to be trusted.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(path: Path | None, listing: bool, remove: bool, rules: bool, drop_rule: int | None, **how: bool) -> int:
    """Trust a directory, or stop trusting it.

    Rules, hooks, skills, agents, slash commands and importing instruction files of a repository are used only if you
    trust its directory. They are shown before you are asked. After a change of the rules and hooks that its
    .reverie.toml shares, trust it again. PATH defaults to the current directory; inside a repository, trust applies to
    the whole repository.
    """
    dry_run, as_json = how["dry_run"], how["as_json"]
    is_about_rules = rules or drop_rule is not None
    if (listing or is_about_rules) and (remove or path is not None or (listing and is_about_rules)):
        raise click.UsageError("--list, --rules and --drop-rule take no PATH and no other option")
    if is_about_rules:
        return show_rules(drop_rule, as_json, dry_run)
    trust = TrustList.open(usable_home())
    if listing:
        return show(trust, as_json)
    directory = Path.cwd() if path is None else path
    act = forget if remove else add
    return act(trust, directory, yes=how["yes"], dry_run=dry_run, as_json=as_json)


def add(trust: TrustList, directory: Path, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Show what a directory's repository provides, ask, and trust it; return 0, or 1 if the user declined."""
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory, so it cannot be trusted")
    root = canonical_root(directory)
    shared = shared_settings(root)
    changed = not trust.is_trusted(directory) or trust.settings_of(root) != shared.digest
    if not as_json:
        for line in [f"{root} {'would be' if changed else 'is'} trusted with:", *content_lines(root, shared)]:
            say(one_word(line))
        say(folded(EFFECT))
    if changed and not dry_run:
        refusal = f"trusted nothing: confirmation needs a terminal; --yes trusts {root}, --dry-run only shows this"
        if not yes and not confirmed(f"Trust {root}?", refusal):
            warn("nothing was changed")
            return 1
        known = trust.trust(directory, settings=shared.digest)
        if not known.born_ns:
            warn(f"{known.path}: its file system records no birth time, so another directory put there may be trusted")
    if as_json:
        now = trust.is_trusted(directory)
        emit_json({"directory": str(root), "trusted": now, "changed": changed, "shares": shared.lines})
    elif not dry_run:
        say(f"{root} {'is now trusted' if changed else 'was trusted already'}; 'reverie trust --remove' takes it back")
    return 0


def forget(trust: TrustList, directory: Path, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Stop trusting a directory's repository, without a question; return 0."""
    root = canonical_root(directory)
    listed = bool({str(root), os.path.abspath(directory)} & {each.path for each in trust.list()})
    changed = listed if dry_run else trust.forget(directory)
    if as_json:
        emit_json({"directory": str(root), "trusted": trust.is_trusted(directory), "changed": changed})
    elif changed:
        say(f"{root} {'would no longer be' if dry_run else 'is no longer'} trusted")
    else:
        say(f"{root} was not trusted")
    return 0


def content_lines(root: Path, shared: SharedSettings) -> list[str]:
    """Return a line for each rule and hook, and the names of skills, agents and commands."""
    lines = [f"  {line}" for line in shared.lines]
    for kind, pattern in PROVIDED.items():
        found = sorted(path for place in PLACES for path in (root / place / kind).glob(pattern))
        if found:
            lines.append(f"  {kind}: {', '.join((path.parent if kind == 'skills' else path).stem for path in found)}")
    return lines or ["  no rules, hooks, skills, agents or slash commands yet"]


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
    from ...runtime.guard.always import KeptRules

    kept = KeptRules(usable_home())
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
