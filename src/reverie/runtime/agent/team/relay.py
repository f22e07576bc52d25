"""One agent's side of the relay: what starts its agents, what carries its messages, and what has come back of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from ....errors import ReverieError
from ....events import FellBack
from ....layers.l7_relay import agent_name
from ...mail.delivery import drain
from ...mail.local_queues import LetterQueue, Neighbours
from ...mail.mailbox import Mailbox
from ...mail.post_office import AgentPost
from ...mail.sockets import MailSocket
from .roster import Roster
from .runner import AgentRunner
from .spawner import Spawner
from .worktrees import prune

if TYPE_CHECKING:
    from ..agent import Agent

__all__ = ["Relay"]


class Relay:
    """Agents and messages of one agent."""

    def __init__(self, host: Agent) -> None:
        self._host = host
        self._name = agent_name(host.name)
        """What other agents call this one."""
        self.listing = ""
        """The types of agents, for the first message."""
        lineage = host.lineage
        self.neighbours = lineage.neighbours if lineage is not None else Neighbours()
        self._lead = lineage.lead if lineage is not None else None
        self._mailbox: Mailbox | None = None
        self._queue: LetterQueue | None = None
        starting = AgentRunner(host, self.neighbours)
        self.spawning = starting.spawning = Spawner(
            host.session,
            starting,
            lineage.roster if lineage is not None else Roster(host.settings.relay),
            depth=lineage.depth if lineage is not None else 0,
            id=lineage.id if lineage is not None else "",
            emit=host.emit,
        )

    async def open(self) -> None:
        """Find the types of agents and open the post; the main agent also clears away what dead ones left."""
        host = self._host
        if host.lineage is None:
            gone = await to_thread.run_sync(prune, host.settings.home)
            if gone:
                self._say(f"worktrees of a process that died were removed: {', '.join(gone)}")
        listed = await self.spawning.open()
        self.listing = f"Types of agents you can start with the Agent tool:\n{listed}" if listed else ""
        host.context.agents = self.spawning
        await self._open_post()

    async def _open_post(self) -> None:
        """Let this agent be written to: by those of its process, and where its log is kept, by other processes."""
        host, policy = self._host, self._host.settings.relay
        try:
            if host.lineage is None and host.storage is None:
                home = host.settings.home
                self._mailbox = await to_thread.run_sync(
                    lambda: Mailbox(home, policy.team, self._name, session=host.name, clock=host.session.clock)
                )
                socket = MailSocket(self._mailbox)
                await host.tasks.start(socket.serve)
                if socket.problem:
                    self._say(f"{socket.problem}; messages come by the mailbox alone")
            self._queue = self.neighbours.join(self._name, mailbox=self._mailbox)
        except ReverieError as error:
            self._say(f"{host.name} cannot be written to: {error}")
            return
        host.context.post = AgentPost(
            self._name,
            mailbox=self._mailbox,
            neighbours=self.neighbours,
            bridge=host.bridge,
            max_chars=policy.max_message_chars,
        )

    async def deliver(self) -> None:
        """Show the conversation what has come in since the last round."""
        await self.spawning.deliver()
        if self._queue is not None:
            await drain(
                self._host.session, self._mailbox, queue=self._queue, lead=self._lead, heed=self._host.on_control
            )

    def narrow(self, mode: str) -> None:
        """Let no agent do more without asking than a mode allows."""
        self.spawning.narrow(mode)

    async def close(self) -> None:
        """End all agents, and be written to no more by those of this process."""
        await self.spawning.close()
        if self._queue is not None:
            self.neighbours.leave(self._name)
        if self._mailbox is not None:
            # A name that somebody chose can be written to while nobody is there; one that was drawn is not used again.
            await to_thread.run_sync(self._mailbox.close if self._host.named else self._mailbox.retire)

    def _say(self, what: str) -> None:
        self._host.emit(FellBack(self._host.name, "agents", what))
