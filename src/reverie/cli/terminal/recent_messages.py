"""Read the last exchange, the log and the notes of a session; remove one in which nothing was said."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ...conversation.entries import ASSISTANT, DECISION, META, USER, Entry
from ...conversation.side_query import answer_text
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...events import Event, TextStreamed, ToolFinished, ToolStarted
from ...layers.l1_offload import OPENING
from ...runtime.library import Library
from ...runtime.places.projects import log_key, project_slug, session_key
from ...runtime.places.storage import storage_of

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent


def last_exchange(view: View) -> tuple[str, list[Event]]:
    """Return the user's last prompt, empty if there is none, and the events of the query that followed."""
    prompt, events = "", list[Event]()
    for entry in view.history:
        blocks = as_blocks(entry.message) if entry.message is not None else []
        texts = [str(block["text"]) for block in blocks if block.get("type") == "text" and block.get("text")]
        if entry.kind == USER and texts:
            prompt, events = "\n".join(texts), []
            continue
        for block in blocks:
            match block:
                case {"type": "text", "text": str(text)} if text and entry.kind == ASSISTANT:
                    events.append(TextStreamed("", text))
                case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict()}:
                    events.append(ToolStarted("", id, name, block["input"]))
                case {"type": "tool_result", "tool_use_id": str(id)}:
                    events.append(_finished(block, id, events))
                case _:
                    pass
    return prompt, events


def _finished(result: Mapping[str, Any], id: str, events: list[Event]) -> ToolFinished:
    """Return the end of a call; a result that moved to disk has no text here."""
    name = next((event.name for event in events if isinstance(event, ToolStarted) and event.id == id), "")
    text = answer_text(result.get("content"))
    return ToolFinished("", id, name, bool(result.get("is_error")), "" if text.startswith(OPENING) else text, 0.0)


def logged_entries(agent: Agent) -> list[Entry]:
    """Read the log of an agent's session from disk and return all its entries."""
    with closing(storage_of(agent.settings)) as storage:
        return list(Library(storage).load(log_key(project_slug(agent.cwd), agent.name)).entries)


def written_notes(agent: Agent) -> str:
    """Return the running notes of an agent's session, or an empty string if there are none."""
    with closing(storage_of(agent.settings)) as storage:
        found = storage.read(f"{session_key(project_slug(agent.cwd), agent.name)}/session-memory/summary.md")
        return found.data.decode("utf-8", "replace") if found is not None else ""


def was_used(agent: Agent) -> bool:
    """Return whether anything was said, attached or received in an agent's session."""
    view = agent.session.view
    return bool(view.facts.queued) or any(entry.kind not in (META, DECISION) for entry in view.entries())


def remove_if_unused(agent: Agent) -> None:
    """Remove the files of an agent's closed session in which nothing was said."""
    if was_used(agent):
        return
    slug = project_slug(agent.cwd)
    with closing(storage_of(agent.settings)) as storage:
        for key in (*storage.list(session_key(slug, agent.name)), log_key(slug, agent.name)):
            storage.delete(key)
