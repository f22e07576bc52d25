"""``reverie send``: send a message to one agent or to a whole team."""

from __future__ import annotations

import os
import sys
from functools import partial

import click

from ...errors import InputError
from ...layers.l7_relay import EVERYBODY, USER
from ...runtime.mail.inbox_bridge import database_bridge
from ...runtime.mail.stored_mailbox import open_mailbox, team_owners
from ...runtime.places.projects import project_slug
from ...settings import load_settings
from ..output import counted, emit_json, say


@click.command()
@click.argument("to")
@click.argument("text")
@click.option("--team", metavar="NAME", help="The team; default: the one in the settings.")
@click.option(
    "--from", "sender", metavar="NAME", default=USER, show_default=True, help="The sender; replies go to this mailbox."
)
@click.option("--summary", default="", help="The subject, in a few words.")
@click.option("--dry-run", is_flag=True, help="Only check the recipient and the message, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(to: str, text: str, team: str | None, sender: str, summary: str, dry_run: bool, as_json: bool) -> None:
    """Send TEXT to the agent TO, to '*' for the whole team, or to 'uds:PATH'; if TEXT is '-', read it from stdin.

    With a database, 'bridge:SESSION' is a session of this project on any machine. The agent reads
    the message before its next step, or when it runs again. 'reverie inbox' shows replies.
    """
    import anyio

    from ...runtime.mail.post_office import PostOffice, check_length

    settings = load_settings()
    chosen = team or settings.relay.team
    message = sys.stdin.read() if text == "-" else text
    there = [one.name for one in team_owners(settings, chosen) if one.name != sender and not one.ended]
    if to == sender:
        raise InputError(f"{to} is the sender: choose another recipient, or another --from")
    if to == EVERYBODY and not there:
        raise InputError(f"team {chosen} has no agents; a session joins its team when it opens")
    if ":" not in to and to != EVERYBODY and to not in there:
        raise InputError(f"there is no agent {to[:80]!a} in team {chosen}; its agents: {', '.join(there) or 'none'}")
    if dry_run:
        check_length(message, settings.relay.max_message_chars)
        return report(f"would send {counted(len(message), 'character')} to {to}", to, sender, chosen, as_json)
    with open_mailbox(settings, chosen, sender) as mailbox:
        reader = mailbox.reader()
        if reader is not None:
            raise InputError(f"{sender} is a running agent ({reader}); choose another --from")
        bridge = database_bridge(settings, project_slug(os.getcwd()))
        post = PostOffice(sender, mailbox=mailbox, bridge=bridge, max_chars=settings.relay.max_message_chars)
        said = anyio.run(partial(post.send, to, message, summary=summary))
    report(said, to, sender, chosen, as_json)


def report(said: str, to: str, sender: str, team: str, as_json: bool) -> None:
    """Print the sentence about a message."""
    if as_json:
        emit_json({"to": to, "from": sender, "team": team, "said": said})
    else:
        say(said)
