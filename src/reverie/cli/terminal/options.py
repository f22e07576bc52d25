"""The command-line options of ``reverie chat``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...settings import Mode, Settings
from ...values import record

if TYPE_CHECKING:
    from ...events import Listener
    from ...ports import Model
    from ...runtime.agent.agent import Agent
    from ...runtime.guard.permissions import Approver

WAIT_SECONDS: Final = 600.0


@record
class Options:
    """Directory, first prompt, model, session and limits of a chat."""

    cwd: Path
    prompt: str = ""
    reads_messages: bool = False
    """Answer, after the prompt, each user message that stdin has as a line of JSON."""
    model: str | None = None
    script: Model | None = None
    """A model that answers in place of the named one."""
    session: str | None = None
    pick: bool = False
    """Let the user choose a session first."""
    mode: Mode | None = None
    max_turns: int | None = None
    budget_usd: float | None = None
    name: str = ""
    """The name that other agents write to; empty means the session's name."""
    subject: str = ""
    """The user's id of the person that the session is about."""
    wait_seconds: float = WAIT_SECONDS
    """How long a chat without a person waits for background agents."""
    verbose: bool = False
    """Show diagnostics of Reverie itself."""
    approve_plan: Mode | None = None
    """Approve the plan that waits in the session before the prompt, and go on in this mode."""
    is_kept: bool = True
    """The session outlives the chat, so that the end of the chat says how to continue it."""
    listener: Listener | None = None
    """A listener for the events of every agent, such as one that exports telemetry."""

    def agent(self, settings: Settings, *, session: str | None, approve: Approver | None) -> Agent:
        """Create an agent with these options, except that ``session`` replaces the session of the options."""
        from ...runtime.agent.agent import Agent

        agent = Agent(
            model=self.script or self.model,
            cwd=self.cwd,
            session=session,
            settings=settings,
            mode=self.mode,
            approve=approve,
            max_turns=self.max_turns,
            budget_usd=self.budget_usd,
            name=self.name,
            subject=self.subject,
        )
        if self.listener is not None:
            agent.listen(self.listener)
        return agent
