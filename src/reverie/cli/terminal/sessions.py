"""Find an earlier session of a project to continue."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import SessionNotFound
from ...ports import Storage
from ...runtime.places.projects import project_slug, session_of
from ...runtime.places.storage import storage_of
from ...settings import Settings
from ...values import record
from ..output import counted
from .calls import one_line

if TYPE_CHECKING:
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
    settings: Settings, cwd: Path, *, limit: int = LISTED, now: float | None = None, imported: bool = True
) -> list[EarlierSession]:
    """Return at most ``limit`` of this project's sessions that have messages, the last written first.

    ``imported`` says whether sessions that were recorded elsewhere are among them.
    """
    from ...runtime.library import Library

    with closing(storage_of(settings)) as storage:
        library = Library(storage, project=project_slug(cwd))
        moment = time.time() if now is None else now
        found: list[EarlierSession] = []
        for key, written in _logs_by_age(storage, cwd):
            listing = library.describe(key)
            if listing.messages and (imported or not listing.imported):
                found.append(_described(listing, moment - written))
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
