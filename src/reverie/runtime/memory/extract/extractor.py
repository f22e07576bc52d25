"""Layer 5 at work in a session: after a query its messages are looked through and memories are written.

One run at a time. A query that ends meanwhile leaves its view, the newest in place of an older one, and one more run
follows. The cursor is in the log and moves when a run has succeeded, so that no message is passed over.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ....conversation.authorship import own_words
from ....conversation.decisions import Cause, CursorMoved, MemoriesExtracted
from ....conversation.entries import USER, Entry
from ....conversation.view import View
from ....errors import ReverieError
from ....events import BackgroundChanged, FellBack
from ....layers.l5_extract import (
    CURSOR,
    IMPORTED,
    ExtractionStep,
    ExtractPolicy,
    Witnesses,
    directive,
    extraction_step,
    imported_upto,
    proposals_in,
)
from ....memories.recall.fence import escaped
from ....memories.recall.manifest import manifest, manifest_text
from ....ports import Model
from ....settings import PermissionRules
from ....tools.context import ToolContext
from ....values import replace
from ...session.forks import ForkReply, Forks, forking
from ...session.port import SessionPort
from ..results import Saved
from .budget import Spending
from .candidates import Keeper, Ran
from .tools import ExtractTools

if TYPE_CHECKING:
    from ..memory import Memory

__all__ = ["Extracting", "Ran"]

SOURCE: Final = "extract"
_LAYER: Final = "extract"
_WHAT: Final = "extraction"
_UNSEEN_CHARS: Final = 12_000
_TAG_BYTES: Final = 8


class Extracting:
    """Writes memories from one session."""

    def __init__(
        self,
        session: SessionPort,
        memory: Memory,
        *,
        model: Model | None = None,
        policy: ExtractPolicy | None = None,
        tools: ToolContext | None = None,
        rules: PermissionRules | None = None,
        sandboxed: bool = False,
        spending: Spending | None = None,
        allowed: Callable[[], bool] = lambda: True,
        instructions: Callable[[], Sequence[str]] = tuple,
        tasks: TaskGroup | None = None,
    ) -> None:
        """Work for a session; ``tools`` are those of an agent whose Read, Grep, Glob, Bash, Edit and Write a fork may
        use, and without them a model answers in one turn. ``spending`` knows what the day has cost."""
        self.model = model
        """Who is asked; without anybody the local extractor looks."""
        self.tasks = tasks
        """Where a run goes on beside the conversation; without it the caller waits for it."""
        self.last: Ran | None = None
        self._session = session
        self._memory = memory
        self._policy = policy or ExtractPolicy()
        self._tools = tools
        self._rules = rules
        self._sandboxed = sandboxed
        self._spending = spending or Spending()
        self._allowed = allowed
        self._instructions = instructions
        self._imported_upto = imported_upto(session.view)
        self._pending: View | None = None
        self._running: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether a run goes on now."""
        return self._running is not None

    async def after_query(self) -> None:
        """Look through what was said, if it is time; call this when a query of the main conversation is complete."""
        if self._closed or forking() or not self._allowed():
            return
        view = self._session.view
        if self._running is not None:
            self._pending = view
            return
        self._running = anyio.Event()
        if self.tasks is None:
            await self._drain(view)
        else:
            self.tasks.start_soon(self._drain, view)

    async def wait(self) -> None:
        """Wait until no run goes on and none is to follow."""
        while self._running is not None:
            await self._running.wait()

    async def close(self, timeout_seconds: float | None = None) -> bool:
        """Give running work so long to end, then give it up; say whether it ended by itself."""
        self._closed = True
        limit = self._policy.close_seconds if timeout_seconds is None else timeout_seconds
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(limit):
                await self.wait()
            if self._running is None:
                return True
            if self._scope is not None:
                self._scope.cancel()
            await self.wait()
        return False

    # -- runs

    async def _drain(self, view: View | None) -> None:
        """Do one run, and one more for what came meanwhile, until nothing did."""
        running = self._running
        try:
            with anyio.CancelScope() as scope:
                self._scope = scope
                while view is not None:
                    await self._once(view)
                    view, self._pending = self._pending, None
            if scope.cancelled_caught:
                self._session.emit(BackgroundChanged(self._session.name, _WHAT, "killed"))
        except BaseException:
            self._session.emit(BackgroundChanged(self._session.name, _WHAT, "killed"))
            raise
        finally:
            self._running = self._scope = self._pending = None
            if running is not None:
                running.set()

    async def _once(self, view: View) -> None:
        """Do one run; whatever goes wrong is told, never raised."""
        tell, name = self._session.emit, self._session.name
        try:
            await self._mark_imported()
            cursor = self._session.view.facts.cursors.get(CURSOR)
            path = str(self._memory.path)
            found = await to_thread.run_sync(lambda: extraction_step(view, cursor, self._policy, memory_path=path))
            if found.act == "wait":
                return
            if found.act == "skip":
                await self._moved(found, found.why)
                tell(BackgroundChanged(name, _WHAT, "skipped", found.why))
                return
            tell(BackgroundChanged(name, _WHAT, "started"))
            ran = self.last = await self._ran(view, found)
            await self._noted(ran, found)
            tell(BackgroundChanged(name, _WHAT, "completed", _told(ran)))
        except Exception as error:
            known = isinstance(error, ReverieError)
            tell(BackgroundChanged(name, _WHAT, "failed", str(error) if known else f"{type(error).__name__}: {error}"))

    async def _mark_imported(self) -> None:
        """Log up to where the session was recorded elsewhere, so that it is known when it is opened again."""
        upto = self._imported_upto
        if upto and not self._session.view.facts.cursors.get(IMPORTED):
            await self._session.decide(CursorMoved(Cause(_LAYER, "recorded elsewhere"), IMPORTED, upto))

    async def _ran(self, view: View, found: ExtractionStep) -> Ran:
        """Let a model look, where there is one and money for it, and else the local extractor."""
        already: list[Saved] = []  # what a model wrote before it failed
        if self.model is not None:
            over = await to_thread.run_sync(
                lambda: self._spending.over(self._policy.daily_tokens, self._policy.daily_usd)
            )
            if over:
                self._fell_back(over)
            else:
                try:
                    return await self._asked(self.model, view, found, already)
                except Exception as error:
                    self._fell_back(f"looked through without a model: {error}")
        before, said = view.history[: -len(found.entries)], self._instructions
        keeper = Keeper(self._memory, self._session.name)
        most, imported = self._policy.max_memories, _upto(view.history, self._imported_upto)
        ran = await to_thread.run_sync(lambda: keeper.found(found.entries, before, said(), most, imported))
        return replace(ran, saved=[*already, *ran.saved])

    def _fell_back(self, why: str) -> None:
        self._session.emit(FellBack(self._session.name, _WHAT, why))

    async def _noted(self, ran: Ran, found: ExtractionStep) -> None:
        """Log what a run wrote and that it is done; only now does the cursor move."""
        names = list(dict.fromkeys(saved.file for saved in ran.saved))
        if names or ran.by == "model":
            changes = [saved.id for saved in ran.saved if saved.id]
            usage = {"by": ran.by, "changes": changes, "refused": len(ran.refused), **ran.usage}
            await self._session.decide(MemoriesExtracted(Cause(_LAYER, f"by {ran.by}"), names, usage))
        await self._moved(found, "looked through")

    async def _moved(self, found: ExtractionStep, why: str) -> None:
        await self._session.decide(CursorMoved(Cause(_LAYER, why), CURSOR, found.upto))

    # -- with a model

    async def _asked(self, model: Model, view: View, found: ExtractionStep, already: list[Saved]) -> Ran:
        heads = await to_thread.run_sync(lambda: list(self._memory.list()))
        witnesses = await to_thread.run_sync(lambda: Witnesses(view.history, imported_upto=self._imported_upto))
        tools = self._hands(witnesses, already)
        text = directive(
            "structured" if tools is None else "tools",
            manifest=manifest_text(manifest(heads, max_files=self._policy.manifest_files)),
            messages=len(found.entries),
            path=escaped(str(self._memory.path)),
            tag=secrets.token_hex(_TAG_BYTES),
            unseen=_unseen(view, found.entries),
            policy=self._policy,
        )
        reply = await Forks(self._session, model, view=view, on_call=self._spending.add).ask(
            text,
            source=SOURCE,
            max_tokens=self._policy.max_tokens,
            tools=tools,
            max_turns=1 if tools is None else self._policy.max_turns,
            timeout_seconds=self._policy.timeout_seconds,
        )
        if tools is not None:
            return Ran("model", tools.saved, tools.refused, _used(reply))
        asked, refused = proposals_in(reply.text, self._policy)
        keeper = Keeper(self._memory, self._session.name)
        ran = await to_thread.run_sync(lambda: keeper.answered(asked, refused, witnesses, heads, already))
        return replace(ran, usage=_used(reply))

    def _hands(self, witnesses: Witnesses, saved: list[Saved]) -> ExtractTools | None:
        if self._tools is None:
            return None
        return ExtractTools(
            self._memory,
            self._tools,
            witnesses,
            session=self._session.name,
            policy=self._policy,
            rules=self._rules,
            sandboxed=self._sandboxed,
            emit=self._session.emit,
            saved=saved,
        )


def _upto(said: Sequence[Entry], uuid: str) -> frozenset[str]:
    """Return the names of the entries up to one of them."""
    names = [entry.uuid for entry in said] if uuid else []
    return frozenset(names[: names.index(uuid) + 1] if uuid in names else ())


def _unseen(view: View, entries: Sequence[Entry]) -> str:
    """Return what people said in these entries and what a compaction has taken out of the view since."""
    shown = {piece.uuid for group in view.groups for piece in group.pieces}
    said = [own_words(entry) for entry in entries if entry.kind == USER and entry.uuid not in shown]
    return escaped("\n\n".join(filter(None, said))[-_UNSEEN_CHARS:])


def _used(reply: ForkReply) -> dict[str, Any]:
    """Return what a run used, for the log."""
    return {
        "input_tokens": reply.usage.input,
        "output_tokens": reply.usage.output,
        "cache_read_share": round(reply.cache_read_share, 4),
        "cost_usd": reply.cost_usd,
        "turns": reply.turns,
        "denied": list(reply.denied),
    }


def _told(ran: Ran) -> str:
    saved = sum(1 for one in ran.saved if one.id)
    return f"saved {saved} {'memory' if saved == 1 else 'memories'}" if saved else "nothing to save"
