"""The log of an open session: append entries and decisions in order, and send events to listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Event as ThreadEvent
from threading import Lock, Thread
from typing import Any, Final, Literal, TypeVar
from weakref import finalize

from anyio import CancelScope, to_thread
from anyio import Lock as AsyncLock

from ...conversation.decisions import Decision, Unknown, body_of, decision_of
from ...conversation.entries import ATTACHMENT, DECISION, Entry, iso, new_uuid
from ...conversation.file_reads import FileRead, named_files
from ...conversation.log import ParsedLog
from ...conversation.view import View
from ...errors import LogLost, NewerVersion, SessionNotFound
from ...events import DecisionMade, EntryAppended, Event, FellBack, Listener
from ...ports import Storage
from ...storage.files import FileStorage
from ...storage.in_memory import InMemoryStorage
from .writer import LogWriter

Mode = Literal["write", "read"]
T = TypeVar("T")
MAX_LATER: Final = 8
"""Functions of ``run_later`` that may wait for another entry."""


_MAX_START_SECONDS: Final = 0.001

Job = Callable[[], object]


class StorageThread:
    """A thread that waits for one log's disk; it starts with its first job and ends when it is closed.

    A turn waits for it once. A worker of ``to_thread`` costs the event loop three rounds more, and a
    ``ThreadPoolExecutor`` takes no job after the main thread has ended, though the program goes on in others.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] | None = None

    async def run(self, act: Callable[[], T]) -> T:
        """Run a function in the thread and return its result; as with ``to_thread``, nothing stops the function."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            tell: Callable[[asyncio.Future[T], Any], None] = _succeed
            try:
                outcome: Any = act()
            except BaseException as error:
                tell, outcome = _fail, error
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                loop.call_soon_threadsafe(tell, done, outcome)

        self._put(job)
        with CancelScope(shield=True):
            await done
        return done.result()

    def begin(self, act: Callable[[], object]) -> None:
        """Run a function in the thread beside the caller; it must not raise.

        Wait a moment until it runs: a thread that only just woke up gets no turn while another one computes.
        """
        running = Lock()
        running.acquire()

        def job() -> None:
            running.release()
            act()

        self._put(job)
        running.acquire(timeout=_MAX_START_SECONDS)

    def _put(self, job: Job) -> None:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            Thread(target=_run_jobs, args=(self._jobs,), name="reverie-log", daemon=True).start()
            finalize(self, self._jobs.put, None)
        self._jobs.put(job)

    def close(self) -> None:
        """End the thread after its jobs; a later job starts another."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _run_jobs(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # an idle thread keeps no session alive


def _succeed(done: asyncio.Future[Any], outcome: Any) -> None:
    if not done.done():
        done.set_result(outcome)


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)


