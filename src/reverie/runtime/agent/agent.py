"""A whole agent: a model, tools, permissions and a session behind one class."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from math import ceil
from pathlib import Path
from typing import Any, Final, cast

from anyio import move_on_after

from ...arguments import check_callable
from ...conversation.entries import new_uuid
from ...conversation.plans import Plan
from ...conversation.tokens.estimate import estimate_request
from ...conversation.wire.blocks import text_block
from ...errors import InputError, ReverieError, SessionError, WindowFull
from ...events import Event, FellBack, Listener
from ...layers.l7_relay import check_agent_name, narrower
from ...ports import AgentRequest, Model, StartedAgent, Storage
from ...settings import Mode, Settings
from ...tools import relay_tools
from ...tools.tool import Tool
from ...values import replace
from ..guard.permissions import Approver, check_mode
from ..mail.delivery import ControlHandler
from ..mail.post_office import Bridge
from ..memory.session import Session
from ..places.projects import existing_directory
from ..places.storage import given_settings
from ..session.replies import Call
from ..session.standing_context import ContextSource
from .answers import Answer, AnswerTurns, EventFeed, in_own_task
from .context_sources import FileSource, TextSource
from .host import AgentHost
from .interrupt import Interrupt, heeding_stops
from .loop import Prompt, QueryRun, run_query
from .options import AgentOptions
from .parts import AgentParts, has_small_window, open_parts, program_texts
from .plan import PlanApproval, PlanModeSource, granted_mode
from .running_work import RunningAgents, RunningShells
from .servers import open_servers
from .status import Status
from .team.relay import Relay
from .team.roster import AgentStatus

_CONVERSATION: Final = 0.25
"""The share of the effective window that a summary and the newest messages need beside the opening."""
_OPENING: Final = 0.54
"""The share of a small window that the opening may take: all of it but the output reserve and the conversation."""
NO_AGENTS: Final = "agents are switched off (switches.relay), or the model's window is too small"


class Agent:
    """A model with tools and permissions that answers prompts and keeps the conversation in a session."""

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        cwd: str | Path = ".",
        session: str | None = None,
        settings: Settings | None = None,
        storage: Storage | None = None,
        tools: Sequence[Tool] | None = None,
        system: str | None = None,
        mode: Mode | None = None,
        approve: Approver | None = None,
        hooks: Mapping[str, Sequence[Callable[..., Any]]] | None = None,
        max_turns: int | None = None,
        budget_usd: float | None = None,
        clock: Callable[[], float] = time.time,
        bridge: Bridge | None = None,
        on_control: ControlHandler | None = None,
        name: str = "",
        subject: str = "",
    ) -> None:
        """Prepare an agent without opening it; a model, mode or limit left out comes from the settings.

        ``bridge`` carries messages to ``bridge:<id>``; ``on_control`` is called with control messages that this
        agent must obey, such as a request to shut down. ``name`` is the name that other agents write to, by default
        the session's; opening the agent raises an error if another running agent has it. ``subject`` is your id of
        the person that the session is about, by which ``reverie delete --subject`` finds it.
        """
        place = existing_directory(cwd)
        known = given_settings(settings, place, storage)
        check_callable("clock", clock)
        options = AgentOptions(
            model=model if model is not None else known.model,
            cwd=place,
            name=session or new_session_name(clock()),
            is_named=session is not None,
            settings=known,
            storage=storage,
            tools=tools,
            system=system,
            mode=mode or known.permissions.mode,
            is_mode_given=mode is not None,
            approve=approve,
            hooks=hooks if hooks is not None else {},
            max_turns=max_turns if max_turns is not None else known.agent.max_turns,
            budget_usd=budget_usd if budget_usd is not None else known.agent.budget_usd,
            clock=clock,
            bridge=bridge,
            on_control=on_control,
            address=check_agent_name(name) if name else "",
            subject=subject,
        )
        self._set_up(options.checked())

    @classmethod
    def from_options(cls, options: AgentOptions) -> Agent:
        """Return an unopened agent with options whose defaults are filled in, such as those of a sub-agent."""
        agent = cls.__new__(cls)
        agent._set_up(options)
        return agent

    def _set_up(self, options: AgentOptions) -> None:
        self._options = options
        self._events = EventFeed()
        self._interrupt = Interrupt()
        self._answers = AnswerTurns()
        self.next_prompt: Callable[[], str | None] = lambda: None
        """Called after each round of tools and before a query ends: takes a prompt that the user sent meanwhile."""
        self._stack: AsyncExitStack | None = None
        self._parts: AgentParts | None = None
        self._relay: Relay | None = None
        self._host: AgentHost | None = None
        self._plan: PlanApproval | None = None

    # -- opening and closing

    async def __aenter__(self) -> Agent:
        if self._stack is not None:
            raise SessionError("this agent is open already")
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                self._stack = stack.pop_all()
        except ExceptionGroup as group:  # the task group wraps an error of the opening
            error = group.exceptions[0]
            raise error if len(group.exceptions) == 1 and isinstance(error, ReverieError) else group from None
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._answers.close()
        await self._close()

    async def _close(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        options = self._options
        self._parts = parts = await open_parts(options, self._events, stack)
        parts.session.listen(self._interrupt.on_event)
        if not options.is_mode_given:
            parts.runs.mode = granted_mode(parts.session.view, options.mode)
            self._options = replace(options, mode=parts.runs.mode)
        has_room = options.tools is not None or not has_small_window(parts.session)
        self._relay = relay = Relay(parts, Agent.from_options) if options.settings.switches.relay and has_room else None
        if relay is None and options.address:
            raise InputError(f"no agent can write to {options.address} here: {NO_AGENTS}")
        self._host = AgentHost(parts, relay)
        if relay is not None:
            if options.tools is None:
                parts.runs.add(relay_tools())
            await relay.open()
        about_servers = await open_servers(parts, stack)
        parts.session.parts.program = program_texts(parts)
        await parts.standing.enter([*self._sources(), *about_servers], self._check_opening)
        lineage = options.lineage
        self._plan = parts.context.plan = PlanApproval(
            parts.session.parts.plan,
            parts.runs,
            set_mode=self._leave_plan_mode,
            ask_lead=relay.ask_lead if relay is not None and relay.can_ask_lead else None,
            mode_of_lead=lineage.lead_mode if lineage is not None else lambda: "default",
        )
        stack.push_async_callback(parts.context.aclose)
        stack.push_async_callback(self._wind_down)

    def _sources(self) -> list[ContextSource]:
        """Return the sources of standing context about mode, other agents, background commands, files and memory."""
        lineage = self._options.lineage
        found = list[ContextSource]([PlanModeSource(self.parts.runs, has_lead=lineage is not None)])
        if self._relay is not None:
            found.append(TextSource("listing:agents", "the list of types of agents", self._relay.listing_text))
            found.append(RunningAgents())
        found.append(RunningShells(self.parts.context.shells))
        found.append(FileSource(self.parts.context, self._options.settings.compact.restore_files))
        if self.parts.memory is not None:
            found += self.parts.memory.context.sources()
        elif lineage is not None and lineage.memory is not None:
            lineage.memory.view = lambda: self.session.view
            half = self.session.thresholds.effective // 2
            found.append(lineage.memory.source(half, lambda why: self._events.emit(FellBack(self.name, "memory", why))))
        return found

    def _check_opening(self, context: str) -> None:
        """Raise ``WindowFull`` if a window cannot hold system prompt, tools, context and a short conversation."""
        parts = self.parts
        at = parts.thresholds()
        sizes = {
            "system prompt": estimate_request([], system=parts.system),
            "tools": estimate_request([], tools=parts.runs.declared),
            "context": estimate_request([{"role": "user", "content": context}]) if context else 0,
        }
        tokens = sum(sizes.values())
        if tokens + int(_CONVERSATION * at.effective) < at.blocking:
            return
        least = ceil(tokens / _OPENING / 1_000) * 1_000
        shown = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise WindowFull(
            f"the agent's opening needs about {tokens:,} tokens ({shown}), too many for a conversation in the window "
            f"of {parts.model.name}, {at.window:,}: use a model with at least {least:,}, fewer tools, a shorter system "
            "prompt or shorter instruction files",
            tokens=tokens,
            limit=at.blocking,
        )

    async def _wind_down(self) -> None:
        """Stop agents that this one started, finish memory writes, run the end hooks, cancel all other tasks."""
        parts = self.parts
        try:
            await parts.session.parts.plan.note_mode(self.mode)
            if self._relay is not None:
                await self._relay.close()
            if parts.memory is not None:
                await parts.memory.close()
            await parts.standing.leave()
        finally:
            parts.tasks.cancel_scope.cancel()

    # -- answering

    def ask(self, prompt: Prompt | None) -> AsyncGenerator[Event, None]:
        """Answer a prompt; yield the query's events in order, ``QueryEnded`` last, and do nothing until iterated.

        With None, the model answers to results and messages of agents that arrived since its last reply.
        An agent that is not open is opened for this prompt and closed after it. A caller may leave the loop at any
        event: the query ends there. Raise ``SessionError`` while another prompt is being answered.
        """
        answer = Answer(self._interrupt.requests)
        events = self._answer(prompt, answer)
        answer.follow(events)
        return events

    async def _answer(self, prompt: Prompt | None, answer: Answer) -> AsyncGenerator[Event, None]:
        await self._answers.begin(answer)
        try:
            if self._stack is None:
                found = in_own_task(lambda: self._open_and_query(prompt, answer))
            else:
                found = self._query(prompt, answer)
            async with aclosing(found) as events:
                async for event in events:
                    yield event
        finally:
            self._answers.end(answer)

    async def _open_and_query(self, prompt: Prompt | None, answer: Answer) -> AsyncGenerator[Event, None]:
        await self.__aenter__()
        try:
            async with aclosing(self._query(prompt, answer)) as events:
                async for event in events:
                    yield event
        finally:
            await self._close()

    async def _query(self, prompt: Prompt | None, answer: Answer) -> AsyncGenerator[Event, None]:
        assert self._host is not None
        self._events.start_queue()
        self._interrupt.begin(answer.interrupts)
        parts = self.parts
        await parts.session.parts.plan.note_mode(self.mode)
        run = QueryRun(
            parts.session, self._host, parts.runs, parts.hooks, self._interrupt, self._events, self.next_prompt
        )
        try:
            heeding = heeding_stops(parts.session, parts.tasks, self._interrupt)
            async with heeding, aclosing(run_query(run, prompt)) as events:
                async for event in events:
                    yield event
        finally:
            if parts.memory is not None and (run.end is None or run.end.end == "aborted"):
                parts.memory.recall.cancel()
            self._events.stop_queue()
            if self._relay is not None:
                self._relay.deliver_when_idle()

    async def attach_file(self, path: str) -> str:
        """Show a file or an image to the model before the next prompt, as its tool Read would; it may edit it then.

        Return an empty text, or the reason why the file was not attached, such as a rule that denies it.
        """
        parts = self.parts
        output = await parts.runs.output(Call("attached", "Read", {"file_path": path}))
        if output.is_error:
            return output.text
        head = f"The user attached {path}:"
        content = (
            f"{head}\n{output.content}" if isinstance(output.content, str) else [text_block(head), *output.content]
        )
        session = parts.session
        shown = await session.parts.offload.images.admitted(session.log, content)
        await session.log.attach(shown, type="file", files=output.files)
        parts.runs.touched.update(output.read)
        return ""

    def listen(self, listener: Listener) -> None:
        """Register a function to call with every event as soon as it happens; its exceptions are ignored."""
        check_callable("listener", listener)
        self._events.listeners.append(listener)

    def interrupt(self) -> None:
        """Ask the running query to stop, without waiting; everything it did so far stays in the log."""
        self._interrupt.request()

    async def use_model(self, name: str, *, check: bool = False) -> None:
        """Use the model with this name or alias from the next request on; the agent must be open.

        With ``check``, raise ``ModelError`` and change nothing if its provider does not have it or rejects the key.
        """
        parts = self.parts
        model = await parts.models.checked(name) if check else parts.models.open(name)
        if self._host is not None:
            self._host.has_fallen_back = False
        parts.use_model(model)
        await parts.session.parts.tell_change(parts.session.log, parts.model.model_id)

    # -- state

    @property
    def name(self) -> str:
        """The name of the agent's session."""
        return self._options.name

    @property
    def cwd(self) -> Path:
        """The working directory of the agent."""
        return self._options.cwd

    @property
    def settings(self) -> Settings:
        """The settings that the agent was made with."""
        return self._options.settings

    @property
    def parts(self) -> AgentParts:
        """The parts of the open agent (session, model, tools); raises ``SessionError`` before it is opened."""
        if self._parts is None:
            raise SessionError("this agent is not open: use it in 'async with'")
        return self._parts

    @property
    def session(self) -> Session:
        """The session that holds the conversation; raises ``SessionError`` before the agent is opened."""
        return self.parts.session

    @property
    def model(self) -> Model:
        """The model that answers now; raises ``SessionError`` before the agent is opened."""
        return self.parts.model

    @property
    def mode(self) -> Mode:
        """The permission mode: how much tools may do without asking; setting it also restricts sub-agents."""
        return self._options.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        check_mode(mode)
        self._options = replace(self._options, mode=mode)
        if self._stack is not None:
            self.parts.runs.mode = mode
            self.session.parts.standing.refresh()
            if self._relay is not None:
                self._relay.spawner.narrow(mode)

    def status(self) -> Status:
        """Return the figures of the open agent for a footer: window, cost, cache share, background work."""
        parts, meter = self.parts, self._events.meter
        tokens = parts.session.view.token_count.tokens
        at = parts.thresholds()
        return Status(
            model=parts.model.name,
            mode=self.mode,
            tokens=tokens,
            window=at.window,
            window_percent=min(100, round(100 * tokens / max(1, at.window))),
            to_compaction=max(0, at.auto_compact - tokens),
            level=at.level(tokens),
            cache_share=meter.cache_share,
            cost_usd=meter.cost_usd,
            background=(*meter.running, *parts.context.shells.running),
            agents=sum(one.state == "running" for one in self.agents()),
            cleared=parts.session.view.token_count.cleared_tokens,
            plan=self.plan.state if self.plan is not None else "",
        )

    # -- the plan

    @property
    def plan(self) -> Plan | None:
        """The plan of the session, with its state and text; None if there never was one."""
        return self.session.parts.plan.plan

    @property
    def plan_path(self) -> str:
        """The path of the plan's file, whose edits by the user are taken over."""
        return self.session.parts.plan.path

    async def approve_plan(self, mode: Mode = "default", words: str = "") -> Plan:
        """Approve the plan that waits, with the edits of its file, and leave plan mode for ``mode``; return the plan.

        The model reads ``words``. Raise ``InputError`` if no plan waits.
        """
        return await self._open_plan().approve(mode, words)

    async def reject_plan(self, words: str = "") -> Plan:
        """Reject the plan that waits, with words for the model, and return it; raise ``InputError`` if none waits."""
        return await self._open_plan().reject(words)

    async def end_plan(self) -> Plan:
        """Drop the open plan, done or not, and return it; raise ``InputError`` if there is none."""
        return await self._open_plan().end()

    def _open_plan(self) -> PlanApproval:
        if self._plan is None:
            raise SessionError("this agent is not open: use it in 'async with'")
        return self._plan

    def _leave_plan_mode(self, mode: Mode) -> None:
        """Set the mode that follows an approval; a sub-agent's never allows more than that of its lead."""
        lineage = self._options.lineage
        self.mode = mode if lineage is None else cast("Mode", narrower(mode, lineage.lead_mode()))

    # -- other agents

    async def spawn(
        self,
        prompt: str,
        *,
        kind: str = "",
        description: str = "",
        background: bool = False,
        worktree: bool = False,
        model: str = "",
    ) -> StartedAgent:
        """Start a sub-agent of the type ``kind``, or a fork of this conversation if ``kind`` is empty.

        Wait for its result, unless it runs in the background: then the result enters the conversation later.
        """
        request = AgentRequest(prompt, kind, description, background, worktree, model)
        return await self._open_relay().spawner.start(request)

    def agents(self) -> list[AgentStatus]:
        """Return the state of every agent of this team, running or ended; empty if this agent is not open."""
        return self._relay.spawner.statuses() if self._stack is not None and self._relay is not None else []

    async def stop_agent(self, agent: str) -> str:
        """Stop the agent with this id and every agent it started; return a sentence about its end."""
        return await self._open_relay().spawner.stop(agent)

    async def wait_agent(self, agent: str) -> AgentStatus:
        """Wait until the agent with this id ends, and return its state and usage."""
        return await self._open_relay().spawner.wait(agent)

    async def wait_agents(self, timeout_seconds: float | None = None) -> list[str]:
        """Wait until no agent of this one runs, one needs an answer to its plan, or the time is over.

        Return the ids of those with unseen results or plans: the model sees them with the next prompt, or at once with
        ``ask(None)``.
        """
        if self._relay is None:
            return []
        with move_on_after(timeout_seconds):
            await self._relay.wait_for_agents()
        return self.unseen_agents

    @property
    def unseen_agents(self) -> list[str]:
        """The ids of agents whose result or plan waits for the model: it sees them with the next prompt."""
        return [] if self._relay is None else [*self._relay.spawner.unseen, *self._relay.plans_to_answer()]

    def _open_relay(self) -> Relay:
        if self._stack is None:
            raise SessionError("this agent is not open: use it in 'async with'")
        if self._relay is None:
            raise InputError(NO_AGENTS)
        return self._relay


def new_session_name(now: float) -> str:
    """Return a name for a new session, which begins with its time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{new_uuid()[:4]}"
