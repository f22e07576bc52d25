"""The parts of an open agent, built by one function in a fixed order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

from anyio import create_task_group, to_thread
from anyio.abc import TaskGroup

from ...conversation.tokens.window import Thresholds
from ...errors import ModelError
from ...events import Event, ModelRetried
from ...models import Retry, RetryingModel, open_model
from ...models.anthropic import AnthropicModel
from ...models.sdk_client import SdkModel
from ...ports import Model, Storage
from ...settings import AgentPolicy, Settings
from ...tools import Todo, ToolContext, standard_tools
from ...tools.files.read_state import ReadState, version_of
from ...tools.shell.sandbox import available
from ...tools.tool import Tool, checked_tools
from ...values import replace
from ..dream.scheduler import DreamScheduler
from ..guard.always import KeptRules
from ..guard.hooks import Hooks
from ..guard.rules import parse_permission_rules
from ..library import Library
from ..memory.extract.tools import ToolAccess
from ..memory.session import Session
from ..memory.session_memory import SessionMemory
from ..places.hook_files import hook_files
from ..places.projects import project_slug, session_key
from ..places.storage import storage_of
from ..places.trust import TrustList
from ..session.prefix import SERVER_TOOL, ProgramTexts
from .answers import EventFeed
from .budgets import Budgets
from .context import AgentContext
from .idle_cache import IdleCache
from .options import AgentOptions
from .status import Meter
from .tool_runs import ToolPermissions, ToolRuns

VERSIONS: Final = "file-versions"
"""The folder of a session with the contents of files before its tools changed them, by their digest."""
SMALL_WINDOW: Final = 16_384
"""An agent whose window has at most this many tokens gets a short prompt and few tools by default."""
_CONDITIONAL: Final = re.compile(r"\[\[([\w ]+): (.*?)\]\]", re.DOTALL)
SMALL_TOOLS: Final = frozenset({"Read", "Write", "Edit", "Grep", "Bash"})


class Models:
    """Opens models and keeps them open until ``close``, because background work may still use an earlier one."""

    def __init__(self, settings: Settings, on_retry: Callable[[Retry], None]) -> None:
        self._settings = settings
        self._on_retry = on_retry
        self._open: list[Model] = []
        self._small: Model | None = None

    def open(self, asked: str | Model | None) -> Model:
        """Open a model, by name or as given, that retries by itself; one that already retries is used as it is."""
        if isinstance(asked, RetryingModel):
            asked.on_retry = self._on_retry
            self._open.append(asked)
            return asked
        aliases = self._settings.model_aliases
        known = self._settings.models
        named = open_model(asked, aliases=aliases, corrections=known) if not isinstance(asked, Model) else asked
        is_replaceable = self._settings.fallback_model is not None
        model = RetryingModel(named, on_retry=self._on_retry, is_replaceable=is_replaceable)
        self._open.append(model)
        return model

    async def checked(self, name: str) -> Model:
        """Open a model by name; raise ``ModelError`` if its provider does not have it or rejects the key."""
        model = self.open(name)
        inner = model.inner if isinstance(model, RetryingModel) else model
        if isinstance(inner, SdkModel):
            await inner.check()
        return model

    def small(self) -> Model | None:
        """Return the model with the alias ``small``, opened on first use; None if the settings name none."""
        named = self._settings.model_aliases.get("small")
        if self._small is None and named:
            self._small = self.open(named)
        return self._small

    async def close(self) -> None:
        """Close every model that ``open`` returned, also those that were given as objects."""
        for model in self._open:
            await model.aclose()


@dataclass(slots=True)
class AgentParts:
    """The parts of an open agent, except its relay to other agents."""

    options: AgentOptions
    events: EventFeed
    models: Models
    model: Model
    max_tokens: int
    """The most output tokens of the next request."""
    system: str
    session: Session
    context: ToolContext
    hooks: Hooks
    tasks: TaskGroup
    """Background tasks of this agent; closing the agent cancels them."""
    standing: AgentContext
    memory: AgentMemory | None
    runs: ToolRuns
    idle_cache: IdleCache
    budgets: Budgets
    asked_models: list[Model] = field(default_factory=list[Model])
    """The models whose provider was asked for their limits."""

    def use_model(self, model: Model) -> None:
        """Use this model from now on, to answer and to write notes, summaries and memories; fit limits to it."""
        settings = self.options.settings
        self.model = model
        self.max_tokens = fitted_output_limit(settings.agent.max_tokens, model)
        self.session.use_model(model)
        self.context.policy = _fitted_policy(settings.agent, self.session)
        if self.memory is not None:
            self.memory.extractor.model = model

    async def ask_limits(self) -> None:
        """Ask the provider's list of models once for the limits of the model in use, and fit the window to them."""
        model = self.model
        inner = model.inner if isinstance(model, RetryingModel) else model
        if not isinstance(inner, AnthropicModel) or inner in self.asked_models:
            return
        self.asked_models.append(inner)
        try:
            await inner.ask_limits()
        except ModelError:
            return  # the list is optional: the table has limits too
        self.session.parts.policy.use_model(model)
        self.session.parts.fit_window()

    def thresholds(self) -> Thresholds:
        """Return the token thresholds of the window of the model that answers now."""
        return self.session.parts.policy.thresholds_of(self.model.model_id)


