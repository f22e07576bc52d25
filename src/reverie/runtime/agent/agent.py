"""A whole agent: a model, tools, permissions and a session, behind one door."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ...errors import InputError, SessionError
from ...events import Event, FellBack, Listener
from ...ports import Model, Started
from ...settings import Mode
from ..session.limits import compact_at, max_output_tokens, window_tokens
from .loop import Prompt, QueryEnd, QueryRun, run_query
from .models import fitted, fitting
from .parts import Assembled
from .status import Status
from .team.relay import Relay
from .team.roster import AgentStatus

__all__ = ["Agent"]


class Agent(Assembled):
    """Answers prompts with tools, in a session that is kept."""

    # -- what a user does

    async def ask(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Answer a prompt: yield every event in its order, ``QueryEnded`` last.

        An agent that is not open is opened for this one prompt and closed after it.
        """
        if self._stack is None:
            async with self, aclosing(self.ask(prompt)) as events:
                async for event in events:
                    yield event
            return
        if self._asking:
            raise SessionError("this agent is answering already: wait for QueryEnded, or interrupt() it")
        self._asking = True
        self._heard.clear()
        try:
            run = QueryRun(self.session, self, self.runs, self._hooks, self._interrupt, self._hear, self._since)
            async with aclosing(run_query(run, prompt)) as events:
                async for event in events:
                    yield event
        finally:
            self._asking = False

    def listen(self, listener: Listener) -> None:
        """Call this with every event at the moment it happens."""
        self._listeners.append(listener)

    def interrupt(self) -> None:
        """End the running query with what it has done so far."""
        self._interrupt.ask()

    async def use_model(self, name: str) -> None:
        """Ask another model from the next request on."""
        self._fell_back = False
        self._turn_to(self._models.opened(name))

    def _turn_to(self, model: Model) -> None:
        """Let a model answer, and write notes, summaries and memories, from now on."""
        self.model = model
        self.max_tokens = fitting(self.settings.agent.max_tokens, self.model)
        self.session.settings = fitted(self.settings, self.model)
        self.session.use_model(model)
        if self.remembering is not None:
            self.remembering.use_model(model)

    @property
    def mode(self) -> Mode:
        """What tools may do without asking."""
        return self.runs.mode if self._stack is not None else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if self._stack is not None:
            self.runs.mode = mode
            if self.relaying is not None:
                self.relaying.narrow(mode)

    def status(self) -> Status:
        """Say where the agent stands."""
        tokens = self.session.view.counted.tokens
        window = self._window_tokens()
        full = compact_at(self.model.model_id, self.session.settings)
        return Status(
            model=self.model.name,
            mode=self.mode,
            tokens=tokens,
            window=window,
            window_percent=min(100, round(100 * tokens / max(1, window))),
            to_compaction=max(0, full - tokens),
            cache_share=self._meter.cache_share,
            cost_usd=self._meter.cost_usd,
            background=tuple(f"{what} {detail}".strip() for what, detail in self._meter.background.items()),
            agents=sum(one.state == "running" for one in self.agents()),
        )

    # -- agents of this one

    async def spawn(
        self,
        prompt: str,
        *,
        kind: str = "",
        description: str = "",
        background: bool = False,
        worktree: bool = False,
        model: str = "",
    ) -> Started:
        """Start an agent of a type, or a fork of this conversation where none is named; wait for it unless it runs in
        the background, in which case its result enters the conversation at the next round."""
        return await self._relay().spawning.start(
            prompt, kind=kind, description=description, background=background, worktree=worktree, model=model
        )

    def agents(self) -> list[AgentStatus]:
        """Say how the agents that were started here stand, those they started among them."""
        return self.relaying.spawning.statuses() if self._stack is not None and self.relaying is not None else []

    async def stop_agent(self, agent: str) -> str:
        """Stop an agent and all it started, and say how it ended."""
        return await self._relay().spawning.stop(agent)

    async def wait_agent(self, agent: str) -> AgentStatus:
        """Wait for an agent's end and say how it came out."""
        return await self._relay().spawning.wait(agent)

    def _relay(self) -> Relay:
        if self._stack is None:
            raise SessionError("this agent is not open: use it in 'async with'")
        if self.relaying is None:
            raise InputError("agents are switched off here (switches.relay), or the model's window is too small")
        return self.relaying

    def _relays(self) -> Relay | None:
        return Relay(self) if self.settings.switches.relay else None

    # -- what the loop asks (Seat)

    def opening(self) -> dict[str, Any]:
        """Return what every request opens with."""
        model = self.model.model_id
        return {"model": model, "max_tokens": self.max_tokens, "system": self._system, "tools": self._declared}

    def raised_limit(self) -> int | None:
        """Return the larger limit for replies, as far as model and window allow one."""
        most = self.model.capabilities.max_output or max_output_tokens(self.model.model_id)
        left = self._window_tokens() - self.session.view.counted.tokens
        raised = min(self.settings.agent.max_tokens_raised, most or self.settings.agent.max_tokens_raised, left)
        return raised if raised > self.max_tokens else None

    def fall_back(self) -> bool:
        """Let the fallback model answer, once."""
        spare = self.settings.fallback_model
        if spare is None or self._fell_back:
            return False
        self._fell_back = True
        before = self.model.name
        self._turn_to(self._models.opened(spare))
        self._hear(FellBack(self.name, "model", f"{before} declined; {self.model.name} is asked"))
        return True

    def out_of_bounds(self, turns: int) -> QueryEnd | None:
        """Say whether turns or money have run out."""
        if turns >= self._max_turns:
            return QueryEnd("max_turns", f"{turns} turns were taken, and no more are allowed")
        over = self.lineage.over_limit() if self.lineage is not None else ""
        if over:
            return QueryEnd("budget", over)
        spent = self._meter.cost_usd or 0.0
        if self._budget_usd is not None and spent >= self._budget_usd:
            return QueryEnd("budget", f"${spent:.2f} of ${self._budget_usd:.2f} is spent")
        return None

    async def begin(self, prompt: str) -> None:
        """Attach what has changed since the last prompt, and begin to look for memories."""
        if self.remembering is not None:
            self.remembering.look(prompt)
        await self.around.refresh()
        await self.attachments()

    async def attachments(self) -> None:
        """Attach what the turn calls for."""
        touched, self.runs.touched = self.runs.touched, set()
        await self.around.attach(touched)
        if self.relaying is not None:
            await self.relaying.deliver()
        if self.remembering is not None:
            await self.remembering.surface()

    async def completed(self) -> None:
        """Let what was said become memories, behind the conversation."""
        if self.remembering is not None:
            await self.remembering.completed()

    def cost_usd(self) -> float | None:
        """Return what the session has cost so far."""
        return self._meter.cost_usd

    def used(self) -> tuple[int, float | None]:
        """Return the tokens and the money that all calls of this session used."""
        usage = self._meter.usage
        return usage.input + usage.output, self._meter.cost_usd

    def emit(self, event: Event) -> None:
        """Tell whoever listens something that happened around this agent."""
        self._hear(event)

    def _window_tokens(self) -> int:
        return window_tokens(self.model.model_id, self.session.settings)
