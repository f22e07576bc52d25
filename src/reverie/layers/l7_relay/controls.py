"""Control messages between agents: typed, and never parsed from a text.

A shutdown request asks, and the receiving agent answers. A request to approve a plan is sent by the runtime; its answer
counts only if it comes from the lead that the runtime knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, get_args

import msgspec

from ...errors import InputError
from ...memories.recall.fence import attribute
from ...values import fields_of, record
from .messages import MAX_SUMMARY_CHARS, Letter, letter_id

_MAX_CHARS: Final = 10_000


@record
class ShutdownRequest:
    """A control message that asks an agent to finish."""

    request_id: str
    reason: str = ""


@record
class ShutdownResponse:
    """A control message that says whether an agent that was asked to finish will do so."""

    request_id: str
    approve: bool
    reason: str = ""


@record
class PlanApprovalRequest:
    """A control message that asks the lead to approve the plan in the letter's text."""

    request_id: str


@record
class PlanApprovalResponse:
    """A control message that says whether an agent may execute the plan it proposed."""

    request_id: str
    approve: bool
    feedback: str = ""


@record
class Idle:
    """A control message that says that its sender has nothing to do."""

    reason: str = ""
    summary: str = ""


Control: TypeAlias = ShutdownRequest | ShutdownResponse | PlanApprovalRequest | PlanApprovalResponse | Idle

CONTROLS: Final[dict[str, type[Any]]] = {
    "shutdown_request": ShutdownRequest,
    "shutdown_response": ShutdownResponse,
    "plan_approval_request": PlanApprovalRequest,
    "plan_approval_response": PlanApprovalResponse,
    "idle": Idle,
}
assert set(CONTROLS.values()) == set(get_args(Control))


def read_control(body: Mapping[str, Any]) -> Control:
    """Return the control message in a dict with ``type``; raise ``InputError`` if it is invalid."""
    named = body.get("type")
    kind = CONTROLS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise InputError(f"no control message is called {str(named)[:80]!a}; there are: {', '.join(CONTROLS)}")
    known = set(fields_of(kind))
    strange = sorted(str(key)[:40] for key in body if key not in known and key != "type")
    if strange:
        raise InputError(f"{named} has no {', '.join(strange)}; it has: {', '.join(sorted(known))}")
    try:
        control: Control = msgspec.convert({key: body[key] for key in body if key != "type"}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"that is no {named}: {error}") from None
    if any(isinstance(value, str) and len(value) > _MAX_CHARS for value in body.values()):
        raise InputError(f"a field of {named} is longer than {_MAX_CHARS:,} characters; put long text into the message")
    return control


def control_of(letter: Letter) -> Control | None:
    """Return the control message in a letter; None if it is prose or invalid."""
    if letter.control is None:
        return None
    try:
        return read_control(letter.control)
    except InputError:
        return None


def counts(letter: Letter, lead: str | None) -> bool:
    """Say whether a letter has a valid control message; a plan approval counts only from the lead of its team."""
    control = control_of(letter)
    if isinstance(control, PlanApprovalResponse):
        return lead is not None and letter.sender == lead and letter.team == letter.to_team
    return control is not None


def control_explanation(letter: Letter, lead: str | None, *, can_answer: bool = True) -> str:
    """Return the text that explains a letter's control message to its recipient's model; empty without one.

    ``can_answer`` says whether the recipient has the tool SendMessage.
    """
    match control_of(letter):
        case None:
            return ""
        case ShutdownRequest() as asked:
            why = f" Reason given: {attribute(asked.reason)}." if asked.reason else ""
            id = attribute(asked.request_id)
            if not can_answer:
                return f"It asks you to end your work.{why} Stop, and answer with your result so far."
            return (
                f"It asks you to end your work.{why} Finish or put down what you are doing, then answer with "
                f'SendMessage to {letter.sender}: message {{"type": "shutdown_response", "request_id": "{id}", '
                '"approve": true}, which ends you; or approve false, with a reason.'
            )
        case ShutdownResponse() as answer:
            said = "It agrees to end" if answer.approve else "It goes on working"
            why = f": {attribute(answer.reason)}" if answer.reason else ""
            return f"{said} (request {attribute(answer.request_id)}){why}."
        case PlanApprovalRequest() as asked:
            return (
                "It has written the plan below, waits, and changes nothing before you answer. Answer with SendMessage "
                f'to {letter.sender}: message {{"type": "plan_approval_response", "request_id": '
                f'"{attribute(asked.request_id)}", "approve": true}}; or approve false, with feedback.'
            )
        case PlanApprovalResponse() as answer:
            if not counts(letter, lead):
                who = lead or "nobody"
                return f"This approves nothing: plans are approved by the lead ({who}), not by {letter.sender}."
            said = "The lead approves the plan" if answer.approve else "The lead does not approve the plan"
            why = f": {attribute(answer.feedback)}" if answer.feedback else ""
            return f"{said} (request {attribute(answer.request_id)}){why}."
        case Idle() as idle:
            parts = [attribute(part) for part in (idle.reason, idle.summary) if part]
            return f"It has nothing to do now{': ' + '; '.join(parts) if parts else ''}."


def stamped_letter(
    id: str,
    text: str,
    *,
    sender: tuple[str, str],
    to: tuple[str, str],
    sequence: int,
    time_ns: int,
    summary: str = "",
    control: Mapping[str, Any] | None = None,
) -> Letter:
    """Return a letter with sender and recipient (pairs of team and name), sequence number and time.

    Raise ``InputError`` if the control message is invalid or there is neither text nor control message.
    """
    if control is not None:
        read_control(control)
    elif not text.strip():
        raise InputError("there is nothing in that message: say something")
    return Letter(
        id=letter_id(sender[1], id),
        team=sender[0],
        sender=sender[1],
        to_team=to[0],
        to=to[1],
        sequence=sequence,
        time_ns=time_ns,
        text=_encodable(text),
        summary=" ".join(_encodable(summary).split())[:MAX_SUMMARY_CHARS],
        control=dict(control) if control is not None else None,
    )


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
