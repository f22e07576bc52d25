"""The ``reverie`` command: the table of all commands, and the conversion of errors into exit codes."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from ..errors import ModelUnknown, ReverieError
from .output import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# section title -> command name -> (module with an attribute ``command``, or module:attribute; help line, shown without
# importing the module)
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Work": {
        "chat": ("reverie.cli.chat", "Talk with an agent; 'reverie PROMPT' does too."),
        "agents": ("reverie.cli.agents.agents", "List the agents that sessions started."),
        "compact": ("reverie.cli.compaction.compact", "Replace old messages with a summary."),
        "notes": ("reverie.cli.compaction.notes", "Show or edit notes; make a skill of a session."),
        "memory": ("reverie.cli.memory", "Read, change, undo and approve memories."),
        "dream": ("reverie.cli.memory.dream", "Consolidate memories: merge, correct, prune."),
    },
    "Sessions": {
        "sessions": ("reverie.cli.sessions.sessions", "List the sessions in the library."),
        "show": ("reverie.cli.sessions.show", "Show a session as readable text."),
        "search": ("reverie.cli.sessions.search", "Find messages in past sessions."),
        "keep": ("reverie.cli.sessions.keep", "Keep the sessions of all agents of this machine."),
        "export": ("reverie.cli.sessions.export", "Export a session's log, byte for byte."),
        "delete": ("reverie.cli.sessions.delete", "Delete sessions and all derived from them."),
    },
    "Token usage and cost": {
        "demo": ("reverie.cli.costs.demo", "Run a long demo session and show its bill."),
        "replay": ("reverie.cli.costs.replay", "Price recorded sessions under other policies."),
        "context": ("reverie.cli.costs.context", "Show the context usage of a session."),
        "inspect": ("reverie.cli.costs.inspect_session", "Show a session as a page: window, requests, bill."),
        "stats": ("reverie.cli.costs.stats", "Show cost, cache hits and quality figures."),
    },
    "Set-up": {
        "install": ("reverie.cli.hosts.install", "Add Reverie's hooks to another agent."),
        "import": ("reverie.cli.sessions.import_sessions", "Import recorded sessions of other agents."),
        "move": ("reverie.cli.sessions.move", "Copy sessions between this home and a database."),
        "mcp": ("reverie.cli.hosts.mcp", "Serve memories and past sessions over MCP."),
        "acp": ("reverie.cli.hosts.acp", "Serve the agent to an editor over ACP."),
        "db": ("reverie.cli.setup.db", "Create the tables of a database, or show their state."),
        "gateway": ("reverie.cli.gateway", "Record agents by their base URL; check proxies."),
        "config": ("reverie.cli.setup.config", "Show your settings and their origin, or set one."),
        "trust": ("reverie.cli.setup.trust", "Trust a directory, or stop trusting it."),
        "doctor": ("reverie.cli.setup.doctor", "Check this machine and report missing features."),
        "completion": ("reverie.cli.setup.completion", "Print the completion script of a shell."),
    },
}
MORE: Mapping[str, tuple[str, str]] = {
    "read": ("reverie.cli.sessions.read", "Show content that was removed from a session's view."),
    "loss": ("reverie.cli.compaction.loss", "List the names that compactions removed from view."),
    "rules": ("reverie.cli.compaction.rules", "Show, add or drop rules of the user."),
    "redact": ("reverie.cli.sessions.redact", "Take a secret out of a session for good."),
    "send": ("reverie.cli.agents.send", "Send a message to an agent."),
    "stop": ("reverie.cli.agents.stop", "Stop the running query of a session or agent."),
    "inbox": ("reverie.cli.agents.inbox", "Show messages sent to an agent, or to you."),
    "uninstall": ("reverie.cli.hosts.install:remove", "Remove Reverie's hooks from another agent."),
    "hook": ("reverie.cli.hosts.hook", "Handle one hook call from another agent."),
    "worker": ("reverie.cli.hosts.worker", "Run the background jobs that hooks queued."),
    "statusline": ("reverie.cli.hosts.hook:statusline", "Print a status line for another agent to show."),
}
"""Commands that 'reverie help all' lists too."""
COMMANDS: Mapping[str, tuple[str, str]] = {
    **{name: row for rows in SECTIONS.values() for name, row in rows.items()},
    **MORE,
}
RENAMED: Mapping[str, tuple[str, ...]] = {
    "purge": ("delete",),
    "undo": ("compact", "--undo"),
    "skill": ("notes", "--as-skill", "--local", "--output", "skills"),
    "ledger": ("stats", "--by", "session", "--days", "36500"),
    "measures": ("stats", "--days", "36500"),
}
"""Commands of the last version, and how they are called now."""
ROOT_OPTIONS = ("-h", "--help", "-V", "--version")
COMPLETES = "_REVERIE_COMPLETE"
"""The variable by which a shell asks for completions."""

PLAIN_WORDS = (
    (r"is not a valid integer(?: range)?\b", "is not a whole number"),
    (r"is not a valid float(?: range)?\b", "is not a number"),
    (r"is not in the range (\S+?)<=x<=(\S+?)\.", r"is not between \1 and \2."),
    (r"is not in the range x>=(\S+?)\.", r"is less than \1."),
)
"""Words of click in usage errors, and plain ones for them."""
BAD_INPUT = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


class LazyGroup(click.Group):
    """A click group that imports a command's module only when that command is used."""

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
        """Return the command names in table order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command; return None for an unknown name."""
        if cmd_name not in self.table:
            return None
        module_name, _, attribute = self.table[cmd_name][0].partition(":")
        return cast(click.Command, getattr(import_module(module_name), attribute or "command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name is an error that names the most similar command."""
        if args[0] not in self.table:
            from difflib import get_close_matches

            near = "".join(f" Did you mean '{name}'?" for name in get_close_matches(args[0], self.table, n=1))
            given = [word for word in args if word != "--help"]
            words = given[0] if len(given) == 1 else f'"{" ".join(given)}"'
            prompt = f" To send it as a prompt: 'reverie chat {words}'." if ctx.parent is None and not near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{near}{prompt}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so, without importing any command."""
        from click.shell_completion import CompletionItem

        listed = [name for names in self.sections.values() for name in names] or self.table
        found = [CompletionItem(name, help=self.table[name][1]) for name in listed if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines from the table without importing any command."""
        for title, names in (self.sections or {"Commands": self.table}).items():
            width = max(map(len, self.table), default=0)
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.table[name][1]) for name in names])


