"""One agent's relay: the spawner of its own agents, and the mailbox for messages."""

from __future__ import annotations

from collections.abc import Callable

from anyio import Event, Lock, create_task_group, to_thread

from ....conversation.plans import Plan
from ....errors import ReverieError
from ....events import FellBack, UserMessaged
from ....layers.l7_relay import Letter, PlanApprovalRequest, PlanApprovalResponse, control_of, counts
from ...mail.delivery import MAX_CHARS, drain
from ...mail.inbox_bridge import database_bridge
from ...mail.local_queues import MAX_WAITING, LetterQueue, LocalQueues
from ...mail.mailbox import Mailbox
from ...mail.post_office import PostOffice
from ...mail.sockets import MailSocket
from ...mail.stored_mailbox import open_mailbox
from ...places.projects import project_slug, session_key
from ..options import AgentOptions
from ..parts import AgentParts
from .roster import Roster
from .runner import AgentRunner, ChildAgent
from .spawner import Spawner
from .worktrees import prune


class Relay:
    """Starts the sub-agents and forks of one agent, and sends and receives its messages."""

    def __init__(self, parts: AgentParts, make_agent: Callable[[AgentOptions], ChildAgent]) -> None:
        self._parts = parts
        self._options = parts.options
        self._name = parts.options.agent_name
        self.shutdown_by = ""
        """The agent whose request to end this agent approved in the running query; empty if none."""
        self.listing = ""
        """The list of agent types for the first message; empty before ``open`` and for an agent that starts none."""
        lineage = parts.options.lineage
        self.queues = lineage.queues if lineage is not None else LocalQueues()
        self._lead = lineage.lead if lineage is not None else None
        self._mailbox: Mailbox | None = None
        self._queue: LetterQueue | None = None
        self._arrival = Event()
        self._delivery = Lock()
        self._has_letter = False
        """Whether a message came through the socket after the last delivery."""
        roster = lineage.roster if lineage is not None else Roster(parts.options.settings.relay)
        self.spawner = Spawner(
            parts.session,
            AgentRunner(parts, roster, self.queues, make_agent),
            roster,
            depth=lineage.depth if lineage is not None else 0,
            id=lineage.id if lineage is not None else "",
            emit=parts.events.emit,
        )

    async def listing_text(self) -> str:
        """Return the list of the types of agents that this agent can start; empty if there are none."""
        return self.listing

    async def open(self) -> None:
        """Find agent types and start to receive messages; a main agent also removes leftover worktrees."""
        if self._options.lineage is None:
            gone = await to_thread.run_sync(prune, self._options.settings.home)
            if gone:
                self._report(f"worktrees of a process that died were removed: {', '.join(gone)}")
        listed = await self.spawner.open()
        can_start = listed and "Agent" in self._parts.runs.tools
        self.listing = f"Types of agents you can start with the Agent tool:\n{listed}" if can_start else ""
        self._parts.context.agents = self.spawner
        await self._open_post()

    async def _open_post(self) -> None:
        """Accept messages from agents of this process and, for a main agent stored on disk, of other processes."""
        options, policy = self._options, self._options.settings.relay
        try:
            if options.lineage is None and options.storage is None:
                clock = self._parts.session.log.clock
                folder = session_key(project_slug(options.cwd), options.name)
                self._mailbox = await to_thread.run_sync(
                    lambda: open_mailbox(options.settings, policy.team, self._name, session=folder, clock=clock)
                )
                if options.address:
                    await to_thread.run_sync(self._mailbox.acquire)
                if options.settings.database is None:
                    socket = MailSocket(self._mailbox, on_letter=self._on_letter)
                    await self._parts.tasks.start(socket.serve)
                    if socket.problem:
                        self._report(f"{socket.problem}; messages arrive through the mailbox files only")
            self._queue = self.queues.join(self._name, mailbox=self._mailbox, wake=lambda: self._arrival.set())
        except ReverieError as error:
            if options.address:
                if self._mailbox is not None:
                    await to_thread.run_sync(self._mailbox.close)
                raise
            self._report(f"{options.name} cannot receive messages: {error}")
            return
        self._parts.context.post = PostOffice(
            self._name,
            mailbox=self._mailbox,
            queues=self.queues,
            bridge=options.bridge or database_bridge(options.settings, project_slug(options.cwd)),
            max_chars=policy.max_message_chars,
            on_user=self._show_user,
            on_shutdown=self._end_after_approval,
        )

    def _show_user(self, letter: Letter) -> None:
        text = letter.text or ", ".join(f"{key}: {value}" for key, value in (letter.control or {}).items())
        self._parts.events.emit(UserMessaged(self._options.name, letter.sender, text, letter.summary))

    def _end_after_approval(self, requester: str) -> None:
        self.shutdown_by = requester

    async def deliver(self) -> None:
        """Log the results of background agents and new messages, so that the model sees them."""
        await self.spawner.deliver()
        if self._queue is not None:
            await self._deliver_letters(self._queue)

    async def _deliver_letters(self, queue: LetterQueue | None) -> None:
        async with self._delivery:
            self._has_letter = False
            await drain(
                self._parts.session,
                self._mailbox,
                queue=queue,
                lead=self._lead,
                on_control=self._options.on_control,
                can_answer="SendMessage" in self._parts.runs.tools,
                max_chars=min(MAX_CHARS, self._parts.session.parts.offload.policy.aggregate_chars),
            )

    def _on_letter(self) -> None:
        self._has_letter = True
        self.deliver_when_idle()

    def deliver_when_idle(self) -> None:
        """Log a new message of another process if no query runs, so that a person at the prompt sees it."""
        if self._has_letter and not self._parts.events.has_query:
            self._parts.tasks.start_soon(self._deliver_letters, None)

    @property
    def can_ask_lead(self) -> bool:
        """Whether a lead goes on while this agent works, so that it can answer."""
        lineage = self._options.lineage
        return lineage is not None and lineage.background and self._parts.context.post is not None

    async def ask_lead(self, plan: Plan) -> PlanApprovalResponse | None:
        """Send a plan to the lead, wait for the answer and return it; None if the lead cannot be reached.

        The answer stays in the queue, so that the log shows it after the tool's result.
        """
        post, asked = self._parts.context.post, plan.request_id
        control = {"type": "plan_approval_request", "request_id": asked}
        if post is None or self._queue is None or not self._lead:
            return None
        try:
            await post.send(self._lead, plan.text, summary="A plan waits for your approval", control=control)
        except ReverieError as error:
            self._report(f"the plan did not reach {self._lead}: {error}")
            return None
        while True:
            self._arrival = Event()
            for letter in self._queue.poll(MAX_WAITING):
                answer = control_of(letter)
                is_from_lead = counts(letter, self._lead)
                if isinstance(answer, PlanApprovalResponse) and answer.request_id == asked and is_from_lead:
                    return answer
            await self._arrival.wait()

    def plans_to_answer(self) -> list[str]:
        """Return the agents whose plans wait for an answer of this one and have not been shown to its model."""
        letters = self._queue.poll(MAX_WAITING) if self._queue is not None else []
        return [letter.sender for letter in letters if isinstance(control_of(letter), PlanApprovalRequest)]

    async def wait_for_agents(self) -> None:
        """Wait until no agent that this one started runs, or one of them needs an answer to its plan."""
        async with create_task_group() as group:

            async def wait_for_ends() -> None:
                await self.spawner.wait_all()
                group.cancel_scope.cancel()

            group.start_soon(wait_for_ends)
            while not self.plans_to_answer():
                self._arrival = Event()
                await self._arrival.wait()
            group.cancel_scope.cancel()

    async def close(self) -> None:
        """Stop all agents that this agent started, and stop receiving messages."""
        await self.spawner.close()
        if self._queue is not None:
            self.queues.leave(self._name)
        if self._mailbox is not None:
            # A chosen name keeps its mailbox for the next session; a generated name is never used again.
            close = self._mailbox.close if self._options.is_named or self._options.address else self._mailbox.retire
            await to_thread.run_sync(close)

    def _report(self, problem: str) -> None:
        self._parts.events.emit(FellBack(self._options.name, "agents", problem))
