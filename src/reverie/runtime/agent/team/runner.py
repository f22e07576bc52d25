"""Run an agent for its parent: a fork on the parent's prefix, or a sub-agent with a session of its own.

Neither can do more than its parent: its tools are among the parent's, its mode is the parent's or stricter, and the
parent's approver decides on calls that need permission.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anyio
from anyio import to_thread

from ....cache.usage import Usage
from ....conversation.view import View
from ....conversation.wire.blocks import as_blocks
from ....errors import InputError, ModelUnknown
from ....events import (
    AgentEnded,
    AgentProgressed,
    AgentStarted,
    DecisionMade,
    Event,
    FellBack,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    ToolStarted,
    UserMessaged,
)
from ....layers.l7_relay import AgentKind, allowed_tools, line_for, names_in, narrower
from ....models.names import full_name
from ....ports import Model
from ....settings import Mode, PermissionRules, Settings
from ....settings.records import turned_off
from ....tools.tool import Output, Tool
from ....tools.tool_search import NAME as TOOL_SEARCH
from ....values import replace
from ...guard.always import rule_to_add
from ...guard.permissions import Approval, ApprovalAnswer, Approver
from ...guard.rules import fixed_rules
from ...mail.local_queues import LocalQueues
from ...places.trust import TrustList
from ...session.forks import DENIED, ForkBatch, Forks, ForkState, ForkToolResult
from ...session.replies import Call
from ..options import AgentOptions
from ..parts import AgentParts
from ..tool_runs import ToolRuns
from .progress import Narrator
from .roster import Lineage, MemberRun, Roster, RunEnd, TeamMember
from .types import TypeMemory, find_kinds, prompt_of
from .worktrees import Worktree

SOURCE: Final = "agent"
_MAX_NAMES: Final = 200
_NOT_FOR_FORKS: Final = frozenset({"Agent", "AgentStop", "SendMessage"})
# Only the main conversation writes notes and memories of the project.
_MAIN_ONLY: Final = ("notes", "extraction", "recall", "dream")


class ChildAgent(Protocol):
    """A sub-agent, as far as its parent uses it; entering it as a context opens it."""

    @property
    def parts(self) -> AgentParts:
        """The parts of the open sub-agent."""
        ...

    @property
    def mode(self) -> Mode:
        """The permission mode of the sub-agent."""
        ...

    @mode.setter
    def mode(self, mode: Mode) -> None: ...

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Register a function that is called with every event of the sub-agent."""
        ...

    def ask(self, prompt: str) -> AsyncGenerator[Event, None]:
        """Answer a prompt; yield every event of the query, and do nothing until iterated."""
        ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *error: object) -> None: ...


