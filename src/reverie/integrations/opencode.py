"""opencode: the session's view in place of the history that our plugin is handed before each request.

The layers shorten it: big and old results are cleared and the past is compacted. opencode keeps its whole history, and
the handles of the view open by ``read_back`` and ``reverie read``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..conversation.authorship import text_of
from ..runtime.memory.session import Session
from .history_pieces import block_list
from .host_session import HostSession

Body = dict[str, Any]

_PRUNED: Final = "[Old tool result content cleared]"
"""The text that opencode itself sends in place of an old output."""
_PART_IDS: Final = ("id", "messageID", "sessionID")


async def shortened(session: Session, history: Sequence[Body]) -> list[Body] | None:
    """Return opencode's messages as the session shows them; None if they are sent as they are."""
    users = [message["info"] for message in history if message["info"]["role"] == "user"]
    if not users:
        return None
    model: Mapping[str, Any] = users[-1].get("model") or {}
    body = {"model": str(model.get("modelID") or ""), "messages": _wire_messages(history)}
    sent = await HostSession(session, messages_only=True).prepare(body)
    return _as_shown(history, sent["messages"])


def _wire_messages(history: Sequence[Body]) -> list[Body]:
    """Return opencode's messages in the shape of the wire, with results after the calls of a message."""
    messages: list[Body] = []
    for message in history:
        role = message["info"]["role"]
        blocks = [{"type": "text", "text": text} for text in _texts(message)]
        calls = list(_calls(message))
        uses = [
            {"type": "tool_use", "id": one["callID"], "name": one["tool"], "input": one["state"]["input"]}
            for one in calls
        ]
        results = [{"type": "tool_result", "tool_use_id": one["callID"], "content": _output(one)} for one in calls]
        for author, content in ((role, blocks + uses), ("user", results)):
            if content:
                messages.append({"role": author, "content": content})
    return messages


def _as_shown(history: Sequence[Body], sent: Sequence[Body]) -> list[Body] | None:
    """Return the messages of opencode that the view still has, with its results, after the view's own texts."""
    blocks = [block for message in sent for block in block_list(message["content"])]
    results = {block["tool_use_id"]: text_of(block) for block in blocks if block["type"] == "tool_result"}
    said = [str(block["text"]) for block in blocks if block["type"] == "text"]
    first = len(history)
    while first and _is_shown(history[first - 1], set(said), results):
        first -= 1
    if first == len(history):
        return None
    kept = [_with_results(message, results) for message in history[first:]]
    known = {text for message in history for text in _texts(message)}
    summary = "\n\n".join(text for text in said if text not in known)
    if first and summary:
        opening = next(message for message in history if message["info"]["role"] == "user")
        ids = {name: one for part in opening["parts"][:1] for name, one in part.items() if name in _PART_IDS}
        kept.insert(0, {**opening, "parts": [{**ids, "type": "text", "text": summary, "synthetic": True}]})
    return kept if kept != list(history) else None


def _is_shown(message: Body, said: set[str], results: Mapping[str, str]) -> bool:
    keys = [*(text in said for text in _texts(message)), *(one["callID"] in results for one in _calls(message))]
    return any(keys) or not keys


def _with_results(message: Body, results: Mapping[str, str]) -> Body:
    parts: list[Body] = []
    for part in message["parts"]:
        shown = results.get(part.get("callID", ""))
        is_changed = shown is not None and part.get("type") == "tool" and shown != _output(part)
        field = "output" if is_changed and "output" in part["state"] else "error"
        parts.append({**part, "state": {**part["state"], field: shown}} if is_changed else part)
    return {**message, "parts": parts}


def _texts(message: Body) -> Iterator[str]:
    for part in message["parts"]:
        if part["type"] == "text" and part["text"].strip() and not part.get("ignored"):
            yield part["text"]
        elif part["type"] == "file":
            yield f"[file {part.get('filename') or part.get('mime')}]"


def _calls(message: Body) -> Iterator[Body]:
    for part in message["parts"]:
        if part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
            yield part


def _output(call: Body) -> str:
    state: Body = call["state"]
    times: Body = state.get("time") or {}
    return _PRUNED if times.get("compacted") else str(state.get("output") or state.get("error") or "")
