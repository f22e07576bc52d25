"""Read the last exchange, the log and the notes of a session; remove one in which nothing was said."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from ...conversation.entries import ASSISTANT, DECISION, META, USER, Entry
from ...conversation.view import View
from ...runtime.library import Library
from ...runtime.places.projects import log_key, project_slug, session_key
from ...runtime.places.storage import storage_of

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent


def last_exchange(view: View) -> tuple[str, str]:
    """Return the user's last prompt and the model's text after it, each empty if there is none."""
    prompt, said = "", list[str]()
    for entry in view.history:
        if entry.message is None:
            continue
        texts = _texts(entry.message.get("content"))
        if entry.kind == USER and texts:
            prompt, said = "\n".join(texts), []
        elif entry.kind == ASSISTANT:
            said += texts
    return prompt, "\n\n".join(said)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    blocks = [cast(Mapping[str, Any], one) for one in cast("list[Any]", content) if isinstance(one, Mapping)]
    return [str(one.get("text")) for one in blocks if one.get("type") == "text" and one.get("text")]


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
