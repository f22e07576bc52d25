"""A whole agent: a model, tools, permissions and a session, behind one door."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from anyio import create_task_group, to_thread

from ..conversation.entries import new_uuid
from ..errors import SessionError
from ..events import CompactionEnded, Event, FellBack, Listener, ModelRetried, ResultsTrimmed
from ..models import Retry, Retrying, open_model
from ..ports import Model, Storage
from ..settings import Mode, Settings, load_settings
from ..storage.files import FileStorage
from ..tools import ToolContext, standard_tools
from ..tools.sandbox import available
from ..tools.tool import Tool
from ..values import replace
from .around import Around
from .hooks import Hooks
from .interrupting import Interrupt
from .library import Library
from .limits import compact_at, max_output_tokens, window_tokens
from .loop import End, Prompt, Query, query
from .permissions import Approver
from .projects import canonical_root, log_key, project_slug
from .remembering import Remembering
from .reopening import Reopening, todos_in
from .session import Session
from .status import Meter, Status
from .tool_runs import ToolRuns, declared_tools

__all__ = ["Agent"]

SMALL_WINDOW: Final = 16_384
"""In a window of so many tokens and less, prompt and tools are kept short."""
SMALL_TOOLS: Final = frozenset({"Read", "Write", "Edit", "Grep", "Bash"})


class Agent:
    """Answers prompts with tools, in a session that is kept."""

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
    ) -> None:
        self.cwd = Path(cwd).resolve()
        self.settings = settings or load_settings(project=canonical_root(self.cwd))
        self.name = session or _new_name(clock())
        self.max_tokens = self.settings.agent.max_tokens
        self._asked_model = model if model is not None else self.settings.model
        self._storage = storage
        self._tools = tools
        self._asked_system = system
        self._mode: Mode = mode or self.settings.permissions.mode
        self._approve = approve
        self._callables = hooks or {}
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
        self._models: list[Model] = []

    # -- opening and closing

    async def __aenter__(self) -> Agent:
        if self._stack is not None:
            raise SessionError("this agent is open already")
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def _open(self, stack: AsyncExitStack) -> None:
        self.model: Model = self._opened(self._asked_model)
        small = (self.model.capabilities.window or SMALL_WINDOW + 1) <= SMALL_WINDOW
        self._system = self._asked_system if self._asked_system is not None else _prompt("small" if small else "system")
        self.max_tokens = self._fitting(self.settings.agent.max_tokens)
        stack.push_async_callback(self._close_models)
        self.session = Session.open(
            self.name,
            cwd=self.cwd,
            storage=self._storage,
            settings=self._fitted(),
            clock=self._clock,
            capabilities=frozenset({"cache_edits"} if self.model.capabilities.cache_edits else ()),
            model=self.model,
        )
        self.session.listen(self._hear)
        await self._count_what_was_spent()
        await stack.enter_async_context(self.session)
        self.context = ToolContext(
            cwd=self.cwd,
            session=self.name,
            policy=self.settings.agent,
            directories=tuple(Path(one).expanduser().resolve() for one in self.settings.permissions.directories),
            read_back=self.session.stored,
            emit=self._hear,
            home=self.settings.home,
            todos=todos_in(self.session.view),
        )
        self._hooks = Hooks(self.settings.hooks, self._callables, session=self.name, cwd=str(self.cwd), emit=self._hear)
        self.session.hooks = self._hooks
        self.session.restoring = Reopening(self.context)
        self._tasks = await stack.enter_async_context(create_task_group())
        self._sandboxed = (await to_thread.run_sync(available)).works
        self.remembering = self._remembers(small)
        self.around = Around(self.session, self.context, self.settings, self._hooks, clock=self._clock)
        given = self._tools if self._tools is not None else standard_tools(self.settings.agent)
        tools = [tool for tool in given if not small or self._tools is not None or tool.name in SMALL_TOOLS]
        if self.remembering is not None:
            if self._tools is None:
                tools.append(self.remembering.tool())
                self._system = f"{self._system}\n\n{self.remembering.rules()}"
            self.around.also = self.remembering.context
        tools += await self.around.enter(stack)
        self._runs = ToolRuns(
            self.session,
            tools,
            self.context,
            rules=replace(self.settings.permissions, mode=self._mode),
            hooks=self._hooks,
            approve=self._approve,
            emit=self._hear,
            protected=[self.settings.home],
            sandboxed=self._sandboxed,
        )
        self._declared = declared_tools(tools)
        stack.push_async_callback(self.context.aclose)
        stack.push_async_callback(self._wind_down)

    def _remembers(self, small: bool) -> Remembering | None:
        """Return the agent's memory; None where it is switched off or a small window has no room for it."""
        if small or not Remembering.allowed(self.settings):
            return None
        named = self.settings.model_aliases.get("small")
        return Remembering(
            self.session,
            self.context,
            self.settings,
            model=self.model,
            small=self._opened(named) if named else None,
            tasks=self._tasks,
            rules=self.settings.permissions,
            sandboxed=self._sandboxed,
        )

    async def _count_what_was_spent(self) -> None:
        """Begin with what a session that goes on has cost already."""
        storage = self._storage or FileStorage(self.settings.home)
        key = log_key(project_slug(self.cwd), self.name)
        try:
            if storage.load(key) is not None:
                self._meter = await to_thread.run_sync(lambda: Meter(Library(storage).load(key).entries))
        finally:
            if self._storage is None:
                storage.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    async def _wind_down(self) -> None:
        """Give what runs behind its time, tell those who are told, and end the rest."""
        try:
            if self.remembering is not None:
                await self.remembering.close()
            await self.around.leave()
        finally:
            self._tasks.cancel_scope.cancel()

    async def _close_models(self) -> None:
        for model in self._models:
            await model.aclose()

    def _opened(self, asked: str | Model | None) -> Model:
        """Return a model that tries again by itself, and another one where that does not help."""
        if isinstance(asked, Retrying):
            asked.on_retry = self._retried
            self._models.append(asked)
            return asked
        named = open_model(asked, aliases=self.settings.model_aliases) if not isinstance(asked, Model) else asked
        spare = self.settings.fallback_model
        fallback = open_model(spare, aliases=self.settings.model_aliases) if spare else None
        model = Retrying(named, fallback=fallback, on_retry=self._retried)
        self._models.append(model)  # all are closed at the end: work behind the conversation may still ask an old one
        return model

    def _fitted(self) -> Settings:
        """Return the settings with a window no larger than the model's own, where its provider says how large it is."""
        given, wanted = self.model.capabilities.window, self.settings.window_tokens
        if given is None:
            return self.settings
        return replace(self.settings, window_tokens=given if wanted is None else min(given, wanted))

    def _fitting(self, max_tokens: int) -> int:
        """Return an output limit that the model and a quarter of its window allow."""
        known = self.model.capabilities
        limits = [max_tokens, known.max_output or max_tokens, (known.window or 4 * max_tokens) // 4]
        return max(1, min(limits))

    def _retried(self, retry: Retry) -> None:
        self._hear(ModelRetried(self.name, retry.model, retry.attempt, retry.delay_seconds, str(retry.error)))

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
            run = Query(self.session, self, self._runs, self._hooks, self._interrupt, self._hear, self._since)
            async with aclosing(query(run, prompt)) as events:
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
        self._turn_to(self._opened(name))

    def _turn_to(self, model: Model) -> None:
        """Let a model answer, and write notes, summaries and memories, from now on."""
        self.model = model
        self.max_tokens = self._fitting(self.settings.agent.max_tokens)
        self.session.settings = self._fitted()
        self.session.use_model(model)
        if self.remembering is not None:
            self.remembering.use_model(model)

    @property
    def mode(self) -> Mode:
        """What tools may do without asking."""
        return self._runs.mode if self._stack is not None else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if self._stack is not None:
            self._runs.mode = mode

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
        )

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
        self._turn_to(self._opened(spare))
        self._hear(FellBack(self.name, "model", f"{before} declined; {self.model.name} is asked"))
        return True

    def out_of_bounds(self, turns: int) -> End | None:
        """Say whether turns or money have run out."""
        if turns >= self._max_turns:
            return End("max_turns", f"{turns} turns were taken, and no more are allowed")
        spent = self._meter.cost_usd or 0.0
        if self._budget_usd is not None and spent >= self._budget_usd:
            return End("budget", f"${spent:.2f} of ${self._budget_usd:.2f} is spent")
        return None

    async def begin(self, prompt: str) -> None:
        """Attach what has changed since the last prompt, and begin to look for memories."""
        if self.remembering is not None:
            self.remembering.look(prompt)
        await self.around.refresh()
        await self.attachments()

    async def attachments(self) -> None:
        """Attach what the turn calls for."""
        touched, self._runs.touched = self._runs.touched, set()
        await self.around.attach(touched)
        if self.remembering is not None:
            await self.remembering.surface()

    async def completed(self) -> None:
        """Let what was said become memories, behind the conversation."""
        if self.remembering is not None:
            await self.remembering.completed()

    def cost_usd(self) -> float | None:
        """Return what the session has cost so far."""
        return self._meter.cost_usd

    # -- events

    def _window_tokens(self) -> int:
        return window_tokens(self.model.model_id, self.session.settings)

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
    return files("reverie.runtime").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()
