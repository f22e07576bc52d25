"""Layer 1 in a session: move big tool results to disk as they arrive and before a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....conversation.decisions import Collapsed, Compacted, CompactionUndone, ResultsRestored, Snipped
from ....events import DecisionMade, Event, FellBack
from ....layers.l1_offload import (
    Content,
    OffloadPolicy,
    OffloadResult,
    ResultStore,
    SeenResults,
    offload_aggregate,
    offload_result,
    plan_aggregate,
    stays_in_view,
)
from ....model_facts import ModelFacts
from ....ports import Storage
from ..log import SessionLog
from ..replies import result_content
from .images import ImageIntake

_REDRAWS = (Collapsed, Compacted, CompactionUndone, ResultsRestored, Snipped)


class Offloader:
    """Runs layer 1 for one session: on each result as it arrives, and on all results of a message together."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        policy: OffloadPolicy,
        facts: Callable[[], ModelFacts],
        *,
        root: str = "",
    ) -> None:
        """Store results under a session's folder; ``root`` is the directory where a person finds the storage.

        ``facts`` returns the limits of the model in use.
        """
        self.policy = policy
        self.enabled = True
        self._store = ResultStore(storage, folder, root)
        self.images = ImageIntake(self._store, facts)
        self._known = SeenResults()

    def on_event(self, event: Event) -> None:
        """Restart the index of earlier results after a decision that changes which results the view shows."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, _REDRAWS):
            self._known.restart()

    async def result(self, log: SessionLog, tool: str, handle: str, output: Any, max_chars: float | None) -> Content:
        """Move a big result to disk, log the decision about it, and return the content to log as the result."""
        content = await self.images.admitted(log, result_content(output))
        if not self.enabled:
            return content
        given = bytes(output) if isinstance(output, (bytes, bytearray)) else content

        def offload() -> OffloadResult:
            return offload_result(
                self._store, tool, handle, given, self.policy, log.view, declared=max_chars, known=self._known
            )

        stays = stays_in_view(tool, given, self.policy, max_chars)
        await self._log(log, applied := offload() if stays else await log.run_blocking(offload))
        assert applied.content is not None  # only the results of a whole message have none
        return applied.content

    async def before_request(self, log: SessionLog) -> None:
        """Offload results of the message about to be sent until together they fit the budget of a message."""
        if not self.enabled:
            return

        def offload() -> OffloadResult:
            return offload_aggregate(self._store, log.view, self.policy, known=self._known)

        moves = plan_aggregate(log.view, self.policy).offloads
        await self._log(log, await log.run_blocking(offload) if moves else offload())

    async def _log(self, log: SessionLog, applied: OffloadResult) -> None:
        if applied.fallback is not None:
            log.emit(FellBack(log.name, "offload", applied.fallback))
        await log.decide_all(applied.before, sync=False)
