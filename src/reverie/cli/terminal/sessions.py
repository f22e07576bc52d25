"""Which session to go on with: the newest of a project, or one that is chosen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import SessionNotFound
from ...runtime.places.projects import project_slug
from ...settings import Settings
from ...values import record
from .calls import one_line

if TYPE_CHECKING:
    from ...runtime.library import Shelved

__all__ = ["Earlier", "earlier_sessions", "named_session", "newest_session"]

LISTED: Final = 20


@record
class Earlier:
    """A session as a list to choose from shows it."""

    session: str
    about: str


def newest_session(settings: Settings, cwd: Path) -> str:
    """Return the name of the session of this project in which something was said last."""
    found = earlier_sessions(settings, cwd, limit=1)
    if not found:
        raise SessionNotFound(f"no session was held in {cwd} yet; 'reverie chat' begins one")
    return found[0].session


def named_session(settings: Settings, cwd: Path, name: str) -> str:
    """Return the whole name of a session of this project from the beginning of it."""
    names = [_name(key) for key in _keys_by_age(settings, cwd)]
    fitting = [name] if name in names else [one for one in names if one.startswith(name)]
    if len(fitting) != 1:
        problem = f"could be {len(fitting)} sessions" if fitting else "is no session of this project"
        raise SessionNotFound(f"{name!r} {problem}; 'reverie sessions' lists them")
    return fitting[0]


def earlier_sessions(settings: Settings, cwd: Path, *, limit: int = LISTED, now: float | None = None) -> list[Earlier]:
    """Return the sessions of this project in which something was said, the last written first."""
    from ...runtime.library import Library
    from ...storage.files import FileStorage

    storage = FileStorage(settings.home, durability=settings.durability)
    try:
        library = Library(storage, project=project_slug(cwd))
        moment = time.time() if now is None else now
        found: list[Earlier] = []
        for key in _keys_by_age(settings, cwd):
            shelved = library.shelved(key)
            if shelved.messages:
                found.append(_described(shelved, moment - _written(settings, key)))
            if len(found) == limit:
                break
        return found
    finally:
        storage.close()


def _described(one: Shelved, age_seconds: float) -> Earlier:
    title = one_line(one.title or "(nothing said)", 48)
    return Earlier(one.session, f"{title}  {one.messages} messages, {_ago(age_seconds)}")


def _keys_by_age(settings: Settings, cwd: Path) -> list[str]:
    folder = f"projects/{project_slug(cwd)}"
    found = [f"{folder}/{path.name}" for path in (settings.home / folder).glob("*.jsonl")]
    return sorted(found, key=lambda key: (-_written(settings, key), key))


def _written(settings: Settings, key: str) -> float:
    try:
        return (settings.home / key).stat().st_mtime
    except OSError:
        return 0.0


def _name(key: str) -> str:
    return key.rsplit("/", 1)[-1].removesuffix(".jsonl")


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        count = int(seconds // size)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