class AgentRunner:
    """Makes the functions that run forks and sub-agents of one parent agent; starts nothing itself."""

    def __init__(
        self,
        parent: AgentParts,
        roster: Roster,
        queues: LocalQueues,
        make_agent: Callable[[AgentOptions], ChildAgent],
    ) -> None:
        self._parent = parent
        self._options = parent.options
        self._roster = roster
        self._queues = queues
        self._make_agent = make_agent
        self._emit = parent.events.emit

    async def kinds(self) -> Mapping[str, AgentKind]:
        """Return the agent types by name; emit an event for each file of a type that cannot be used."""
        home, cwd = self._options.settings.home, self._options.cwd
        trusted = await to_thread.run_sync(lambda: TrustList.open(home).is_trusted(cwd))
        found, problems = await to_thread.run_sync(lambda: find_kinds(cwd, home=home, trusted=trusted))
        for problem in problems:
            self._report(problem)
        return found

    def batch(self) -> ForkBatch:
        """Return a new batch for forks that all start from the conversation as it is now."""
        return Forks(self._parent.session.parts.host, self._parent.model).batch(self._parent.max_tokens)

    # -- forks

    def fork(self, prompt: str, batch: ForkBatch) -> MemberRun:
        """Return a function that runs a fork with this prompt; calling ``fork`` itself starts nothing."""

        async def run_fork(member: TeamMember) -> RunEnd:
            parent = self._parent
            context = parent.context.forked(agents=None, post=None)
            runs = parent.runs.forked(context, approve=self._approver(member), emit=self._on_fork_event)
            member.context, member.tools = context, tuple(set(runs.tools) - _NOT_FOR_FORKS)

            def narrow(mode: str) -> None:
                runs.mode = cast("Mode", narrower(runs.mode, mode))

            member.narrow = narrow

            def within(turns: int, usage: Usage, cost: float | None) -> bool:
                member.turns, member.tokens, member.cost_usd = turns, usage.input + usage.output, cost
                return not self._roster.over_limit(member)

            async def run(call: Call, state: ForkState) -> ForkToolResult:
                return await self._run_for_fork(runs, member, call)

            try:
                reply = await Forks(parent.session.parts.host, parent.model).ask(
                    prompt_of("fork").replace("{directive}", prompt),
                    source=SOURCE,
                    max_tokens=parent.max_tokens,
                    tools=run,
                    max_turns=self._roster.policy.max_turns,
                    within=within,
                    batch=batch,
                )
            finally:
                await context.aclose()
            why = reply.problem
            if reply.unfinished:
                why = self._roster.over_limit(member) or "it took all its turns"
            return RunEnd("failed" if why else "completed", reply.text, why)

        return run_fork

    async def _run_for_fork(self, runs: ToolRuns, member: TeamMember, call: Call) -> ForkToolResult:
        if call.name in _NOT_FOR_FORKS:
            self._emit(PermissionDecided(self._options.name, call.name, False, "fork", "a fork cannot fork"))
            return ForkToolResult(
                f"{DENIED} (a fork cannot start agents or send messages)", is_error=True, allowed=False
            )
        self._update_line(member, call.name, call.input)
        output = await runs.output(call)
        most = self._parent.session.parts.offload.policy.default_limit_chars
        return ForkToolResult(_cut(output, runs.tools.get(call.name), most), output.is_error)

    def _on_fork_event(self, event: Event) -> None:
        if isinstance(event, PermissionDecided) and not event.allowed:
            self._emit(event)

    # -- sub-agents

    def sub_agent(self, prompt: str, kind: AgentKind, *, model: str, worktree: bool) -> MemberRun:
        """Return a function that runs a sub-agent of a type; ``sub_agent`` itself starts nothing.

        ``model`` is a model alias, empty for the type's or parent's model; raise ``InputError`` if it is unknown.
        """
        options = self._options
        if model and model not in options.settings.model_aliases:
            known = ", ".join(options.settings.model_aliases) or "none"
            raise InputError(f"there is no model {model[:80]!r} to choose; there are: {known}")

        async def run_sub_agent(member: TeamMember) -> RunEnd:
            if not worktree:
                return await self._run_child(member, prompt, self._child(member, kind, model, options.cwd))
            home = options.settings.home
            tree = await to_thread.run_sync(lambda: Worktree.add(options.cwd, home=home, name=member.id))
            try:
                return await self._run_child(member, prompt, self._child(member, kind, model, tree.cwd))
            finally:
                with anyio.CancelScope(shield=True):
                    member.kept = await to_thread.run_sync(tree.finish)

        return run_sub_agent

    async def _run_child(self, member: TeamMember, prompt: str, child: ChildAgent) -> RunEnd:
        """Open a sub-agent, let it answer the prompt, close it, and return its status and last text."""
        text = ""
        end = QueryEnded(member.id, "aborted", "", 0)

        def on_event(event: Event) -> None:
            nonlocal end
            if isinstance(event, QueryEnded):
                end = event
            self._on_child_event(member, child, event)

        child.listen(on_event)
        with anyio.CancelScope() as closing:
            await child.__aenter__()
            try:
                text = await self._answer_of(member, child, prompt)
            finally:
                closing.shield = True  # a cancelled agent must still close its log
                await child.__aexit__(*sys.exc_info())
        if end.end != "completed":
            return RunEnd("failed", text, f"{end.end}: {end.detail}")
        return RunEnd("completed", f"{text}\n\n[{end.detail}]".strip() if end.detail else text)

    async def _answer_of(self, member: TeamMember, child: ChildAgent, prompt: str) -> str:
        """Give an open sub-agent its prompt, write progress lines if they are on, and return its last text."""
        member.context, member.sever = child.parts.context, child.parts.session.log.close

        def narrow(mode: str) -> None:
            child.mode = cast("Mode", narrower(child.mode, mode))

        member.narrow = narrow
        async with anyio.create_task_group() as group:
            if self._roster.policy.progress:
                group.start_soon(self._narrator(member, child.parts).run)
            async with aclosing(child.ask(prompt)) as events:
                async for _ in events:
                    pass
            group.cancel_scope.cancel()
        return _last_text(child.parts.session.view)

    def _narrator(self, member: TeamMember, child: AgentParts) -> Narrator:
        """Return a narrator that writes the progress lines of a sub-agent; it is not started yet."""

        def say(line: str) -> None:
            self._show_line(member, line)

        small = self._parent.models.small()
        return Narrator(member, child.session, lambda: child.model, small, self._roster.policy, say=say)

    def _child(self, member: TeamMember, kind: AgentKind, model: str, cwd: Path) -> ChildAgent:
        """Return an unopened sub-agent: own session and prompt, some of the parent's tools, the parent's rules."""
        parent, options, policy = self._parent, self._options, self._roster.policy
        memory = TypeMemory.of(kind, options.cwd, options.settings)
        tools = self._child_tools(kind, memory)
        member.tools = tuple(tool.name for tool in tools)
        asked, is_parents = self._model(kind, model)
        mode = cast("Mode", narrower(parent.runs.mode, kind.mode or parent.runs.mode))
        home = options.settings.home
        rules = parent.runs.rules if cwd == options.cwd else fixed_rules(parent.runs.rules, options.cwd)
        lineage = Lineage(
            id=member.id,
            depth=member.depth,
            roster=self._roster,
            over_limit=lambda: self._roster.over_limit(member),
            memory=memory,
            has_parent_model=is_parents,
            queues=self._queues,
            lead=options.agent_name,
            lead_mode=lambda: parent.runs.mode,
            background=member.background,
            protected=tuple(home / name for name in _HOME) if cwd != options.cwd else (),
        )
        return self._make_agent(
            AgentOptions(
                model=asked,
                cwd=cwd.resolve(),
                name=member.id,
                is_named=True,
                settings=_child_settings(options.settings, rules, mode),
                storage=options.storage,
                tools=tools,
                system=f"{kind.prompt}\n\n{memory.rules()}" if memory and "Memory" in member.tools else kind.prompt,
                mode=mode,
                is_mode_given=True,
                approve=self._approver(member, is_apart=cwd != options.cwd),
                hooks=options.hooks,
                max_turns=min(policy.max_turns, kind.max_turns or policy.max_turns),
                budget_usd=None,
                clock=parent.session.log.clock,
                lineage=lineage,
            )
        )

    def _child_tools(self, kind: AgentKind, memory: TypeMemory | None) -> list[Tool]:
        """Return the parent's tools that a type may use, but its own Memory and ToolSearch; report missing ones."""
        known = self._parent.runs.tools
        names, unknown = allowed_tools(kind, list(known))
        if unknown:
            self._report(f"{kind.name} asks for tools that do not exist here: {', '.join(unknown)[:300]}")
        tools = [known[name] for name in names if name not in ("Memory", TOOL_SEARCH)]
        return [*tools, memory.tool()] if memory is not None and "Memory" in names else tools

    def _model(self, kind: AgentKind, asked: str) -> tuple[str | Model, bool]:
        """Return a sub-agent's model and whether it is the parent's; an unknown name emits an event."""
        model = self._parent.model
        name = asked or kind.model
        if not name:
            return model, True
        try:
            return full_name(name, aliases=self._options.settings.model_aliases), False
        except ModelUnknown:
            self._report(f"{kind.name} asks for the model {name[:80]!r}, which is no alias here; {model.name} answers")
            return model, True

    def _approver(self, member: TeamMember, *, is_apart: bool = False) -> Approver | None:
        """Return an approver that asks through the parent and names the agent; None if the parent cannot ask.

        An answer "always" for an agent in a directory of its own (``is_apart``) allows its parent nothing.
        """
        runs = self._parent.runs
        if not runs.can_ask:
            return None

        async def ask(approval: Approval) -> ApprovalAnswer:
            answer = await runs.ask_user(replace(approval, reason=f"agent {member.id}: {approval.reason}"))
            rule = rule_to_add(answer.rule, approval.suggestions) if answer.kind == "always" else ""
            if rule and not approval.is_plan and not is_apart:
                runs.allow(rule)  # the agent itself keeps it for the project
            return answer

        return ask

    # -- events

    def _on_child_event(self, member: TeamMember, child: ChildAgent, event: Event) -> None:
        match event:
            case ToolStarted():
                self._update_line(member, event.name, event.input)
            case ReplyObserved():
                member.turns += 1
            case DecisionMade():
                meter = child.parts.events.meter
                member.tokens, member.cost_usd = meter.tokens, meter.cost_usd
            case AgentStarted() | AgentProgressed() | AgentEnded():
                self._emit(event)
            case UserMessaged():
                self._emit(replace(event, session=self._options.name))
            case PermissionDecided(allowed=False):
                self._emit(replace(event, reason=f"{member.id}: {event.reason}"))
            case _:
                pass

    def _update_line(self, member: TeamMember, tool: str, given: Mapping[str, Any]) -> None:
        member.names = list(dict.fromkeys([*names_in(tool, given), *member.names]))[:_MAX_NAMES]
        self._show_line(member, line_for(tool, given))

    def _show_line(self, member: TeamMember, line: str) -> None:
        """Store and emit a progress line of a running agent, unless it is empty or the same as the last one."""
        if line and line != member.line and member.state == "running":
            member.line = line
            self._emit(AgentProgressed(self._options.name, member.id, line))

    def _report(self, problem: str) -> None:
        self._emit(FellBack(self._options.name, "agents", problem))


