"""The interactive chat: runs sessions, and passes the user's prompts and commands to the agent."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from ...errors import ReverieError
from ...events import AgentEnded, Event, QueryEnded, ReplyObserved
from ...runtime.places.projects import project_slug, session_key
from ...settings import Settings
from ...values import replace
from ..output import counted, printable
from . import states
from .approval import ScreenApprover
from .attached_files import attach_files, attachment, named_files, pasted_image
from .background_work import unfinished_lines
from .calls import one_line
from .colours import Paint
from .commands import COMMANDS, MODES, run_command
from .completion import InputCompleter, project_files
from .footer import BYPASS_MEANS, Part, footer_parts, thousands
from .keys import bind_keys
from .options import Options
from .questions import Option
from .screen import Screen, open_history
from .sessions import remove_if_unused, was_used
from .states import Effect, Kind, State, Step
from .transcript import Transcript

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent

SLOW: Final = ("reverie.runtime.agent.agent", "reverie.cli.terminal.markdown")
SHOWN_LINES: Final = 200
"""Maximum number of output lines shown per shell command; further lines are only counted."""
OVERDUE_SECONDS: Final = 1.0
"""How long a query may take to stop before it is cancelled."""


class Conversation:
    """An interactive chat: connects the screen and the transcript with the agent of one session at a time."""

    def __init__(self, options: Options, settings: Settings, *, colour: bool) -> None:
        self.settings = settings
        self.agent: Agent
        self.paint = Paint(colour=colour)
        self._options = options
        self._files: list[str] = []
        self.state = State()
        self._lines: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        """The tasks of the running work and of the commands beside it, by their numbers in the state."""
        self._is_open = False
        self._next: str | None = None
        self._main: asyncio.Task[Any] | None = None
        self._error: BaseException | None = None
        self._may_wake = False
        """Whether results of agents may start a query: not after one that was interrupted or failed."""
        self._is_warned = False
        self._shell_command = ""
        self.own: dict[str, Path] = {}
        self._meanings = {name: command.meaning for name, command in COMMANDS.items()}
        completer = InputCompleter(self._meanings, lambda: self._files, self._values)
        self.screen = Screen(colour=colour, history=open_history(settings.home / "history"), completer=completer)
        bind_keys(self.screen)
        self.screen.vim = settings.vim_keys
        self.transcript = Transcript(
            self.screen.app.write_above,
            paint=self.paint,
            cwd=options.cwd,
            size=self.screen.size,
            verbose=options.verbose,
        )
        self.transcript.running_output = self._running_output
        self.transcript.steps = lambda: self.agent.parts.context.todos if self._is_open else ()
        self.screen.on_submit = self._on_submit
        self.screen.on_key = lambda key, line: self._apply(states.pressed(self.state, key, time.monotonic(), line))
        self.screen.on_typed = lambda: self._apply(states.typed(self.state))
        self.screen.on_mode = self._next_mode
        self.screen.on_open = self._open_output
        self.screen.on_paste_image = self._paste_image
        self.screen.live = self._live
        self.screen.footer = self._footer
        self.screen.activity = self._activity

    # -- start and end

    async def run(self) -> None:
        """Run one session after another until the user leaves; restore the terminal even after an error."""
        self._main = asyncio.current_task()
        shown = asyncio.create_task(self.screen.run())
        shown.add_done_callback(self._on_screen_end)
        name = self._options.session
        with self._signals():
            try:
                is_cancelled = self._options.pick and (name := await self.pick_session()) is None
                while not (is_cancelled or self._is_leaving):
                    name = await self._run_session(name or None)
            finally:
                shown.remove_done_callback(self._on_screen_end)  # an error must not become an interrupt
                self.screen.leave()
                await shown
        if self._error is not None:
            raise self._error
        if self._options.is_kept and self._is_open and was_used(self.agent):
            print(f"To continue this conversation: reverie chat --resume {self.agent.name}")

    def _on_screen_end(self, _: asyncio.Task[None]) -> None:
        if not self._is_leaving:
            self.leave()

    @contextmanager
    def _signals(self) -> Generator[None]:
        """End the conversation on SIGTERM and SIGHUP inside this block, so that the terminal is restored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.leave)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    async def _run_session(self, name: str | None) -> str | None:
        """Run one session, new if unnamed, to its end; return the next one's name, "" if new, None to leave."""
        self._next = None
        for module in SLOW:  # the user can already type
            await to_thread.run_sync(import_module, module, abandon_on_cancel=True)
        options = self._options
        if name is None and self._is_open:  # a new session goes on with the model and the mode of now
            options = replace(options, model=self.agent.model.name, mode=self.agent.mode)
        agent = options.agent(self.settings, session=name, approve=self._approver())
        agent.listen(self._on_event)
        agent.next_prompt = self._next_prompt
        async with agent:
            self.agent, self._is_open = agent, True
            await to_thread.run_sync(self._find_own_commands)  # a line that was typed meanwhile may be one
            self._greet(resumed=name is not None)
            reading = asyncio.create_task(self._load_slow_parts())
            try:
                if self._options.prompt:
                    prompt, self._options = self._options.prompt, replace(self._options, prompt="")
                    self._on_submit(prompt)
                self._apply(states.opened(self.state))
                while not self._is_leaving and self._next is None:
                    started = await self._lines.get()
                    if started is not None:
                        await self._run_line(*started)
            finally:
                reading.cancel()
            for line in unfinished_lines(agent):
                self.transcript.note(line)
        if name is None:
            await to_thread.run_sync(remove_if_unused, agent)
        return self._next

    def _approver(self) -> ScreenApprover:
        return ScreenApprover(self.screen, self.transcript, paint=self.paint, cwd=self._options.cwd)

    def _greet(self, *, resumed: bool) -> None:
        if resumed:
            from .sessions import last_exchange

            prompt, events = last_exchange(self.agent.session.view)
            self.transcript.note(f"continuing {self.agent.name}")
            if prompt:
                self.transcript.prompt(prompt)
            self.transcript.repeat(events)
            return
        head = f"{self.paint('Reverie', 'title')} {version('reverie')} · {self.agent.model.name} · {self.agent.cwd}"
        tips = "/help · @file · !command · Shift-Tab mode · Esc interrupt · Ctrl-C twice to quit"
        self.transcript.put("head", [head, self.paint(tips, "dim")])

    async def _load_slow_parts(self) -> None:
        """Load file names and the provider's library while the user types."""
        self._files = await to_thread.run_sync(project_files, self.agent.cwd)
        vendor = self.agent.model.name.split(":", 1)[0]
        if vendor in ("anthropic", "openai") and find_spec(vendor) is not None:
            Thread(target=import_module, args=(vendor,), daemon=True).start()  # leaving does not wait for it

    def _find_own_commands(self) -> None:
        from ...runtime.places.trust import TrustList
        from .work_commands import meaning_of, own_commands

        is_trusted = TrustList.open(self.settings.home).is_trusted(self.agent.cwd)
        self.own = own_commands(self.settings.home, self.agent.cwd, is_trusted=is_trusted)
        for name, path in self.own.items():
            self._meanings.setdefault(name, meaning_of(path))

    # -- user input

    def _on_submit(self, text: str) -> None:
        line = text.strip()
        is_command = line.startswith("/") and "\n" not in line
        name = line.removeprefix("/").partition(" ")[0]
        beside = is_command and name in COMMANDS and COMMANDS[name].anytime
        kind: Kind = "command" if is_command or line.startswith("!") else "query"
        self._apply(states.submitted(self.state, text, kind, beside=beside))

    def _next_prompt(self) -> str | None:
        if self.state.queue and named_files(self.state.queue[0][0], self.agent.cwd):
            return None  # its files are attached before it begins a query of its own
        self.state, text = states.taken(self.state)
        return text

    def _apply(self, result: Step) -> None:
        """Take over a new state, and carry out the effects of the step that led to it."""
        self.state, effects = result
        for effect in effects:
            self._carry_out(effect)
        self.screen.app.invalidate()

    def _carry_out(self, effect: Effect) -> None:
        loop = asyncio.get_running_loop()
        match effect.act:
            case "start":
                self.screen.busy_since = time.monotonic()  # the next line may start before the screen was idle
                self._lines.put_nowait((effect.number, effect.text))
            case "beside":
                task = loop.create_task(run_command(self, effect.text.strip()))
                self._tasks[effect.number] = task
                task.add_done_callback(lambda _: self._on_beside_end(effect.number))
            case "interrupt":
                self.agent.interrupt()
                loop.call_later(OVERDUE_SECONDS, lambda: self._apply(states.overdue(self.state, effect.number)))
            case "cancel":
                # Later, so that a command that ends the chat is not cancelled by itself.
                loop.call_soon(lambda: (task := self._tasks.get(effect.number)) and task.cancel())
            case "leave":
                self._lines.put_nowait(None)
            case "abort":
                self.screen.leave()  # ending servers of the agent may take a few seconds more
                if self._main is not None:
                    self._main.cancel()
            case "close" | "clear" | "restore" | "hint":
                self.screen.change_input(effect)

    def _on_beside_end(self, number: int) -> None:
        task = self._tasks.pop(number)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._apply(states.beside_ended(self.state, number))

    async def _run_line(self, number: int, text: str) -> None:
        """Run the work on a line to its end, in a task of its own that can be cancelled."""
        task = self._tasks[number] = asyncio.create_task(self._handle_line(text))
        try:
            if not (self.state.is_stopping and self.state.kind == "command"):
                await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=OVERDUE_SECONDS)
            self._tasks.pop(number, None)
        is_command = self.state.kind == "command"
        self._apply(states.work_ended(self.state, number, switches=self._next is not None))
        self._wake()
        if not task.cancelled():
            task.result()
        elif is_command and not self._is_leaving:
            self.transcript.note("Interrupted.")

    async def _handle_line(self, text: str) -> None:
        line = text.strip()
        if self.state.kind == "query":
            await self._ask(text or None)
        elif line.startswith("/"):
            self.transcript.prompt(line)
            await run_command(self, line)
        else:
            await self._shell(line[1:].strip())

    async def _ask(self, prompt: str | None) -> None:
        try:
            if prompt is not None:
                self.transcript.prompt(prompt)
                await attach_files(self.agent, prompt, self._note_attached)
            async with aclosing(self.agent.ask(prompt)) as events:
                async for _ in events:  # the listener shows each event
                    pass
        except ReverieError as error:
            self.transcript.note(f"! {error}", "warning")
        self._files = await to_thread.run_sync(project_files, self.agent.cwd)

    def _note_attached(self, line: str, is_problem: bool) -> None:
        self.transcript.note(f"! {line}" if is_problem else line, "warning" if is_problem else "dim")

    async def _shell(self, command: str) -> None:
        from .shell import as_attachment, run_shell

        if not command:
            return
        self.transcript.prompt(f"!{command}")
        shown = 0

        def show(line: str) -> None:
            nonlocal shown
            shown += 1
            if shown <= SHOWN_LINES:
                self.transcript.output(line)

        self._shell_command = command
        try:
            output = await run_shell(command, self.agent.cwd, show)
        finally:
            self._shell_command = ""
        more = f"… {counted(shown - SHOWN_LINES, 'more line')}; " if shown > SHOWN_LINES else ""
        if output.exit_code or more or not shown:
            self.transcript.output(f"{more}exit code {output.exit_code}", "dim")
        await self.agent.session.attach(as_attachment(output), type="local_command")

    # -- used by commands

    def submit(self, text: str) -> None:
        """Send a text to the model after the running work; it is a prompt even if it looks like a command."""
        self._apply(states.submitted(self.state, text, "query"))

    def go_to(self, session: str, *, draft: str = "") -> None:
        """Request a switch to the named session, or to a new one if empty; ``draft`` goes into the input."""
        self._next = session
        if draft:
            self.screen.change_input(Effect("restore", text=draft))

    def leave(self) -> None:
        """Interrupt the running work and leave when it has stopped; the second call leaves at once."""
        self._apply(states.left(self.state))

    @property
    def _is_leaving(self) -> bool:
        return self.state.phase == "closing"

    async def edit_file(self, path: Path) -> None:
        """Open a file in the user's editor, which has the terminal meanwhile."""
        await self.screen.edit_file(path)

    def session_named(self, name: str) -> str:
        """Return the project's session with this name, else the only session whose name starts so."""
        from .sessions import named_session

        return named_session(self.settings, self._options.cwd, name)

    async def pick_session(self) -> str | None:
        """Return the name of the session that the user chooses, None if cancelled, "" if the project has none."""
        from .sessions import earlier_sessions

        found = await to_thread.run_sync(lambda: earlier_sessions(self.settings, self._options.cwd))
        if not found:
            self.transcript.note("there are no earlier sessions in this project")
            return ""
        keys: Sequence[str] = "123456789"
        options = [
            Option(keys[number] if number < len(keys) else "", one.about, one.session)
            for number, one in enumerate(found)
        ]
        return await self.choose("Continue which session? (Esc cancels)", options)

    @property
    def columns(self) -> int:
        """The width of the screen."""
        return self.screen.size()[0]

    async def choose(self, title: str, options: Sequence[Option]) -> str | None:
        """Return the value that the user chooses; None if cancelled."""
        return await self.screen.choose(title, options)

    def toggle_vim(self) -> bool:
        """Turn the keys of vim on or off, and return whether they are on."""
        self.screen.vim = not self.screen.vim
        return self.screen.vim

    # -- callbacks of the screen

    def _values(self, command: str) -> Sequence[str]:
        if command == "mode":
            return MODES
        return sorted(self.settings.model_aliases) if command == "model" else ()

    def _next_mode(self) -> None:
        if self._is_open:
            self.agent.mode = MODES[(MODES.index(self.agent.mode) + 1) % len(MODES)]
            if self.agent.mode == "bypass":
                self.transcript.note(BYPASS_MEANS, "warning")
            self.screen.app.invalidate()

    def _activity(self) -> str | None:
        match self.state:
            case State(phase="opening"):
                return "opening"
            case State(number=0, phase="closing"):
                return "closing"
            case State(number=0):
                return None
            case State(queue=queue, is_stopping=is_stopping):
                waiting = f" ({len(queue)} waiting)" if queue else ""
                running = f"running {one_line(self._shell_command, 40)}" if self._shell_command else ""
                return f"{'stopping' if is_stopping else running or self.transcript.doing}{waiting}"

    def _live(self) -> list[str]:
        waiting = self.state.queue if self.state.number else ()
        room = max(20, self.screen.size()[0] - 14)
        below = [self.paint(f"> {one_line(text, room)} (waiting)", "dim") for text, _ in waiting]
        steps = self.transcript.steps()
        if self.state.number and any(one.status != "completed" for one in steps):
            is_asking = self.screen.choice is not None
            shown = self.transcript.current_step() if is_asking else self.transcript.step_lines()
            below = [*shown, *([""] if below else []), *below]
        below = ["", *below] if below else []
        return [*self.transcript.live(below=len(below)), *below]

    def _running_output(self) -> tuple[str, int]:
        shell = self.agent.parts.context.shells.awaited if self._is_open else None
        return shell.end_of_output() if shell is not None else ("", 0)

    def _footer(self) -> list[Part]:
        return footer_parts(self.agent.status()) if self._is_open else [("footer", "opening the session …")]

    def _on_event(self, event: Event) -> None:
        try:
            self.transcript.show(event)
            if isinstance(event, QueryEnded):
                self._may_wake = event.end == "completed"
                self._is_warned &= self.agent.status().level != "fine"
            elif isinstance(event, AgentEnded) and event.status != "killed":
                self._may_wake = True
                asyncio.get_running_loop().call_soon(self._wake)
            elif isinstance(event, ReplyObserved):
                self._warn_of_full_window()
        except Exception as error:  # the agent would swallow an error of its listener
            self._fail(error)
        self.screen.app.invalidate()

    def _wake(self) -> None:
        """Let the model answer to results of background agents, if nothing runs."""
        if self._may_wake and self._is_open and self.agent.unseen_agents:
            self._apply(states.woken(self.state))

    def _warn_of_full_window(self) -> None:
        """Write one line when the window reaches its warning threshold, again only after a query ended below it."""
        status = self.agent.status()
        if status.level != "fine" and not self._is_warned:
            self._is_warned = True
            left = f"; automatic compaction follows in {thousands(status.to_compaction)} tokens"
            self.transcript.note(
                f"! the window is {status.window_percent}% full{left if status.to_compaction else ''} · /compact does "
                "it now, /context lists its contents",
                "warning",
            )

    def _paste_image(self) -> None:
        """Save the image in the clipboard in the session's folder, and name it in the input."""
        if not self._is_open:
            return
        folder = self.settings.home / session_key(project_slug(self.agent.cwd), self.agent.name) / "pasted"
        path = pasted_image(folder)
        if path is None:
            self.screen.change_input(Effect("hint", text="the clipboard holds no image (wl-paste, xclip or pngpaste)"))
            return
        context = self.agent.parts.context
        context.directories = tuple(dict.fromkeys((*context.directories, folder)))
        self.screen.buffer.insert_text(f"{attachment(str(path))} ")

    def _open_output(self) -> None:
        """Open the whole output of the running command, or of the last call, in the pager."""
        number, title = self.transcript.last_call
        shell = self.agent.parts.context.shells.awaited if self._is_open else None
        if shell is None and not number:
            self.screen.change_input(Effect("hint", text="no tool call has finished yet"))
            return

        async def open_it() -> None:
            if shell is not None:
                text = f"{shell.command}\n\n{shell.all_output()}"
            else:
                found = await self.agent.session.read_back(number)
                text = f"{title}\n\n{found.decode('utf-8', 'replace')}"
            await self.screen.show_page(printable(text))

        self._opening = asyncio.get_running_loop().create_task(open_it())

    def _fail(self, error: BaseException) -> None:
        """Leave the chat, and raise this error when the terminal is restored."""
        if self._error is None:
            self._error = error
            self.leave()
