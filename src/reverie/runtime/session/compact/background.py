"""Compact in the background: the provider writes its summary while the conversation goes on.

A finished summary is logged at once and put in place before the next request. It is used only if the messages that it
covers are still the front of the conversation; everything said since then is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from ....conversation.decisions import Cause, CompactionFailed, CompactionPrepared
from ....errors import CompactionError, ModelRefused, StorageError
from ....events import BackgroundChanged, FellBack
from ....layers.l4_compact import CutRange, SignedSummary, parts_tool_changes
from ..host import SessionHost
from .draft import CompactionDraft, CompactionReport, CompactionRequest
from .provider import SummaryRefused, signed_block

_LAYER = "compact"
# Anthropic's SDK refuses create() without a stream above this: 3,600 s for 128,000 tokens, and 600 s are its limit.
_UNSTREAMED_TOKENS: Final = 21_333


class BackgroundCompaction:
    """Writes one compaction at a time beside the conversation of a session."""

    def __init__(self, session: SessionHost, draft: CompactionDraft) -> None:
        self._session = session
        self._draft = draft
        self.tasks: TaskGroup | None = None
        """The task group in which a summary is written; without one nothing is written in the background."""
        self._finished: anyio.Event | None = None
        self._asked: tuple[CutRange, dict[str, Any], float] | None = None
        """The range and the digests of the request that the caller sends, and the time it was made."""

    @property
    def is_running(self) -> bool:
        """Whether a summary is being written, here or by the caller's own request."""
        return self._finished is not None and not self._finished.is_set()

    def start(self, asked: CompactionRequest) -> bool:
        """Start to write a summary unless one is running or waits; return whether one is on its way."""
        if self.is_running or self._session.log.view.facts.prepared is not None:
            return True
        model = self._session.model
        if self.tasks is None or not self._draft.summaries.offered(model) or not self._draft.has_range(asked):
            return False
        self._finished = anyio.Event()
        self.tasks.start_soon(self._write, asked, self._finished)
        return True

    async def wait(self, seconds: float) -> bool:
        """Wait for a running summary, at most this long, and return whether none runs.

        One that the caller asked for may take this long in all.
        """
        if self._finished is None:
            return True
        if self._asked is not None:
            seconds -= anyio.current_time() - self._asked[2]
        with anyio.move_on_after(max(0.0, seconds)):
            await self._finished.wait()
        if self._asked is not None:
            self._asked = None  # the caller never passed a reply
            self._finished.set()
        return self._finished.is_set()

    async def _write(self, asked: CompactionRequest, finished: anyio.Event) -> None:
        name = self._session.log.name
        self._session.log.emit(BackgroundChanged(name, "compaction", "started"))
        try:
            taking, made = await self._draft.by_provider(asked)
            await self._log(taking, made.signed, asked.reason, made.calls, made.cost_usd)
            self._session.log.emit(BackgroundChanged(name, "compaction", "completed"))
        except Exception as error:  # also one of a caller's own model, which must not end the other tasks
            declined = isinstance(error, SummaryRefused) and not error.later
            said = str(error) or type(error).__name__
            with suppress(StorageError):  # the next entry of the conversation fails with the same reason
                await self._fail(asked.reason, said, declined=declined)
            self._session.log.emit(BackgroundChanged(name, "compaction", "failed", said))
        except BaseException:
            self._session.log.emit(BackgroundChanged(name, "compaction", "killed"))
            raise
        finally:
            finished.set()

    async def _log(self, taking: CutRange, signed: SignedSummary, reason: str, calls: int, cost: float | None) -> None:
        prepared = {
            "method": "provider",
            "block": dict(signed.block),
            "covers": dict(signed.covers),
            "last_before": taking.cut[-1].uuid,
            "calls": calls,
            "cost_usd": cost,
        }
        await self._session.log.decide(CompactionPrepared(Cause(_LAYER, reason), prepared))

    async def _fail(self, reason: str, error: str, *, declined: bool = False) -> None:
        await self._session.log.decide(CompactionFailed(Cause(_LAYER, reason), error, declined))
        self._session.log.emit(FellBack(self._session.log.name, "compact in the background", error))

    # -- by the caller's own request

    async def request(self, asked: CompactionRequest) -> dict[str, Any] | None:
        """Return a request for a summary that the caller sends; None if one is running or waits."""
        if self.is_running or self._session.log.view.facts.prepared is not None:
            return None
        self._finished = finished = anyio.Event()
        try:
            taking, request, covers = await self._draft.provider_request(asked)
            self._asked = taking, covers, anyio.current_time()
            return {**request, "max_tokens": min(request["max_tokens"], _UNSTREAMED_TOKENS)}
        except CompactionError:
            return None
        finally:
            if self._asked is None:
                finished.set()

    async def reply(self, reply: Mapping[str, Any] | BaseException) -> bool:
        """Take the reply to that request, or the error in its place; return whether the next request has a summary."""
        asked, self._asked = self._asked, None
        if asked is None or self._finished is None:
            raise CompactionError("no summary was asked for: call background_request() first")
        reason = "asked for in the background"
        try:
            if isinstance(reply, BaseException):
                said = f"the request failed: {reply or type(reply).__name__}"
                await self._fail(reason, said, declined=isinstance(reply, ModelRefused))
                return False
            cost = await self._session.record_call(reply, source=_LAYER)
            block = signed_block(reply)
            if block is None:
                await self._fail(reason, f"the reply stopped with {reply.get('stop_reason')!r}", declined=True)
                return False
            await self._log(asked[0], SignedSummary(block, asked[1]), reason, 1, cost)
            return True
        finally:
            self._finished.set()

    # -- before a request

    async def report(self, asked: CompactionRequest) -> CompactionReport | None:
        """Return the compaction that waits, ready to be applied; None, after logging it, if it no longer fits."""
        prepared = self._session.log.view.facts.prepared
        if prepared is None:
            return None
        found = prepared.compaction
        try:
            taking = self._covered(found)
            signed = SignedSummary(found.get("block") or {}, found.get("covers") or {})
            return await self._draft.swapped(asked, taking, signed, int(found.get("calls") or 0), found.get("cost_usd"))
        except CompactionError as error:
            await self._fail(prepared.cause.reason, str(error))
            return None

    def _covered(self, prepared: Mapping[str, Any]) -> CutRange:
        """Return the range that a summary covers; raise ``CompactionError`` if the conversation's front changed."""
        items = self._session.log.view.items_in_view()
        last = next((at for at, item in enumerate(items) if item.uuid == prepared.get("last_before")), None)
        if last is not None:
            taking = CutRange(items, 0, last + 1)
            if parts_tool_changes(taking):
                raise CompactionError("the tools were changed since its request, so the summary is not used")
            covers: Mapping[str, Any] = prepared.get("covers") or {}
            if self._draft.summaries.covers(taking)["states"] == covers.get("states"):
                return taking
        raise CompactionError("the conversation changed while its summary was written, so the summary is not used")
