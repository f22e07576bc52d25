"""The plan of a session: its text and state, folded from the decisions that changed it."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from ..digests import hex_of
from ..values import record, replace
from .causes import Cause

PlanState: TypeAlias = Literal["proposed", "approved", "rejected", "done"]
_TEXTS: Final = 32
_BOX: Final = re.compile(r"^(\s*(?:[-*+]|\d+[.)])\s+)\[[ xX]\]", re.MULTILINE)


@record
class PlanChanged:
    """The plan of the session was written or decided on; an empty ``text`` keeps the text before."""

    cause: Cause
    state: PlanState
    text: str = ""
    by: str = "agent"
    """The author of the change: ``agent``, ``user``, ``lead`` (of a sub-agent) or ``mode`` (bypass)."""
    words: str = ""
    """The reason or wish that came with an approval or a rejection."""
    edited: bool = False
    """Whether a person changed the text, and not the agent."""
    mode: str = ""
    """The permission mode that the approval gives."""


@record
class Plan:
    """The plan of a session as its log has it."""

    state: PlanState
    text: str
    by: str
    words: str = ""
    texts: tuple[str, ...] = ()
    """The digests of its last 32 texts, the newest last."""
    changes: int = 1
    """How often it was written or decided on."""
    edited: bool = False
    mode: str = ""
    """The permission mode that the approval gave and that still holds; empty if there is none."""

    @property
    def is_open(self) -> bool:
        """Whether the plan waits for approval, or is approved and not done."""
        return self.state in ("proposed", "approved")

    @property
    def request_id(self) -> str:
        """The id by which an answer names this text."""
        return f"plan-{plan_digest(self.text)[:12]}"


def plan_after(plan: Plan | None, change: PlanChanged) -> Plan:
    """Return the plan after a change."""
    text = change.text or (plan.text if plan is not None else "")
    texts, changes = (plan.texts, plan.changes + 1) if plan is not None else ((), 1)
    if plan_digest(text) not in texts:
        texts = (*texts, plan_digest(text))[-_TEXTS:]
    edited = change.edited or (not change.text and plan is not None and plan.edited)
    new = Plan(change.state, text, change.by, change.words, texts, changes, edited, change.mode)
    if plan is not None and new == replace(plan, changes=changes, mode=change.mode):
        return replace(plan, mode=change.mode)  # only the mode has changed, which no reader of the plan sees
    return new


def plan_digest(text: str) -> str:
    """Return the digest of a plan's text, without blanks around it."""
    return hex_of(text.strip().encode("utf-8", "replace"))


def is_known_text(plan: Plan, text: str) -> bool:
    """Say whether this text is one of the plan's last texts in the log, and so no edit of its file."""
    return plan_digest(text) in plan.texts


def without_ticks(text: str) -> str:
    """Return the text with every ticked box of a list open, to compare plans apart from their progress."""
    return _BOX.sub(r"\1[ ]", text.strip())
