"""A session's parts, put together: its log, its store, its accounts, its layers, and what they need of each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from anyio import to_thread

from ...cache.breakpoints import Planned
from ...conversation.decisions import Decision, body_of
from ...conversation.entries import ATTACHMENT, DECISION, META, SCHEMA, Entry, Message, iso, new_uuid
from ...conversation.tokens.window import Thresholds
from ...conversation.view import View
from ...errors import InputError, StorageError
from ...events import LogDamaged, SessionClosed, SessionOpened
from ...ports import Model, Storage
from ...settings import Settings, open_flags
from ...storage.files import FileStorage
from ..guard.hooks import Hooks
from ..places.projects import session_key
from .accounts import Accounts
from .background import Behind
from .cache_plan import Pipeline
from .compact.compactor import Compacting
from .compact.restore import Restoring
from .forks import Forks, forking
from .ledger import LedgerStore
from .limits import DEFAULT_MODEL, compact_at, lines_of, offload_policy, trim_policy
from .log import Logged
from .notes.keeper import noting_of
from .offload.offloader import Offloading
from .offload.read_back import ReadBack
from .prefix import last_sent
from .writer import LogWriter

__all__ = ["Kept", "Mode"]

Mode = Literal["write", "read"]
S = TypeVar("S", bound="Kept")
T = TypeVar("T")


class Kept(Logged):
    """Everything a session has, and the doors its layers use."""

    def __init__(
        self,
        name: str,
        *,
        storage: Storage,
        project: str,
        settings: Settings,
        mode: Mode = "write",
        cwd: str = "",
        clock: Callable[[], float] = time.time,
        owns_storage: bool = False,
        capabilities: frozenset[str] = frozenset(),
        model: Model | None = None,
        folder: str = "",
    ) -> None:
        """Use the log of a name in a project, or, for an agent that another one started, in a folder of its own."""
        folder = folder or session_key(project, name)
        writer = LogWriter(storage, f"{folder}.jsonl", name, clock=clock)
        super().__init__(name, writer, inline=not isinstance(storage, FileStorage))
        self.mode: Mode = mode
        self.settings = settings
        self.model = model
        """Who is asked for notes and summaries; without anybody they are written locally."""
        self.hooks: Hooks | None = None
        self.restoring: Restoring | None = None
        """Who knows what an agent had open, to show it again after a compaction."""
        self.beside: Mapping[str, Any] = {}
        """What the last request carried beside its body: headers, betas, timeouts."""
        self._storage = storage
        self._owns_storage = owns_storage
        self._inbox = f"{folder}/inbox"
        self._cwd = cwd
        self._folder = folder
        self._capabilities = capabilities
        root = str(settings.home) if isinstance(storage, FileStorage) else ""
        self._offloading = Offloading(storage, self._folder, offload_policy(settings), root=root)
        self.pipeline = Pipeline(trim_policy(settings), compact_at=compact_at(DEFAULT_MODEL, settings))
        store = LedgerStore(settings.home, session=name, listener=self._emit) if owns_storage else None
        self._accounts = Accounts(store, session=name, project=project, clock=clock)
        self._flags = open_flags(settings)
        self._switches, self._limits = settings.switches, settings.offload_limits
        self._said_flags_failed = False
        self._model = DEFAULT_MODEL
        self._betas: tuple[str, ...] = ()
        self.noting = noting_of(
            self,
            storage,
            self._folder,
            settings,
            model=lambda: self._model,
            allowed=self._takes_notes,
            root=root,
            inline=self._inline,
            asks=self.forks(model) if model is not None else None,
        )
        self.compacting = Compacting(self)
        self._behind = Behind(self.noting)
        self._listeners.append(self.compacting.hear)

    async def __aenter__(self: S) -> S:
        loaded = await self._run(lambda: self._writer.open(write=self.mode == "write"))
        self._emit(SessionOpened(self.name, len(loaded.entries), self.mode))
        for damage in loaded.damage:
            self._emit(LogDamaged(self.name, damage.line, damage.reason))
        last = self.view.facts.last_call
        if last is not None:
            sent = last_sent(loaded.entries, self.view)
            self.pipeline.resume(last.cache, sent["messages"])
            self._accounts.resume(sent, last)
        self._model = self._known_model()
        self.compacting.resume(loaded.entries)
        if self.mode == "write":
            if not loaded.entries:
                await self.append(META, {"schema": SCHEMA, "cwd": self._cwd})
            await self._behind.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._behind.close(0.0 if kind is not None else self.settings.compact.wait_seconds)
        self._writer.close()
        self._accounts.close()
        if self._owns_storage:
            await self._run(self._storage.close)
        self._emit(SessionClosed(self.name))

    def sever(self) -> None:
        """Let go of the log at once, whoever still has something to say: nothing can be appended any more."""
        self._writer.close()

    # -- what layers use

    @property
    def clock(self) -> Callable[[], float]:
        """What tells the time."""
        return self._writer.clock

    @property
    def lines(self) -> Thresholds:
        """The lines drawn in the window of the model that was asked last."""
        return lines_of(self._model, self.settings, self._betas)

    def forks(self, model: Model) -> Forks:
        """Return the way to ask a model side questions on this session's prefix."""
        return Forks(self, model)

    def use_model(self, model: Model) -> None:
        """Let another model write notes and summaries from now on."""
        self.model = model
        self.noting.asks = self.forks(model)

    def fork_marks(self, messages: Sequence[Message]) -> Planned:
        """Place the breakpoints of a fork without taking note of them."""
        return self.pipeline.mark_fork(self.view, messages, self.clock())

    def forget_known(self) -> None:
        """Look through the whole view at the next result, because other results stand in it now."""
        self._offloading.restart()

    async def aside(self, act: Callable[[], T]) -> T:
        """Do something that takes a while without holding up others."""
        return await self._run(act)

    async def foreseen(self, decision: Decision) -> View:
        """Return the view as it would be after a decision that is not made."""
        async with self._lock:
            entry = Entry(new_uuid(), self.view.last, iso(self.clock()), self.name, DECISION, body_of(decision))
            return self.view.fold(entry)

    async def spent(self, reply: Mapping[str, Any], *, source: str) -> float | None:
        """Record what a call outside the conversation used; return what it cost, where a price is known."""
        if not self._accounts.knows(reply):
            await to_thread.run_sync(lambda: self._accounts.learn(reply))  # loads a table of prices, once
        billed = self._accounts.beside(reply, source=source)
        if billed is None:
            return None
        entry = await self.decide(billed.call)
        await self._run(lambda: self._accounts.enter(billed, entry.uuid))
        return billed.call.cost_usd

    async def attach(self, content: str | list[dict[str, Any]], *, type: str = "note") -> Entry:
        """Log something the program adds for the model to see: a date, a file that changed, a listing."""
        return await self.append(ATTACHMENT, {"type": type, "message": {"role": "user", "content": content}})

    async def read_back(self, handle: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return content that left the view, by the handle that stands in its place."""
        reader = ReadBack(self._storage, self._folder, self.view)
        self.pipeline.read_backs += 1
        return await self._run(lambda: reader.read(handle, offset=offset, limit=limit))

    def stored(self, handle: str) -> bytes | None:
        """Return what left the view, by its path or handle, or None where there is none; this may block."""
        try:
            return ReadBack(self._storage, self._folder, self.view).read(handle)
        except (InputError, StorageError):
            return None

    def _takes_notes(self) -> bool:
        switches = self.settings.switches
        return switches.notes and switches.compact and switches.auto_compact and not forking()

    def _known_model(self) -> str:
        """Return the model that the log names, so that a resumed session knows its window."""
        prefix, meta = self.view.facts.prefix, self.view.facts.meta
        named = prefix.model if prefix is not None else meta.get("model")
        return named if isinstance(named, str) and self._model == DEFAULT_MODEL else self._model
