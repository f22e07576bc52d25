"""The slash commands of the chat: their table and their functions."""

from __future__ import annotations

import io
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

from anyio import to_thread

from ...errors import InputError, ReverieError
from ...settings import PRESETS, Mode, Preset
from ...values import record
from ..output import counted, dollars, one_word
from .approval import Preview
from .calls import one_line, step_lines
from .footer import BYPASS_MEANS, thousands
from .questions import Option
from .work_commands import (
    Chat,
    export,
    meaning_of,
    own_commands,
    prompt_of,
    retry,
    rewind,
    show_diff,
    show_shells,
    start_init,
    undo,
)

if TYPE_CHECKING:
    pass

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
KEYS: Final = (
    ("Enter", "send; for a new line: Alt-Enter, Ctrl-J, or a backslash at the end"),
    ("Esc", "interrupt"),
    ("Ctrl-C", "clear the input or interrupt; twice: quit"),
    ("Ctrl-R", "search the input history"),
    ("Ctrl-O", "show all output of the running or the last tool call"),
    ("Ctrl-X Ctrl-E", "edit the input in $EDITOR"),
    ("Ctrl-V", "attach the image in the clipboard; a pasted path of an image is attached too"),
    ("Ctrl-Z", "suspend; fg continues"),
    ("Shift-Tab", f"next mode: {', '.join(MODES)}"),
    ("@file", "attach a file or an image; Tab completes its name"),
    ("!command", "run a shell command yourself; the model sees its output"),
)
PLAN_USAGE: Final = "usage: /plan, /plan approve [default | accept-edits], /plan reject [WORDS], /plan edit, /plan drop"


@record
class Command:
    """A slash command: its help text, its function, and whether it may run while the model works.

    The function takes the chat and the text after the command's name.
    """

    meaning: str
    act: Callable[[Chat, str], Awaitable[None]]
    anytime: bool = False


async def show_help(chat: Chat, rest: str) -> None:
    """Show all slash commands and keys."""
    rows = [(f"/{name}", command.meaning) for name, command in COMMANDS.items()]
    own = await to_thread.run_sync(lambda: [(f"/{name}", meaning_of(path)) for name, path in chat.own.items()])
    chat.transcript.table([*rows, *own, ("", ""), *KEYS])


async def show_context(chat: Chat, rest: str) -> None:
    """Show the session's context usage."""
    from ...cache.prices import listed_window
    from ...importers import ImportedSession
    from ...runtime.session.limits import reported_window
    from ..costs.context import draw
    from ..costs.window_usage import window_usage
    from .sessions import logged_entries

    agent = chat.agent
    entries = await to_thread.run_sync(logged_entries, agent)
    recording = ImportedSession("reverie", agent.name, "", str(agent.cwd), agent.model.model_id, tuple(entries))
    found = window_usage(
        recording,
        settings=agent.session.settings,
        lookup=listed_window,
        model=agent.model.model_id,
        reported=reported_window(agent.model),
    )
    chat.transcript.put("block", drawn_lines(lambda: draw(found)))


async def show_cost(chat: Chat, rest: str) -> None:
    """Show the cost and the cache use of the session."""
    from ...runtime.agent.status import Meter
    from .sessions import logged_entries

    status = chat.agent.status()
    usage = Meter(await to_thread.run_sync(logged_entries, chat.agent)).usage
    cache = "no reply yet" if status.cache_share is None else f"{status.cache_share:.0%} of input read from the cache"
    lines = [
        f"{dollars(status.cost_usd)} in this session · {cache}",
        f"{usage.read:,} tokens read from the cache · {usage.write:,} written · {usage.uncached:,} uncached",
        f"{usage.output:,} output tokens · {thousands(status.tokens)} of {thousands(status.window)} in the window",
    ]
    chat.transcript.block(lines)


async def set_model(chat: Chat, rest: str) -> None:
    """Switch to the model named ``rest``, or to one that the user chooses, after asking its provider for it."""
    if not rest:
        from ...models.names import usable_models

        aliases, now = chat.settings.model_aliases, chat.agent.model.name
        names = [name for name in await usable_models(aliases) if name != now]
        shown = [Option("", f"{name} = {aliases[name]}" if name in aliases else name, name) for name in names]
        rest = await chat.choose("Which model? (Esc cancels)", [Option("", f"{now}, as now", ""), *shown]) or ""
    if not rest:
        return
    await chat.agent.use_model(rest, check=True)
    if chat.agent.session.view.token_count.known:
        return  # the event of the change says it
    chat.transcript.note(f"model: {chat.agent.model.name}")


