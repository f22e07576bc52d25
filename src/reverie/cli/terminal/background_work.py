"""Work that runs in the background when a chat ends: wait for agents, and name everything that is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from anyio import CancelScope

from ..output import counted
from .calls import one_line

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent
    from ...runtime.agent.loop import Prompt


class AnsweredPrompt:
    """Answers one prompt to its end: also the results of agents that work in the background after the first reply."""

    def __init__(self, agent: Agent, wait_seconds: float | None) -> None:
        """Wait for agents that long after the first reply; with None, do not wait and ask nothing more."""
        self._agent = agent
        self._wait_seconds = wait_seconds
        self._waiting = CancelScope()
        self.is_interrupted = False
        """Whether a signal ended the wait for agents."""

    def interrupt(self) -> None:
        """Stop the running query, or the wait for agents."""
        self.is_interrupted = True
        self._agent.interrupt()
        self._waiting.cancel()

    async def run(self, prompt: Prompt, is_complete: Callable[[], bool]) -> None:
        """Ask the agent, wait for its background agents, and let it answer to their results, within the time.

        ``is_complete`` returns whether the last query was completed; after any other end, nothing is waited for.
        """
        await self._ask(prompt)
        if self._wait_seconds is None:
            return
        deadline = time.monotonic() + self._wait_seconds
        while is_complete() and not self.is_interrupted:
            unseen: list[str] = []
            with CancelScope() as self._waiting:
                unseen = await self._agent.wait_agents(max(0.0, deadline - time.monotonic()))
            if not unseen:
                return
            if not self.is_interrupted:
                await self._ask(None)

    async def _ask(self, prompt: Prompt | None) -> None:
        async with aclosing(self._agent.ask(prompt)) as events:
            async for _ in events:  # the listeners handle each event
                pass


def unfinished_lines(agent: Agent) -> list[str]:
    """Return a line for each agent and each background command that still runs and ends with this process."""
    agents = [
        f"agent {one.agent} is stopped before its end, after {counted(one.turns, 'turn')}: {one_line(one.description)}"
        for one in agent.agents()
        if one.state == "running"
    ]
    shells = [
        f"command {name} is stopped before its end: {one_line(shell.command)}"
        for name, shell in agent.parts.context.shells
        if shell.running
    ]
    return agents + shells
