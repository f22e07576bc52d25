"""The agent as the query loop sees it: its model, limits, attachments and background work."""

from __future__ import annotations

from typing import Any

from ...events import FellBack
from ...model_facts import facts_of
from ...ports import Model
from ...text.counts import dollars
from ...values import record
from ..session.limits import EDITING_BETA
from .parts import AgentParts
from .team.relay import Relay


@record
class QueryEnd:
    """The end of a query: one of the names in requirement Q6, such as ``completed``, and a detail for people."""

    end: str
    detail: str = ""


class AgentHost:
    """The model, the limits and the work around each turn, made from an agent's parts and its relay."""

    def __init__(self, parts: AgentParts, relay: Relay | None) -> None:
        self.has_fallen_back = False
        """Whether the fallback model already replaced the model of the settings."""
        self._absent: Model | None = None
        self.parts = parts
        self._relay = relay

    def request_options(self) -> dict[str, Any]:
        """Return the arguments of ``Session.prepare`` as a dict: model, output limit, system prompt and tools.

        Where the model checks thinking, or the session has such thinking, they allow the provider to clear old results
        if it can be sent the beta.
        """
        parts = self.parts
        options: dict[str, Any] = {
            "model": parts.model.model_id,
            "max_tokens": parts.max_tokens,
            "system": parts.system,
            "tools": parts.runs.declared,
        }
        facts = facts_of(parts.model.model_id, parts.options.settings.models)
        binds = facts.checks_thinking or parts.session.parts.thinking.binds
        if binds and parts.model.capabilities.context_management:
            options["betas"] = [EDITING_BETA]
        return options

    def raised_limit(self) -> int | None:
        """Return a larger output limit in tokens; None if settings, model or free window allow none."""
        parts = self.parts
        wanted = parts.options.settings.agent.max_tokens_raised
        known = facts_of(parts.model.model_id, parts.options.settings.models)
        most = parts.model.capabilities.max_output or known.max_output_tokens
        left = parts.thresholds().window - parts.session.view.token_count.tokens
        raised = min(wanted, most, left)
        return raised if raised > parts.max_tokens else None

    def fall_back(self, why: str, *, for_query: bool = False) -> bool:
        """Switch to the fallback model, once until ``Agent.use_model`` is called; return whether it happened.

        With ``for_query`` the next query asks the first model again.
        """
        parts = self.parts
        spare = parts.options.settings.fallback_model
        if spare is None or self.has_fallen_back:
            return False
        self.has_fallen_back = True
        before, self._absent = parts.model, parts.model if for_query else None
        parts.use_model(parts.models.open(spare))
        parts.events.emit(FellBack(parts.options.name, "model", f"{before.name} {why}; {parts.model.name} is asked"))
        return True

    def early_end(self, turns: int) -> QueryEnd | None:
        """Return the query's end if the agent approved a shutdown, or if a limit is reached; otherwise None."""
        options = self.parts.options
        if self._relay is not None and self._relay.shutdown_by:
            return QueryEnd("completed", f"it approved the request of {self._relay.shutdown_by} to end")
        if turns >= options.max_turns:
            return QueryEnd("max_turns", f"{turns} turns were taken, and no more are allowed")
        over = options.lineage.over_limit() if options.lineage is not None else ""
        if over:
            return QueryEnd("budget", over)
        spent = self.parts.events.meter.cost_usd or 0.0
        if options.budget_usd is not None and spent >= options.budget_usd:
            return QueryEnd("budget", f"{dollars(spent)} of {dollars(options.budget_usd)} is spent")
        if over := self.parts.budgets.over(self.parts.session.log.clock()):
            return QueryEnd("budget", over)
        return None

    async def begin_query(self, prompt: str) -> None:
        """Start to recall memories and to ask for the limits of the model, and attach new context."""
        self.let_go()
        if self._absent is not None and self.has_fallen_back:
            self.parts.use_model(self._absent)
            self._absent, self.has_fallen_back = None, False
        self.parts.tasks.start_soon(self.parts.ask_limits)  # beside the first request: a long query needs them
        if self._relay is not None:
            self._relay.shutdown_by = ""
        if self.parts.memory is not None and prompt:
            self.parts.memory.recall.start(prompt)
        self.parts.standing.begin_query()
        await self.add_attachments()

    async def add_attachments(self) -> None:
        """Take over edits of the plan, and attach messages of agents and recalled memories."""
        runs = self.parts.runs
        await self.parts.session.parts.plan.adopt()
        touched, runs.touched = runs.touched, set()
        self.parts.standing.after_tools(touched)
        if self._relay is not None:
            await self._relay.deliver()
        if self.parts.memory is not None:
            await self.parts.memory.recall.surface()

    def keep_warm(self) -> None:
        """Keep the cache warm until the next request: while tools run, a question waits, or the user is away."""
        if self.parts.options.lineage is None:  # an agent's cache is not kept warm for its leader
            self.parts.idle_cache.start(self.parts.model, lambda: self.early_end(0) is None)

    def let_go(self) -> None:
        """Keep the cache warm no longer, because a request follows."""
        self.parts.idle_cache.stop()

    async def end_query(self) -> None:
        """Start in the background: extraction of memories, a dream if due."""
        if self.parts.memory is not None:
            await self.parts.memory.end_query()