async def set_vim(chat: Chat, rest: str) -> None:
    """Turn the keys of vim in the input line on or off."""
    is_on = chat.toggle_vim()
    kept = f"'reverie config vim_keys {str(is_on).lower()}' keeps it so"
    chat.transcript.note(f"the keys of vim are {'on' if is_on else 'off'}; {kept}")


async def set_mode(chat: Chat, rest: str) -> None:
    """Set the permission mode if ``rest`` names one, and show the mode; raise InputError for an unknown name."""
    for mode in MODES:
        if rest == mode:
            chat.agent.mode = mode
    if rest and rest not in MODES:
        raise InputError(f"there is no mode {rest!r}; choose from {', '.join(MODES)}")
    chat.transcript.note(f"mode: {chat.agent.mode}")
    if rest == "bypass":
        chat.transcript.note(BYPASS_MEANS, "warning")


async def set_preset(chat: Chat, rest: str) -> None:
    """Use the preset named ``rest`` in this session, or show all presets if no name is given."""
    if rest:
        await chat.agent.session.set_preset(cast("Preset", rest))
    from ...replay.compare import preset_costs

    session = chat.agent.session
    used, model = session.settings.preset, chat.agent.model.model_id
    costs = await to_thread.run_sync(preset_costs, session.view.history, model, session.settings)
    chat.transcript.table(
        [
            (f"{'*' if name == used else ' '} {name}", f"{f'${costs[name]:,.2f}  ' if costs else ''}{effect}")
            for name, effect in PRESETS.items()
        ]
    )
    about = "$: the input of this session so far under each; " if costs else ""
    chat.transcript.note(f"{about}'reverie replay' compares them on all your sessions")


async def resume(chat: Chat, rest: str) -> None:
    """Switch to the session named ``rest``, or to one that the user chooses if no name is given."""
    chosen = chat.session_named(rest) if rest else await chat.pick_session()
    if not chosen:
        return
    if chosen == chat.agent.name:
        chat.transcript.note("this session is already open")
        return
    chat.go_to(chosen)


async def clear(chat: Chat, rest: str) -> None:
    """Switch to a new session; the old one stays in the library."""
    chat.transcript.note(f"{chat.agent.name} is saved; /resume continues it")
    chat.go_to("")


async def compact(chat: Chat, rest: str) -> None:
    """Replace old messages with a summary now, by the instructions ``rest``; Esc cancels. For "undo", undo the last."""
    if rest == "undo":
        await uncompact(chat, "")
        return
    await chat.agent.session.compact(instructions=rest)


async def uncompact(chat: Chat, rest: str) -> None:
    """Undo the last compaction; ask first, except for "yes", if another program made it, before the import."""
    from ..compaction.undo import OURS, author_of_last

    if (whose := author_of_last(chat.agent.session.view)) != OURS and rest != "yes":
        answers = [Option("y", "yes, its messages return into view", "yes"), Option("n", "no", "")]
        if not await chat.choose(f"The last compaction is {whose}. Undo it?", answers):
            chat.transcript.note("nothing was changed")
            return
    price = await chat.agent.session.undo_price()
    await chat.agent.session.undo()
    chat.transcript.note(f"undone: {price.text}")


async def reload(chat: Chat, rest: str) -> None:
    """Let the next request render system prompt and tools anew."""
    price = await chat.agent.session.reload()
    chat.transcript.note(f"the next request has the system prompt and tools of now; if they have changed: {price.text}")


async def show_notes(chat: Chat, rest: str) -> None:
    """Show the running notes of the session."""
    from .sessions import written_notes

    text = await to_thread.run_sync(written_notes, chat.agent)
    if text.strip():
        chat.transcript.prose(text)
    else:
        chat.transcript.note("no notes yet: they are written as the session grows")


