"""The protocol through which layers, forks and background work use a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
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
    from .patience import Patience
    from .thinking import BranchThinking

__all__ = ["SessionPort"]

T = TypeVar("T")


class SessionPort(Protocol):
    """The part of a session that its layers, its forks and its background work may use."""

    @property
    def name(self) -> str:
        """The session's name."""
        ...

    @property
    def view(self) -> View:
        """The current view: the messages that the next request would show the model."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings in force; a flag provider may change them between requests."""
        ...

    @property
    def clock(self) -> Callable[[], float]:
        """The function that returns the time in seconds."""
        ...

    @property
    def thresholds(self) -> Thresholds:
        """The token thresholds of the window of the model in use."""
        ...

    @property
    def model(self) -> Model | None:
        """The model that writes notes and summaries, if there is one."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """The rules and limits of the model in use."""
        ...

    @property
    def hooks(self) -> Hooks | None:
        """The hooks that run around a compaction, if there are any."""
        ...

    @property
    def request_extras(self) -> Mapping[str, Any]:
        """The arguments of the last request beside its body: headers, betas, timeouts."""
        ...

    @property
    def messages_only(self) -> bool:
        """Whether a host sends only the messages of requests, so that it declares prompt and tools itself."""
        ...

    @property
    def patience(self) -> Patience:
        """The wait for side questions when the session closes."""
        ...

    async def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Log one entry and return it; it is durable and in the view when this returns."""
        ...

    async def decide(self, decision: Decision) -> Entry:
        """Log one decision and return its entry; it is durable and in the view when this returns."""
        ...

    async def attach(self, content: str | list[dict[str, Any]], *, type: str = "note") -> Entry:
        """Log an attachment: content that the program, not the user, adds for the model."""
        ...

    async def foresee(self, decision: Decision) -> View:
        """Return the view as a decision would leave it, without logging the decision."""
        ...

    def emit(self, event: Event) -> None:
        """Send an event to every listener of the session."""
        ...

    async def run_blocking(self, act: Callable[[], T]) -> T:
        """Run a function in a worker thread, or here if the storage never blocks, and return its result."""
        ...

    def mark_fork(self, view: View, messages: Sequence[Message]) -> BreakpointPlan:
        """Return the cache breakpoints of messages of a fork of this view without recording them."""
        ...

    def branch_thinking(self, view: View, facts: ModelFacts) -> BranchThinking | None:
        """Return the check of thinking in a fork of this view; None if a model with these facts does not check."""
        ...

    async def record_call(self, reply: Mapping[str, Any], *, source: str) -> float | None:
        """Log a call outside the conversation, also in the ledger; return its cost in USD, None if unknown."""
        ...
