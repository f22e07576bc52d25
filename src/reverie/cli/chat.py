"""``reverie chat``: talk with an agent in a terminal, or send one prompt through a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..errors import InputError, NewerVersion
from ..settings import PRESETS, Mode, Preset, Settings, load_settings
from ..values import replace
from .options import number_option, subject_option
from .output import paint, warn
from .terminal.options import WAIT_SECONDS, Options

if TYPE_CHECKING:
    from .terminal.print_mode import OutputFormat

INTERRUPTED = 130
FORMATS = ("text", "json", "stream-json")
MODES = ("default", "accept-edits", "plan", "bypass")
PICK = "\0pick"
CARRY_OUT = "Carry out the plan."
MAX_PIPED_BYTES = 32_000_000
"""The largest request of any provider."""


@click.command()
@click.argument("prompt", required=False, default="")
@click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the newest session of this project.")
@click.option(
    "-r",
    "--resume",
    metavar="[SESSION]",
    is_flag=False,
    flag_value=PICK,
    help="Continue a session; without a name, choose from a list.",
)
@click.option("-p", "--print", "once", is_flag=True, help="Answer one prompt and exit; stdin is added to the prompt.")
@click.option("--model", metavar="NAME", help="The model to use: anthropic:..., openai:..., local:..., or an alias.")
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Output format with --print.",
)
@click.option(
    "--input-format",
    type=click.Choice(("text", "stream-json")),
    default="text",
    show_default=True,
    help="With --print: stdin is text, or a user message as JSON on each line.",
)
@click.option("--preset", type=click.Choice(tuple(PRESETS)), help="How readily context is given up for money.")
@click.option("--permission-mode", type=click.Choice(MODES), help="Which actions need no approval.")
@click.option(
    "--approve-plan",
    type=click.Choice(("default", "accept-edits")),
    help="With --print: approve the plan of the continued session and go on in this mode.",
)
@click.option("--allow", metavar="RULE", multiple=True, help="Allow without asking, for example 'Bash(git status:*)'.")
@click.option("--deny", metavar="RULE", multiple=True, help="Never allow, for example 'Edit(secrets/**)'.")
@number_option("--max-turns", "Maximum number of model replies per prompt.", 1)
@click.option("--budget", metavar="USD", type=click.FloatRange(min=0), help="Maximum cost of the session, in dollars.")
@click.option("--name", metavar="NAME", default="", help="The name that other agents use to write to this one.")
@subject_option("Your id of the person the session is about, for export and erasure.")
@click.option(
    "--cwd",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work in this directory.",
)
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=WAIT_SECONDS,
    show_default=True,
    help="How long --print waits for agents in the background.",
)
@click.option("--verbose", is_flag=True, help="Also show diagnostics, such as a summary written without a model.")
@click.option("--no-color", is_flag=True, help="Print without colours; NO_COLOR does the same.")
def command(
    prompt: str,
    go_on: bool,
    resume: str | None,
    once: bool,
    model: str | None,
    output_format: str,
    input_format: str,
    preset: Preset | None,
    permission_mode: str | None,
    approve_plan: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    max_turns: int | None,
    budget: float | None,
    name: str,
    subject: str | None,
    cwd: Path | None,
    wait_seconds: float,
    verbose: bool,
    no_color: bool,
) -> int:
    """Talk with an agent that reads, searches and edits files and runs commands, as far as you allow it.

    In a terminal this is a conversation; /help lists commands and keys. Without a terminal, or with --print, it
    answers PROMPT followed by the text on stdin, and exits with 0 (completed), 1 (stopped early), 2 (bad input)
    or 130 (interrupted).
    """
    from ..layers.l7_relay import check_agent_name
    from ..runtime.places.projects import canonical_root
    from ..runtime.places.shared_settings import with_shared
    from ..telemetry.otlp import exporting

    reads_messages = input_format == "stream-json"
    needs_print = {
        "--output-format": output_format != "text",
        "--input-format": reads_messages,
        "--approve-plan": bool(approve_plan),
    }
    if not once and (option := next((one for one, is_given in needs_print.items() if is_given), "")):
        hint = "; in a conversation, use /plan approve" if approve_plan else ""
        raise InputError(f"{option} needs --print{hint}")
    if go_on and resume is not None:
        raise InputError("--continue and --resume exclude each other: use one of them")
    if no_color:
        os.environ["NO_COLOR"] = "1"
    where = (cwd or Path.cwd()).resolve()
    settings, notice = with_shared(load_settings(project=canonical_root(where)), canonical_root(where))
    if notice:
        warn(notice)
    settings = with_rules(settings, allow, deny, preset)
    alone = (once or not sys.stdin.isatty()) and not reads_messages
    options = Options(
        cwd=where,
        prompt=(full_prompt(prompt, piped_text()) or (CARRY_OUT if approve_plan else "")) if alone else prompt,
        reads_messages=reads_messages,
        model=model,
        session=requested_session(settings, where, go_on, resume),
        pick=resume == PICK,
        mode=cast("Mode | None", permission_mode),
        max_turns=max_turns,
        budget_usd=budget,
        name=check_agent_name(name) if name else "",
        subject=subject or "",
        wait_seconds=wait_seconds,
        verbose=verbose,
        approve_plan=cast("Mode | None", approve_plan),
    )
    if alone and not options.prompt.strip():
        raise InputError("there is no prompt: pass one as an argument or on stdin")
    try:
        with exporting(os.environ, warn) as listener:
            told = replace(options, listener=listener)
            return run(told, settings, once=once, output=cast("OutputFormat", output_format))
    except NewerVersion as error:
        if options.prompt or not show_newer(settings, error):
            raise
        return 0


def show_newer(settings: Settings, error: NewerVersion) -> bool:
    """Print a session that a newer Reverie wrote, then a line on stderr about it; return False if it is no session."""
    from ..conversation.log import parse_log
    from .sessions.recordings import opened_storage
    from .sessions.transcript import of_entries

    with opened_storage(settings) as storage:
        data = storage.load(error.path) if error.path.endswith(".jsonl") else None
    if data is None:
        return False
    paint(of_entries(parse_log(data).entries))
    warn(str(error))
    return True


def run(options: Options, settings: Settings, *, once: bool, output: OutputFormat) -> int:
    """Print one answer if ``once``, else chat, interactively if on a terminal; return the exit code."""
    from ..models import open_model
    from ..models.names import unlisted_notice
    from ..models.sdk_client import SdkModel

    # Fails early with setup instructions when there is no model or no key; it connects nothing.
    model = open_model(options.model or settings.model, aliases=settings.model_aliases)
    if isinstance(model, SdkModel):
        model.check_key()
    if notice := unlisted_notice(model.name, settings.models):
        warn(notice)
    import asyncio

    if once:
        from .terminal.print_mode import print_answer

        return asyncio.run(print_answer(options, settings, output))
    if not on_a_terminal():
        from .terminal.plain import talk_plainly

        if options.pick:
            raise InputError("choosing a session needs a terminal: pass its name to --resume, or use --continue")
        return asyncio.run(talk_plainly(options, settings))
    from .terminal.conversation import Conversation

    async def converse() -> None:
        await Conversation(options, settings, colour=not os.environ.get("NO_COLOR")).run()

    try:
        asyncio.run(converse())
    except asyncio.CancelledError:
        return INTERRUPTED
    return 0


def on_a_terminal() -> bool:
    """Return whether stdin and stdout are a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def with_rules(
    settings: Settings, allow: tuple[str, ...], deny: tuple[str, ...], preset: Preset | None = None
) -> Settings:
    """Return a copy of the settings with these rules added to its permission rules, and with a preset if given."""
    rules = settings.permissions
    rules = replace(rules, allow=(*rules.allow, *allow), deny=(*rules.deny, *deny))
    return replace(settings, permissions=rules, preset=preset or settings.preset)


def requested_session(settings: Settings, cwd: Path, go_on: bool, resume: str | None) -> str | None:
    """Return the newest session if ``go_on``, or the one ``resume`` names; None if it is new or chosen later."""
    from .terminal.sessions import named_session, newest_session

    if go_on:
        return newest_session(settings, cwd)
    return None if resume in (None, PICK) else named_session(settings, cwd, str(resume))


def piped_text() -> str:
    """Return the text on stdin, or an empty string if stdin is a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    text = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)
    if len(text) > MAX_PIPED_BYTES:
        raise InputError("stdin has more than 32 MB, which no model takes: write a file and name it in the prompt")
    return text.decode("utf-8", "replace")


def full_prompt(prompt: str, piped: str) -> str:
    """Return the prompt, an empty line and the piped text; a blank part is left out."""
    return "\n\n".join(part for part in (prompt, piped.rstrip("\n")) if part.strip())
