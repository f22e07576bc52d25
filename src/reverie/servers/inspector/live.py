"""The live sources of the page: the sessions of a home as they run, their films, and everything around them.

To show something more, add a path to ``LiveHome.reads`` or ``LiveHome.acts``; to add cards to the view Now, pass a
function that returns rows like those of ``SessionWatch.row``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

from ...cache.prices import listed_window
from ...conversation.tokens.window import WindowPolicy, thresholds, window_for
from ...errors import InputError
from ...importers import ImportedSession
from ...model_facts import facts_of
from ...replay.compare import BRIEF, compare
from ...replay.recording import recording_of
from ...runtime.agent.budgets import Budgets
from ...runtime.library import Library
from ...runtime.session.ledger import FILE_NAME as LEDGER
from ...runtime.session.offload.read_back import ReadBack
from ...settings import Settings
from ...storage.files import FileStorage
from .film import films_of, page_data
from .memories import MemorySources
from .now import SessionWatch
from .overviews import agents_data, costs_data, search_data
from .replay_view import replay_data
from .server import Act, LiveAnswer, Query, Read

_SHOWN: Final = 40
_MAX_READ_CHARS: Final = 2_000_000

Load: TypeAlias = Callable[[str], Sequence[tuple[ImportedSession, bytes]]]
"""Returns a session or a recording by name, with its agents, each with its log."""
Door: TypeAlias = Callable[[str], str]
"""Does something with a session, named in full, and returns the result as a sentence."""
NowRows: TypeAlias = Callable[[], list[dict[str, Any]]]


class LiveHome:
    """Answers the questions of the page about a home and acts for its buttons."""

    def __init__(
        self,
        settings: Settings,
        load: Load,
        doors: Mapping[str, Door],
        *,
        target: str,
        version: str,
        more_rows: Sequence[NowRows] = (),
    ) -> None:
        """Follow the sessions of the settings' home; ``target`` is a session or file that the page opens first.

        ``doors`` act on a session by its full name (stop, compact, undo); ``more_rows`` add cards to Now.
        """
        self._settings = settings
        self._load = load
        self._doors = doors
        self._target = target
        self._version = version
        self._more_rows = more_rows
        self._lock = Lock()
        self._watches: dict[str, tuple[tuple[int, int], SessionWatch]] = {}
        self._budgets: tuple[tuple[float, ...], list[dict[str, Any]]] = ((), [])
        self._memories = MemorySources(settings)

    @property
    def reads(self) -> dict[str, Read]:
        """The questions that the page may ask, by path."""
        settings, memories = self._settings, self._memories
        return {
            "/now": lambda _: LiveAnswer(self.now),
            "/film": self._film,
            "/replay": self._replay,
            "/read": lambda query: LiveAnswer(lambda: self._read_back(query)),
            "/memories": lambda _: LiveAnswer(memories.all),
            "/memory": lambda query: LiveAnswer(lambda: memories.one(query)),
            "/dreams": lambda _: LiveAnswer(memories.dreams),
            "/agents": lambda _: LiveAnswer(lambda: agents_data(settings)),
            "/costs": lambda query: LiveAnswer(lambda: costs_data(settings, query.get("days", "30"))),
            "/search": lambda query: LiveAnswer(lambda: search_data(settings, memories, query.get("words", ""))),
        }

    @property
    def acts(self) -> dict[str, Act]:
        """The acts of the page, by path; one at a time."""
        found: dict[str, Act] = {f"/do/{name}": self._through(door) for name, door in self._doors.items()}
        found |= {f"/do/{name}": act for name, act in self._memories.acts.items()}
        return {path: self._alone(act) for path, act in found.items()}

    def _through(self, door: Door) -> Act:
        return lambda query: door(self._full_name(query.get("session", "")))

    def _alone(self, act: Act) -> Act:
        def locked(query: Query) -> str:
            with self._lock:
                return act(query)

        return locked

    # -- now

    def now(self) -> dict[str, Any]:
        """Return the sessions and agents that were used last, the running ones first, with budgets and waiting work.

        With them comes the target, because the page without a token must not name it.
        """
        with self._lock:
            storage = FileStorage(self._settings.home)
            try:
                rows = [self._row(storage, key, stamp) for key, stamp in self._newest(Library(storage))]
            finally:
                storage.close()
            rows += [row for source in self._more_rows for row in source()]
            around = {"budgets": self._used_budgets(), **self._memories.now()}
        return {"target": self._target, "sessions": sorted(rows, key=lambda row: not row["open"]), **around}

    def _used_budgets(self) -> list[dict[str, Any]]:
        """Return the budgets of all sessions with their use; the ledger is read again only when it has changed."""
        home, now = self._settings.home, time.time()
        stamp = (now // 60, *(_modified(home / f"{LEDGER}{end}") for end in ("", "-wal")))
        if self._budgets[0] != stamp:
            used = Budgets(self._settings, "").used(now)
            found = [{"what": one.what, "per": one.per, "usd": one.usd, "of_usd": one.of_usd} for one in used]
            self._budgets = stamp, found
        return self._budgets[1]

    def _newest(self, library: Library) -> list[tuple[str, tuple[int, int]]]:
        found: list[tuple[str, tuple[int, int]]] = []
        for key in [*library.keys(), *library.agent_keys()]:
            try:
                stat = (self._settings.home / key).stat()
            except OSError:
                continue  # deleted just now
            found.append((key, (stat.st_mtime_ns, stat.st_size)))
        return sorted(found, key=lambda one: one[1], reverse=True)[:_SHOWN]

    def _row(self, storage: FileStorage, key: str, stamp: tuple[int, int]) -> dict[str, Any]:
        before, watch = self._watches.get(key, ((0, 0), SessionWatch()))
        if stamp[1] < before[1]:
            watch = SessionWatch()  # another log under the same name
        if stamp != before:
            watch.read(lambda start: storage.load(key, start, max(0, stamp[1] - start)) or b"")
            self._watches[key] = stamp, watch
        settings = self._settings
        window = window_for(watch.model, facts=facts_of(watch.model, settings.models), lookup=listed_window)
        limits = thresholds(
            window,
            policy=WindowPolicy(
                auto_compact=settings.switches.auto_compact,
                window_tokens=settings.window_tokens,
                compact_percent=settings.compact_percent,
            ),
        )
        row = watch.row(_name_of(key), is_open=storage.holder(key) is not None, limits=limits)
        return {**row, "budget_usd": settings.agent.budget_usd}

    # -- one session

    def _film(self, query: Query) -> LiveAnswer:
        """Return the film of a session; raise ``ReverieError`` for a name that is neither the target nor a session."""
        name, tag = self._named(query)

        def make() -> dict[str, Any]:
            films = films_of(self._load(name), is_file=os.path.isfile(name))
            return page_data(films, version=self._version)

        return LiveAnswer(make, tag)

    def _replay(self, query: Query) -> LiveAnswer:
        """Return a session replayed under the recorded bill, append-only and the presets."""
        name, tag = self._named(query)

        def make() -> dict[str, Any]:
            recordings = [recording_of(one, one.session_id) for one, _ in self._load(name)[:1]]
            if not any(one.steps for one in recordings):
                raise InputError("this session has no requests to replay")
            return replay_data(compare(recordings, policies=BRIEF, settings=self._settings))

        return LiveAnswer(make, tag)

    def _read_back(self, query: Query) -> dict[str, Any]:
        """Return content that left the view of a session, by its handle, as 'reverie read' does."""
        storage = FileStorage(self._settings.home)
        try:
            library = Library(storage)
            key = library.find(query.get("session", ""))
            found = ReadBack(storage, key.removesuffix(".jsonl"), library.view(key)).find(query.get("handle", ""))
        finally:
            storage.close()
        return {"text": found.text[:_MAX_READ_CHARS], "source": found.source, "bytes": len(found.data)}

    def _named(self, query: Query) -> tuple[str, str]:
        """Return the full name of the session that a question is about, and a tag that changes when its log does."""
        name = query.get("session", "")
        if name != self._target:
            name = self._full_name(name)
        path = Path(name)
        if not path.is_file():
            path = self._settings.home / self._key(name)
        found = path.stat()
        return name, sha256(f"{name}:{found.st_size}:{found.st_mtime_ns}".encode()).hexdigest()[:16]

    def _full_name(self, name: str) -> str:
        return _name_of(self._key(name))

    def _key(self, name: str) -> str:
        if not name:
            raise InputError("name a session: ?session=NAME")
        storage = FileStorage(self._settings.home)
        try:
            return Library(storage).find(name)
        finally:
            storage.close()


def _name_of(key: str) -> str:
    return key.removeprefix("projects/").removesuffix(".jsonl")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
