"""The session that a command changes: opened here, or by a request to the process that has it open."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ...conversation.view import View
from ...ports import Model, Storage
from ...runtime.library import Library
from ...runtime.places.projects import project_slug
from ...runtime.session.inbox import post
from ...runtime.session.parts import SessionOptions
from ...runtime.session.session import Session
from ...settings import Settings
from ..sessions.recordings import found_key, opened_storage


@asynccontextmanager
async def opened_session(
    name: str, settings: Settings, model: Model | None = None, *, dry_run: bool
) -> AsyncGenerator[Session]:
    """Yield a session and close it at the end; unless only to read (``dry_run``), raise SessionBusy if it is open."""
    with opened_storage(settings) as storage:
        folder = folder_of(storage, name)
        _, project, session = f"/{folder}".rsplit("/", 2)
        mode = "read" if dry_run else "write"
        options = SessionOptions(session, storage, project, settings, mode, model=model, folder=folder)
        async with Session(options) as opened:
            yield opened


def queue_command(
    name: str, settings: Settings, command: str, body: Callable[[View], dict[str, Any]], *, sender: str
) -> tuple[str, str]:
    """Queue a command for the process that has the session open; return the session's name and the command's id.

    ``body`` makes the fields of the command from the session's view.
    """
    with opened_storage(settings) as storage:
        folder = folder_of(storage, name)
        given = body(Library(storage).view(f"{folder}.jsonl"))
        return folder.rsplit("/", 1)[-1], post(storage, f"{folder}/inbox", command, given, sender=sender).id


def folder_of(storage: Storage, name: str) -> str:
    """Return the key of the folder of the session or agent that a name or its start refers to."""
    return found_key(Library(storage, project=project_slug(Path.cwd())), name).removesuffix(".jsonl")
