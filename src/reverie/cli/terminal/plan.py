"""The plan in the terminal: the command ``/plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ...errors import InputError
from ...settings import Mode
from .approval import PlanTranscript, Preview
from .calls import one_line
from .colours import Paint

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent

USAGE: Final = "usage: /plan, /plan approve [default | accept-edits], /plan reject [WORDS], /plan edit, /plan drop"


class PlanChat(Protocol):
    """The parts of a conversation that ``/plan`` uses."""

    @property
    def agent(self) -> Agent: ...
    @property
    def paint(self) -> Paint: ...
    @property
    def transcript(self) -> PlanTranscript: ...
    async def edit_file(self, path: Path) -> None: ...


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
    chat.transcript.put("approval", Preview(plan.text, chat.paint).page())
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
