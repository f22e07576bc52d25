"""``reverie memory sync``: exchange the memories of a team through git."""

from __future__ import annotations

from pathlib import Path

import click

from ...errors import InputError
from ...runtime.memory.team_sync import TeamSync
from ...runtime.places.projects import canonical_root
from ...settings import load_settings
from ..output import as_plain, counted, emit_json, say, warn
from .project_store import agreed


@click.command(short_help="Exchange the team's memories through git.")
@click.option(
    "--remote", metavar="ADDRESS", help="The repository to share with; recorded once the exchange has succeeded."
)
@click.option("--dry-run", is_flag=True, help="Show the files to send, and write nothing here or there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def sync(remote: str | None, dry_run: bool, as_json: bool) -> int:
    """Commit, pull, merge and push the folder that 'team_memory' names.

    A memory that both sides changed is kept in both versions. Git runs with your own settings, and with none of the
    repository's: the first time, confirm the address of its remote or name one with --remote.
    """
    settings = load_settings(project=canonical_root(Path(click.get_current_context().obj or ".")))
    if settings.team_memory is None:
        raise InputError("there are no team memories; set team_memory to a folder in a git repository")
    team = TeamSync(settings.team_memory, settings.home)
    if dry_run:
        _show_preview(team, remote, as_json)
        return 0
    if not remote and not team.agreed_remote:
        if not (remote := team.named_remote):
            raise InputError("the repository names no remote; give one with --remote ADDRESS")
        if not agreed(f"Share the team's memories with {remote}?", f"confirm it with --remote {remote}"):
            return 1
    done = team.run(remote or "")
    if as_json:
        emit_json({"dry_run": False, **as_plain(done)})
        return 0
    for file in done.both:
        warn(f"others changed the same memory: {file} holds your version; keep one, 'rm' the other")
    say(f"{done.remote}: received {counted(len(done.received), 'file')}, sent {counted(len(done.sent), 'file')}.")
    return 0


def _show_preview(team: TeamSync, remote: str | None, as_json: bool) -> None:
    """Print the effect of a sync that is known without one."""
    if not (address := remote or team.agreed_remote or team.named_remote):
        raise InputError("the repository names no remote; give one with --remote ADDRESS")
    found, has_news = team.preview(address)
    if as_json:
        emit_json({"dry_run": True, **as_plain(found), "has_news": has_news})
        return
    news = "has changes of others" if has_news else "has nothing new"
    say(f"{address}: would send {counted(len(found.sent), 'file')}; it {news}.")
