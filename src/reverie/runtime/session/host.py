"""The object through which a session's layers, forks and background work reach the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from anyio import to_thread

from ...cache.breakpoints import BreakpointPlan
from ...conversation.decisions import Decision
from ...conversation.entries import Entry, Message
from ...conversation.tokens.window import Thresholds
from ...conversation.view import View
from ...events import Event
from ...model_facts import ModelFacts
from ...ports import Model
from ...settings import Settings
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
        self._log = log
        self._policy = policy
        self._cache = cache
        self._accounts = accounts
        self._thinking = thinking

    @property
    def name(self) -> str:
        """The session's name."""
        return self._log.name

    @property
    def view(self) -> View:
        """The current view: the messages that the next request would show the model."""
        return self._log.view

    @property
    def settings(self) -> Settings:
        """The session's settings in force; a flag provider may change them between requests."""
        return self._policy.settings

    @property
    def clock(self) -> Callable[[], float]:
        """The function that returns the time in seconds."""
        return self._log.clock

    @property
    def thresholds(self) -> Thresholds:
        """The token thresholds of the window of the model in use."""
        return self._policy.thresholds

    @property
    def facts(self) -> ModelFacts:
        """The rules and limits of the model in use."""
        return self._policy.facts

    @property
    def request_extras(self) -> Mapping[str, Any]:
        """The arguments of the last request beside its body: headers, betas, timeouts."""
        return self._policy.request_extras

    @property
    def messages_only(self) -> bool:
        """Whether a host sends only the messages of requests, so that it declares prompt and tools itself."""
        return self._policy.messages_only

    async def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Log one entry and return it; it is durable and in the view when this returns."""
        return await self._log.append(kind, body)

    async def decide(self, decision: Decision) -> Entry:
        """Log one decision and return its entry; it is durable and in the view when this returns."""
        return await self._log.decide(decision)

    async def attach(self, content: str | list[dict[str, Any]], *, type: str = "note") -> Entry:
        """Log an attachment: content that the program, not the user, adds for the model."""
        return await self._log.attach(content, type=type)

    async def sync(self) -> None:
        """Return when everything logged is on disk; a request and a hook wait for it."""
        await self._log.sync()

    async def foresee(self, decision: Decision) -> View:
        """Return the view as a decision would leave it, without logging the decision."""
        return await self._log.foresee(decision)

    def emit(self, event: Event) -> None:
        """Send an event to every listener of the session; a listener that raises stops nothing."""
        self._log.emit(event)

    async def run_blocking(self, act: Callable[[], T]) -> T:
        """Run a function in a worker thread, or here if the storage never blocks, and return its result."""
        return await self._log.run_blocking(act)

    def mark_fork(self, view: View, messages: Sequence[Message]) -> BreakpointPlan:
        """Return the cache breakpoints of messages of a fork of this view without recording them."""
        return self._cache.mark_fork(view, messages, self.clock())

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
        entry = await self._log.decide(billed.call, sync=False)
        self._log.run_later(lambda: self._accounts.enter(billed, entry.uuid))
        await self._log.sync()
        return billed.call.cost_usd
