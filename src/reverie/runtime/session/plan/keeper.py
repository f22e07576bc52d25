"""The plan and the open steps of a session: kept in its log, the plan also in a Markdown file, stated until done.

The log holds the plan and the file is its projection. A person's edit of the file is logged when it is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from ....conversation.authorship import text_of
from ....conversation.decisions import Cause, PlanChanged
from ....conversation.plans import Plan, PlanState, is_known_text
from ....conversation.reads import HistoryReader, shows_result
from ....conversation.standing_context import StandingItem, digest_of
from ....conversation.tool_calls import COMPLETED, steps_in
from ....conversation.view import View
from ....errors import StorageError
from ....events import FellBack
from ....ports import Storage
from ....values import record, rows_of
from ..host import SessionHost
from ..standing_context import ContextSource, StandingContext

PLAN_FILE: Final = "plan.md"
PLAN_TOOL: Final = "Plan"
LAYER: Final = "plan"
_AUTHORS: Final = {"user": "the user", "lead": "your lead", "mode": "the permission mode", "agent": "you"}

_EDITED: Final = "The user changed its text; the text below replaces the one before."
TOOLS: Final = frozenset({"TodoWrite", "todo_write", "todowrite", "Todo", "todo", "update_plan"})
"""The names of tools that replace a list of steps, in this and other programs."""
_HEAD: Final = "Your list of steps, those that are not completed:"


class PlanKeeper(ContextSource):
    """Keeps the plan of one session in its log and in a file; a source of standing items."""

    name = "plan"

    def __init__(
        self, session: SessionHost, storage: Storage, folder: str, standing: StandingContext, *, root: str = ""
    ) -> None:
        """Keep the plan file in a session's folder; ``root`` is the storage's directory, for a person's path."""
        self._session = session
        self._standing = standing
        self._storage = storage
        self._key = f"{folder}/{PLAN_FILE}"
        self._root = root
        self._calls = AnsweredCalls({PLAN_TOOL})

    @property
    def plan(self) -> Plan | None:
        """The plan as the log has it, without unlogged edits of the file; None if there never was one."""
        return self._session.log.view.facts.plan

    @property
    def path(self) -> str:
        """The path of the plan file on disk; its storage key if the storage is not a directory."""
        return f"{self._root}/{self._key}" if self._root else self._key

    async def write(
        self, text: str, state: PlanState = "proposed", *, by: str = "agent", words: str = "", mode: str = ""
    ) -> Plan:
        """Log a new text of the plan, write the file, and return the plan."""
        cause = Cause(LAYER, "written by the agent")
        plan = await self._change(PlanChanged(cause, state, text.strip(), by, words, mode=mode))
        data = f"{plan.text}\n".encode("utf-8", "replace")
        try:
            await self._session.log.run_blocking(lambda: self._storage.write(self._key, data))
        except StorageError as error:
            why = f"the file of the plan is not up to date, the log is: {error}"
            self._session.log.emit(FellBack(self._session.log.name, LAYER, why))
        return plan

    async def decide(self, state: PlanState, *, by: str, words: str = "", mode: str = "") -> Plan:
        """Log the answer to a plan with the permission mode that it gives, or its end, and return the plan."""
        cause = Cause(LAYER, f"{state} by the {by}")
        return await self._change(PlanChanged(cause, state, by=by, words=words, mode=mode))

    async def note_mode(self, mode: str) -> None:
        """Log that the mode of an approval no longer holds, if the user has set another one since."""
        plan = self.plan
        if plan is not None and plan.mode not in ("", mode):
            cause = Cause(LAYER, f"the user set the mode {mode}")
            await self._session.log.decide(PlanChanged(cause, plan.state, by=plan.by, words=plan.words))

    async def adopt(self) -> bool:
        """Log a person's edit of the file of an open plan, and return whether there was one."""
        plan = self.plan
        if plan is None or not plan.is_open:
            return False
        try:
            found = await self._session.log.run_blocking(lambda: self._storage.read(self._key))
        except StorageError:
            return False
        text = found.data.decode("utf-8", "replace").strip() if found is not None else ""
        if not text or is_known_text(plan, text):
            return False
        await self._change(
            PlanChanged(
                Cause(LAYER, "a person edited the file"),
                plan.state,
                text,
                plan.by,
                plan.words,
                edited=True,
                mode=plan.mode,
            )
        )
        return True

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the open plan; a closed one only where the view shows a call about it and not its end."""
        plan, last = view.facts.plan, self._calls.follow(view)
        if plan is None:
            return ()
        sentence = state_sentence(plan)
        tells = last is not None and sentence in last.result and (not plan.is_open or _text_in(last) == plan.text)
        shown_by = (last.id,) if last is not None and tells else ()
        is_shown = last is not None and tells and shows_result(view, last.id)
        if not plan.is_open and (is_shown or not self._calls.any_in(view)):
            return ()
        note = f" {_EDITED}" if plan.edited else ""
        value = f"{sentence}{note}\n\n{plan.text}" if plan.is_open else sentence
        digest = digest_of(f"{plan.changes}\n{value}")
        native, name = digest if is_shown else "", "the plan of this session"
        return (StandingItem("plan", self.name, name, value, digest, native=native, shown_by=shown_by),)

    async def _change(self, change: PlanChanged) -> Plan:
        await self._session.log.decide(change)
        self._standing.refresh()
        plan = self.plan
        assert plan is not None
        return plan


def _text_in(call: AnsweredCall | None) -> str:
    given: Any = call.input if call is not None else None
    return str(cast("dict[str, Any]", given).get("text", "")).strip() if isinstance(given, dict) else ""


def state_sentence(plan: Plan) -> str:
    """Return the state of a plan in words for the model."""
    author, words = _AUTHORS.get(plan.by, plan.by), f' Words: "{plan.words}".' if plan.words else ""
    match plan.state:
        case "proposed":
            return "The plan waits for approval. Change nothing before it is approved."
        case "approved":
            return (
                f"The plan is approved by {author}.{words} Work by it; call {PLAN_TOOL} with the action done when all "
                "of it is done."
            )
        case "rejected":
            return f"The plan is rejected by {author}; do not work by it.{words}"
        case "done":
            return f"The plan is ended by {author}; it no longer holds.{words}"


@record
class AnsweredCall:
    """A tool call whose result is no error."""

    id: str
    entry: str
    """The uuid of the log entry that has the call."""
    input: Any
    result: str


class AnsweredCalls:
    """Finds the last answered call of some tools; each entry of the history is read once."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._restart()

    def _restart(self) -> None:
        self.last: AnsweredCall | None = None
        self._ids: list[str] = []
        self._open: dict[str, tuple[str, Any]] = {}
        self._reader = HistoryReader()

    def follow(self, view: View) -> AnsweredCall | None:
        """Read the entries that the view gained since the last call, and return its last answered call.

        If the view does not continue the one before, its history is read from the start.
        """
        if not self._reader.continues(view):
            self._restart()
        for item in self._reader.items(view):
            for block in rows_of(item.message.get("content")):
                self._take(item.uuid, block)
        return self.last

    def any_in(self, view: View) -> bool:
        """Say whether a view shows any answered call of these tools."""
        return any(view.tool_call(called) is not None for called in self._ids)

    def _take(self, uuid: str, block: dict[str, Any]) -> None:
        if block.get("type") == "tool_use" and block.get("name") in self._tools:
            self._open[str(block.get("id"))] = uuid, block.get("input")
        elif block.get("type") == "tool_result" and (called := str(block.get("tool_use_id"))) in self._open:
            entry, given = self._open.pop(called)
            if block.get("is_error") is not True:
                self.last = AnsweredCall(called, entry, given, text_of(block))
                self._ids.append(called)


class StepsSource(ContextSource):
    """States the open steps of the last call of TodoWrite while no such call shows them."""

    name = "steps"

    def __init__(self) -> None:
        self._calls = AnsweredCalls(TOOLS)

    def steps(self, view: View) -> list[tuple[str, str]]:
        """Return the last list of steps of a session, each as its text and status."""
        last = self._calls.follow(view)
        return (steps_in(last.input) if last is not None else None) or []

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the open steps; without any, an item only where the view shows an older list by itself."""
        steps = self.steps(view)
        last = self._calls.last
        if last is None:
            return ()
        is_shown = view.tool_call(last.id) is not None
        still_open = [f"- [{status or 'pending'}] {text}" for text, status in steps if status != COMPLETED]
        if not still_open and (is_shown or not self._calls.any_in(view)):
            return ()
        value = "\n".join([_HEAD, *still_open]) if still_open else "No step is open: all were completed or dropped."
        # A list is another one if it was written again: the view may show a list that was written in between.
        digest = digest_of(f"{last.id}\n{value}")
        name = "the list of open steps"
        native = digest if is_shown else ""
        return (StandingItem("steps", self.name, name, value, digest, native=native, shown_by=(last.entry,)),)
