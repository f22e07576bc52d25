"""The approval of an agent's plan by the user, its lead or its mode; and the item that states plan mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from anyio import lowlevel

from ...conversation.plans import Plan, without_ticks
from ...conversation.standing_context import StandingItem
from ...conversation.view import View
from ...errors import InputError
from ...layers.l7_relay import PlanApprovalResponse
from ...settings import Mode
from ...tools.tool import Access
from ..guard.permissions import Approval, check_mode
from ..session.plan.keeper import PLAN_TOOL, PlanKeeper, state_sentence
from ..session.standing_context import ContextSource
from .tool_runs import ToolRuns

PLAN: Final = "plan"
_NOBODY: Final = (
    "There is no one to ask now. End your turn with a short summary of the plan; it can be approved when the session "
    "goes on."
)
_AGAIN: Final = "Change the plan accordingly and write it again."
_NO_REASON: Final = "Ask the user about the changes they want, and end your turn."


class PlanApproval:
    """Hands an agent's plan to the one who approves it, and sets the permission mode that follows."""

    def __init__(
        self,
        keeper: PlanKeeper,
        runs: ToolRuns,
        *,
        set_mode: Callable[[Mode], None],
        ask_lead: Callable[[Plan], Awaitable[PlanApprovalResponse | None]] | None = None,
        mode_of_lead: Callable[[], Mode] = lambda: "default",
    ) -> None:
        """Approve by ``ask_lead`` if it is given, which returns None if the lead cannot answer; else ask the user."""
        self._keeper = keeper
        self._runs = runs
        self._set_mode = set_mode
        self._ask_lead = ask_lead
        self._mode_of_lead = mode_of_lead

    # -- by the agent

    async def propose(self, text: str) -> str:
        """Save a plan, ask for its approval, and return the answer in words.

        Progress of an approved plan needs no approval. Raise ``InputError`` if the user changed the plan meanwhile.
        """
        if await self._keeper.adopt() and (edited := self._keeper.plan) is not None:
            raise InputError(f"The user has changed the plan. Start from their text:\n\n{edited.text}")
        before = self._keeper.plan
        if before is not None and before.state == "approved" and without_ticks(before.text) == without_ticks(text):
            return state_sentence(
                await self._keeper.write(text, "approved", by=before.by, words=before.words, mode=before.mode)
            )
        return await self._answer(await self._keeper.write(text))

    async def finish(self) -> str:
        """End the open plan and return a sentence about it; raise ``InputError`` if there is none."""
        return state_sentence(await self.end(by="agent"))

    async def _answer(self, plan: Plan) -> str:
        """Ask for the approval of a plan, log the answer, and return it in words for the agent."""
        if self._runs.mode == "bypass":
            return state_sentence(await self.approve(by="mode"))
        if self._ask_lead is not None:
            given = await self._ask_lead(plan)
            if given is None:
                return f"{state_sentence(plan)} {_NOBODY}"
            if given.approve:
                return self._approved(await self.approve(self._mode_of_lead(), given.feedback, by="lead"))
            return self._rejected(await self.reject(given.feedback, by="lead"))
        if not self._runs.can_ask:
            return f"{state_sentence(plan)} {_NOBODY}"
        answer = await self._runs.ask_user(self._question(plan))
        await lowlevel.checkpoint()  # an interrupt is no answer
        if answer.kind == "deny":
            return self._rejected(await self.reject(answer.message))
        mode: Mode = "accept-edits" if answer.kind == "always" else "default"
        return self._approved(await self.approve(mode, answer.message))

    def _question(self, plan: Plan) -> Approval:
        reason = f"the plan waits for your approval; you can change it in {self._keeper.path}"
        given = {"action": "write", "text": plan.text}
        access = Access("none", self._keeper.path)
        return Approval(PLAN_TOOL, given, access, plan.text, reason, is_plan=True)

    def _approved(self, plan: Plan) -> str:
        changed = " The user changed its text; the new text follows." if plan.edited else ""
        return f"{state_sentence(plan)}{changed} The permission mode is {self._runs.mode}."

    def _rejected(self, plan: Plan) -> str:
        return f"{state_sentence(plan)} {_AGAIN if plan.words else _NO_REASON}"

    # -- by the one who approves

    async def approve(self, mode: Mode = "default", words: str = "", *, by: str = "user") -> Plan:
        """Approve the plan that waits, with edits of its file, and leave plan mode; return the plan.

        A sub-agent's mode never allows more than that of its lead. Raise ``InputError`` if no plan waits.
        """
        check_mode(mode)
        await self._keeper.adopt()
        self._waiting()
        sets_mode = self._runs.mode in (PLAN, "default")
        plan = await self._keeper.decide("approved", by=by, words=words, mode=mode if sets_mode else "")
        if sets_mode:
            self._set_mode(mode)
        return plan

    async def reject(self, words: str = "", *, by: str = "user") -> Plan:
        """Reject the plan that waits, with words for the agent, and return the plan; the mode stays.

        Raise ``InputError`` if no plan waits.
        """
        self._waiting()
        return await self._keeper.decide("rejected", by=by, words=words)

    async def end(self, *, by: str = "user") -> Plan:
        """End the open plan, done or not, and return it; raise ``InputError`` if there is none."""
        plan = self._keeper.plan
        if plan is None or not plan.is_open:
            raise InputError("there is no open plan")
        if by == "agent" and plan.state != "approved":
            raise InputError("the plan is not approved yet, so it cannot be done")
        return await self._keeper.decide("done", by=by)

    def _waiting(self) -> None:
        plan = self._keeper.plan
        if plan is None or plan.state != "proposed":
            raise InputError("no plan waits for approval" + (f": it is {plan.state}" if plan is not None else ""))


def granted_mode(view: View, given: Mode) -> Mode:
    """Return the mode of a resumed session: ``given``, or the one that the user gave with the plan that is open.

    Only an approval by the user in this session counts, and only for the two modes that the question offers. A log that
    another program wrote gives nothing.
    """
    plan = view.facts.plan
    if plan is None or (plan.state, plan.by) != ("approved", "user") or view.facts.meta.get("source"):
        return given
    if given not in (PLAN, "default"):
        return given
    return cast("Mode", plan.mode) if plan.mode in ("default", "accept-edits") else given


class PlanModeSource(ContextSource):
    """States plan mode to the model for as long as it is on."""

    name = "mode"

    def __init__(self, runs: ToolRuns, *, has_lead: bool = False) -> None:
        """State the mode of these tools; a sub-agent without the plan's tool answers its task, not with a plan."""
        self._runs = runs
        self._has_lead = has_lead

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the item that states plan mode; nothing in other modes."""
        if self._runs.mode != PLAN:
            return ()
        if self._has_lead and PLAN_TOOL not in self._runs.tools:
            value = "You may only read: calls that do more are refused."
            return (StandingItem("mode", self.name, "the rule that you may only read", value, own=True),)
        how = f"write the plan with the tool {PLAN_TOOL}" if PLAN_TOOL in self._runs.tools else "answer with a plan"
        value = (
            "Plan mode is on: calls that do more than read are refused. Read as much as the task needs, ask about "
            f"open questions, then {how}. Plan mode ends when the plan is approved."
        )
        return (StandingItem("mode", self.name, "plan mode", value, own=True),)
