"""The plan in the terminal: the question whether to approve it, and the command ``/plan``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from anyio import to_thread

from ...errors import InputError
from ...settings import Mode
from .calls import one_line
from .questions import Option

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent
    from ...runtime.guard.permissions import Approval, ApprovalAnswer

__all__ = ["ask_about_plan", "plan_command"]

USAGE: Final = "usage: /plan, /plan approve [default | accept-edits], /plan reject [WORDS], /plan edit, /plan drop"


class PlanScreen(Protocol):
    """The parts of a screen that a question about a plan uses."""

    async def choose(self, title: str, options: Sequence[Option]) -> str | None: ...
    async def ask_line(self, mark: str) -> str: ...
    async def edit_file(self, path: Path) -> None: ...


class PlanTranscript(Protocol):
    """The parts of a transcript that show a plan."""

    @property
    def prose(self) -> Callable[[str], None]: ...
    @property
    def note(self) -> Callable[..., None]: ...


class PlanChat(Protocol):
    """The parts of a conversation that ``/plan`` uses."""

    @property
    def agent(self) -> Agent: ...
    @property
    def transcript(self) -> PlanTranscript: ...
    async def edit_file(self, path: Path) -> None: ...


async def ask_about_plan(screen: PlanScreen, transcript: PlanTranscript, approval: Approval) -> ApprovalAnswer:
    """Show a plan, ask the user to approve, edit or reject it, and return the answer."""
    from ...runtime.guard.permissions import ApprovalAnswer

    path = Path(approval.access.target)
    options = [
        Option("y", "yes, and ask me before each edit", "once"),
        Option("a", "yes, and accept edits", "always"),
        *([Option("e", "edit the plan first", "edit")] if path.is_file() else []),
        Option("t", "no, and ask the model for changes", "why"),
        Option("n", "no", "no"),
    ]
    text = approval.preview
    while True:
        transcript.prose(text)
        transcript.note(approval.reason)
        match await screen.choose("Approve the plan?", options):
            case "once":
                return ApprovalAnswer("once")
            case "always":
                return ApprovalAnswer("always")
            case "edit":
                try:
                    await screen.edit_file(path)
                    text = await to_thread.run_sync(lambda: path.read_text(encoding="utf-8", errors="replace"))
                except (InputError, OSError) as error:
                    transcript.note(f"! {error}", "warning")
            case "why":
                return ApprovalAnswer("deny", (await screen.ask_line("which changes? ")).strip())
            case _:
                return ApprovalAnswer("deny")


async def plan_command(chat: PlanChat, rest: str) -> None:
    """Show the plan, or approve, reject, edit or drop it by the words of ``rest``."""
    word, _, words = rest.partition(" ")
    agent = chat.agent
    match word:
        case "":
            await _show(chat)
        case "approve":
            await agent.approve_plan(_mode(words.strip()))
            chat.transcript.note(f"the plan is approved; mode: {agent.mode}. Send a message to start the work.")
        case "reject":
            await agent.reject_plan(words.strip())
            chat.transcript.note("the plan is rejected")
        case "edit":
            if agent.plan is None or not agent.plan.is_open:
                raise InputError("there is no open plan")
            await chat.edit_file(Path(agent.plan_path))
            await _show(chat)
        case "drop":
            await agent.end_plan()
            chat.transcript.note("the plan is dropped")
        case _:
            raise InputError(USAGE)


async def _show(chat: PlanChat) -> None:
    await chat.agent.session.parts.plan.adopt()
    plan = chat.agent.plan
    if plan is None:
        chat.transcript.note("there is no plan; in plan mode (Shift-Tab) the agent writes one")
        return
    chat.transcript.prose(plan.text)
    words = f": {one_line(plan.words, 200)}" if plan.words else ""
    chat.transcript.note(f"{plan.state} by the {plan.by}{words} · {chat.agent.plan_path}")
    if plan.state == "proposed":
        chat.transcript.note("/plan approve, /plan approve accept-edits, /plan reject WORDS, /plan edit")


def _mode(word: str) -> Mode:
    if word in ("", "default"):
        return "default"
    if word == "accept-edits":
        return "accept-edits"
    raise InputError(f"a plan is approved to the mode default or accept-edits, not {word!r}")