def fitted_output_limit(max_tokens: int, model: Model) -> int:
    """Return ``max_tokens``, capped at the model's own limit and at a quarter of its window; at least 1."""
    known = model.capabilities
    limits = [max_tokens, known.max_output or max_tokens, (known.window or 4 * max_tokens) // 4]
    return max(1, min(limits))


async def is_trusted(options: AgentOptions) -> bool:
    """Return whether the user trusts the agent's working directory."""
    trust = TrustList.open(options.settings.home)
    return await to_thread.run_sync(trust.is_trusted, options.cwd)


async def open_parts(options: AgentOptions, events: EventFeed, stack: AsyncExitStack) -> AgentParts:
    """Open an agent's model, session, tools, hooks and memory and return them; ``stack`` closes them."""
    settings = options.settings

    def report(retry: Retry) -> None:
        events.emit(
            ModelRetried(
                options.name, retry.model, retry.attempt, retry.delay_seconds, str(retry.error), retry.attempts
            )
        )

    models = Models(settings, report)
    has_parent_model = options.lineage is not None and options.lineage.has_parent_model  # only the parent closes it
    given = options.model
    model = given if has_parent_model and isinstance(given, Model) else models.open(given)
    stack.push_async_callback(models.close)
    session = await _opened_session(options, model, events, stack)
    context = _tool_context(options, session, events.emit)
    hooks = Hooks(
        settings.hooks,
        options.hooks,
        session=options.name,
        cwd=str(options.cwd),
        emit=events.emit,
        is_trusted=not settings.hooks or await is_trusted(options),
    )
    session.hooks = hooks
    tasks = await stack.enter_async_context(create_task_group())
    sandboxed = (await to_thread.run_sync(available)).works
    is_small = has_small_window(session)
    memory = None
    if not is_small and options.lineage is None and settings.switches.memory:
        memory = AgentMemory(
            session, context, settings, model=model, small=models.small(), tasks=tasks, sandboxed=sandboxed
        )
    tools = _first_tools(options, memory, is_small=is_small)
    system = options.system
    if system is None:
        system = _prompt("small" if is_small else "system", {tool.name for tool in tools})
    if memory is not None and options.tools is None:
        system = f"{system}\n\n{memory.rules()}"
    kept = KeptRules(settings.home)
    allowed = kept.of(options.cwd) if options.lineage is None else ()  # a sub-agent has the rules of its lead
    rules = replace(settings.permissions, mode=options.mode, allow=(*settings.permissions.allow, *allowed))
    parse_permission_rules(rules)  # an invalid rule is an error now, not at the first call of a tool
    permissions = ToolPermissions(
        rules=rules,
        approve=options.approve,
        protected=(
            *((options.lineage.protected if options.lineage is not None else ()) or (settings.home,)),
            *hook_files(settings.hooks, options.cwd),
        ),
        sandboxed=sandboxed,
        kept=kept,
    )
    return AgentParts(
        options=options,
        events=events,
        models=models,
        model=model,
        max_tokens=fitted_output_limit(settings.agent.max_tokens, model),
        system=system,
        session=session,
        context=context,
        hooks=hooks,
        tasks=tasks,
        standing=AgentContext(
            session,
            context,
            settings,
            hooks,
            clock=options.clock,
            has_skills=any(tool.name == "Skill" for tool in tools),
        ),
        memory=memory,
        runs=ToolRuns(session, tools, context, permissions=permissions, hooks=hooks, emit=events.emit),
        idle_cache=IdleCache(session, tasks),
        budgets=Budgets(options.settings, project_slug(options.cwd)),
    )


def program_texts(parts: AgentParts) -> ProgramTexts:
    """Return the texts of an open agent that this program wrote, with the user's choices that they depend on."""
    options, switches, limits = parts.options, parts.options.settings.switches, parts.options.settings.agent
    seconds, usual = ((one.bash_timeout_seconds, one.bash_max_timeout_seconds) for one in (limits, AgentPolicy()))
    chosen = {
        "own tools": options.tools is not None,
        "own prompt": options.system is not None,
        "small window": has_small_window(parts.session),
        "no memory": not switches.memory,
        "no relay": not switches.relay,
        "web fetch": limits.web_fetch,
        f"timeouts {seconds}": seconds != usual,
        "team memory": options.settings.team_memory is not None,
        "daily logs": options.settings.daily_logs,
    }
    own = [name for name in parts.runs.tools if not name.startswith(SERVER_TOOL)] if options.tools is None else []
    urgent = None
    if options.system is None:
        care = parts.system.partition("# Care\n")[2].partition("\n\n")[0].splitlines()
        path = str(parts.memory.path) if parts.memory is not None else "\0"
        urgent = tuple(line for line in parts.system.splitlines() if line in care or path in line)
    choices = ", ".join(name for name, is_chosen in chosen.items() if is_chosen)
    return ProgramTexts(choices or "defaults", frozenset(own), urgent)


def has_small_window(session: Session) -> bool:
    """Return whether the window, by model or settings, has at most ``SMALL_WINDOW`` tokens."""
    return session.thresholds.window <= SMALL_WINDOW


async def _opened_session(options: AgentOptions, model: Model, events: EventFeed, stack: AsyncExitStack) -> Session:
    is_main = options.lineage is None
    folder = session_key(project_slug(options.cwd), options.name) if is_main else f"agents/{options.name}"
    session = Session.open(
        options.name,
        cwd=options.cwd,
        storage=options.storage,
        settings=options.settings,
        clock=options.clock,
        capabilities=frozenset({"cache_edits"} if model.capabilities.cache_edits else ()),
        model=model,
        folder=folder,
        subject=options.subject,
    )
    session.listen(lambda event: None if session.log.newer_version else events.emit(event))  # the error below says it
    events.meter = await to_thread.run_sync(_meter_of_log, options, f"{folder}.jsonl")
    await stack.enter_async_context(session)
    if session.log.newer_version:  # an agent does nothing but write
        raise session.log.newer_version
    return session


def _meter_of_log(options: AgentOptions, key: str) -> Meter:
    """Return a meter with the usage and cost that the session's log records; an empty one without a log."""
    storage = options.storage or storage_of(options.settings)
    try:
        return Meter(Library(storage).load(key).entries) if storage.load(key) is not None else Meter()
    finally:
        if options.storage is None:
            storage.close()


def _tool_context(options: AgentOptions, session: Session, emit: Callable[[Event], None]) -> ToolContext:
    settings = options.settings
    return ToolContext(
        cwd=options.cwd,
        session=options.name,
        policy=_fitted_policy(settings.agent, session),
        directories=tuple(Path(one).expanduser().resolve() for one in settings.permissions.directories),
        read_back=lambda handle: session.parts.stored(session.view, handle),
        expand=lambda handle: session.parts.stored(session.view, handle, listed=True),
        keep_version=lambda data: keep_version(session.parts.storage, session.parts.folder, data),
        emit=emit,
        home=settings.home,
        reads=ReadState(session.view.facts.files),
        todos=[Todo(text, status or "pending") for text, status in session.parts.steps.steps(session.view)],
    )


def keep_version(storage: Storage, folder: str, data: bytes | None) -> str:
    """Keep a file's content in a session's folder, and return its version; empty if there is no file."""
    if data is None:
        return ""
    version = version_of(data)
    if storage.load(f"{folder}/{VERSIONS}/{version}", size=0) is None:
        storage.write(f"{folder}/{VERSIONS}/{version}", data)
    return version


def _fitted_policy(policy: AgentPolicy, session: Session) -> AgentPolicy:
    return replace(policy, read_max_tokens=min(policy.read_max_tokens, session.thresholds.effective // 5))


def _first_tools(options: AgentOptions, memory: AgentMemory | None, *, is_small: bool) -> list[Tool]:
    """Return the caller's tools; if it gave None, the standard tools and, with a memory, the Memory tool."""
    if options.tools is not None:
        return list(checked_tools(options.tools))
    tools = standard_tools(options.settings.agent, SMALL_TOOLS if is_small else None)
    return [*tools, memory.tool()] if memory is not None else tools


def _prompt(name: str, tools: Collection[str]) -> str:
    """Return a prompt; a part ``[[A B: text]]`` is left out unless the agent has the tools A and B."""
    text = files("reverie.runtime.agent").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()
    return _CONDITIONAL.sub(lambda part: part[2] if set(part[1].split()) <= set(tools) else "", text)


class AgentMemory(SessionMemory):
    """Connects one agent to the memories of its project, and dreams about them."""

    def __init__(
        self,
        session: Session,
        context: ToolContext,
        settings: Settings,
        *,
        model: Model | None,
        small: Model | None,
        tasks: TaskGroup,
        sandboxed: bool,
    ) -> None:
        """Open the memories; ``model`` writes them, ``small`` selects them for recall (None: local search)."""
        access = ToolAccess(context, settings.permissions, sandboxed)
        super().__init__(session, context.cwd, settings, model=model, small=small, tasks=tasks, access=access)
        self.dreaming = DreamScheduler(session.parts.host, context.cwd, settings, tasks=tasks)

    async def end_query(self) -> None:
        """Start an extraction and a dream in the background if they are due; a late recall is kept."""
        await super().end_query()
        await self.dreaming.after_query()
