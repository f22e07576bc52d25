"""What a hook may answer, and what several answers to one event amount to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from ...values import record, replace

__all__ = [
    "MAX_USED_CHARS",
    "HookAnswer",
    "HookOutcome",
    "HookPermission",
    "merged",
    "read_answer",
    "read_output",
    "shortened",
]

HookPermission: TypeAlias = Literal["allow", "deny", "ask"]

MAX_USED_CHARS: Final = 10_000
"""Of what a hook says, this much of each text is used."""

_CONTEXT_FROM_TEXT: Final = frozenset({"user_prompt", "session_start"})
_STRICTER: Final[Mapping[HookPermission | None, int]] = {None: 0, "allow": 1, "ask": 2, "deny": 3}
# Where each text may stand in an answer, nearest first.
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "reason": ("permissionDecisionReason", "reason"),
    "context": ("additionalContext",),
    "message": ("systemMessage",),
    "instructions": ("instructions",),
}


@record
class HookOutcome:
    """What hooks want done about an event."""

    block: bool = False
    """Do not do it: the prompt, the tool call, the compaction; at ``stop``, go on working."""
    reason: str = ""
    context: str = ""
    """What the model is told."""
    message: str = ""
    """What the person is told."""
    instructions: str = ""
    """What a compaction should mind."""
    permission: HookPermission | None = None
    updated_input: dict[str, Any] | None = None
    stop: bool = False
    """End the query."""


@record
class HookAnswer:
    """What one hook answered, and what was wrong with it."""

    outcome: HookOutcome
    problem: str = ""


def shortened(text: str) -> str:
    """Return the part of a text that is used."""
    text = text.strip()
    if len(text) <= MAX_USED_CHARS:
        return text
    return f"{text[:MAX_USED_CHARS]}\n[cut at {MAX_USED_CHARS:,} characters]"


def read_output(event: str, code: int, out: str, err: str) -> HookAnswer:
    """Read what a command said: 0 answers, 2 blocks, anything else is a failure that stops nothing."""
    if code == 2:
        reason = shortened(err) or shortened(out)
        return HookAnswer(_settled(event, HookOutcome(block=True, reason=reason)))
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        said = " ".join((err.strip() or out.strip()).split())[:500]
        return HookAnswer(HookOutcome(), f"{how}: {said}" if said else how)
    text = out.strip()
    if not text.startswith("{"):
        return HookAnswer(_from_text(event, text))
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return HookAnswer(HookOutcome(), f"the answer is not JSON: {error}")
    return read_answer(event, given)


def read_answer(event: str, given: object) -> HookAnswer:
    """Read an answer that is a table, text, an outcome or nothing; a field that is wrong is named and left out."""
    if given is None:
        return HookAnswer(HookOutcome())
    if isinstance(given, HookOutcome):
        texts = {name: shortened(getattr(given, name)) for name in _TEXTS}
        return HookAnswer(_settled(event, replace(given, **texts)))
    if isinstance(given, str):
        return HookAnswer(_from_text(event, given))
    if not isinstance(given, Mapping):
        return HookAnswer(HookOutcome(), f"the answer is a {type(given).__name__}; give a table of fields, or text")
    return _from_table(event, cast("Mapping[str, object]", given))


def _from_text(event: str, text: str) -> HookOutcome:
    """Plain text is context where a conversation or a turn begins, and instructions before a compaction."""
    if event in _CONTEXT_FROM_TEXT:
        return HookOutcome(context=shortened(text))
    if event == "before_compact":
        return HookOutcome(instructions=shortened(text))
    return HookOutcome()


def _from_table(event: str, table: Mapping[str, object]) -> HookAnswer:
    inner = table.get("hookSpecificOutput")
    places = [cast("Mapping[str, object]", inner), table] if isinstance(inner, Mapping) else [table]
    problems: list[str] = []

    def field(names: Sequence[str], kind: type[Any], wanted: str) -> Any:
        for name in names:
            for place in places:
                value = place.get(name)
                if isinstance(value, kind):
                    return value
                if value is not None:
                    problems.append(f"{name} is {value!r:.80}; {wanted}")
        return None

    texts = {name: shortened(field(spelled, str, "give text") or "") for name, spelled in _TEXTS.items()}
    go_on = field(("continue",), bool, "say true or false")
    stop_reason = shortened(field(("stopReason",), str, "give text") or "")
    updated = field(("updatedInput",), dict, "give a table")
    permission = field(("permissionDecision",), str, "say allow, deny or ask")
    if permission is not None and permission not in ("allow", "deny", "ask"):
        problems.append(f"permissionDecision is {permission!r:.80}; say allow, deny or ask")
        permission = None
    decision = field(("decision",), str, "say block or approve")
    if decision not in (None, "block", "approve"):
        problems.append(f"decision is {decision!r:.80}; say block or approve")
    if decision == "approve" and permission is None and event == "before_tool":
        permission = "allow"
    outcome = HookOutcome(
        block=decision == "block", permission=permission, updated_input=updated, stop=go_on is False, **texts
    )
    if outcome.stop and stop_reason:
        outcome = replace(outcome, reason=stop_reason)
    return HookAnswer(_settled(event, outcome), "; ".join(problems))


def _settled(event: str, outcome: HookOutcome) -> HookOutcome:
    """A call that has been made can no longer be blocked: the model is told why it should not have been."""
    if event == "after_tool" and outcome.block and outcome.reason:
        return replace(outcome, context=_joined([outcome.reason, outcome.context]))
    return outcome


def merged(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Return what the outcomes amount to, in their order: one block blocks, the strictest permission stands."""
    permission: HookPermission | None = None
    for one in outcomes:
        if _STRICTER[one.permission] > _STRICTER[permission]:
            permission = one.permission
    updated = [one.updated_input for one in outcomes if one.updated_input is not None]
    stops, blocks = [one for one in outcomes if one.stop], [one for one in outcomes if one.block]
    speaking = blocks or stops or [one for one in outcomes if one.permission == permission]
    return HookOutcome(
        block=bool(blocks),
        reason=_joined([one.reason for one in speaking]),
        context=_joined([one.context for one in outcomes]),
        message=_joined([one.message for one in outcomes]),
        instructions=_joined([one.instructions for one in outcomes]),
        permission=permission,
        updated_input=updated[-1] if updated else None,
        stop=bool(stops),
    )


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)
