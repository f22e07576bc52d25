"""``reverie rules``: show, add and drop the rules of the user in a session."""

from __future__ import annotations

from typing import Any

import anyio
import click

from ...conversation.rules import Rule, rules_in
from ...conversation.view import View
from ...errors import InputError, SessionBusy
from ...settings import Settings, load_settings
from ..output import emit_json, say
from ..sessions.recordings import recordings, session_argument
from .target_session import opened_session, queue_command


@click.command()
@session_argument()
@click.option("--add", "text", metavar="TEXT", default="", help="Add a rule.")
@click.option("--drop", "id", metavar="ID", default="", help="Drop the rule with this id.")
@click.option("--dry-run", is_flag=True, help="Only print the effect.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, text: str, id: str, dry_run: bool, as_json: bool) -> None:
    """Show the rules of the user in a session, which hold until its end and survive every compaction.

    A model finds them when it takes notes; each is a sentence of the user, with the message that it comes from.
    """
    if text and id:
        raise InputError("--add and --drop exclude each other: use one of them")
    if text or id:
        _print(anyio.run(_change, session, load_settings(), text, id, dry_run), as_json)
        return
    for one in recordings(session):
        rules = rules_in(View().fold_all(one.entries).facts.standing)
        if as_json:
            emit_json({"session": one.session_id, "rules": [_as_dict(rule) for rule in rules]})
        else:
            say("\n".join(rule_lines(rules)))


def rule_lines(rules: list[Rule]) -> list[str]:
    """Return the rules as lines for people."""
    if not rules:
        return ["no rules: a model finds them when it takes notes, and you can add one"]
    return [f"{rule.id:>3}  {' '.join(rule.text.split())}" for rule in rules]


async def _change(name: str, settings: Settings, text: str, id: str, dry_run: bool) -> dict[str, Any]:
    """Add or drop a rule, or leave that to the process that has the session open; return a dict of the effect."""
    try:
        async with opened_session(name, settings, dry_run=dry_run) as session:
            keeper = session.parts.rules
            if dry_run:
                rule = keeper.named(id) if id else Rule("", text)
            else:
                rule = await (keeper.drop(id) if id else keeper.add(text))
            return {"session": session.name, "dropped" if id else "added": _as_dict(rule), "applied": not dry_run}
    except SessionBusy:
        pass
    command, body = ("drop_rule", {"id": id}) if id else ("add_rule", {"rule": text})
    session, queued = queue_command(name, settings, command, lambda _: body, sender="reverie rules")
    return {"session": session, "applied": False, "queued": queued}


def _as_dict(rule: Rule) -> dict[str, str]:
    return {"id": rule.id, "text": rule.text, "message": rule.message}


def _print(effect: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(effect)
    elif "queued" in effect:
        say(f"{effect['session']} is open in another process, which changes its rules at its next turn")
    else:
        done = "dropped" if "dropped" in effect else "added"
        say(f"{done if effect['applied'] else f'would be {done}'}: {effect[done]['text']}")
