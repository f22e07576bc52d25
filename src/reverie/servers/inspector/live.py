"""The live sources of the page: sessions of a home or a database as they run, their films, and everything around them.

To show something more, add a path to ``LiveHome.reads`` or ``LiveHome.acts``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Any, Final, TypeAlias

from ...cache.prices import listed_window
from ...conversation.authorship import own_words
from ...conversation.decisions import CallRecorded, decision_of
from ...conversation.entries import DECISION, META, USER, Entry
from ...conversation.log import parse_log
from ...conversation.tokens.window import Thresholds, WindowPolicy, thresholds, window_for
from ...conversation.view import View
from ...errors import InputError
from ...importers import ImportedSession
from ...importers.import_result import first_words
from ...model_facts import facts_of
from ...ports import Stamp
from ...replay.compare import BRIEF, compare
from ...replay.recording import recording_of
from ...runtime.agent.budgets import Budgets
from ...runtime.library import Library, qualified_name
from ...runtime.places.storage import database_of, storage_of
from ...runtime.search.log_text import log_stamps
from ...runtime.session.ledger import FILE_NAME as LEDGER
from ...runtime.session.offload.read_back import ReadBack
from ...settings import Settings
from .film import films_of, page_data
from .memories import MemorySources, modified
from .overviews import JobSource, agents_data, costs_data, search_data
from .replay_view import replay_data
from .server import Act, LiveAnswer, Query, Read

_LOOKED_AT: Final = 100
_CLOSED_SHOWN: Final = 40
_MAX_READ_CHARS: Final = 2_000_000

Load: TypeAlias = Callable[[str], Sequence[tuple[ImportedSession, bytes]]]
"""Returns a session or a recording by name, with its agents, each with its log."""
Door: TypeAlias = Callable[[str], str]
"""Does something with a session, named in full, and returns the result as a sentence."""
LoadRest: TypeAlias = Callable[[int], bytes]
"""Returns the bytes of a log from an offset on."""
_TITLE_CHARS: Final = 120


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
    ) -> None:
        """Follow the sessions of the settings' storage; ``target`` is a session or file that the page opens first.

        ``doors`` act on a session by its full name (stop, compact, undo).
        """
        self._settings = settings
        self._load = load
        self._doors = doors
        self._target = target
        self._version = version
        self._lock = Lock()
        self._storage = storage_of(settings)
        self._watches: dict[str, tuple[Stamp, SessionWatch]] = {}
        self._budgets: tuple[tuple[float, ...], list[dict[str, Any]]] = ((), [])
        self._memories = MemorySources(settings, self._storage)
        self._jobs = JobSource(settings)

    def close(self) -> None:
        """Close the storage and the queue of jobs."""
        self._storage.close()
        self._jobs.close()

    @property
    def reads(self) -> dict[str, Read]:
        """The questions that the page may ask, by path."""
        settings, storage, memories = self._settings, self._storage, self._memories
        return {
            "/now": lambda _: LiveAnswer(self.now),
            "/film": self._film,
            "/replay": self._replay,
            "/read": lambda query: LiveAnswer(lambda: self._read_back(query)),
            "/memories": lambda _: LiveAnswer(memories.all),
            "/memory": lambda query: LiveAnswer(lambda: memories.one(query)),
            "/dreams": lambda _: LiveAnswer(memories.dreams),
            "/agents": lambda _: LiveAnswer(lambda: agents_data(storage)),
            "/costs": lambda query: LiveAnswer(lambda: costs_data(settings, query.get("days", "30"))),
            "/search": lambda query: LiveAnswer(
                lambda: search_data(settings, storage, memories, query.get("words", ""))
            ),
        }

    @property
    def acts(self) -> dict[str, Act]:
        """The acts of the page, by path; one at a time."""
        found: dict[str, Act] = {f"/do/{name}": self._through(door) for name, door in self._doors.items()}
        found |= {f"/do/{name}": act for name, act in {**self._memories.acts, **self._jobs.acts}.items()}
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
            rows = self._rows()
            around = {"budgets": self._used_budgets(), "jobs": self._jobs.rows(), **self._memories.now()}
        return {"target": self._target, "sessions": sorted(rows, key=lambda row: not row["open"]), **around}

    def _used_budgets(self) -> list[dict[str, Any]]:
        """Return the budgets of all sessions with their use; the ledger is read again only when it has changed."""
        home, now = self._settings.home, time.time()
        stamp = (now // 60, *(modified(home / f"{LEDGER}{end}") for end in ("", "-wal")))
        if self._budgets[0] != stamp:
            used = Budgets(self._settings, "").used(now)
            found = [{"what": one.what, "per": one.per, "usd": one.usd, "of_usd": one.of_usd} for one in used]
            self._budgets = stamp, found
        return self._budgets[1]

    def _rows(self) -> list[dict[str, Any]]:
        """Return the open sessions and agents among those that were written last, and some of the closed ones."""
        stored = database_of(self._storage) or self._storage  # the stamps of encrypted logs need no key
        found = [one for folders in ("projects/*", "agents") for one in log_stamps(stored, folders)]
        rows: dict[str, dict[str, Any]] = {}
        closed = 0
        for stamp in sorted(found, key=lambda one: one.changed_ns, reverse=True)[:_LOOKED_AT]:
            holder = self._storage.holder(stamp.key)
            closed += holder is None
            if holder is not None or closed <= _CLOSED_SHOWN:
                rows[stamp.key] = self._row(stamp, holder)
        self._watches = {key: one for key, one in self._watches.items() if key in rows}
        return list(rows.values())

    def _row(self, stamp: Stamp, holder: str | None) -> dict[str, Any]:
        key, storage = stamp.key, self._storage
        before, watch = self._watches.get(key, (None, SessionWatch()))
        if before is not None and (stamp.size < before.size or stamp.identity != before.identity):
            watch = SessionWatch()  # another log under the same name
        if stamp != before:
            watch.read(lambda start: storage.load(key, start, max(0, stamp.size - start)) or b"")
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
        row = watch.row(qualified_name(key), is_open=holder is not None, limits=limits)
        where = holder.partition(" since ")[0] if holder is not None and settings.database is not None else ""
        return {**row, "budget_usd": settings.agent.budget_usd, "where": where}

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
        library = Library(self._storage)
        key = library.find(query.get("session", ""))
        found = ReadBack(self._storage, key.removesuffix(".jsonl"), library.view(key)).find(query.get("handle", ""))
        return {"text": found.text[:_MAX_READ_CHARS], "source": found.source, "bytes": len(found.data)}

    def _named(self, query: Query) -> tuple[str, str]:
        """Return the full name of the session that a question is about, and a tag that changes when its log does."""
        name = query.get("session", "")
        if name != self._target:
            name = self._full_name(name)
        if os.path.isfile(name):
            found = os.stat(name)
            state = [found.st_size, found.st_mtime_ns]
        else:
            key = self._key(name)
            stored = database_of(self._storage) or self._storage
            state = [one for one in stored.stamps(key.rpartition("/")[0]) if one.key == key]
        return name, sha256(f"{name}:{state}".encode()).hexdigest()[:16]

    def _full_name(self, name: str) -> str:
        return qualified_name(self._key(name))

    def _key(self, name: str) -> str:
        if not name:
            raise InputError("name a session: ?session=NAME")
        return Library(self._storage).find(name)


class SessionWatch:
    """Follows one log: each reading folds only the lines that were added since the last one."""

    def __init__(self) -> None:
        self._offset = 0
        self._view = View()
        self._usd = 0.0
        self._calls = 0
        self._title = ""
        self._first = ""
        self._last: Entry | None = None

    def read(self, load: LoadRest) -> None:
        """Fold the whole lines that the log has beyond those read before."""
        data = load(self._offset)
        end = data.rfind(b"\n") + 1
        self._offset += end
        for entry in parse_log(data[:end]).entries:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        self._view, self._last = self._view.fold(entry), entry
        call = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(call, CallRecorded):
            self._usd += call.cost_usd or 0.0
            self._calls += 1
        elif entry.kind == META and isinstance(entry.body.get("title"), str):
            self._title = entry.body["title"]
        elif entry.kind == USER and not self._first:
            self._first = first_words(own_words(entry))

    @property
    def model(self) -> str:
        """The model of the last request; empty before the first."""
        prefix = self._view.facts.prefix
        return prefix.model if prefix is not None else self._view.token_count.model

    def row(self, name: str, *, is_open: bool, limits: Thresholds) -> dict[str, Any]:
        """Return the session as values of JSON; ``name`` leads to it, ``limits`` are those of its model's window."""
        return {
            "kind": "agent" if name.startswith("agents/") else "session",
            "name": name,
            "title": (self._title or self._first or name)[:_TITLE_CHARS],
            "model": self.model,
            "open": is_open,
            "doing": self._doing() if is_open else "closed",
            "tokens": self._view.token_count.tokens,
            "window_tokens": limits.window,
            "warn_at": limits.warning,
            "compact_at": limits.base,
            "compacts": limits.compacts,
            "block_at": limits.blocking,
            "usd": self._usd,
            "calls": self._calls,
            "compactions": sum(one not in self._view.facts.undone for one in self._view.facts.compactions),
            "at": self._last.at if self._last is not None else 0.0,
        }

    def _doing(self) -> str:
        """Return the state of a running session in a few words, from the end of its log."""
        waiting = [call.name for one in self._view.unanswered() if (call := self._view.tool_call(one)) is not None]
        if waiting:
            return f"runs {', '.join(dict.fromkeys(waiting))}"
        final = self._view.final
        if final is None:
            return "has not begun"
        return "waits for you" if final.role == "assistant" else "waits for the model"