async def show_rules(chat: Chat, rest: str) -> None:
    """Show the rules of the user, add one (``add TEXT``) or drop one (``drop ID``)."""
    from ..compaction.rules import rule_lines

    rules = chat.agent.session.parts.rules
    word, _, given = rest.partition(" ")
    if word == "add" and given.strip():
        rule = await rules.add(given)
        chat.transcript.note(f"rule {rule.id} holds from now on; /rules drop {rule.id} ends it")
    elif word == "drop" and given.strip():
        rule = await rules.drop(given.strip())
        chat.transcript.note(f"dropped: {one_line(rule.text, 200)}")
    elif rest:
        raise InputError("usage: /rules, /rules add TEXT, or /rules drop ID")
    else:
        chat.transcript.block([one_line(line, 300) for line in rule_lines(rules.rules)])


async def make_skill(chat: Chat, rest: str) -> None:
    """Let the chat's model turn the session into a skill below Reverie's home; ``rest`` names it, and Esc cancels."""
    from ...layers.l3_notes import checked_name, render_skill, skill_material
    from ...runtime.session.notes.skill_writer import SOURCE, SkillWriter
    from ..compaction.skill import FILE_NAME, refuse_existing, save_skill, saved_line

    session, parent = chat.agent.session, chat.settings.home / "skills"
    if rest:
        refuse_existing(parent / checked_name(rest))
    material = await to_thread.run_sync(skill_material, session.view)
    writer = SkillWriter(
        chat.agent.model,
        corrections=session.settings.models,
        record_call=lambda reply: session.parts.host.record_call(reply, source=SOURCE),
        is_taken=lambda name: (parent / name).exists(),
    )
    await session.sync()
    made = await writer.written(material, name=rest)
    for problem in made.problems:
        chat.transcript.note(one_line(problem, 300), "warning")
    folder = parent / made.skill.name
    await to_thread.run_sync(save_skill, folder, render_skill(made.skill))
    chat.transcript.note(saved_line(folder / FILE_NAME, made))


async def show_permissions(chat: Chat, rest: str) -> None:
    """List the mode and the permission rules; "allow [project] RULE" adds one, "drop NUMBER" drops a kept one."""
    from ...runtime.guard.rules import parse_permission_rule

    runs = chat.agent.parts.runs
    kept = runs.kept_rules()
    word, _, number = rest.partition(" ")
    if word == "allow" and number.strip():
        place, _, more = number.strip().partition(" ")
        place, text = ("project", more) if place == "project" else ("session", number)
        rule = parse_permission_rule(text.strip()).text
        await to_thread.run_sync(lambda: runs.allow(rule, keep=place))
        chat.transcript.note(f"allowed from now on in this {place}: {one_word(rule)}")
        return
    if word == "drop" and number.strip().isdecimal() and 0 < int(number) <= len(kept):
        rule = kept[int(number) - 1][0]
        await to_thread.run_sync(runs.forget, rule)
        chat.transcript.note(f"dropped: {one_word(rule)}")
        return
    if rest:
        raise InputError("usage: /permissions, /permissions allow [project] RULE, or /permissions drop NUMBER")
    rules = chat.agent.settings.permissions
    lines = [f"  mode {chat.agent.mode}"]
    lines += [f"  {name}  {one_word(rule)}" for name in ("deny", "ask", "allow") for rule in getattr(rules, name)]
    for at, (rule, place) in enumerate(kept, 1):
        lines.append(f"  {chat.paint(str(at), 'chosen')}  allow in this {place}  {one_word(rule)}")
    tip = (
        "/permissions drop NUMBER asks again"
        if kept
        else "/permissions allow Bash(make:*) allows every command that begins so"
    )
    chat.transcript.put("block", lines)
    chat.transcript.block([tip], "dim")


async def plan_command(chat: Chat, rest: str) -> None:
    """Show the plan, or approve, reject, edit or drop it by the words of ``rest``."""
    word, _, words = rest.partition(" ")
    agent = chat.agent
    match word:
        case "":
            await _show_plan(chat)
        case "approve":
            await agent.approve_plan(_plan_mode(words.strip()))
            chat.transcript.note(f"the plan is approved; mode: {agent.mode}. Send a message to start the work.")
        case "reject":
            await agent.reject_plan(words.strip())
            chat.transcript.note("the plan is rejected")
        case "edit":
            if agent.plan is None or not agent.plan.is_open:
                raise InputError("there is no open plan")
            await chat.edit_file(Path(agent.plan_path))
            await _show_plan(chat)
        case "drop":
            await agent.end_plan()
            chat.transcript.note("the plan is dropped")
        case _:
            raise InputError(PLAN_USAGE)


