"""``reverie memory review``: approve or reject unconfirmed memories, and answer questions from dreams."""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from ...layers.l6_dream import Question
from ...runtime.dream.reports import open_questions
from ...runtime.memory.memory import Memory
from ...runtime.memory.results import PendingMemory
from ...values import picked
from ..output import emit_json, one_word, paint, say, visible
from .project_store import opened

_VERSION_DIGITS: Final = 12
_NAMED_VERSION: Final = re.compile(rf"(.+)@([0-9a-f]{{{_VERSION_DIGITS},64}})")
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(short_help="Accept or reject unconfirmed memories.")
@click.option("--accept", multiple=True, metavar="NAME[@VERSION]", help="Accept this memory (repeatable).")
@click.option("--reject", multiple=True, metavar="NAME", help="Reject this memory (repeatable).")
@click.option("--dry-run", is_flag=True, help="Show the unconfirmed memories and ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def review(accept: tuple[str, ...], reject: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Accept or reject memories derived from untrusted text, each shown as a diff, and decide which of several
    similar or contradicting memories is right.

    A rejected memory returns to its last trusted version, or is deleted. On a terminal, asks about each memory. With
    the version that was shown, --accept refuses a memory that has changed since.
    """
    memory = opened()
    if not dry_run:
        for name, version in map(_seen, accept):
            memory.confirm(name, version=version)
        for name in reject:
            memory.reject(name)
    waiting, questions = memory.review(), open_questions(memory.store)
    if as_json:
        pending = [picked(one, "file name source diff version") for one in waiting]
        answered = {"accepted": list(accept), "rejected": list(reject), "dry_run": dry_run}
        emit_json({**answered, "pending": pending, "questions": questions})
        return
    if not waiting and not questions:
        say("nothing waits for approval")
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (accept or reject or dry_run)
    for one in waiting:
        show(one)
        if asks:
            decide(memory, one)
    for question in questions:
        say(visible(f"{question.topic}: {question.text}"))
        say()
        if asks:
            settle(memory, question)


def _seen(given: str) -> tuple[str, str]:
    """Return the name and the version of a memory to accept; the version is empty if none was given."""
    found = _NAMED_VERSION.fullmatch(given)
    return (found[1], found[2]) if found else (given, "")


def settle(memory: Memory, question: Question) -> None:
    """Ask which memory of a question is right, or whether one has ended; 'memory undo' undoes the deletion."""
    if question.topic == "ended":
        answer = click.prompt("Delete it (d) or skip (s)", type=click.Choice(["d", "s"]), default="s")
        if answer == "d":
            memory.forget(*question.files, why="the user says that it has ended")
    elif question.topic in ("contradiction", "similar"):
        for number, file in enumerate(question.files, 1):
            say(f"  {number}  {one_word(file)}")
        numbers = [str(number) for number in range(1, len(question.files) + 1)]
        answer = click.prompt(
            "Which one is right? The others are deleted (s skips)", type=click.Choice([*numbers, "s"]), default="s"
        )
        if answer != "s":
            kept = question.files[int(answer) - 1]
            memory.forget(*(file for file in question.files if file != kept), why=f"the user chose {kept}")


def show(one: PendingMemory) -> None:
    """Print an unconfirmed memory's file, sources and diff."""
    origin = f", from {', '.join(one.source)}" if one.source else ""
    say(visible(f"{one.file}@{one.version[:_VERSION_DIGITS]}{origin}"))
    paint((f"{line}\n", COLOURS.get(line[:1], "")) for line in visible(one.diff).splitlines())
    say()


def decide(memory: Memory, one: PendingMemory) -> None:
    """Ask whether to accept, reject or skip one unconfirmed memory, and do so."""
    question = f"{one_word(one.name)}: accept (a), reject (r) or skip (s)"
    answer = click.prompt(question, type=click.Choice(["a", "r", "s"]), default="s", err=True)
    if answer == "a":
        memory.confirm(one.file, version=one.version)
    elif answer == "r":
        memory.reject(one.file)
