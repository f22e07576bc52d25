"""The object through which a session's layers, forks and background work reach the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from anyio import to_thread

from ...cache.breakpoints import BreakpointPlan
from ...conversation.entries import Message
from ...conversation.view import View
from ...model_facts import ModelFacts
from ...ports import Model
from ..guard.hooks import Hooks
from .accounts import Accounts
from .cache_plan import CachePlan
from .log import SessionLog
from .patience import Patience
from .policy import SessionPolicy
from .thinking import BranchThinking, ThinkingWatch

T = TypeVar("T")


class SessionHost:
    """The part of a session that its layers, its forks and its background work may use."""

    def __init__(
        self,
        log: SessionLog,
        policy: SessionPolicy,
        cache: CachePlan,
        accounts: Accounts,
        thinking: ThinkingWatch,
        model: Model | None,
    ) -> None:
        self.model = model
        """The model that writes notes and summaries; without one they are written locally."""
        self.hooks: Hooks | None = None
        self.patience = Patience()
        """The wait for side questions when the session closes."""
        self.log = log
        self.policy = policy
        self._cache = cache
        self._accounts = accounts
        self._thinking = thinking

    def mark_fork(self, view: View, messages: Sequence[Message]) -> BreakpointPlan:
        """Return the cache breakpoints of messages of a fork of this view without recording them."""
        return self._cache.mark_fork(view, messages, self.log.clock())

    def branch_thinking(self, view: View, facts: ModelFacts) -> BranchThinking | None:
        """Return the check of thinking in a fork of this view; None if a model with these facts does not check."""
        return self._thinking.branch(view, facts)

    async def load_prices(self, reply: Mapping[str, Any]) -> None:
        """Load the prices of a reply's model in a worker thread, unless they are cached or not needed."""
        if not self._accounts.knows(reply):
            await to_thread.run_sync(lambda: self._accounts.learn(reply))

    async def record_call(self, reply: Mapping[str, Any], *, source: str) -> float | None:
        """Log a call outside the conversation, also in the ledger; return its cost in USD, None if unknown."""
        await self.load_prices(reply)
        billed = self._accounts.side_call(reply, source=source)
        if billed is None:
            return None
        entry = await self.log.decide(billed.call, sync=False)
        self.log.run_later(lambda: self._accounts.enter(billed, entry.uuid))
        await self.log.sync()
        return billed.call.cost_usd
