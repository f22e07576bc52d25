"""``reverie send``: write to an agent, or to all of a team."""

from __future__ import annotations

import sys
from functools import partial

import click

from ...errors import InputError
from ...layers.l7_relay import EVERYBODY
from ...runtime.mail.directory import residents
from ...runtime.mail.mailbox import Mailbox
from ...settings import load_settings
from ..output import emit_json, say

__all__ = ["USER", "command"]

USER = "user"
"""The name a person writes and is written to under, unless another is given."""


@click.command(short_help="Write to an agent.")
@click.argument("to")
@click.argument("text")
@click.option("--team", metavar="NAME", help="The team; by default the one of the settings.")
@click.option("--from", "sender", metavar="NAME", default=USER, show_default=True, help="Whose mailbox answers go to.")
@click.option("--summary", default="", help="What it is about, in a few words.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(to: str, text: str, team: str | None, sender: str, summary: str, as_json: bool) -> None:
    """Write TEXT to the agent TO, to '*' for all, or to 'uds:PATH'; with '-' the text is read from stdin.

    The agent reads it before its next step, or when it runs again. 'reverie inbox' shows what is answered.
    """
    import anyio

    from ...runtime.mail.post_office import AgentPost

    settings = load_settings()
    chosen = team or settings.relay.team
    message = sys.stdin.read() if text == "-" else text
    there = [one.name for one in residents(settings.home, chosen) if one.name != sender and not one.ended]
    if to == sender:
        raise InputError(f"{to} is who writes: name somebody else, or another --from")
    if to == EVERYBODY and not there:
        raise InputError(f"nobody is in team {chosen} to write to; sessions come into it when they open")
    if ":" not in to and to != EVERYBODY and to not in there:
        raise InputError(f"nobody called {to[:80]!a} is in team {chosen}; there are: {', '.join(there) or 'none'}")
    with Mailbox(settings.home, chosen, sender) as mailbox:
        reader = mailbox.reader()
        if reader is not None:
            raise InputError(f"{sender} is running ({reader}) and writes in its own name; choose another --from")
        post = AgentPost(sender, mailbox=mailbox, max_chars=settings.relay.max_message_chars)
        said = anyio.run(partial(post.send, to, message, summary=summary))
    if as_json:
        emit_json({"to": to, "from": sender, "team": mailbox.team, "said": said})
    else:
        say(said)
