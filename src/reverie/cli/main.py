"""The ``reverie`` command: a table of commands and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click

from ..errors import ReverieError
from .output import printable

__all__ = ["COMMANDS", "LazyGroup", "group", "main"]

# title -> name -> (module that holds an attribute ``command``, the line shown by --help without importing it)
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Work": {
        "chat": ("reverie.cli.chat", "Talk with an agent."),
        "agents": ("reverie.cli.agents.agents", "List the agents that sessions started."),
        "send": ("reverie.cli.agents.send", "Write to an agent."),
        "inbox": ("reverie.cli.agents.inbox", "Show what was written to an agent, or to you."),
    },
    "See what it saves": {
        "demo": ("reverie.cli.savings.demo", "Play a long session through the layers and see the bill."),
        "replay": ("reverie.cli.savings.replay", "Replay recorded sessions under policies and price them."),
        "context": ("reverie.cli.savings.context", "Say what fills the window of a session or a recording."),
        "stats": ("reverie.cli.savings.stats", "Say what the last days cost and how well the layers did."),
        "ledger": ("reverie.cli.savings.ledger", "Say what calls cost and what broken caches lost."),
        "measures": ("reverie.cli.savings.measures", "Say how well cache, compaction, memory and background work do."),
    },
    "Sessions": {
        "sessions": ("reverie.cli.sessions.sessions", "List the sessions of the library."),
        "show": ("reverie.cli.sessions.show", "Show a session as a person reads it."),
        "search": ("reverie.cli.sessions.search", "Find messages in past sessions."),
        "read": ("reverie.cli.sessions.read", "Read back what left a session's view."),
        "import": ("reverie.cli.sessions.import_sessions", "Bring recorded sessions of other agents into the library."),
        "export": ("reverie.cli.sessions.export", "Write out a session's log, byte for byte."),
        "delete": ("reverie.cli.sessions.delete", "Delete a session's log."),
        "purge": ("reverie.cli.sessions.purge", "Delete a session and all that came from it."),
    },
    "What left the window": {
        "compact": ("reverie.cli.past.compact", "Turn a session's past into a summary."),
        "undo": ("reverie.cli.past.undo", "Take a session's last compaction back."),
        "loss": ("reverie.cli.past.loss", "Say what compactions took out of view."),
        "notes": ("reverie.cli.past.notes", "Show, renew or edit the running notes of a session."),
        "skill": ("reverie.cli.past.skill", "Turn a session into a skill."),
    },
    "Memory": {
        "memory": ("reverie.cli.memory", "Read, change, take back and approve memories."),
        "dream": ("reverie.cli.memory.dream", "Put memories in order: merge, correct, prune."),
    },
    "Beside other agents": {
        "install": ("reverie.cli.hosts.install", "Put our hooks into another agent's settings."),
        "uninstall": ("reverie.cli.hosts.uninstall", "Take our hooks out of another agent's settings."),
        "mcp": ("reverie.cli.hosts.mcp", "Serve memories and past sessions to other agents."),
        "hook": ("reverie.cli.hosts.hook", "Answer a hook of another agent."),
        "worker": ("reverie.cli.hosts.worker", "Do what hooks of other agents left for later."),
        "statusline": ("reverie.cli.hosts.statusline", "Print one line about a session for a host to show."),
    },
    "This machine": {
        "trust": ("reverie.cli.machine.trust", "Trust a directory, or stop trusting it."),
        "doctor": ("reverie.cli.machine.doctor", "Say what this machine offers and what is used instead."),
    },
}
COMMANDS: Mapping[str, tuple[str, str]] = {name: row for rows in SECTIONS.values() for name, row in rows.items()}

BAD_INPUT = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Iterable[str]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.table = table or {}
        self.sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command."""
        if cmd_name not in self.table:
            return None
        module_name, _ = self.table[cmd_name]
        return cast(click.Command, import_module(module_name).command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table as help, importing nothing."""
        width = max(map(len, self.table), default=0)
        for title, names in (self.sections or {"Commands": self.table}).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.table[name][1]) for name in names])


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the installed version and stop."""
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"reverie {version('reverie')}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
@click.pass_context
def group(ctx: click.Context) -> int | None:
    """Context and memory for LLM agents.

    Without a command, in a terminal, this is 'reverie chat'.
    """
    if ctx.invoked_subcommand is not None:
        return None
    if sys.stdin.isatty() and sys.stdout.isatty():
        return cast(int, ctx.invoke(import_module("reverie.cli.chat").command))
    click.echo(ctx.get_help())
    return None


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None, *, commands: click.Command = group) -> int:
    """Run one command and return its exit code: 0 done, 2 bad input, 130 interrupted, 141 nobody reads."""
    never_fail_to_encode()
    try:
        code = invoke(commands, sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return let_go_of_stdout()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.ClickException as error:
        return complain(usage_line(error))
    except ReverieError as error:
        return complain(str(error) or type(error).__name__)
    except OSError as error:
        if not can_flush():
            let_go_of_stdout()
        return complain(os_line(error))
    return code


def invoke(commands: click.Command, arguments: Sequence[str]) -> int:
    """Run a command and return the exit code it gives.

    Not through click's own main, which turns a closed pipe into exit code 1 before anyone can see it.
    """
    try:
        with commands.make_context("reverie", list(arguments)) as context:
            code = commands.invoke(context)
    except click.exceptions.Exit as end:
        code = end.exit_code
    return code if isinstance(code, int) else 0


def complain(message: str) -> int:
    """Print one clear line on stderr and return the exit code of bad input."""
    line = " ".join(part.strip() for part in printable(message).splitlines() if part.strip())
    try:
        print(f"reverie: {line}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    return BAD_INPUT


def usage_line(error: click.ClickException) -> str:
    """Say a usage error in one line that names where help is."""
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "reverie"
    return f"{error.format_message().rstrip('.')}. Try '{where} --help'."


def os_line(error: OSError) -> str:
    """Say an operating system error as a person would, with the path it is about."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason


def never_fail_to_encode() -> None:
    """Make the terminal's streams escape what their encoding cannot hold."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def can_flush() -> bool:
    """Say whether what was printed can still be delivered; on a full disk it cannot."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def let_go_of_stdout() -> int:
    """Point stdout nowhere, so that the interpreter's last flush is quiet too."""
    with open(os.devnull, "w") as nowhere:
        try:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        except (OSError, ValueError):
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    return PIPE_CLOSED
