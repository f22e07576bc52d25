"""SWE-agent trajectories: one JSON document whose ``history`` is the list of messages sent to the model.

Generations differ: observations are user messages (older) or tool messages that name their calls; demonstrations are
flagged ``is_demo``; a history may hold several agents, and a file several attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..conversation.entries import ASSISTANT, USER
from ..values import object_of, rows_of
from .chat_shape import CallIds, content_of, tool_uses
from .foreign_values import Record, as_list, as_number, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft, plain
from .record_files import decode_record

NAME: Final = "swe-agent"


def looks(row: Record) -> bool:
    """Return whether a document is a trajectory of SWE-agent."""
    history = rows_of(row.get("history"))
    if history:
        return any("role" in message for message in history[:5]) and (
            "trajectory" in row or "info" in row or "agent" in history[0]
        )
    steps = rows_of(row.get("trajectory"))
    return any("observation" in step for step in steps[:5]) or any(
        looks(one) for one in rows_of(row.get("attempts"))[:3]
    )


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with one session per agent and attempt, the main one first; one empty session if none."""
    out: list[ImportedSession] = []
    for row in source.rows:
        attempts = [row] if "history" in row or "trajectory" in row else rows_of(row.get("attempts"))
        for attempt, one in enumerate(attempts):
            for agent, messages in _by_agent(one).items():
                suffix = f".attempt-{attempt + 1}" if attempt else ""
                draft = SessionDraft(NAME, source.stem + suffix + (f".agent-{agent}" if out and agent else ""), source)
                draft.agent = agent if out and agent else None
                _fill(draft, one, messages)
                out.append(draft.done(source.damage if not out else ()))
    return out or [SessionDraft(NAME, "", source).done(source.damage)]


def _by_agent(row: Record) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for message in rows_of(row.get("history")) or _steps(rows_of(row.get("trajectory"))):
        groups.setdefault(as_text(message.get("agent")), []).append(message)
    return groups


def _steps(trajectory: list[Record]) -> list[Record]:
    """Return a history built from the steps, for a file that was cut off before its history."""
    out: list[Record] = []
    for step in trajectory:
        out.append({"role": "assistant", "content": step.get("response") or step.get("thought")})
        out.append({"role": "user", "content": step.get("observation")})
    return out


def _fill(draft: SessionDraft, row: Record, messages: list[Record]) -> None:
    stats = object_of(object_of(row.get("info")).get("model_stats"))
    draft.cost_usd = as_number(stats.get("instance_cost"))
    draft.model = _model(row.get("replay_config"))
    for directory in _directories(row):
        draft.cwd = directory
        break
    named = CallIds()
    for place, message in enumerate(messages):
        _emit(draft, named, message, place)


def _emit(draft: SessionDraft, named: CallIds, message: Record, place: int) -> None:
    role, content = as_text(message.get("role")), content_of(message.get("content"))
    more: Record = {"demo": True} if message.get("is_demo") is True else {}
    if role == "system":
        draft.system = plain(content) if draft.system is None else f"{draft.system}\n\n{plain(content)}"
        return
    if role == "assistant":
        content = content or as_text(message.get("thought"))
        said = [{"type": "text", "text": content}] if isinstance(content, str) and content else as_list(content)
        thinking = [block for block in rows_of(message.get("thinking_blocks")) if block.get("signature")]
        uses = named.renamed(tool_uses(message.get("tool_calls")))
        whole: str | list[Any] = [*thinking, *said, *uses] if thinking or uses else content
        if whole:
            reply = draft.reply(f"{draft.session_id}-{place}", model=draft.model)
            draft.say(ASSISTANT, "assistant", whole, reply=reply, **more)
            return
    calls = [named.name_of(call) for call in as_list(message.get("tool_call_ids")) if isinstance(call, str)]
    if role == "tool" and calls:
        draft.say(USER, "user", _results(calls, content), **more)
    elif role in ("user", "tool") and content:
        draft.say(USER, "user", content, **more)
    else:
        known = role in ("user", "tool", "assistant")
        draft.skip("message without content" if known else f"unknown role: {role[:40]}")


def _results(calls: list[str], content: str | list[Record]) -> list[Record]:
    """Return one result per call: the first holds the observation, and the others refer to the first call."""
    out: list[Record] = [{"type": "tool_result", "tool_use_id": calls[0], "content": content}]
    for call in calls[1:]:
        out.append({"type": "tool_result", "tool_use_id": call, "content": f"[answered together with {calls[0]}]"})
    return out


def _model(replay: Any) -> str:
    if isinstance(replay, str):
        try:
            replay = decode_record(replay.encode("utf-8", "replace"))
        except ValueError:
            return ""
    agent = object_of(object_of(replay).get("agent"))
    model = agent.get("model")
    return as_text(object_of(model).get("name")) or as_text(object_of(model).get("model_name"))


def _directories(row: Record) -> Iterator[str]:
    for step in rows_of(row.get("trajectory")):
        state = step.get("state")
        if isinstance(state, str):
            try:
                state = decode_record(state.strip().encode("utf-8", "replace"))
            except ValueError:
                continue
        if directory := as_text(object_of(state).get("working_dir")):
            yield directory
