"""One session of an editor: an agent in a task of its own, its updates in order, and questions about permission."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol

from acp.exceptions import RequestError
from acp.helpers import (
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_available_commands,
    update_current_mode,
)
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    AvailableCommand,
    AvailableCommandInput,
    PermissionOption,
    SessionMode,
    SessionModeState,
    StopReason,
    ToolCallStart,
    ToolCallUpdate,
    UnstructuredCommandInput,
)

from ...errors import InputError
from ...events import Event, QueryEnded
from ...runtime.agent.agent import Agent
from ...runtime.agent.loop import Prompt
from ...runtime.guard.approval_text import call_text, other_inputs
from ...runtime.guard.permissions import Approval, ApprovalAnswer
from ...settings import Mode
from ...text.visible import as_code_block, one_word, visible
from ...values import record
from .content import EditorPrompt
from .updates import CallTitle, Update, Updates

MODES: Final[dict[Mode, tuple[str, str]]] = {
    "default": ("Ask", "Ask before files are changed and commands are run"),
    "accept-edits": ("Accept edits", "Change files of the project without asking; ask before commands"),
    "plan": ("Plan", "Read only, and write a plan for your approval"),
    "bypass": ("Bypass", "Ask nothing; only rules that deny hold"),
}
INTERNAL_ERROR: Final = -32603
BUSY: Final = "this session is answering a prompt: wait for it, or send session/cancel"


@record
class SlashCommand:
    """A command that a user may type as ``/name``; ``hint`` names its arguments, if it takes any."""

    name: str
    meaning: str
    hint: str = ""


@record
class CommandOutcome:
    """The text that a command shows, and the prompt that it sends to the agent; both may be empty."""

    text: str
    prompt: str = ""


class SlashCommands(Protocol):
    """The slash commands of an agent."""

    def of(self, agent: Agent) -> Sequence[SlashCommand]:
        """Return the commands that an agent has."""
        ...

    async def run(self, agent: Agent, line: str) -> CommandOutcome:
        """Run the command in a line."""
        ...


class EditorSession:
    """Answers the prompts of one session, and sends everything that happens to the editor."""

    def __init__(self, client: Client, title: CallTitle, commands: SlashCommands) -> None:
        self._client = client
        self._title = title
        self._commands = commands
        self._outbox: asyncio.Queue[Update] = asyncio.Queue()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Task[StopReason] | None = None
        self._is_cancelled = False
        self._is_querying = False
        self._ended: QueryEnded | None = None
        self._plans = 0
        self._told_mode = ""

    async def open(self, agent: Agent) -> None:
        """Open the agent in a task of its own, because the requests of an editor arrive in different tasks."""
        self.agent = agent
        self.updates = Updates(
            agent.name,
            agent.cwd,
            title=self._title,
            status=agent.status,
            steps=lambda: agent.parts.context.todos,
        )
        agent.listen(self._on_event)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_agent(ready))
        await ready
        self._told_mode = agent.mode

    async def _run_agent(self, ready: asyncio.Future[None]) -> None:
        sender = asyncio.create_task(self._send_updates())
        try:
            async with self.agent:
                ready.set_result(None)
                await self._closing.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            sender.cancel()

    async def close(self) -> None:
        """Stop the running prompt, close the agent, and wait for both."""
        self.cancel()
        if self._work is not None:
            await asyncio.wait([self._work])
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- updates

    def _on_event(self, event: Event) -> None:
        if isinstance(event, QueryEnded):
            self._ended = event
        self._put(*self.updates.of(event))

    def _put(self, *updates: Update) -> None:
        for update in updates:
            self._outbox.put_nowait(update)

    async def _send_updates(self) -> None:
        while True:
            update = await self._outbox.get()
            try:
                with suppress(ConnectionError):  # the editor is gone, and the session ends soon
                    await self._client.session_update(self.agent.name, update)
            finally:
                self._outbox.task_done()

    async def flush(self) -> None:
        """Wait until the editor has all updates so far."""
        await self._outbox.join()

    async def introduce(self, *, with_history: bool) -> None:
        """Send the conversation so far if asked for, then the steps, the slash commands and the usage."""
        if with_history:
            self._put(*self.updates.of_history(self.agent.session.view.entries()))
            if self.agent.parts.context.todos:
                self._put(self.updates.plan())
        self._put(update_available_commands(map(_announced, self._commands.of(self.agent))), self.updates.usage())
        await self.flush()

    # -- modes

    def modes(self) -> SessionModeState:
        """Return the permission modes and the one of now."""
        listed = [SessionMode(id=id, name=name, description=about) for id, (name, about) in MODES.items()]
        return SessionModeState(current_mode_id=self.agent.mode, available_modes=listed)

    def set_mode(self, name: str) -> None:
        """Set the permission mode; raise InputError for an unknown one."""
        if name not in MODES:
            raise InputError(f"there is no mode {name!r}: the modes are {', '.join(MODES)}")
        self.agent.mode = name
        self._tell_mode()

    def _tell_mode(self) -> None:
        if self.agent.mode != self._told_mode:
            self._told_mode = self.agent.mode
            self._put(update_current_mode(self._told_mode))

    # -- prompts

    async def answer(self, prompt: EditorPrompt) -> StopReason:
        """Answer a prompt or run a slash command, and return why the turn ended; only one runs at a time."""
        if self._work is not None and not self._work.done():
            raise InputError(BUSY)
        self._is_cancelled = False
        self._work = asyncio.create_task(self._answer(prompt))
        try:
            return await self._work
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            return "cancelled"
        finally:
            self._tell_mode()
            self._put(self.updates.usage())
            await self.flush()

    def cancel(self) -> None:
        """Stop the running prompt or command; do nothing if none runs."""
        if self._work is None or self._work.done():
            return
        self._is_cancelled = True
        self.agent.interrupt()
        if not self._is_querying:
            self._work.cancel()

    async def _answer(self, prompt: EditorPrompt) -> StopReason:
        asked: Prompt = prompt.blocks
        name = prompt.text.strip().partition(" ")[0].removeprefix("/")
        if prompt.text.lstrip().startswith("/") and any(one.name == name for one in self._commands.of(self.agent)):
            outcome = await self._commands.run(self.agent, prompt.text.strip())
            if outcome.text:
                self._put(update_agent_message_text(outcome.text))
            if not outcome.prompt:
                return "end_turn"
            asked = outcome.prompt
        for path in prompt.files:
            if problem := await self.agent.attach_file(path):
                self._put(update_agent_thought_text(f"{path} was not attached: {problem}\n"))
        await self._ask(asked)
        while self._ended is not None and self._ended.end == "completed" and await self.agent.wait_agents():
            await self._ask(None)  # agents in the background have finished: the model answers to their results
        return self._stop_reason()

    async def _ask(self, prompt: Prompt | None) -> None:
        self._ended = None
        self._is_querying = True  # a query that is interrupted ends by itself, with a complete log
        try:
            async with aclosing(self.agent.ask(prompt)) as events:
                async for _ in events:  # the listener handles each event
                    pass
        finally:
            self._is_querying = False

    def _stop_reason(self) -> StopReason:
        ended = self._ended
        if self._is_cancelled or ended is None or ended.end == "aborted":
            return "cancelled"
        if ended.end == "model_error":
            raise RequestError(INTERNAL_ERROR, ended.detail or "the model did not answer")
        reasons: dict[str, StopReason] = {
            "max_turns": "max_turn_requests",
            "blocking_limit": "max_tokens",
            "prompt_too_long": "max_tokens",
        }
        return reasons.get(ended.end, "end_turn")

    # -- permission

    async def approve(self, approval: Approval) -> ApprovalAnswer:
        """Ask the editor's user about a call or a plan."""
        self._plans += approval.is_plan
        id = approval.id or f"plan-{self._plans}"
        call = self.updates.started_call(id, approval.tool, approval.input, is_waiting=True)
        shown = [*(call.content or []), *(tool_content(text_block(text)) for text in question_texts(approval, call))]
        about = tool_content(text_block(approval.reason))
        self._put(call.model_copy(update={"content": shown}))
        await self.flush()
        answers = _answers(approval)
        response = await self._client.request_permission(
            self.agent.name,
            ToolCallUpdate(tool_call_id=id, title=call.title, kind=call.kind, content=[*shown, about]),
            [option for option, _ in answers],
        )
        if not isinstance(response.outcome, AllowedOutcome):
            return ApprovalAnswer("deny")  # the turn is being cancelled
        chosen = response.outcome.option_id
        return next((answer for option, answer in answers if option.option_id == chosen), ApprovalAnswer("deny"))


