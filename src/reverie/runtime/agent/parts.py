"""An agent's parts, put together: its model, session, tools, permissions, surroundings, memory, and its own agents."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from anyio import create_task_group, to_thread

from ...conversation.entries import new_uuid
from ...errors import SessionError
from ...events import CompactionEnded, Event, Listener, ModelRetried, ResultsTrimmed
from ...models import Retry
from ...ports import Model, Storage
from ...settings import Mode, Settings, load_settings
from ...storage.files import FileStorage
from ...tools import ToolContext, relay_tools, standard_tools
from ...tools.shell.sandbox import available
from ...tools.tool import Tool
from ...values import replace
from ..guard.hooks import Hooks
from ..guard.permissions import Approver
from ..library import Library
from ..mail.delivery import Heed
from ..mail.post_office import Bridge
from ..places.projects import canonical_root, project_slug, session_key
from ..session.session import Session
from .interrupt import Interrupt
from .memory import AgentMemory
from .models import Models, fitted, fitting
from .open_items import OpenItems, todos_in
from .opening_context import OpeningContext
from .status import Meter
from .team.relay import Relay
from .team.runner import Lineage
from .tool_runs import ToolRuns, declared_tools

__all__ = ["Assembled"]

SMALL_WINDOW: Final = 16_384
"""In a window of so many tokens and less, prompt and tools are kept short."""
SMALL_TOOLS: Final = frozenset({"Read", "Write", "Edit", "Grep", "Bash"})
A = TypeVar("A", bound="Assembled")


class Assembled:
    """Everything an agent has, from its opening to its end."""

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
        on_control: Heed | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        """``bridge`` carries what is written to ``bridge:<id>``; ``on_control`` is told of control messages that count,
        such as a request to shut down. ``lineage`` is for agents that another one started: others leave it out."""
        self.bridge = bridge
        self.on_control = on_control
        self.cwd = Path(cwd).resolve()
        self.settings = settings or load_settings(project=canonical_root(self.cwd))
        self.name = session or _new_name(clock())
        self.named = session is not None
        self.max_tokens = self.settings.agent.max_tokens
        self.lineage = lineage
        self.storage = storage
        self.callables = hooks or {}
        self._asked_model = model if model is not None else self.settings.model
        self._tools = tools
        self._asked_system = system
        self._mode: Mode = mode or self.settings.permissions.mode
        self._approve = approve
        self._max_turns = max_turns if max_turns is not None else self.settings.agent.max_turns
        self._budget_usd = budget_usd if budget_usd is not None else self.settings.agent.budget_usd
        self._clock = clock
        self._listeners: list[Listener] = []
        self._heard: deque[Event] = deque()
        self._interrupt = Interrupt()
        self._stack: AsyncExitStack | None = None
        self._asking = False
        self._fell_back = False
        self._meter = Meter()
        self._models = Models(self.settings, self._retried)
        self._small: Model | None = None

    # -- opening and closing

    async def __aenter__(self: A) -> A:
        if self._stack is not None:
            raise SessionError("this agent is open already")
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        self.model: Model = self._opened_model()
        small = (self.model.capabilities.window or SMALL_WINDOW + 1) <= SMALL_WINDOW
        self._system = self._asked_system if self._asked_system is not None else _prompt("small" if small else "system")
        self.max_tokens = fitting(self.settings.agent.max_tokens, self.model)
        stack.push_async_callback(self._models.close)
        folder = f"agents/{self.name}" if self.lineage is not None else session_key(project_slug(self.cwd), self.name)
        self.session = Session.open(
            self.name,
            cwd=self.cwd,
            storage=self.storage,
            settings=fitted(self.settings, self.model),
            clock=self._clock,
            capabilities=frozenset({"cache_edits"} if self.model.capabilities.cache_edits else ()),
            model=self.model,
            folder=folder,
        )
        self.session.listen(self._hear)
        await self._count_what_was_spent(f"{folder}.jsonl")
        await stack.enter_async_context(self.session)
        self.context = self._context()
        self._hooks = Hooks(self.settings.hooks, self.callables, session=self.name, cwd=str(self.cwd), emit=self._hear)
        self.session.hooks = self._hooks
        self.session.parts.compact.restorer = OpenItems(self.context)
        self.tasks = await stack.enter_async_context(create_task_group())
        self._sandboxed = (await to_thread.run_sync(available)).works
        await self._equip(stack, small)
        stack.push_async_callback(self.context.aclose)
        stack.push_async_callback(self._wind_down)

    def _opened_model(self) -> Model:
        """Return the model that answers; one that is the parent's stays the parent's."""
        borrowed = self._asked_model
        if self.lineage is not None and self.lineage.borrowed and isinstance(borrowed, Model):
            return borrowed
        return self._models.opened(borrowed)

    def _context(self) -> ToolContext:
        return ToolContext(
            cwd=self.cwd,
            session=self.name,
            policy=self.settings.agent,
            directories=tuple(Path(one).expanduser().resolve() for one in self.settings.permissions.directories),
            read_back=self.session.stored,
            emit=self._hear,
            home=self.settings.home,
            todos=todos_in(self.session.view),
        )

    async def _equip(self, stack: AsyncExitStack, small: bool) -> None:
        """Give the agent its memory, its surroundings, its tools, and what it starts agents with."""
        self.remembering = self._remembers(small)
        self.around = OpeningContext(self.session, self.context, self.settings, self._hooks, clock=self._clock)
        self.relaying = None if small and self._tools is None else self._relays()
        tools = self._given_tools(small)
        self.around.also = self._also
        if self.relaying is not None:
            await self.relaying.open()
        tools += await self.around.enter(stack)
        self.runs = ToolRuns(
            self.session,
            tools,
            self.context,
            rules=replace(self.settings.permissions, mode=self._mode),
            hooks=self._hooks,
            approve=self._approve,
            emit=self._hear,
            protected=(self.lineage.protected if self.lineage is not None else ()) or [self.settings.home],
            sandboxed=self._sandboxed,
        )
        self._declared = declared_tools(tools)

    def _given_tools(self, small: bool) -> list[Tool]:
        """Return the tools in their order; what comes with memory and agents only where the tools are not given."""
        if self._tools is not None:
            return list(self._tools)
        tools = [tool for tool in standard_tools(self.settings.agent) if not small or tool.name in SMALL_TOOLS]
        if self.remembering is not None:
            tools.append(self.remembering.tool())
            self._system = f"{self._system}\n\n{self.remembering.rules()}"
        return tools + (relay_tools() if self.relaying is not None else [])

    async def _also(self) -> str:
        """Return what more the first message says: the types of agents, the index of memories."""
        parts: list[str] = []
        if self.relaying is not None:
            parts.append(self.relaying.listing)
        if self.remembering is not None:
            parts.append(await self.remembering.context())
        elif self.lineage is not None and self.lineage.memory is not None:
            self.lineage.memory.view = lambda: self.session.view
            parts.append(await self.lineage.memory.context())
        return "\n\n".join(part for part in parts if part)

    def _relays(self) -> Relay | None:
        """Return what starts agents and carries messages; None where it is switched off."""
        raise NotImplementedError

    def _remembers(self, small: bool) -> AgentMemory | None:
        """Return the agent's memory; None where it is switched off, a small window has no room, or it is not the
        main agent."""
        if small or self.lineage is not None or not AgentMemory.allowed(self.settings):
            return None
        return AgentMemory(
            self.session,
            self.context,
            self.settings,
            model=self.model,
            small=self.small_model(),
            tasks=self.tasks,
            rules=self.settings.permissions,
            sandboxed=self._sandboxed,
        )

    def small_model(self) -> Model | None:
        """Return the model for small questions; None where the user has named none."""
        named = self.settings.model_aliases.get("small")
        if self._small is None and named:
            self._small = self._models.opened(named)
        return self._small

    async def _count_what_was_spent(self, key: str) -> None:
        """Begin with what a session that goes on has cost already."""
        storage = self.storage or FileStorage(self.settings.home)
        try:
            if storage.load(key) is not None:
                self._meter = await to_thread.run_sync(lambda: Meter(Library(storage).load(key).entries))
        finally:
            if self.storage is None:
                storage.close()

    async def _wind_down(self) -> None:
        """End the agents of this one, give what runs behind its time, tell those who are told, and end the rest."""
        try:
            if self.relaying is not None:
                await self.relaying.close()
            if self.remembering is not None:
                await self.remembering.close()
            await self.around.leave()
        finally:
            self.tasks.cancel_scope.cancel()

    # -- events

    def _retried(self, retry: Retry) -> None:
        self._hear(ModelRetried(self.name, retry.model, retry.attempt, retry.delay_seconds, str(retry.error)))

    def _hear(self, event: Event) -> None:
        self._meter.hear(event)
        if isinstance(event, ResultsTrimmed):
            self.context.reads.forget(event.paths)
        elif isinstance(event, CompactionEnded):
            self.context.reads.clear()
        if self._asking:
            self._heard.append(event)
        for listener in self._listeners:
            with suppress(Exception):
                listener(event)

    def _since(self) -> list[Event]:
        events = list(self._heard)
        self._heard.clear()
        return events


def _new_name(now: float) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{new_uuid()[:4]}"


def _prompt(name: str) -> str:
    return files("reverie.runtime.agent").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()
