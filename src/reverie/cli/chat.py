"""``reverie chat``: talk with an agent, in a terminal or through a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..errors import InputError, ModelUnknown
from ..settings import Mode, Settings, load_settings
from ..values import replace
from .output import printable

if TYPE_CHECKING:
    from .terminal.options import Options
    from .terminal.print_mode import OutputFormat

__all__ = ["command"]

BAD_INPUT = 2
INTERRUPTED = 130
FORMATS = ("text", "json", "stream-json")
MODES = ("default", "accept-edits", "plan", "bypass")
PICK = "\0pick"


@click.command(short_help="Talk with an agent.")
@click.argument("prompt", required=False, default="")
@click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the newest session of this project.")
@click.option(
    "-r",
    "--resume",
    metavar="[SESSION]",
    is_flag=False,
    flag_value=PICK,
    help="Go on with a session; without a name, choose.",
)
@click.option("-p", "--print", "once", is_flag=True, help="Answer once and leave; stdin is read too.")
@click.option("--model", metavar="NAME", help="The model to ask: anthropic:..., openai:..., local:..., or an alias.")
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="With --print: what to print.",
)
@click.option("--permission-mode", type=click.Choice(MODES), help="What tools may do without asking.")
@click.option("--allow", metavar="RULE", multiple=True, help="Allow without asking, such as 'Bash(git status:*)'.")
@click.option("--deny", metavar="RULE", multiple=True, help="Never allow, such as 'Edit(secrets/**)'.")
@click.option("--max-turns", metavar="N", type=click.IntRange(min=1), help="Replies of one query, at most.")
@click.option("--budget", metavar="USD", type=click.FloatRange(min=0), help="What the session may cost, in dollars.")
@click.option(
    "--cwd",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work in this directory.",
)
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR does the same.")
def command(
    prompt: str,
    go_on: bool,
    resume: str | None,
    once: bool,
    model: str | None,
    output_format: str,
    permission_mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    max_turns: int | None,
    budget: float | None,
    cwd: Path | None,
    no_color: bool,
) -> int:
    """Talk with an agent that reads, searches, edits and runs what you allow.

    In a terminal this is a conversation: /help lists commands and keys. Without one, or with --print, it answers the
    prompt joined with what comes in on stdin, and leaves: 0 completed, 1 ended otherwise, 2 bad input, 130
    interrupted.
    """
    from .terminal.options import Options

    if output_format != "text" and not once:
        raise InputError("--output-format needs --print")
    if go_on and resume is not None:
        raise InputError("--continue and --resume exclude each other: give one")
    if no_color:
        os.environ["NO_COLOR"] = "1"
    where = (cwd or Path.cwd()).resolve()
    settings = with_rules(project_settings(where), allow, deny)
    alone = once or not sys.stdin.isatty()
    options = Options(
        cwd=where,
        prompt=joined(prompt, piped_text()) if alone else prompt,
        model=model,
        session=session_asked(settings, where, go_on, resume),
        pick=resume == PICK,
        mode=cast("Mode | None", permission_mode),
        max_turns=max_turns,
        budget_usd=budget,
    )
    if alone:
        refuse_silence(options)
    try:
        return run(options, settings, once=once, output=cast("OutputFormat", output_format))
    except ModelUnknown as error:
        print(printable(str(error)), file=sys.stderr)
        return BAD_INPUT


def run(options: Options, settings: Settings, *, once: bool, output: OutputFormat) -> int:
    """Talk the way this terminal allows."""
    from ..models import open_model

    # Says at once how to get a model where there is none; nothing is loaded or connected by it.
    open_model(options.model or settings.model, aliases=settings.model_aliases)
    import asyncio

    if once:
        from .terminal.print_mode import print_answer

        return asyncio.run(print_answer(options, settings, output))
    if not on_a_terminal():
        from .terminal.plain import talk_plainly

        if options.pick:
            raise InputError("there is no terminal to choose a session on: name one, or use --continue")
        return asyncio.run(talk_plainly(options, settings))
    try:
        return asyncio.run(converse(options, settings))
    except asyncio.CancelledError:
        return INTERRUPTED


async def converse(options: Options, settings: Settings) -> int:
    """Talk on a whole terminal."""
    from .terminal.conversation import Conversation

    await Conversation(options, settings, colour=not os.environ.get("NO_COLOR")).run()
    return 0


def on_a_terminal() -> bool:
    """Say whether a person sits at both ends and the terminal can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def project_settings(cwd: Path) -> Settings:
    """Read the settings that hold in a directory."""
    from ..runtime.places.projects import canonical_root

    return load_settings(project=canonical_root(cwd))


def with_rules(settings: Settings, allow: tuple[str, ...], deny: tuple[str, ...]) -> Settings:
    """Return the settings with rules of this run added to those that are set."""
    rules = settings.permissions
    rules = replace(rules, allow=(*rules.allow, *allow), deny=(*rules.deny, *deny))
    return replace(settings, permissions=rules)


def session_asked(settings: Settings, cwd: Path, go_on: bool, resume: str | None) -> str | None:
    """Return the session to go on with, None for a new one or one yet to be chosen."""
    from .terminal.sessions import named_session, newest_session

    if go_on:
        return newest_session(settings, cwd)
    return None if resume in (None, PICK) else named_session(settings, cwd, str(resume))


def piped_text() -> str:
    """Return what comes in on stdin where it is no terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def joined(prompt: str, piped: str) -> str:
    """Return the prompt with what was piped in below it."""
    return "\n\n".join(part for part in (prompt, piped.rstrip("\n")) if part.strip())


def refuse_silence(options: Options) -> None:
    """Refuse to ask nothing."""
    if not options.prompt.strip():
        raise InputError("there is nothing to ask: give a prompt, or pipe one in")