def question_texts(approval: Approval, call: ToolCallStart) -> list[str]:
    """Return the texts beside the diff of a call, if it has one, that show the rest of it, written out in Markdown."""
    if not call.content:
        return [as_code_block(visible(call_text(approval)))]
    named = str(approval.input.get("file_path", ""))
    path, target = next((one.path for one in call.locations or []), ""), approval.access.target
    lines = [f"{one_word(named)} → {one_word(target)}"] if target not in ("", path) else []
    texts = [str(approval.input.get(key, "")) for key in ("file_path", "old_string", "new_string", "content")]
    lines += map(visible, other_inputs(approval, *texts))
    shown = visible(approval.preview)
    lines += [shown] if shown != approval.preview else []  # the diff may hide some of its letters
    return [as_code_block("\n".join(lines))] if lines else []


def _answers(approval: Approval) -> list[tuple[PermissionOption, ApprovalAnswer]]:
    """Return the options of a question with the answer of each, the narrowest first."""
    no = (PermissionOption(option_id="no", name="No", kind="reject_once"), ApprovalAnswer("deny"))
    if approval.is_plan:
        once = PermissionOption(option_id="once", name="Yes, and ask me before each edit", kind="allow_once")
        edits = PermissionOption(option_id="accept-edits", name="Yes, and accept edits", kind="allow_always")
        return [(once, ApprovalAnswer("once")), (edits, ApprovalAnswer("always")), no]
    found = [(PermissionOption(option_id="once", name="Yes, once", kind="allow_once"), ApprovalAnswer("once"))]
    for at, rule in enumerate(approval.suggestions):
        for place in ("session", "project"):
            is_exact = approval.access.kind == "run" and rule == f"{approval.tool}({approval.access.target.strip()})"
            name = f"Always in this {place}: {'this exact command' if is_exact else one_word(rule)}"
            option = PermissionOption(option_id=f"always-{at}-{place}", name=name, kind="allow_always")
            keep = "project" if place == "project" else "session"
            found.append((option, ApprovalAnswer("always", rule=rule, keep=keep)))
    return [*found, no]


def _announced(command: SlashCommand) -> AvailableCommand:
    hint = AvailableCommandInput(root=UnstructuredCommandInput(hint=command.hint)) if command.hint else None
    return AvailableCommand(name=command.name, description=command.meaning, input=hint)
