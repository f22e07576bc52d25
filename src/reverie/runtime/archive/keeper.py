"""Keep the sessions of all agents on this machine in the library, one pass at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from ...errors import ReverieError, SessionBusy, StorageConflict, StorageError
from ...importers import ImportedSession, SessionPlace, opencode, read_session
from ...importers.history import NAME as HISTORY
from ...ports import Storage
from ...storage.files import FileStorage
from ...storage.lock_files import take_lease
from ...values import field, record
from ..library import ADDED, GROWN, Library
from ..places.archive_index import UNREAD, ArchiveIndex, KeptFile, load_index, save_index, stamp_of, stored_logs
from .recordings import DELETED, Recordings, project_of

SOON_DAYS: Final = 7.0
_SAVE_EVERY: Final = 25
"""The index is saved after this many files, so that a killed pass need not read all of them again."""
_LOCK: Final = "archive"
_Changed: TypeAlias = tuple[str, str, tuple[int, ...]]
"""The agent, the path and the status of a file that changed since the last pass."""
_DAY: Final = 86_400.0
_USUAL_DAYS: Final = 30.0
_UNITS: Final = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


@record
class AgentSessions:
    """The sessions of one agent: kept ones, those of this pass, those that its program deleted or will soon delete."""

    format: str
    title: str
    kept: int = 0
    added: int = 0
    grown: int = 0
    gone: int = 0
    """Kept sessions whose files the agent has deleted."""
    due: int = 0
    """Sessions that the agent will delete within a week; they are kept."""
    days_kept: float | None = None
    first_due_days: float | None = None
    """The days until the first of them is deleted; 0 if the next start of the agent deletes it."""


@record
class KeepReport:
    """The result of one pass over all agents."""

    agents: tuple[AgentSessions, ...]
    lost: int = 0
    """Sessions that were gone before they could be kept; their prompts come from history files."""
    prompts: int = 0
    """The recovered prompts of such sessions."""
    files: int = 0
    read: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    """Files that could not be kept, with the reasons."""
    failed_before: tuple[tuple[str, str], ...] = ()
    """Files that still cannot be kept, for a reason that an earlier pass reported as ``failed``."""
    keys: tuple[str, ...] = field(default_factory=tuple)
    """The logs that this pass wrote."""

    @property
    def changed(self) -> int:
        """The number of sessions that were added or extended."""
        return sum(one.added + one.grown for one in self.agents)


class Keeper:
    """Keeps the sessions of the agents at these places in a storage; ``dry_run`` writes nothing.

    The index of their files is in the home of this machine, which is the storage's own if that is of files.
    """

    def __init__(self, storage: Storage, home: Path, places: Sequence[SessionPlace], *, dry_run: bool = False) -> None:
        self._storage = storage
        self._home = str(home)
        self._places = places
        self._dry_run = dry_run

    def keep(self, now: float, track: Callable[[list[_Changed]], Iterable[_Changed]] = iter) -> KeepReport:
        """Run one pass and return its report; ``track`` shows progress; raise ``SessionBusy`` if another one runs."""
        lease = None if self._dry_run else take_lease(self._home, _LOCK, "keep")
        try:
            return _Pass(self._storage, self._home, self._dry_run).run(self._places, now, track)
        finally:
            if lease is not None:
                lease.release()


class _Pass:
    """One pass: the index it began with, the files it found, and its counts."""

    def __init__(self, storage: Storage, home: str, dry_run: bool) -> None:
        self._storage = storage
        self._home = home
        self._dry_run = dry_run
        self._index: ArchiveIndex = load_index(self._home)
        self._recordings: Recordings | None = None
        self._failed: list[tuple[str, str]] = []
        self._failed_before: list[tuple[str, str]] = []
        self._results: dict[str, dict[str, str]] = {}
        self._written: dict[str, None] = {}
        self._planned = set[str]()
        self._unsaved = 0

    def run(
        self, places: Sequence[SessionPlace], now: float, track: Callable[[list[_Changed]], Iterable[_Changed]]
    ) -> KeepReport:
        """Read the files that changed, recover prompts, and return the report."""
        files = self._index.files
        found: dict[str, set[str]] = {place.format: set() for place in places}
        changed: list[_Changed] = []
        due: dict[str, list[float]] = {}
        for place in places:
            seen, days = found[place.format], days_kept(place)
            for path, status in place.files():
                seen.add(path)
                stamp, known = stamp_of(path, status), files.get(path)
                if known is None or known.stamp != stamp:
                    changed.append((place.format, path, stamp))
                elif known.problem:
                    self._failed_before.append((path, known.problem))
                if days is None or "/subagents/" in path:
                    continue
                if (left := days_left(days, status.st_mtime, now)) <= SOON_DAYS:
                    due.setdefault(place.format, []).append(left)
        for format, path, stamp in track(changed):
            self._take(format, path, stamp)
        histories = [one for place in places if place.history and (one := self._recover(place))]
        self._save()
        present = set[str]().union(*found.values())
        is_here = isinstance(self._storage, FileStorage)
        there = (stored_logs(self._home) if is_here else set(Library(self._storage).keys())) | self._planned
        agents = [self._agent(place, present, there, due.get(place.format, [])) for place in places]
        return KeepReport(
            tuple(one for one in agents if one.kept or one.due),
            sum(lost for lost, _ in histories),
            sum(prompts for _, prompts in histories),
            len(present),
            len(changed),
            tuple(self._failed),
            tuple(self._failed_before),
            tuple(self._written),
        )

    def _agent(self, place: SessionPlace, present: set[str], there: set[str], due: list[float]) -> AgentSessions:
        kept, here = set[str](), set[str]()
        for path, file in self._index.files.items():
            if file.format == place.format:
                sessions = {key for key in file.keys if ".agent-" not in key and key in there}
                kept |= sessions
                here |= sessions if path in present else set()
        results = list(self._results.get(place.format, {}).values())
        counts = (len(kept), results.count(ADDED), results.count(GROWN), len(kept - here))
        first = max(0.0, min(due)) if due else None
        return AgentSessions(place.format, place.title, *counts, len(due), days_kept(place), first)

    def _take(self, format: str, path: str, stamp: tuple[int, ...]) -> None:
        """Keep the sessions of one changed file; a file that cannot be read is tried again once it changed.

        A session that is busy or cannot be stored is tried again by the next pass.
        """
        known = self._index.files.get(path) or KeptFile((), UNREAD, [])
        now: dict[str, int] = {}
        try:
            if format == opencode.NAME:
                now = opencode.sessions_in(Path(path))
                wanted = [id for id, at in now.items() if known.changed.get(id) != at]
                sessions = opencode.read(opencode.source_of(Path(path), wanted))
            else:
                sessions = read_session(path)
        except Exception as error:  # an unexpected file must not keep all others from being kept
            problem = _reason(error) if stamp[1] else ""  # an empty file is a session that has not begun
            if problem:
                self._failed.append((path, problem))
            self._remember(path, KeptFile(stamp, known.format, known.keys, known.changed, problem))
            return
        keys, problem = list(known.keys), ""
        for session in sessions:
            try:
                keys += self._file(session, Path(path)) if session.messages else []
            except Exception as error:
                stamp = ()
                now.pop(session.session_id.rsplit(".agent-", 1)[-1], None)
                if not isinstance(error, SessionBusy | StorageConflict):
                    problem = _reason(error)
                    is_new = problem != known.problem or isinstance(error, StorageError)
                    (self._failed if is_new else self._failed_before).append((path, problem))
        self._remember(path, KeptFile(stamp, format, list(dict.fromkeys(keys)), now, problem))

    def _remember(self, path: str, file: KeptFile) -> None:
        self._index.files[path] = file
        self._unsaved += 1
        if self._unsaved >= _SAVE_EVERY:
            self._save()

    def _file(self, session: ImportedSession, path: Path) -> list[str]:
        """File a session and return the key of its log in a list; an empty one if the user deleted the session."""
        key, result = self._filed().file(session, project_of(session), path)
        if result in (ADDED, GROWN):
            self._written[key] = None
            self._planned |= {key} if self._dry_run else set()
            if session.agent is None:
                self._results.setdefault(session.format, {})[key] = result
        return [] if result == DELETED else [key]

    def _recover(self, place: SessionPlace) -> tuple[int, int] | None:
        """Keep the prompts of sessions that are gone; return the number of these sessions and of their prompts."""
        path = place.root / place.history
        try:
            stamp = stamp_of(str(path), path.stat())
        except OSError:
            return None
        known = self._index.files.get(str(path))
        if known is None or known.stamp != stamp:
            lost: dict[str, int] = {}
            try:
                for session in (one for one in read_session(path) if one.format == HISTORY):
                    key = self._filed().named(session.session_id)
                    if key is None or (known is not None and key in known.keys):
                        lost |= dict.fromkeys(self._file(session, path), len(session.messages))
            except (SessionBusy, StorageConflict):
                return None
            except Exception as error:
                self._failed.append((str(path), _reason(error)))
                return None
            known = self._index.files[str(path)] = KeptFile(stamp, HISTORY, list(lost), lost)
            self._unsaved += 1
        return len(known.keys), sum(known.changed.values())

    def _filed(self) -> Recordings:
        if self._recordings is None:
            self._recordings = Recordings(Library(self._storage), dry_run=self._dry_run, index=self._index)
        return self._recordings

    def _save(self) -> None:
        if self._unsaved and not self._dry_run:
            save_index(self._home, self._index)
        self._unsaved = 0


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ReverieError) else f"{type(error).__name__}: {error}"


def days_kept(place: SessionPlace) -> float | None:
    """Return after how many days an agent deletes a session that was not used; None if it deletes none."""
    reader = _READERS.get(place.format)
    return None if reader is None else reader(_settings(place.root / "settings.json"))


def _claude_code(settings: Mapping[str, Any]) -> float | None:
    return _days(settings.get("cleanupPeriodDays"))


def _gemini(settings: Mapping[str, Any]) -> float | None:
    general = settings.get("general")
    kept = cast("Mapping[str, Any]", general).get("sessionRetention") if isinstance(general, dict) else None
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", kept) if isinstance(kept, dict) else {}
    return None if fields.get("enabled") is False else _days(fields.get("maxAge"))


def _days(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(max(0, value))
    found = re.fullmatch(r"(\d+)([hdwm])", value) if isinstance(value, str) else None
    return int(found[1]) * _UNITS[found[2]] if found else _USUAL_DAYS


def _settings(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        value = json.loads(path.read_text("utf-8"))
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    return {}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "claude-code": _claude_code,
    "gemini": _gemini,
}


def days_left(place_days: float, changed: float, now: float) -> float:
    """Return the days until an agent deletes a session that was last changed at a time in seconds."""
    return place_days - (now - changed) / _DAY
