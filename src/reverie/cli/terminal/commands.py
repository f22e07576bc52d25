"""The commands after ``/``: a table, and what each one does."""

from __future__ import annotations

import io
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Final, get_args

from anyio import to_thread

from ...errors import InputError, ReverieError
from ...settings import Mode
from ...values import record
from .agents import agents_command
from .calls import one_line
from .footer import dollars, thousands

if TYPE_CHECKING:
    from .conversation import Conversation

__all__ = ["COMMANDS", "MODES", "Command", "drawn_lines", "run_command"]

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
KEYS: Final = (
    ("Enter", "send; Alt-Enter, Ctrl-J or a backslash at the end: a new line"),
    ("Esc", "interrupt"),
    ("Ctrl-C", "clear the line or interrupt; twice: leave"),
    ("Ctrl-R", "search what was typed before"),
    ("Shift-Tab", f"next mode: {', '.join(MODES)}"),
    ("@file", "complete a file name"),
    ("!command", "run a command yourself; the model sees what it printed"),
)


@record
class Command:
    """One command: what it does in words, how, and whether it may run while the model works."""

    meaning: str
    act: Callable[[Conversation, str], Awaitable[None]]
    anytime: bool = False


async def show_help(talk: Conversation, rest: str) -> None:
    """List commands and keys."""
    rows = [(f"/{name}", command.meaning) for name, command in COMMANDS.items()]
    lines = [f"  {talk.paint(f'{name:<12}', 'chosen')} {meaning}" for name, meaning in (*rows, ("", ""), *KEYS)]
    talk.transcript.put("block", [line.rstrip() for line in lines])


async def show_context(talk: Conversation, rest: str) -> None:
    """Draw what fills the window."""
    from ...cache.prices import capabilities_of
    from ..savings.context import draw
    from ..savings.window_usage import filling
    from ..sessions.recordings import Recording
    from .recent_messages import logged_entries

    agent = talk.agent
    entries = await to_thread.run_sync(logged_entries, agent)
    recording = Recording(agent.name, "reverie", "", agent.model.model_id, str(agent.cwd), tuple(entries))
    found = filling(recording, settings=agent.session.settings, lookup=capabilities_of, model=agent.model.model_id)
    talk.transcript.put("block", drawn_lines(lambda: draw(found)))


async def show_cost(talk: Conversation, rest: str) -> None:
    """Say what the session cost and what its cache did."""
    from ...runtime.agent.status import Meter
    from .recent_messages import logged_entries

    status = talk.agent.status()
    usage = Meter(await to_thread.run_sync(logged_entries, talk.agent)).usage
    cache = "no reply yet" if status.cache_share is None else f"{status.cache_share:.0%} of input read from the cache"
    lines = [
        f"{dollars(status.cost_usd)} in this session · {cache}",
        f"{usage.read:,} tokens read from the cache · {usage.write:,} written to it · {usage.uncached:,} uncached",
        f"{usage.output:,} tokens of output · {thousands(status.tokens)} of {thousands(status.window)} in the window",
    ]
    talk.transcript.put("block", [f"  {line}" for line in lines])


async def set_model(talk: Conversation, rest: str) -> None:
    """Ask another model from now on, or say which one answers."""
    if not rest:
        aliases = ", ".join(f"{name} = {full}" for name, full in talk.settings.model_aliases.items())
        talk.transcript.note(f"{talk.agent.model.name} answers; /model NAME asks another one")
        if aliases:
            talk.transcript.note(f"names of yours: {aliases}")
        return
    await talk.agent.use_model(rest)
    talk.transcript.note(f"{talk.agent.model.name} answers from now on; its cache begins empty")


async def set_mode(talk: Conversation, rest: str) -> None:
    """Say or change what tools may do without asking."""
    for mode in MODES:
        if rest == mode:
            talk.agent.mode = mode
    if rest and rest not in MODES:
        raise InputError(f"there is no mode {rest!r}; choose from {', '.join(MODES)}")
    talk.transcript.note(f"mode: {talk.agent.mode}")


async def resume(talk: Conversation, rest: str) -> None:
    """Go on with another session."""
    chosen = talk.session_named(rest) if rest else await talk.pick_session()
    if not chosen:
        return
    if chosen == talk.agent.name:
        talk.transcript.note("this is that session")
        return
    talk.go_to(chosen)


async def clear(talk: Conversation, rest: str) -> None:
    """Begin a new session; the old one stays in the library."""
    talk.transcript.note(f"{talk.agent.name} is kept; /resume brings it back")
    talk.go_to("")


async def compact(talk: Conversation, rest: str) -> None:
    """Make a summary of the past, by hand."""
    await talk.interruptible(talk.agent.session.compact(instructions=rest))


