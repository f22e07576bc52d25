"""``reverie inbox``: show messages sent to an agent, or to you."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any

import click

from ...errors import InputError
from ...layers.l7_relay import USER, Letter
from ...runtime.mail.mailbox import Mailbox
from ...runtime.mail.stored_mailbox import open_mailbox, team_owners
from ...settings import load_settings
from ..options import number_option
from ..output import counted, emit_json, paint, say, warn

WATCH_SECONDS = 0.5


@click.command()
@click.argument("name", default=USER)
@click.option("--team", metavar="NAME", help="The team; default: the one in the settings.")
@number_option("--limit", "Maximum number of messages.", 1, 100_000, default=100)
@click.option("--all", "everything", is_flag=True, help="Also show messages that were read.")
@click.option("--take", is_flag=True, help="Mark the shown messages as read.")
@click.option("--dry-run", is_flag=True, help="With --take: only show the messages that would be marked.")
@click.option("--watch", is_flag=True, help="Keep running and show messages as they arrive.")
@click.option("--json", "as_json", is_flag=True, help="Print messages as JSON; with --watch one per line.")
def command(name: str, team: str | None, limit: int, everything: bool, take: bool, watch: bool, **how: bool) -> None:
    """Show the unread messages of the agent NAME (default: you), oldest first.

    Messages stay unread unless you pass --take, which works only while NAME is not running.
    """
    as_json, take, would_take = how["as_json"], take and not how["dry_run"], take and how["dry_run"]
    settings = load_settings()
    chosen = team or settings.relay.team
    there = [one.name for one in team_owners(settings, chosen)]
    if name not in there and name != USER:
        raise InputError(f"there is no agent {name[:80]!a} in team {chosen}; its agents: {', '.join(there) or 'none'}")
    if name not in there and not watch:
        if as_json:
            emit_json({"agent": name, "team": chosen, "messages": []})
        else:
            say(f"No messages for {name} in team {chosen} yet.")
        return
    with open_mailbox(settings, chosen, name) as mailbox:
        read = mailbox.look(limit, kept=True) if everything else []
        waiting = unread_letters(mailbox, limit, take)
        if watch:
            follow(mailbox, read, waiting, limit, take, as_json)
        elif as_json:
            plain = [body(one, read=True) for one in read] + [body(one) for one in waiting]
            emit_json({"agent": name, "team": chosen, "messages": plain})
        elif read or waiting:
            draw(read, waiting)
        else:
            say(f"No unread messages for {name} in team {chosen}.")
        if take and not watch:
            put_away(mailbox, waiting)
        elif would_take and not as_json:
            say(f"would mark {counted(len(waiting), 'message')} as read")


def unread_letters(mailbox: Mailbox, limit: int, take: bool) -> list[Letter]:
    """Return at most ``limit`` unread messages without duplicates; warn about each that the mailbox refused."""
    letters = mailbox.poll(limit) if take else mailbox.look(limit)
    while mailbox.refused:
        refused = mailbox.refused.pop(0)
        warn(f"refused a message: {refused.why}; it is kept in {refused.path}")
    return list({one.id: one for one in letters}.values())


def put_away(mailbox: Mailbox, letters: list[Letter]) -> None:
    """Flush stdout, then mark the printed letters as read."""
    sys.stdout.flush()
    for letter in letters:
        mailbox.mark_read(letter)


def follow(mailbox: Mailbox, read: list[Letter], waiting: list[Letter], limit: int, take: bool, as_json: bool) -> None:
    """Print the given messages, then new ones as they arrive, until interrupted; mark them as read if ``take``."""
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
        waiting = unread_letters(mailbox, limit + len(known) if not take else limit, take)


def body(letter: Letter, *, read: bool = False) -> dict[str, Any]:
    """Return a letter as a dict for JSON."""
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
    """Return the time a letter was sent, in local time."""
    return datetime.fromtimestamp(letter.time_ns / 1e9).astimezone()


def draw(read: list[Letter], waiting: list[Letter]) -> None:
    """Print one paragraph per message: sender, time, summary and text."""
    for letter in [*read, *waiting]:
        at = when(letter).strftime("%Y-%m-%d %H:%M:%S")
        kind = f"  [{letter.control.get('type')}]" if letter.control else ""
        seen = "  read" if letter in read else ""
        text = letter.text or (json.dumps(letter.control) if letter.control else "")
        lines = "".join(f"  {line}\n" for line in text.splitlines())
        about = f"  {letter.summary}" if letter.summary else ""
        paint([(letter.sender, "bold"), (f"  {at}{kind}{seen}", "dim"), (f"{about}\n", "italic"), (lines, "")])
