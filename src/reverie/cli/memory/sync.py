"""``reverie memory sync``: exchange the memories of a team through git."""

from __future__ import annotations

from pathlib import Path

import click

from ...errors import InputError
from ...runtime.memory.team_sync import TeamSync
from ...runtime.places.projects import canonical_root
from ...settings import load_settings
from ..output import counted, emit_json, say, warn
from .project_store import agreed


@click.command(short_help="Exchange the team's memories through git.")
@click.option("--remote", metavar="ADDRESS", help="The repository to share with; recorded for the next time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def sync(remote: str | None, as_json: bool) -> int:
    """Commit, pull, merge and push the folder that 'team_memory' names.

    A memory that both sides changed is kept in both versions. Git runs with your own settings, and with none of the
    repository's: the first time, confirm the address of its remote or name one with --remote.
    """
    settings = load_settings(project=canonical_root(Path(click.get_current_context().obj or ".")))
    if settings.team_memory is None:
        raise InputError("there are no team memories; set team_memory to a folder in a git repository")
    team = TeamSync(settings.team_memory, settings.home)
    if remote:
        team.agree(remote)
    elif not team.agreed_remote:
        if not (named := team.named_remote):
            raise InputError("the repository names no remote; give one with --remote ADDRESS")
        if not agreed(f"Share the team's memories with {named}?", f"confirm it with --remote {named}"):
            return 1
        team.agree(named)
    done = team.run()
    if as_json:
        emit_json(done)
        return 0
    for file in done.both:
        warn(f"others changed the same memory: {file} holds your version; keep one, 'rm' the other")
    say(f"{done.remote}: received {counted(len(done.received), 'file')}, sent {counted(len(done.sent), 'file')}.")
    return 0