# An agent that works in a worktree may not write to these other parts of the Reverie directory without asking.
_HOME: Final = (
    "projects",
    "agents",
    "commands",
    "agent-memory",
    "agent-types",
    "teams",
    "queue",
    "skills",
    "config.toml",
    "trust.toml",
    "permissions.toml",
)


def _child_settings(settings: Settings, rules: PermissionRules, mode: Mode) -> Settings:
    """Return a sub-agent's settings: the parent's rules with this mode, no main agent's features, no MCP."""
    return replace(
        settings,
        switches=turned_off(settings.switches, list(_MAIN_ONLY)),
        permissions=replace(rules, mode=mode),
        agent=replace(settings.agent, budget_usd=None),
        mcp_servers={},
    )


def _last_text(view: View) -> str:
    """Return the text of the last assistant message in a view; an empty text if there is none."""
    for message in reversed(view.messages()):
        if message["role"] == "assistant":
            texts = [str(block["text"]) for block in as_blocks(message) if block.get("type") == "text"]
            return "\n".join(texts).strip()
    return ""


def _cut(output: Output, tool: Tool | None, most: int) -> Any:
    """Return the content of an output for a fork, with a long text cut, because forks do not offload."""
    limit = int(min(tool.max_chars or most, most)) if tool is not None else most
    content = output.content
    if isinstance(content, str) and len(content) > limit:
        return f"{content[:limit]}\n[cut here: {len(content) - limit:,} characters more; ask for less at a time]"
    return content