class SessionLog:
    """Appends to one session's log; its view is the fold of all entries."""

    def __init__(self, name: str, storage: Storage, folder: str, *, mode: Mode, clock: Callable[[], float]) -> None:
        """Use the log of a session's folder; a storage that may block is called in a thread of its own."""
        self.name = name
        self.mode: Mode = mode
        self.clock = clock
        self._writer = LogWriter(storage, f"{folder}.jsonl", name, clock=clock)
        self._inline = isinstance(storage, InMemoryStorage)
        self._hands_over = isinstance(storage, FileStorage | InMemoryStorage)
        self._thread = StorageThread()
        self._lock = AsyncLock(fast_acquire=True)
        self._listeners: list[Listener] = []
        self._since_request: list[Decision | Unknown] = []
        self._told = ""
        self._later: list[Callable[[], object]] = []

    @property
    def view(self) -> View:
        """The current view: the messages that the next request would show the model."""
        return self._writer.view

    async def open(self, take: Callable[[Entry, View], None]) -> ParsedLog:
        """Take the lease in write mode, load the log, fold it into the view, and return the parsed log.

        ``take`` is called with each entry and the view before it. A log of a newer Reverie is open for reading only.
        Raise ``SessionNotFound`` if there is nothing to read.
        """
        given_up = ThreadEvent()
        try:
            loaded = await self.run_blocking(
                lambda: self._writer.open(take, write=self.mode == "write", given_up=given_up)
            )
        except BaseException:
            given_up.set()  # a cancelled caller does not stop the thread that opens for it
            self._writer.close()
            raise
        if self._writer.newer_version:
            self.mode = "read"
        if not loaded.entries and not loaded.damage and self.mode == "read":
            raise SessionNotFound(f"there is no session {self.name!r} to read; mode='write' begins one")
        self._since_request = decisions_since_call(loaded.entries)
        return loaded

    @property
    def newer_version(self) -> NewerVersion | None:
        """The error of a write to a log that a newer Reverie wrote; None for every other log."""
        return self._writer.newer_version

    async def settle(self) -> None:
        """Load the log again if the last append failed, because its line may have been written."""
        self._writer.require_open()
        if self._writer.in_doubt:
            await self._written(self._writer.settle)

    async def sync(self) -> None:
        """Return when all entries are on disk and ``run_later`` has run; tools that change something wait for this."""
        if self._writer.is_unsynced or self._later:
            async with self._lock:
                await self._written(self._writer.sync)

    def begin_sync(self) -> None:
        """Let the disk write the entries so far while the next request is built; ``sync_briefly`` waits for it."""
        if self._writer.is_unsynced:
            self._thread.begin(self._writer.flush)

    async def sync_briefly(self) -> None:
        """Return when every entry is on disk, a few of ``run_later`` excepted; each request waits for this."""
        if self._writer.is_unsynced:
            async with self._lock:
                await self._written(self._writer.sync, briefly=True)

    def run_later(self, act: Callable[[], object]) -> None:
        """Run a function in a thread in which a later entry becomes durable, or here if nothing ever blocks."""
        if self._inline:
            act()
        else:
            self._later.append(act)

    async def _written(self, write: Callable[[], T], *, sync: bool = True, briefly: bool = False) -> T:
        """Run a write and return its result; report a lost log and the session that the conversation is in now.

        On files a write without ``sync`` only hands the operating system a line, so it needs no thread.
        """

        def run() -> T:
            written = write()
            if not briefly or len(self._later) >= MAX_LATER:
                while self._later:
                    self._later.pop(0)()
            return written

        try:
            if not sync and self._hands_over and not self._writer.in_doubt:
                return write()
            return run() if self._inline else await self._thread.run(run)
        except LogLost as lost:
            if lost.session and lost.session != self._told:
                self._told = lost.session
                self.emit(FellBack(self.name, "log", f"the conversation is in the new session {lost.session}: {lost}"))
            raise

    async def close(self) -> None:
        """Release the lease, after an append that still runs for a cancelled caller; later appends fail."""
        try:
            await self.sync()
        finally:
            await self.run_blocking(self._writer.close)
            self._thread.close()

    def on_event(self, listener: Listener) -> None:
        """Call a listener with every event from now on."""
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        """Send an event to every listener; a listener that raises stops nothing."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                continue

    async def append(self, kind: str, body: dict[str, Any], *, sync: bool = True) -> Entry:
        """Log one entry and return it; it is in the view when this returns, and durable if ``sync``.

        Without ``sync`` the operating system has it, so that a killed process does not lose it; ``sync`` waits for the
        disk.
        """
        async with self._lock:
            entry = await self._written(lambda: self._writer.append(kind, body, sync=sync), sync=sync)
        self.emit(EntryAppended(self.name, entry.uuid, kind))
        return entry

    async def attach(
        self, content: str | list[dict[str, Any]], *, type: str = "note", files: Iterable[FileRead] = ()
    ) -> Entry:
        """Log an attachment: content that the program adds for the model, such as a date or a changed file."""
        message = {"role": "user", "content": content}
        return await self.append(ATTACHMENT, {"type": type, "message": message, **named_files(files)})

    async def decide(self, decision: Decision, *, sync: bool = True) -> Entry:
        """Log one decision and return its entry; it is in the view when this returns, and durable if ``sync``."""
        async with self._lock:
            entry = (await self._written(lambda: self._writer.decide([decision], sync=sync), sync=sync))[0]
        self._since_request.append(decision)
        self.emit(DecisionMade(self.name, entry.uuid, decision))
        return entry

    async def decide_all(self, decisions: Iterable[Decision], *, sync: bool = True) -> None:
        """Log several decisions in order; with ``sync`` they become durable together."""
        for decision in decisions:
            await self.decide(decision, sync=False)
        if sync:
            await self.sync()

    async def foresee(self, decision: Decision) -> View:
        """Return the view as a decision would leave it, without logging the decision."""
        async with self._lock:
            entry = Entry(new_uuid(), self.view.last, iso(self.clock()), self.name, DECISION, body_of(decision))
            return self.view.fold(entry)

    def pop_decisions(self) -> list[Decision | Unknown]:
        """Return the decisions logged since this method last ran, or at first since the last main model call."""
        decisions, self._since_request = self._since_request, []
        return decisions

    async def run_blocking(self, act: Callable[[], T]) -> T:
        """Run a function in a worker thread, or here if the storage never blocks, and return its result."""
        return act() if self._inline else await to_thread.run_sync(act)


def decisions_since_call(entries: Sequence[Entry]) -> list[Decision | Unknown]:
    """Return the decisions after the conversation's last recorded call; an empty list if there is no such call."""
    found: list[Decision | Unknown] = []
    for entry in reversed(entries):
        if entry.kind != DECISION:
            continue
        if entry.body.get("decision") == "call_recorded" and entry.body.get("source") == "main":
            break
        found.append(decision_of(entry.body))
    else:
        return []
    return found[::-1]
