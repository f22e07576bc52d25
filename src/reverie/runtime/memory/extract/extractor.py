"""Layer 5 in a session: extract memories from the messages of a query after it ends.

One run at a time. If queries end during a run, one more run follows for the newest view. The cursor is in the log and
moves only after a successful run, so no message is skipped.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ....conversation.authorship import own_words
from ....conversation.decisions import Cause, CursorMoved, MemoriesExtracted
from ....conversation.entries import USER, Entry
from ....conversation.view import View
from ....errors import ReplyBroken, ReverieError
from ....events import BackgroundChanged, FellBack
from ....layers.l5_extract import (
    CURSOR,
    IMPORTED,
    ExtractionStep,
    ExtractPolicy,
    PastSayings,
    RepeatedWish,
    Witnesses,
    directive,
    extraction_step,
    has_new_prose,
    imported_upto,
    proposals_in,
    sayings_of,
)
from ....memories.recall.fence import escaped
from ....memories.recall.manifest import manifest, manifest_text
from ....ports import Model
from ....text.counts import counted
from ....values import field, record, replace
from ...session.forks import ForkReply, Forks, forking
from ...session.patience import LEFT
from ..results import SavedMemory
from .budget import DailyBudget
from .candidates import CandidateWriter, ExtractionRun
from .past_sessions import PastSessions
from .tools import ExtractTools, ToolAccess

if TYPE_CHECKING:
    from ...session.host import SessionHost
    from ..memory import Memory

__all__ = ["ExtractionRun", "Extractor"]

SOURCE: Final = "extract"
_LAYER: Final = "extract"
_TASK: Final = "extraction"
_UNSEEN_CHARS: Final = 12_000
_TAG_BYTES: Final = 8


@record
class ExtractorOptions:
    """The policy, tools and budget of an extractor."""

    policy: ExtractPolicy = field(default_factory=ExtractPolicy)
    access: ToolAccess | None = None
    """The tools a fork may use; None makes the model answer in one turn."""
    budget: DailyBudget | None = None
    """The budget of the day; None counts only the calls of this extractor."""
    allowed: Callable[[], bool] = lambda: True
    """Tells before each run whether it may start."""
    instructions: Callable[[], Sequence[str]] = tuple
    """Returns the instruction files, whose content is not saved as a memory."""
    past: PastSessions | None = None
    """The earlier sessions of the project, in which repeated wishes are looked for."""
    daily_logs: bool = False
    """Whether memories are appended to the daily log instead of saved."""


class Extractor:
    """Extracts memories from the messages of one session, by a model or locally."""

    def __init__(
        self,
        session: SessionHost,
        memory: Memory,
        options: ExtractorOptions | None = None,
        *,
        model: Model | None = None,
        tasks: TaskGroup | None = None,
    ) -> None:
        self.model = model
        """The model that extracts memories; None uses the local extractor."""
        self.tasks = tasks
        """The task group of a run in the background; None makes the caller wait for the run."""
        self.last: ExtractionRun | None = None
        self._session = session
        self._memory = memory
        self._options = options or ExtractorOptions()
        self._policy = self._options.policy
        self._budget = self._options.budget or DailyBudget()
        self._imported_upto = imported_upto(session.log.view)
        self._pending: View | None = None
        self._running: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return self._running is not None

    async def after_query(self) -> None:
        """Extract memories if due, in the background with a task group; during a run, request one more run.

        Call this when a query of the main conversation is complete.
        """
        if self._closed or forking() or not self._options.allowed():
            return
        view = self._session.log.view
        if self._running is not None:
            self._pending = view
            return
        self._running = anyio.Event()
        if self.tasks is None:
            await self._drain(view)
        else:
            self.tasks.start_soon(self._drain, view)

    async def wait(self) -> None:
        """Wait until no run is in progress or pending."""
        while self._running is not None:
            await self._running.wait()

    async def close(self, timeout_seconds: float | None = None) -> bool:
        """Start no more runs and wait for a running one; return False if it was cancelled.

        A run is cancelled after a timeout, and earlier if its model is silent for 5 seconds.
        """
        self._closed = True
        limit = self._policy.close_seconds if timeout_seconds is None else timeout_seconds
        with anyio.CancelScope(shield=True):
            if await self._session.patience.wait(self._ended, limit):
                return True
            if self._scope is not None:
                self._scope.cancel()
            await self.wait()
        self._fell_back(LEFT)
        return False

    async def _ended(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.wait()
        return self._running is None

    # -- runs

    async def _drain(self, view: View | None) -> None:
        """Run once, and again while a newer view is pending."""
        running = self._running
        try:
            with anyio.CancelScope() as scope:
                self._scope = scope
                while view is not None:
                    await self._run_once(view)
                    view, self._pending = self._pending, None
            if scope.cancelled_caught:
                self._session.log.emit(BackgroundChanged(self._session.log.name, _TASK, "killed"))
        except BaseException:
            self._session.log.emit(BackgroundChanged(self._session.log.name, _TASK, "killed"))
            raise
        finally:
            self._running = self._scope = self._pending = None
            if running is not None:
                running.set()

    async def _run_once(self, view: View) -> None:
        """Run once; a failure becomes an event, never an exception."""
        emit, name = self._session.log.emit, self._session.log.name
        try:
            await self._mark_imported()
            cursor = self._session.log.view.facts.cursors.get(CURSOR)
            path = str(self._memory.path)
            found = await to_thread.run_sync(lambda: extraction_step(view, cursor, self._policy, memory_path=path))
            if found.act == "wait":
                return
            if found.act == "skip":
                await self._move_cursor(found, found.why)
                emit(BackgroundChanged(name, _TASK, "skipped", found.why))
                return
            past = await to_thread.run_sync(self._past_sayings)
            repeated = await to_thread.run_sync(lambda: past.repeated(list(sayings_of(name, found.entries))))
            before = islice(view.latest(), len(found.entries), None)
            if self.model is not None and not repeated and not has_new_prose(found.entries, before):
                return  # too little for a model; a later run looks at these messages too
            emit(BackgroundChanged(name, _TASK, "started"))
            ran = self.last = await self._extract(view, found, past, repeated)
            await self._log_run(ran, found)
            emit(BackgroundChanged(name, _TASK, "completed", _summary(ran)))
        except Exception as error:
            known = isinstance(error, ReverieError)
            emit(BackgroundChanged(name, _TASK, "failed", str(error) if known else f"{type(error).__name__}: {error}"))

    async def _mark_imported(self) -> None:
        """Log the last message that another program recorded, so that a later process knows it."""
        upto = self._imported_upto
        if upto and not self._session.log.view.facts.cursors.get(IMPORTED):
            await self._session.log.decide(CursorMoved(Cause(_LAYER, "recorded elsewhere"), IMPORTED, upto))

    def _past_sayings(self) -> PastSayings:
        return self._options.past.sayings() if self._options.past is not None else PastSayings()

    async def _extract(
        self, view: View, found: ExtractionStep, past: PastSayings, repeated: Sequence[RepeatedWish]
    ) -> ExtractionRun:
        """Extract with the model if there is one and the budget allows it, else with the local extractor."""
        already: list[SavedMemory] = []  # saved by the model before it failed
        if self.model is not None:
            over = await to_thread.run_sync(
                lambda: self._budget.over(self._policy.daily_tokens, self._policy.daily_usd)
            )
            if over:
                self._fell_back(over)
            else:
                try:
                    return await self._run_model(self.model, view, found, repeated, already)
                except Exception as error:
                    self._fell_back(f"extracted without a model: {error}")
        writer, most, said = self._writer(), self._policy.max_memories, self._options.instructions
        ran = await to_thread.run_sync(lambda: writer.save_found(found.entries, past, said(), most))
        return replace(ran, saved=[*already, *ran.saved])

    def _writer(self) -> CandidateWriter:
        return CandidateWriter(self._memory, self._session.log.name, daily_logs=self._options.daily_logs)

    def _fell_back(self, why: str) -> None:
        self._session.log.emit(FellBack(self._session.log.name, _TASK, why))

    async def _log_run(self, ran: ExtractionRun, found: ExtractionStep) -> None:
        """Log the saved memories, then move the cursor."""
        names = list(dict.fromkeys(saved.file for saved in ran.saved))
        if names or ran.by == "model":
            changes = [saved.id for saved in ran.saved if saved.id]
            usage = {"by": ran.by, "changes": changes, "refused": len(ran.refused), **ran.usage}
            await self._session.log.decide(MemoriesExtracted(Cause(_LAYER, f"by {ran.by}"), names, usage))
        await self._move_cursor(found, "looked through")

    async def _move_cursor(self, found: ExtractionStep, why: str) -> None:
        await self._session.log.decide(CursorMoved(Cause(_LAYER, why), CURSOR, found.upto))

    # -- with a model

    async def _run_model(
        self,
        model: Model,
        view: View,
        found: ExtractionStep,
        repeated: Sequence[RepeatedWish],
        already: list[SavedMemory],
    ) -> ExtractionRun:
        heads = await to_thread.run_sync(lambda: [head for head in self._memory.list() if head.is_in_use])
        witnesses = await to_thread.run_sync(lambda: Witnesses(view.entries(), imported_upto=self._imported_upto))
        tools = self._fork_tools(witnesses, already)
        text = directive(
            "structured" if tools is None else "tools",
            manifest=manifest_text(manifest(heads, max_files=self._policy.manifest_files)),
            messages=_messages_with(view, found.entries),
            path=escaped(str(self._memory.path)),
            tag=secrets.token_hex(_TAG_BYTES),
            unseen=_unseen(view, found.entries),
            repeated=escaped("\n".join(f"- {wish.quoted()}" for wish in repeated)),
            policy=self._policy,
            team=self._memory.is_shared,
        )
        reply = await Forks(self._session, model, view=view, on_call=self._budget.add).ask(
            text,
            source=SOURCE,
            max_tokens=self._policy.max_tokens,
            tools=tools,
            max_turns=1 if tools is None else self._policy.max_turns,
            timeout_seconds=self._policy.timeout_seconds,
        )
        if tools is not None:
            if reply.refused or (reply.problem and reply.turns == 1):
                raise ReplyBroken(reply.problem)
            return ExtractionRun("model", tools.saved, tools.refused, _usage(reply))
        asked, refused = proposals_in(reply.answer(), self._policy)
        writer = self._writer()
        ran = await to_thread.run_sync(lambda: writer.save_answers(asked, refused, witnesses, heads, already))
        return replace(ran, usage=_usage(reply))

    def _fork_tools(self, witnesses: Witnesses, saved: list[SavedMemory]) -> ExtractTools | None:
        access = self._options.access
        if access is None or self._options.daily_logs:
            return None
        return ExtractTools(
            self._memory,
            access,
            witnesses,
            session=self._session.log.name,
            policy=self._policy,
            emit=self._session.log.emit,
            saved=saved,
        )


def _messages_with(view: View, entries: Sequence[Entry]) -> int:
    """Return how many messages of the view hold these entries; a message may hold several."""
    wanted = {entry.uuid for entry in entries}
    return sum(any(piece.uuid in wanted for piece in group.pieces) for group in view.groups)


def _unseen(view: View, entries: Sequence[Entry]) -> str:
    """Return the last of the users' words in these entries that a compaction has removed from the view."""
    shown = {piece.uuid for group in view.groups for piece in group.pieces}
    said = [own_words(entry) for entry in entries if entry.kind == USER and entry.uuid not in shown]
    return escaped("\n\n".join(filter(None, said))[-_UNSEEN_CHARS:])


def _usage(reply: ForkReply) -> dict[str, Any]:
    """Return the usage of a fork as a dict for the log."""
    return {
        "input_tokens": reply.usage.input,
        "output_tokens": reply.usage.output,
        "cache_read_share": round(reply.cache_read_share, 4),
        "cost_usd": reply.cost_usd,
        "turns": reply.turns,
        "denied": list(reply.denied),
    }


def _summary(ran: ExtractionRun) -> str:
    return f"saved {counted(len(ran.saved), 'memory')}" if ran.saved else "nothing to save"
