"""``reverie acp``: serve the agent to an editor over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from ...errors import InputError
from ...extras import needing
from ...settings import Mode, load_settings
from ..options import number_option
from ..output import warn

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent
    from ...servers.acp.editor_session import CommandOutcome, SlashCommand

MODES: Final = ("default", "accept-edits", "plan", "bypass")
ON_A_SCREEN: Final = frozenset({"help", "vim", "undo", "rewind", "resume", "clear", "quit"})
"""Commands of the terminal that an editor has itself, or that change to another session."""


@click.command()
@click.option("--model", metavar="NAME", help="The model to use; default: setting model.")
@click.option("--permission-mode", type=click.Choice(MODES), help="Which actions need no approval at first.")
@number_option("--max-turns", "Maximum number of model replies per prompt.", 1)
@click.option("--budget", metavar="USD", type=click.FloatRange(min=0), help="Maximum cost of a session, in dollars.")
def command(model: str | None, permission_mode: str | None, max_turns: int | None, budget: float | None) -> None:
    """Serve the agent to an editor, such as Zed, over the Agent Client Protocol.

    The editor starts this command and talks with it over stdin and stdout. Every session is one of the library:
    'reverie show', 'reverie context' and 'reverie chat --resume' read it.
    """
    with needing("acp", "serving editors needs an optional package", InputError):
        import acp  # pyright: ignore[reportUnusedImport]  # noqa: F401 - check that it is installed
    if os.isatty(0):
        warn("this command waits for an editor on stdin; docs/guides/acp.md says how to set one up (Ctrl-C ends it)")
    from ...models import open_model
    from ...servers.acp.server import AcpServer, ServerOptions, serve
    from ...servers.acp.transport import open_stdio
    from ..terminal.calls import call_title
    from ..terminal.sessions import remove_if_unused

    settings = load_settings()
    if model is not None:
        open_model(model, aliases=settings.model_aliases)  # fails early with advice; it connects nothing
    options = ServerOptions(model, cast("Mode | None", permission_mode), max_turns, budget)
    server = AcpServer(options, title=call_title, commands=EditorCommands(), on_close=remove_if_unused)

    async def run() -> None:
        await serve(server, await open_stdio())

    asyncio.run(run())


class EditorCommands:
    """The slash commands of the terminal that need no screen, and the user's own."""

    def of(self, agent: Agent) -> Sequence[SlashCommand]:
        """Return the commands of an agent's project."""
        from ...servers.acp.editor_session import SlashCommand
        from ..terminal.commands import COMMANDS
        from ..terminal.work_commands import meaning_of

        found: list[SlashCommand] = []
        for name, command in COMMANDS.items():
            meaning, _, usage = command.meaning.partition(f": /{name} ")
            if name not in ON_A_SCREEN:
                found.append(SlashCommand(name, meaning, usage))
        own = [SlashCommand(name, meaning_of(path), "arguments") for name, path in _own(agent).items()]
        return [*found, *(one for one in own if one.name not in COMMANDS)]

    async def run(self, agent: Agent, line: str) -> CommandOutcome:
        """Run the command in a line, and return its output, or the prompt that it makes."""
        from ...servers.acp.editor_session import CommandOutcome
        from ..terminal.commands import run_command

        chat = EditorChat(agent)
        await run_command(cast(Any, chat), line)
        shown = "\n".join(line.rstrip() for line in chat.lines).strip("\n")
        return CommandOutcome(f"```\n{shown}\n```" if shown else "", chat.prompt)


class EditorChat:
    """The parts of a conversation that commands use, with lines in place of a screen."""

    def __init__(self, agent: Agent) -> None:
        from ..terminal.colours import Paint
        from ..terminal.transcript import Transcript

        self.agent = agent
        self.settings = agent.settings
        self.paint = Paint(colour=False)
        self.lines: list[str] = []
        self.transcript = Transcript(self.lines.extend, paint=self.paint, cwd=agent.cwd, size=lambda: (100, 1_000))
        self.own = _own(agent)
        self.prompt = ""

    def submit(self, text: str) -> None:
        """Send a prompt after the command."""
        self.prompt = text

    async def choose(self, title: str, options: Sequence[Any]) -> None:
        """Choose nothing: name the choices, because an editor has no list for them."""
        self.lines.extend([title, *(f"  {one.label}" for one in options), "Name one after the command."])

    async def edit_file(self, path: Path) -> None:
        """Refuse: the editor itself opens files."""
        raise InputError(f"open {path} in the editor, and save it there")


def _own(agent: Agent) -> dict[str, Path]:
    from ...runtime.places.trust import TrustList
    from ..terminal.work_commands import own_commands

    is_trusted = TrustList.open(agent.settings.home).is_trusted(agent.cwd)
    return own_commands(agent.settings.home, agent.cwd, is_trusted=is_trusted)