async def _show_plan(chat: Chat) -> None:
    await chat.agent.session.parts.plan.adopt()
    plan = chat.agent.plan
    if plan is None:
        chat.transcript.note("there is no plan; in plan mode (Shift-Tab) the agent writes one")
        return
    chat.transcript.put("approval", Preview(plan.text, chat.paint).page())
    words = f": {one_line(plan.words, 200)}" if plan.words else ""
    chat.transcript.note(f"{plan.state} by the {plan.by}{words} · {chat.agent.plan_path}")
    if plan.state == "proposed":
        chat.transcript.note("/plan approve, /plan approve accept-edits, /plan reject WORDS, /plan edit")


def _plan_mode(word: str) -> Mode:
    if word in ("", "default"):
        return "default"
    if word == "accept-edits":
        return "accept-edits"
    raise InputError(f"a plan is approved to the mode default or accept-edits, not {word!r}")


async def show_todos(chat: Chat, rest: str) -> None:
    """Show the agent's todo list."""
    lines = step_lines(chat.agent.parts.context.todos, chat.paint)
    chat.transcript.put("block", lines or [chat.paint("the todo list is empty", "dim")])


async def show_memory(chat: Chat, rest: str) -> None:
    """List the memories, or show the one in the file ``rest``; for "undo", undo the last change of a memory."""
    agent_memory = chat.agent.parts.memory
    if agent_memory is None:
        chat.transcript.note("memory is off: switched off in the settings, or the model's window is too small")
        return
    memory = agent_memory.memory
    if rest == "undo":
        entry = await to_thread.run_sync(memory.undo)
        chat.transcript.note(f"undone: {one_line(entry.why)}" if entry is not None else "there is nothing to undo")
    elif rest:
        found = await to_thread.run_sync(memory.get, rest)
        chat.transcript.prose(f"**{found.name}** ({found.type}, {found.trust})\n\n{found.body}")
    else:
        listed = await to_thread.run_sync(memory.list)
        if listed:
            chat.transcript.table([(one_line(one.file, 48), one_line(one.description, 100)) for one in listed])
        else:
            chat.transcript.note("no memories yet")
        chat.transcript.note(f"in {agent_memory.path} · /memory FILE shows one, /memory undo undoes a change")


async def dream(chat: Chat, rest: str) -> None:
    """Start a dream and follow it; for "stop", stop the running one; for "undo", undo the last one."""
    agent_memory = chat.agent.parts.memory
    if agent_memory is None:
        chat.transcript.note("memory is off: switched off in the settings, or the model's window is too small")
        return
    dreaming = agent_memory.dreaming
    if rest == "stop":
        was_running = await dreaming.stop()
        chat.transcript.note("the dream was stopped; nothing was changed" if was_running else "no dream is running")
    elif rest == "undo":
        undone = await dreaming.undo()
        chat.transcript.note(f"undone: {counted(len(undone.restored), 'file')} as before; a dream leaves them so")
    elif rest:
        raise InputError("usage: /dream, /dream stop, or /dream undo")
    else:
        await dreaming.start_now()


async def show_agents(chat: Chat, rest: str) -> None:
    """List the agents of this session, or stop one if ``rest`` is "stop" and its id."""
    word, _, name = rest.partition(" ")
    if word == "stop" and name.strip():
        chat.transcript.note(await chat.agent.stop_agent(name.strip()))
        return
    if rest:
        raise InputError("usage: /agents, or /agents stop ID")
    rows: list[tuple[str, str]] = []
    for one in chat.agent.agents():
        cost = "" if one.cost_usd is None else f" · {dollars(one.cost_usd)}"
        used = f"{counted(one.turns, 'turn')} · {thousands(one.tokens)} tokens{cost} · {one.seconds:.0f} s"
        shown = one_line(one.line if one.state == "running" else one.description, 60)
        rows.append((f"{'  ' * (one.depth - 1)}{one.agent}", f"{one.state}: {shown} · {used}"))
    if rows:
        chat.transcript.table(rows)
    else:
        chat.transcript.note("this session has started no agents")


async def leave(chat: Chat, rest: str) -> None:
    """Leave the chat."""
    chat.leave()