async def undo(talk: Conversation, rest: str) -> None:
    """Take the last compaction back."""
    await talk.agent.session.undo()
    talk.transcript.note("undone: the past is in the view again")


async def show_notes(talk: Conversation, rest: str) -> None:
    """Show the running notes."""
    from .recent_messages import written_notes

    text = await to_thread.run_sync(written_notes, talk.agent)
    if text.strip():
        talk.transcript.prose(text)
    else:
        talk.transcript.note("no notes yet: they are written as the conversation grows")


async def make_skill(talk: Conversation, rest: str) -> None:
    """Turn this session into a skill of the user's."""
    from ..past.skill import skill_text, write_skill

    name, text = await to_thread.run_sync(skill_text, talk.agent.session.view, rest)
    path = talk.settings.home / "skills" / name / "SKILL.md"
    await to_thread.run_sync(write_skill, path, text)
    talk.transcript.note(f"wrote {path}: read it before you share it, it repeats what was said")


async def show_todos(talk: Conversation, rest: str) -> None:
    """Show the agent's plan."""
    marks = {"completed": "✓", "in_progress": "▸"}
    todos = talk.agent.parts.context.todos
    lines = [f"  {marks.get(todo.status, '·')} {one_line(todo.content, 200)}" for todo in todos]
    talk.transcript.put("block", lines or [talk.paint("nothing is planned", "dim")])


async def show_memory(talk: Conversation, rest: str) -> None:
    """List the memories, show one, or take the last change of them back."""
    agent_memory = talk.agent.parts.memory
    if agent_memory is None:
        talk.transcript.note("this agent has no memory: it is switched off, or the model's window is too small for it")
        return
    memory = agent_memory.memory
    if rest == "undo":
        entry = await to_thread.run_sync(memory.undo)
        talk.transcript.note(
            f"taken back: {one_line(entry.why)}" if entry is not None else "there is nothing to take back"
        )
    elif rest:
        found = await to_thread.run_sync(memory.get, rest)
        talk.transcript.prose(f"**{found.name}** ({found.type}, {found.trust})\n\n{found.body}")
    else:
        listed = await to_thread.run_sync(memory.list)
        lines = [f"  {one_line(one.file, 40):<42} {one_line(one.description, 100)}" for one in listed]
        lines.append(
            talk.paint(f"  in {agent_memory.path} · /memory FILE shows one, /memory undo takes a change back", "dim")
        )
        talk.transcript.put("block", lines)


async def leave(talk: Conversation, rest: str) -> None:
    """Leave."""
    talk.leave()


COMMANDS: Final[Mapping[str, Command]] = {
    "help": Command("commands and keys", show_help, anytime=True),
    "context": Command("what fills the window", show_context, anytime=True),
    "cost": Command("what this session cost, and what its cache did", show_cost, anytime=True),
    "model": Command("ask another model: /model NAME", set_model),
    "mode": Command(f"what tools may do: {', '.join(MODES)}", set_mode, anytime=True),
    "compact": Command("make a summary of the past: /compact [what matters]", compact),
    "undo": Command("take the last compaction back", undo),
    "notes": Command("the running notes", show_notes, anytime=True),
    "skill": Command("turn this session into a skill of yours: /skill [NAME]", make_skill),
    "memory": Command("what is remembered: /memory [FILE | undo]", show_memory, anytime=True),
    "agents": Command("agents of this session: /agents [stop ID]", agents_command, anytime=True),
    "todos": Command("the agent's plan", show_todos, anytime=True),
    "resume": Command("go on with another session: /resume [NAME]", resume),
    "clear": Command("begin a new session; this one is kept", clear),
    "quit": Command("leave", leave, anytime=True),
}


async def run_command(talk: Conversation, line: str) -> None:
    """Run what stands after the slash; whatever is wrong with it is said."""
    name, _, rest = line.removeprefix("/").partition(" ")
    command = COMMANDS.get({"exit": "quit", "new": "clear"}.get(name, name))
    if command is None:
        talk.transcript.note(f"there is no /{one_line(name)}; /help lists what there is", "warning")
        return
    try:
        await command.act(talk, rest.strip())
    except ReverieError as error:
        talk.transcript.note(f"! {error}", "warning")


class _Paper(io.StringIO):
    """A page that those who look take for the terminal."""

    encoding = "utf-8"  # type: ignore[assignment]  # StringIO has none, and bars ask for it

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def drawn_lines(draw: Callable[[], None]) -> list[str]:
    """Return what a command of the command line draws, line by line."""
    paper = _Paper()
    with redirect_stdout(paper):
        draw()
    return paper.getvalue().rstrip("\n").split("\n")