class RootGroup(LazyGroup):
    """The group of all commands. Options without a command, and a prompt of several words, belong to 'chat'."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands alone, without empty lines, so that the help fits on one screen of 40 lines."""
        formatter.write("\n")
        for title, names in self.sections.items():
            formatter.write(f"{title}:\n")
            with formatter.indentation():
                formatter.write_dl([(name.ljust(max(map(len, self.table))), self.table[name][1]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate 'help', 'version', and options or a prompt without a command."""
        match args:
            case ["version"]:
                args = ["--version"]
            case ["help", "all"]:
                self.sections = {**self.sections, "More": MORE}
                args = ["--help"]
            case ["help", *rest]:
                return self.parse_args(ctx, [*rest, "--help"])
            case [first, *rest] if first in RENAMED:
                complain(f"'reverie {first}' is now 'reverie {' '.join(RENAMED[first])}'; use that from now on")
                args = [*RENAMED[first], *("--output" if one == "--out" else one for one in rest)]
            case [first, *_] if first not in self.table and first not in ROOT_OPTIONS:
                if first.startswith("-") or len(first.split()) > 1 or re.fullmatch(r"/[\w-]+", first):
                    args = ["chat", *args]
            case _:
                pass
        return super().parse_args(ctx, args)


def _asks_something() -> bool:
    """Return whether stdin is a conversation in a terminal, or has a prompt that was piped in."""
    if sys.stdin.isatty():
        return sys.stdout.isatty()
    kind = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the installed version and exit, if the option ``--version`` was given."""
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"reverie {version('reverie')}")
    ctx.exit()


@click.group(
    cls=RootGroup,
    table=COMMANDS,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
@click.pass_context
def group(ctx: click.Context) -> int | None:
    """Keep long agent sessions in the context window, cheaply, and undo anything.

    'reverie', 'reverie -c' and 'reverie "a prompt"' talk with an agent. 'reverie COMMAND --help' explains a command.
    'reverie help all' lists more, such as 'read' and 'loss' for content that left a session's view.
    """
    if ctx.invoked_subcommand is not None:
        return None
    if _asks_something():
        return cast(int, ctx.invoke(import_module("reverie.cli.chat").command))
    click.echo(ctx.get_help())
    return None


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None, *, commands: click.Command = group) -> int:
    """Run one command and return its exit code; after an error, print it as one line and return 2.

    130 means that the user interrupted the command, 141 that its output pipe was closed.
    """
    never_fail_to_encode()
    try:
        if asked := os.environ.get(COMPLETES):
            from click.shell_completion import shell_complete

            code = shell_complete(commands, {}, "reverie", COMPLETES, asked)
        else:
            code = invoke(commands, sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return let_go_of_stdout()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return BAD_INPUT
    except click.ClickException as error:
        return complain(usage_line(error))
    except ModelUnknown as error:
        print(printable(str(error)), file=sys.stderr)  # it lists commands, each on a line of its own
        return BAD_INPUT
    except ReverieError as error:
        return complain(str(error) or type(error).__name__)
    except OSError as error:
        if not can_flush():
            let_go_of_stdout()
        return complain(os_line(error))
    return code


def invoke(commands: click.Command, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; click's own ``main`` turns a closed pipe into exit code 1."""
    try:
        with warnings.catch_warnings(), commands.make_context("reverie", list(arguments)) as context:
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = warn
            code = commands.invoke(context)
    except click.exceptions.Exit as end:
        code = end.exit_code
    return code if isinstance(code, int) else 0


def warn(message: Warning | str, *where: object) -> None:
    """Print a warning as one line on stderr."""
    complain(f"warning: {message}")


def complain(message: str) -> int:
    """Print an error as one line on stderr and return the exit code for bad input."""
    line = " ".join(part.strip() for part in printable(message).splitlines() if part.strip())
    try:
        print(f"reverie: {line}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    return BAD_INPUT


def usage_line(error: click.ClickException) -> str:
    """Return a usage error as one line that names the command's --help."""
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "reverie"
    if isinstance(error, click.NoSuchOption):
        from difflib import get_close_matches

        params = error.ctx.command.params if error.ctx else []
        known = {name.strip("-"): name for one in params for name in one.opts}
        near = get_close_matches(error.option_name.strip("-"), known, n=1)
        meant = f" Did you mean '{known[near[0]]}'?" if near else ""
        return f"No such option '{error.option_name}'.{meant} Try '{where} --help'."
    message = error.format_message()
    for pattern, words in PLAIN_WORDS:
        message = re.sub(pattern, words, message)
    return f"{message}{'' if message.endswith(('.', '?', ')')) else '.'} Try '{where} --help'."


def os_line(error: OSError) -> str:
    """Return an operating system error as its reason, preceded by the path if there is one."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason


def never_fail_to_encode() -> None:
    """Make stdout and stderr escape characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def can_flush() -> bool:
    """Flush stdout and return whether that worked; on a full disk it fails."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def let_go_of_stdout() -> int:
    """Redirect stdout to /dev/null, so that the interpreter's final flush raises no error, and return 141."""
    with open(os.devnull, "w") as nowhere:
        try:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        except (OSError, ValueError):
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    return PIPE_CLOSED