COMMANDS: Final[Mapping[str, Command]] = {
    "help": Command("commands and keys", show_help, anytime=True),
    "context": Command("context usage by category", show_context, anytime=True),
    "cost": Command("cost and cache hits of this session", show_cost, anytime=True),
    "model": Command("choose or switch the model: /model [NAME]", set_model),
    "mode": Command(f"permission mode: {', '.join(MODES)}", set_mode, anytime=True),
    "vim": Command("turn the keys of vim on or off", set_vim, anytime=True),
    "preset": Command(f"how readily context is given up for money: {', '.join(PRESETS)}", set_preset, anytime=True),
    "permissions": Command(
        "permission rules: /permissions [allow [project] RULE | drop NUMBER]", show_permissions, anytime=True
    ),
    "compact": Command("replace old messages with a summary: /compact [INSTRUCTIONS]", compact),
    "uncompact": Command("undo the last compaction", uncompact),
    "reload": Command("send the changed system prompt and tools anew; the cache and thinking are lost", reload),
    "notes": Command("the running notes", show_notes, anytime=True),
    "skillify": Command("turn this session into a skill: /skillify [NAME]", make_skill),
    "memory": Command("list, show or undo memories: /memory [FILE | undo]", show_memory, anytime=True),
    "dream": Command("consolidate the memories now: /dream [stop | undo]", dream, anytime=True),
    "rules": Command("rules that hold for this session: /rules [add TEXT | drop ID]", show_rules, anytime=True),
    "agents": Command("agents of this session: /agents [stop ID]", show_agents, anytime=True),
    "plan": Command("the plan: /plan [approve | reject | edit | drop]", plan_command, anytime=True),
    "diff": Command("changes of files since the last commit: /diff [FILE]", show_diff, anytime=True),
    "shells": Command("commands in the background: /shells [stop NAME]", show_shells, anytime=True),
    "retry": Command("send the last prompt again", retry),
    "undo": Command("undo the last prompt, with files and memories (a compaction: /uncompact)", undo),
    "rewind": Command("go back to an earlier prompt, with files and memories: /rewind [undo]", rewind),
    "init": Command("let the agent write AGENTS.md for this project", start_init),
    "export": Command("write this session as text: /export [FILE]", export, anytime=True),
    "todos": Command("the agent's todo list", show_todos, anytime=True),
    "resume": Command("continue another session: /resume [NAME]", resume),
    "clear": Command("start a new session; this one is saved", clear),
    "quit": Command("quit", leave, anytime=True),
}


async def run_command(chat: Chat, line: str) -> None:
    """Run the slash command in ``line``; show a warning if its name is unknown or it raises a ReverieError."""
    name, _, rest = line.removeprefix("/").partition(" ")
    command = COMMANDS.get({"exit": "quit", "new": "clear", "skill": "skillify"}.get(name, name))
    if command is None and name not in chat.own:
        if name in own_commands(chat.settings.home, chat.agent.cwd, is_trusted=True):
            why = "'reverie trust' shows the things that this would allow"
            chat.transcript.note(f"/{name} is a command of this project, which you have not trusted: {why}", "warning")
            return
        near = get_close_matches(name, [*COMMANDS, *chat.own], n=1)
        meant = f" Did you mean /{near[0]}?" if near else ""
        chat.transcript.note(f"there is no /{one_line(name)}.{meant} /help lists all commands", "warning")
        return
    try:
        if command is None:
            chat.submit(prompt_of(chat.own[name], rest.strip()))
        else:
            await command.act(chat, rest.strip())
    except ReverieError as error:
        chat.transcript.note(f"! {error}", "warning")
    except Exception as error:  # a fault of one command must not end the conversation
        chat.transcript.note(f"! /{name} failed: {type(error).__name__}: {one_line(str(error), 120)}", "warning")


class _TerminalBuffer(io.StringIO):
    """A text buffer that reports itself as a terminal if stdout is one."""

    encoding = "utf-8"  # type: ignore[assignment]  # StringIO has no encoding, and bars need one

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def drawn_lines(draw: Callable[[], None]) -> list[str]:
    """Call a function that prints to stdout, and return its output as lines instead of showing it."""
    buffer = _TerminalBuffer()
    with redirect_stdout(buffer):
        draw()
    return buffer.getvalue().rstrip("\n").split("\n")
