"""``reverie inbox``: what was written to an agent, or to you."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any

import click

from ...errors import InputError
from ...layers.l7_relay import Letter
from ...runtime.mail.directory import residents
from ...runtime.mail.mailbox import Mailbox
from ...settings import load_settings
from ..output import emit_json, paint, say, warn
from .send import USER

__all__ = ["command"]

WATCH_SECONDS = 0.5


@click.command(short_help="Show what was written to an agent, or to you.")
@click.argument("name", default=USER)
@click.option("--team", metavar="NAME", help="The team; by default the one of the settings.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many messages.")
@click.option("--all", "everything", is_flag=True, help="Also those that were read.")
@click.option("--take", is_flag=True, help="Mark what is shown as read.")
@click.option("--watch", is_flag=True, help="Go on and show messages as they come.")
@click.option("--json", "as_json", is_flag=True, help="Print messages as JSON; with --watch one a line.")
def command(name: str, team: str | None, limit: int, everything: bool, take: bool, watch: bool, as_json: bool) -> None:
    """Show the messages that wait for the agent NAME, by default for you, the oldest first.

    Looking changes nothing; with --take they are marked as read, which only works while NAME is not running.
    """
    settings = load_settings()
    chosen = team or settings.relay.team
    there = [one.name for one in residents(settings.home, chosen)]
    if name not in there and name != USER:
        raise InputError(f"nobody called {name[:80]!a} is in team {chosen}; there are: {', '.join(there) or 'none'}")
    if name not in there and not watch:
        if as_json:
            emit_json({"agent": name, "team": chosen, "messages": []})
        else:
            say(f"No messages. Nobody has written to {name} in team {chosen}.")
        return
    with Mailbox(settings.home, chosen, name) as mailbox:
        read = mailbox.look(limit, kept=True) if everything else []
        waiting = found(mailbox, limit, take)
        if watch:
            follow(mailbox, read, waiting, limit, take, as_json)
        elif as_json:
            plain = [body(one, read=True) for one in read] + [body(one) for one in waiting]
            emit_json({"agent": name, "team": chosen, "messages": plain})
        elif read or waiting:
            draw(read, waiting)
        else:
            say(f"No messages wait for {name} in team {chosen}.")
        if take and not watch:
            put_away(mailbox, waiting)


def found(mailbox: Mailbox, limit: int, take: bool) -> list[Letter]:
    """Return what waits, once each; what is forged is set aside where this command may, and said."""
    letters = mailbox.poll(limit) if take else mailbox.look(limit)
    while mailbox.refused:
        refused = mailbox.refused.pop(0)
        warn(f"a message was refused: {refused.why}; it is kept in {refused.path}")
    return list({one.id: one for one in letters}.values())


def put_away(mailbox: Mailbox, letters: list[Letter]) -> None:
    """Mark letters as read, once they are printed."""
    sys.stdout.flush()
    for letter in letters:
        mailbox.taken(letter)


def follow(mailbox: Mailbox, read: list[Letter], waiting: list[Letter], limit: int, take: bool, as_json: bool) -> None:
    """Show messages as they come, until interrupted."""
    known: set[str] = set()
    while True:
        fresh = [one for one in waiting if one.id not in known]
        if as_json:
            for one in [*read, *fresh]:
                sys.stdout.write(json.dumps(body(one, read=one in read)).replace("\x7f", "\\u007f") + "\n")
        else:
            draw(read, fresh)
        sys.stdout.flush()
        if take:
            put_away(mailbox, waiting)
        known.update(one.id for one in fresh)
        read = []
        time.sleep(WATCH_SECONDS)
        waiting = found(mailbox, limit + len(known) if not take else limit, take)


def body(letter: Letter, *, read: bool = False) -> dict[str, Any]:
    """Return a letter as JSON has it."""
    return {
        "id": letter.id,
        "from": letter.sender,
        "team": letter.team,
        "sent": when(letter).isoformat(timespec="milliseconds"),
        "summary": letter.summary,
        "text": letter.text,
        "control": letter.control,
        "read": read,
    }


def when(letter: Letter) -> datetime:
    """Return when a letter was sent, in local time."""
    return datetime.fromtimestamp(letter.time_ns / 1e9).astimezone()


def draw(read: list[Letter], waiting: list[Letter]) -> None:
    """Print a message a paragraph: from whom, when, what about, and what it says."""
    for letter in [*read, *waiting]:
        at = when(letter).strftime("%Y-%m-%d %H:%M:%S")
        kind = f"  [{letter.control.get('type')}]" if letter.control else ""
        seen = "  read" if letter in read else ""
        text = letter.text or (json.dumps(letter.control) if letter.control else "")
        lines = "".join(f"  {line}\n" for line in text.splitlines())
        about = f"  {letter.summary}" if letter.summary else ""
        paint([(letter.sender, "bold"), (f"  {at}{kind}{seen}", "dim"), (f"{about}\n", "italic"), (lines, "")])
