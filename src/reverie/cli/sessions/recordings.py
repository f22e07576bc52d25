"""Load a recorded session by its name in the library or from a file of any known format."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...conversation.entries import META
from ...conversation.log import Damage, newer_part
from ...errors import InputError, SessionNotFound
from ...importers import ImportedSession, find_sessions, read_session
from ...ports import Storage
from ...runtime.library import Library, agent_log
from ...runtime.places.projects import project_slug, session_of
from ...runtime.places.storage import storage_of
from ...settings import Settings, load_settings
from ..output import gathered, warn

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")
_ENDINGS = (".jsonl", ".json", ".traj", ".zst", ".ndjson")


def opened_storage(settings: Settings | None = None) -> closing[Storage]:
    """Return the configured storage as a context that closes it at its end."""
    return closing(storage_of(settings or load_settings()))


@contextmanager
def opened_library(settings: Settings | None = None) -> Generator[Library]:
    """Yield the library of the configured storage, for the current directory's project; close it at the end."""
    with opened_storage(settings) as storage:
        yield Library(storage, project=project_slug(Path.cwd()))


def found_key(library: Library, name: str) -> str:
    """Return the log key that a name finds; the error for a file says how a session is made of it."""
    try:
        return library.find(name)
    except SessionNotFound:
        if not os.path.isfile(name):
            raise
        how = f"if it is a recording, 'reverie import {name}' makes a session of it"
        raise SessionNotFound(f"{name} is a file and no session: {how}") from None


class SessionName(click.types.StringParamType):
    """The name of a session, or of a file where a command takes one; a shell completes it from the library."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the sessions whose name begins so; if there are none, let the shell complete files."""
        from click.shell_completion import CompletionItem

        with opened_library() as library:
            names = [session_of(key) for key in list(library.keys())]
        found = [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


SESSION = SessionName()


def session_argument(metavar: str = "SESSION") -> Callable[[Command], Command]:
    """Return the decorator for a command's session; without one on the command line it is the project's newest."""
    return click.argument("session", metavar=f"[{metavar}]", type=SESSION, required=False, callback=_or_newest)


def _or_newest(ctx: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    return name if name is not None or ctx.resilient_parsing else newest_session()


def newest_session() -> str:
    """Return the newest session of the project, and tell its name; raise ``InputError`` if there is none."""
    from ..terminal.sessions import earlier_sessions

    found = earlier_sessions(load_settings(), Path.cwd(), limit=1)
    if not found:
        raise InputError("this project has no session: name one; 'reverie sessions' lists all")
    warn(f"the session that was written last in this project is {found[0].session}")
    return found[0].session


def recordings(name: str) -> list[ImportedSession]:
    """Return the sessions in the file at this path, main one first, or the library's one session of this name."""
    if os.path.isfile(name):
        return read_session(name)
    with opened_library() as library:
        try:
            return [_from_library(library, library.find(name))]
        except SessionNotFound:
            if os.path.lexists(name) or _is_path(name):
                return read_session(name)
            raise InputError(
                f"{name!r} is neither a session nor a file; 'reverie sessions' lists all sessions"
            ) from None


def with_agents(name: str, settings: Settings | None = None) -> list[tuple[ImportedSession, bytes]]:
    """Return a session with the agents it started, the main one first, each with its log if that is one of ours."""
    if os.path.isfile(name):
        data = Path(name).read_bytes()
        return [(one, data if one.format == "reverie" else b"") for one in read_session(name)]
    with opened_library(settings) as library:
        try:
            main = library.find(name)
        except SessionNotFound:
            return [(one, b"") for one in recordings(name)]  # raises the error for an unknown name
        keys = [main, *map(agent_log, reversed(library.agents_of(main))), *library.recorded_agents(main)]
        kept = set(library.all_keys())
        return [(_from_library(library, key), library.export(key)) for key in dict.fromkeys(keys) if key in kept]


def listed_files(paths: Sequence[str], failed: list[dict[str, str]]) -> list[Path]:
    """Return the named files and all recordings below named directories; add empty directories to ``failed``."""
    files: dict[Path, None] = {}
    for name in paths:
        if not os.path.isdir(name):
            files[Path(name)] = None
            continue
        below = gathered(find_sessions(name), f"searching {name}", "recording")
        files.update(dict.fromkeys(below))
        if not below:
            readable = os.access(name, os.R_OK | os.X_OK)
            why = "it contains no recorded session" if readable else "no permission to read it"
            failed.append({"path": name, "error": f"{name}: {why}"})
    return list(files)


def slug_of(project: str | None) -> str | None:
    """Return the slug of a directory's project, or None for None; raise InputError if it is no directory."""
    if project is None:
        return None
    if not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    return project_slug(Path(project))


def _is_path(name: str) -> bool:
    return os.sep in name or name.lower().endswith(_ENDINGS)


def _from_library(library: Library, key: str) -> ImportedSession:
    loaded, listing = library.read(key)
    if part := newer_part(loaded.entries):
        warn(f"session {listing.session} was written by a newer Reverie ({part}); some of it may not be shown")
    damage = loaded.damage
    if loaded.torn:
        line = library.export(key).count(b"\n") + 1
        damage = (*damage, Damage(line, "an incomplete last line, never acknowledged", len(loaded.torn)))
    source = next((entry.body.get("source") for entry in loaded.entries if entry.kind == META), None)
    made_by: object = source.get("format") if isinstance(source, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return ImportedSession(
        made_by if isinstance(made_by, str) else "reverie",
        listing.session,
        listing.title,
        listing.cwd,
        listing.model,
        tuple(loaded.entries),
        damage=damage,
    )
