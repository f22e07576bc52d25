"""``reverie redact``: take a secret out of a session for good."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from ...errors import InputError, SessionNotFound
from ...runtime.redaction.session import FoundSecret, Redaction, RedactionReceipt, found_secrets
from ...settings import load_settings
from ..output import as_plain, confirmed, counted, emit_json, say, warn
from .recordings import SESSION, found_key, opened_library, opened_storage

_NEVER_AN_ARGUMENT: Final = (
    "the secret is never an argument: the history of the shell keeps it; give only SESSION, and type the secret at "
    "the prompt or send it to stdin"
)


@click.command(context_settings={"ignore_unknown_options": True})  # click would print an unknown option
@click.argument("session", type=SESSION)
@click.argument("surplus", nargs=-1, metavar="")  # else click would print it
@click.option("--text", "text", is_flag=True, help="Read the secret from a hidden prompt or from stdin (default).")
@click.option("--scan", is_flag=True, help="List secrets, found by their formats, masked; with --yes take them out.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Count the places and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
def command(
    session: str, surplus: tuple[str, ...], text: bool, scan: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Take a secret out of a session for good.

    It leaves the log, the search index, stored results, notes, agents' logs, memories, the input history and every
    other file of the home, and the rows of a database; thinking that was signed after it is not sent again. This
    cannot be undone. The secret is never an argument, because arguments stay in the history of the shell.
    """
    if surplus or session.startswith("-"):
        raise InputError(f"redact has no such option or argument; {_NEVER_AN_ARGUMENT}")
    if text and scan:
        raise InputError("--text and --scan exclude each other")
    key = key_of(session)
    settings = load_settings()
    with opened_storage(settings) as storage:
        found = found_secrets(storage, key) if scan else []
        for one in [] if as_json else found:
            say(f"{one.kind}: {masked(one)}, {counted(one.count, 'time')}")
        secrets = [one.value for one in found] if scan else [typed()]
        if not secrets and not as_json:
            say("no secret was found; nothing was changed")
            return 0
        redaction = Redaction(storage, settings.home, key, secrets)
        receipt = redaction.plan()
        lists = dry_run or (scan and not yes)
        if secrets and not lists:
            if not yes and not agreed(receipt):
                warn("nothing was changed")
                return 1
            receipt = redaction.run()
    if as_json:
        rows = [{"kind": one.kind, "start": start(one), "chars": len(one.value), "count": one.count} for one in found]
        emit_json({**as_plain(receipt), **({"found": rows} if scan else {})})
    else:
        show(receipt, dry_run=lists)
        if lists and not dry_run:
            say(f"'reverie redact {session} --scan --yes' takes them out permanently")
    return 1 if receipt.left and not lists else 0


def key_of(session: str) -> str:
    """Return the log key of a session; the error for an unknown one does not repeat it, as it may be the secret."""
    with opened_library() as library:
        try:
            return found_key(library, session)
        except SessionNotFound:
            if os.path.isfile(session):
                raise
            raise SessionNotFound(
                f"there is no such session ('reverie sessions' lists them); {_NEVER_AN_ARGUMENT}"
            ) from None


def typed() -> str:
    """Return the secret from stdin, or from a prompt that does not show it."""
    if sys.stdin.isatty():
        return str(click.prompt("Secret", hide_input=True, err=True))
    return sys.stdin.read().strip("\r\n")


def start(secret: FoundSecret) -> str:
    """Return the first characters of a secret; none if it is short."""
    return secret.value.lstrip()[:4] if len(secret.value) >= 20 else ""


def masked(secret: FoundSecret) -> str:
    """Return the first characters of a long secret and its length."""
    return f"{start(secret)}… ({len(secret.value)} characters)"


def agreed(receipt: RedactionReceipt) -> bool:
    """Ask the user to confirm the redaction and return the answer; without a terminal raise InputError."""
    target = f"{counted(receipt.occurrences, 'occurrence')} from {counted(len(receipt.files), 'file')}"
    return confirmed(
        f"Take {target} out permanently?", f"nothing was changed: confirmation needs a terminal; --yes takes {target}"
    )


def show(receipt: RedactionReceipt, *, dry_run: bool) -> None:
    """Print a receipt without any content."""
    verb = "would take" if dry_run else "took"
    say(f"{verb} {counted(receipt.occurrences, 'occurrence')} out of {counted(len(receipt.files), 'file')}")
    for name, count in receipt.files.items():
        say(f"  {name}: {count}")
    for name in receipt.memories:
        say(f"  {'would forget' if dry_run else 'forgot'} the memory {name}")
    if receipt.replies:
        say(f"thinking of {counted(receipt.replies, 'reply')} is not sent again")
    say(f"log: sha256 {receipt.log_sha256}…")
    for name in receipt.left:
        warn(f"still holds the secret: {name}")
    if receipt.left and not dry_run:
        warn("redact those sessions as well, or remove those files")
