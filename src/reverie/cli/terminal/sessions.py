"""Find a session of a project to continue, read its last exchange, log and notes, and remove an unused one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...conversation.entries import ASSISTANT, DECISION, META, USER, Entry
from ...conversation.side_query import answer_text
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...errors import SessionNotFound
from ...events import Event, TextStreamed, ToolFinished, ToolStarted
from ...layers.l1_offload import OPENING
from ...ports import Storage
from ...runtime.library import Library
from ...runtime.places.projects import log_key, project_slug, session_key, session_of
from ...runtime.places.storage import storage_of
from ...settings import Settings
from ...values import record
from ..output import counted
from .calls import one_line

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent
    from ...runtime.library import SessionListing

LISTED: Final = 20


@record
class EarlierSession:
    """A session's name and its description in the list that the user chooses from."""

    session: str
    about: str


def newest_session(settings: Settings, cwd: Path) -> str:
    """Return the name of the project's last written session with messages; raise SessionNotFound without one.

    A session that was recorded elsewhere is not one of them until the user has continued it by its name.
    """
    found = earlier_sessions(settings, cwd, limit=1, imported=False)
    if not found:
        raise SessionNotFound(f"there is no session in {cwd} yet; 'reverie chat' starts one")
    return found[0].session


def named_session(settings: Settings, cwd: Path, name: str) -> str:
    """Return the project's session with this name, else the only session whose name starts so.

    Raise SessionNotFound if no session or more than one starts with ``name``.
    """
    with closing(storage_of(settings)) as storage:
        names = [session_of(key) for key, _ in _logs_by_age(storage, cwd)]
    fitting = [name] if name in names else [one for one in names if one.startswith(name)]
    if len(fitting) != 1:
        problem = f"matches {len(fitting)} sessions" if fitting else "matches no session of this project"
        raise SessionNotFound(f"{name!r} {problem}; 'reverie sessions' lists them")
    return fitting[0]


def earlier_sessions(
    settings: Settings, cwd: Path, *, limit: int = LISTED, imported: bool = True
) -> list[EarlierSession]:
    """Return at most ``limit`` of this project's sessions that have messages, the last written first.

    ``imported`` says whether sessions that were recorded elsewhere are among them.
    """
    with closing(storage_of(settings)) as storage:
        library = Library(storage, project=project_slug(cwd))
        found: list[EarlierSession] = []
        for key, written in _logs_by_age(storage, cwd):
            listing = library.describe(key)
            if listing.messages and (imported or not listing.imported):
                found.append(_described(listing, time.time() - written))
            if len(found) == limit:
                break
        return found


def _described(one: SessionListing, age_seconds: float) -> EarlierSession:
    title = one_line(one.title or "(no title)", 48)
    origin = ", imported" if one.imported else ""
    return EarlierSession(one.session, f"{title}  {counted(one.messages, 'message')}, {_ago(age_seconds)}{origin}")


def _logs_by_age(storage: Storage, cwd: Path) -> list[tuple[str, float]]:
    """Return the logs of a project with the time of their last line, the newest first."""
    found = [one for one in storage.stamps(f"projects/{project_slug(cwd)}") if one.key.count("/") == 2]
    logs = [(one.key, one.changed_ns / 1e9) for one in found if one.key.endswith(".jsonl")]
    return sorted(logs, key=lambda one: (-one[1], one[0]))


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        count = int(seconds // size)
        if count:
            return f"{counted(count, unit)} ago"
    return "just now"


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
