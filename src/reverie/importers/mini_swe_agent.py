"""mini-swe-agent trajectories: one JSON document with a list of chat messages, each with the provider's response."""

from __future__ import annotations

import re
from typing import Final

from ..conversation.entries import ASSISTANT, USER, iso
from ..values import object_of, rows_of
from .chat_shape import CallIds, content_of, reply_of, tool_uses
from .foreign_values import Record, as_count, as_number, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft, plain

NAME: Final = "mini-swe-agent"

_COMMAND: Final = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
"""A command of the text protocol; a reply has exactly one, and the next user message is its output."""
_SIGNS: Final = frozenset({"mini_version", "model_stats", "exit_status", "config"})


def looks(row: Record) -> bool:
    """Return whether a document is a trajectory of mini-swe-agent."""
    if not isinstance(row.get("messages"), list):
        return False
    if any("response" in object_of(message.get("extra")) for message in rows_of(row["messages"])[:8]):
        return True
    return as_text(row.get("trajectory_format")).startswith("mini-swe-agent") or bool(
        _SIGNS & object_of(row.get("info")).keys()
    )


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with one session per document; only the first holds the damage of the file."""
    out: list[ImportedSession] = []
    for row in source.rows:
        if looks(row) or not out:
            out.append(_read_one(source, row, first=not out))
    return out


def _read_one(source: RecordSource, row: Record, *, first: bool) -> ImportedSession:
    info = object_of(row.get("info"))
    config = object_of(info.get("config"))
    draft = SessionDraft(NAME, as_text(row.get("instance_id")), source)
    draft.title = as_text(row.get("instance_id"))
    draft.cwd = as_text(object_of(config.get("environment")).get("cwd"))
    draft.model = as_text(object_of(config.get("model")).get("model_name"))
    calls = CallIds()
    for place, message in enumerate(rows_of(row.get("messages"))):
        _emit(draft, calls, message, place)
    cost = as_number(object_of(info.get("model_stats")).get("instance_cost"))
    draft.cost_usd = cost if cost is not None else draft.cost_usd
    return draft.done(source.damage if first else ())


def _emit(draft: SessionDraft, calls: CallIds, message: Record, place: int) -> None:
    role, content = as_text(message.get("role")), content_of(message.get("content"))
    extra = object_of(message.get("extra"))
    if role == "system":
        draft.system = plain(content) if draft.system is None else f"{draft.system}\n\n{plain(content)}"
    elif role == "assistant":
        uses = calls.renamed(tool_uses(message.get("tool_calls")))
        calls.open = ""
        found = list(_COMMAND.finditer(content)) if isinstance(content, str) and not uses else []
        if len(found) == 1 and isinstance(content, str):
            calls.open = f"{draft.session_id}-command-{place}"
            start, end = found[0].span()
            content = (content[:start] + content[end:]).strip()
            uses = [{"type": "tool_use", "id": calls.open, "name": "bash", "input": {"command": found[0][1]}}]
        _emit_reply(draft, uses, content, extra, place)
    elif role == "tool" and (call := as_text(message.get("tool_call_id"))):
        draft.say(
            USER,
            "user",
            [{"type": "tool_result", "tool_use_id": calls.name_of(call), "content": content}],
            _time(extra),
        )
    elif role in ("user", "tool") and content:
        if calls.open:  # the output of the command in the reply before
            content = [{"type": "tool_result", "tool_use_id": calls.open, "content": content}]
        calls.open = ""
        draft.say(USER, "user", content, _time(extra))
    else:
        known = role in ("user", "tool", "exit")
        draft.skip("message without content" if known else f"unknown role: {role[:40]}")


def _emit_reply(
    draft: SessionDraft, uses: list[Record], content: str | list[Record], extra: Record, place: int
) -> None:
    response = object_of(extra.get("response"))
    if uses:
        text: list[Record] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        content = [*(content if isinstance(content, list) else text), *uses]
    if not content:
        draft.skip("message without content")
        return
    reply = reply_of(response, f"{draft.session_id}-{place}")
    cost = as_number(extra.get("cost"))
    cost = cost if cost is not None else as_number(object_of(response.get("usage")).get("cost"))
    if cost is not None:
        reply["cost_usd"] = cost
        draft.spend(cost)
    created = as_count(response.get("created"))
    draft.say(ASSISTANT, "assistant", content, _iso(created) or _time(extra), reply=reply)


def _time(extra: Record) -> str:
    stamp = extra.get("timestamp")
    return as_text(stamp) or _iso(as_number(stamp) or 0)


def _iso(at: float) -> str:
    return iso(at) if 0 < at < 253402300800 else ""
