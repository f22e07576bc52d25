"""The agents that sessions started, running and past, read from their logs."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ....cache.usage import usage_of
from ....conversation.decisions import AgentFinished, AgentSpawned, CallRecorded, decision_of
from ....conversation.entries import ASSISTANT, DECISION, Entry, decode_entry, seconds
from ....conversation.log import parse_log
from ....conversation.wire.blocks import as_blocks
from ....layers.l7_relay import line_for, summary_of
from ....ports import Storage
from ....values import record, replace
from ...library import Library, agent_log
from ...places.projects import session_of

FORK: Final = "fork"
"""The kind of an agent that goes on in its parent's conversation and has no log of its own."""
_SPAWNED: Final = b"agent_spawned"
_FINISHED: Final = b"agent_finished"


@record
class AgentRecord:
    """One agent by the logs: its parent, state and usage.

    The state ``lost`` means that its process died before it ended, ``deleted`` that its log was deleted.
    ``session`` is the log that started it, ``line`` its result in one line or its last tool call.
    """

    agent: str
    kind: str
    description: str
    state: str
    session: str
    parent: str
    depth: int
    background: bool
    started: str
    ended: str = ""
    turns: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    line: str = ""


def agents_of(storage: Storage) -> list[AgentRecord]:
    """Return every agent that the logs of a storage record, the latest first; this may block."""
    library = Library(storage)
    agents = library.agent_keys()
    logs = set(agents)
    found = [
        one
        if one.state in ("running", "lost") or one.kind == FORK or agent_log(one.agent) in logs
        else replace(one, state="deleted", line="")
        for key in library.keys() + agents
        for one in _started_in(storage, key)
    ]
    return sorted(found, key=lambda one: (-seconds(one.started), one.agent))


def _started_in(storage: Storage, key: str) -> list[AgentRecord]:
    """Return the agents that one session's log records as started, with their end if it is logged."""
    data = storage.load(key) or b""
    if _SPAWNED not in data:
        return []
    session = session_of(key)
    found: dict[str, AgentRecord] = {}
    for line in data.split(b"\n"):
        if _SPAWNED not in line and _FINISHED not in line:
            continue
        try:
            entry = decode_entry(line)
        except ValueError:
            continue
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, AgentSpawned):
            found[decision.agent] = _started_record(decision, entry, session)
        elif isinstance(decision, AgentFinished) and decision.agent in found:
            found[decision.agent] = _ended_record(found[decision.agent], decision, entry)
    alive = storage.holder(key) is not None
    return [one if one.state != "running" else _unfinished_record(storage, one, alive) for one in found.values()]


def _started_record(decision: AgentSpawned, entry: Entry, session: str) -> AgentRecord:
    given = decision.options
    depth = given.get("depth")
    return AgentRecord(
        agent=decision.agent,
        kind=str(given.get("kind") or ""),
        description=str(given.get("description") or summary_of(decision.directive)),
        state="running",
        session=session,
        parent=str(given.get("parent") or ""),
        depth=depth if isinstance(depth, int) else 1,
        background=given.get("background") is True,
        started=entry.time,
    )


def _ended_record(before: AgentRecord, decision: AgentFinished, entry: Entry) -> AgentRecord:
    turns, tokens, cost = (decision.usage.get(name) for name in ("turns", "tokens", "cost_usd"))
    return replace(
        before,
        state=decision.status,
        ended=entry.time,
        turns=turns if isinstance(turns, int) else 0,
        tokens=tokens if isinstance(tokens, int) else 0,
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        line=summary_of(decision.text) or decision.cause.reason,
    )


def _unfinished_record(storage: Storage, before: AgentRecord, alive: bool) -> AgentRecord:
    """Return the record of an agent without a logged end as running or lost, with its usage from its own log."""
    state = "running" if alive else "lost"
    data = storage.load(agent_log(before.agent))
    if data is None:
        return replace(before, state=state)
    turns, tokens, cost, line = 0, 0, None, before.line
    for entry in parse_log(data).entries:
        if entry.kind == ASSISTANT and entry.message is not None:
            turns += 1
            line = _last_call(entry.message) or line
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, CallRecorded):
            usage = usage_of(decision.usage)
            tokens += usage.input + usage.output
            cost = cost if decision.cost_usd is None else (cost or 0.0) + decision.cost_usd
    return replace(before, state=state, turns=turns, tokens=tokens, cost_usd=cost, line=line)


def _last_call(message: Any) -> str:
    try:
        blocks = as_blocks(message)
    except (TypeError, KeyError, msgspec.ValidationError):
        return ""
    for block in reversed(blocks):
        given: Any = block.get("input")
        if block.get("type") == "tool_use" and isinstance(given, dict):
            return line_for(str(block.get("name")), cast("dict[str, Any]", given))
    return ""
