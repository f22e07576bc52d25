"""What makes an agent run: a fork on the parent's prefix, or an agent of its own with a smaller set of the same tools.

Both do nothing their parent could not do: their tools are among the parent's, their mode is the parent's or narrower,
and what needs asking asks whoever the parent asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
)
from ....layers.l7_relay import AgentKind, allowed_tools, line_for, names_in, narrower
from ....models.names import full_name
from ....ports import Model
from ....settings import Mode, Settings
from ....settings.records import turned_off
from ....tools.tool import Output, Tool
from ....values import replace
from ...guard.permissions import Approval, ApprovalAnswer, Approver
from ...mail.local_queues import Neighbours
from ...places.trust import TrustList
from ...session.forks import DENIED, Answered, Batch, ForkState
from ...session.replies import Call
from ..tool_runs import ToolRuns
from .progress import Narrator
from .roster import Roster, TeamMember
from .spawner import Ended, Running, Spawner
from .type_memory import TypeMemory
from .types import find_kinds, prompt_of
from .worktrees import Worktree

if TYPE_CHECKING:
    from ..agent import Agent

__all__ = ["AgentRunner", "Lineage"]

SOURCE: Final = "agent"
_NOT_FOR_FORKS: Final = frozenset({"Agent", "AgentStop", "SendMessage"})
_FORK_RESULT_CHARS: Final = 50_000
_MODES: Final[Mapping[str, Mode]] = {
    "plan": "plan",
    "default": "default",
    "accept-edits": "accept-edits",
    "bypass": "bypass",
}
# What a sub-agent has not: notes and memories of the project are the main conversation's.
_MAIN_ONLY: Final = ("notes", "extraction", "recall", "dream")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where an agent that another one started comes from."""

    id: str
    depth: int
    roster: Roster
    over_limit: Callable[[], str]
    memory: TypeMemory | None = None
    borrowed: bool = True
    """Whether its model is its parent's, to be closed by the parent."""
    neighbours: Neighbours = field(default_factory=Neighbours)
    """The agents of this process, which write to each other by name."""
    lead: str = ""
    """Who started it."""
    protected: tuple[Path, ...] = ()
    """Places where it may not write without asking, in place of its home."""


class AgentRunner:
    """Makes the agents of one agent run."""

    def __init__(self, host: Agent, neighbours: Neighbours) -> None:
        self._host = host
        self._neighbours = neighbours
        self.spawning: Spawner

    async def kinds(self) -> Mapping[str, AgentKind]:
        """Return the types there are; what is wrong with some is told."""
        host = self._host
        trusted = await to_thread.run_sync(lambda: TrustList.open(host.settings.home).is_trusted(host.cwd))
        found, problems = await to_thread.run_sync(
            lambda: find_kinds(host.cwd, home=host.settings.home, trusted=trusted)
        )
        for one in problems:
            host.emit(FellBack(host.name, "agents", one))
        return found

    def batch(self) -> Batch:
        """Take the moment that forks branch off from."""
        return self._host.session.forks(self._host.model).batch(self._host.max_tokens)

    # -- forks

    def fork(self, prompt: str, batch: Batch) -> Running:
        """Return what runs a fork of the conversation."""

        async def running(spawned: TeamMember) -> Ended:
            host = self._host
            context = host.context.forked(agents=None, post=None)
            runs = host.runs.forked(context, approve=self._approver(spawned), emit=self._heard_of_fork)
            spawned.context, spawned.tools = context, tuple(set(runs.tools) - _NOT_FOR_FORKS)

            def narrow(mode: str) -> None:
                runs.mode = _MODES[narrower(runs.mode, mode)]

            spawned.narrow = narrow

            def within(turns: int, usage: Usage, cost: float | None) -> bool:
                spawned.turns, spawned.tokens, spawned.cost_usd = turns, usage.input + usage.output, cost
                return not self.spawning.over_limit(spawned)

            async def run(call: Call, state: ForkState) -> Answered:
                return await self._run_for_fork(runs, spawned, call)

            try:
                reply = await host.session.forks(host.model).ask(
                    prompt_of("fork").replace("{directive}", prompt),
                    source=SOURCE,
                    max_tokens=host.max_tokens,
                    tools=run,
                    max_turns=self.spawning.roster.policy.max_turns,
                    within=within,
                    batch=batch,
                )
            finally:
                await context.aclose()
            wanted_more = any(block.get("type") == "tool_use" for block in reply.content)
            why = (self.spawning.over_limit(spawned) or "it took all its turns") if wanted_more else ""
            return ("failed" if why else "completed", reply.text, why)

        return running

    async def _run_for_fork(self, runs: ToolRuns, spawned: TeamMember, call: Call) -> Answered:
        if call.name in _NOT_FOR_FORKS:
            self._host.emit(PermissionDecided(self._host.name, call.name, False, "fork", "a fork cannot fork"))
            return Answered(f"{DENIED} (a fork starts no agents and writes to nobody)", is_error=True, allowed=False)
        self._doing(spawned, call.name, call.input)
        output = await runs.output(call)
        return Answered(_cut(output, runs.tools.get(call.name)), output.is_error)

    def _heard_of_fork(self, event: Event) -> None:
        if isinstance(event, PermissionDecided) and not event.allowed:
            self._host.emit(event)

    # -- sub-agents

    def sub_agent(self, prompt: str, kind: AgentKind, *, model: str, worktree: bool) -> Running:
        """Return what runs a sub-agent; a model it cannot have, and a worktree where there is no git, are refused."""
        host = self._host
        if model and model not in host.settings.model_aliases:
            known = ", ".join(host.settings.model_aliases) or "none"
            raise InputError(f"there is no model {model[:80]!r} to choose; there are: {known}")

        async def running(spawned: TeamMember) -> Ended:
            if not worktree:
                return await self._lived(spawned, prompt, kind, model, host.cwd)
            home = host.settings.home
            tree = await to_thread.run_sync(lambda: Worktree.add(host.cwd, home=home, name=spawned.id))
            try:
                return await self._lived(spawned, prompt, kind, model, tree.cwd)
            finally:
                with anyio.CancelScope(shield=True):
                    spawned.kept = await to_thread.run_sync(tree.finish)

        return running

    async def _lived(self, spawned: TeamMember, prompt: str, kind: AgentKind, model: str, cwd: Path) -> Ended:
        child = self._child(spawned, kind, model, cwd)
        text = ""
        end = QueryEnded(spawned.id, "aborted", "", 0)

        def hear(event: Event) -> None:
            nonlocal end
            if isinstance(event, QueryEnded):
                end = event
            self._heard(spawned, child, event)

        child.listen(hear)
        with anyio.CancelScope() as closing:
            await child.__aenter__()
            try:
                text = await self._asked(spawned, child, prompt)
            finally:
                closing.shield = True  # whoever gives up on it lets it close its log
                await child.__aexit__(*sys.exc_info())
        completed = end.end == "completed"
        return ("completed" if completed else "failed", text, "" if completed else f"{end.end}: {end.detail}")

    async def _asked(self, spawned: TeamMember, child: Agent, prompt: str) -> str:
        """Let an open agent do its task, and return what it said last."""
        spawned.context, spawned.sever = child.context, child.session.log.close

        def narrow(mode: str) -> None:
            child.mode = _MODES[narrower(child.mode, mode)]

        spawned.narrow = narrow
        async with anyio.create_task_group() as beside:
            if self.spawning.roster.policy.progress:
                beside.start_soon(self._narrator(spawned, child).run)
            async with aclosing(child.ask(prompt)) as events:
                async for _ in events:
                    pass
            beside.cancel_scope.cancel()
        return _last_text(child.session.view)

    def _narrator(self, spawned: TeamMember, child: Agent) -> Narrator:
        """Return who says in words what an agent is doing."""

        def say(line: str) -> None:
            self.spawning.progressed(spawned, line)

        small = self._host.small_model()
        return Narrator(spawned, child.session, lambda: child.model, small, self.spawning.roster.policy, say=say)

    def _child(self, spawned: TeamMember, kind: AgentKind, model: str, cwd: Path) -> Agent:
        """Make the agent: its own session and prompt, its parent's tools or fewer, its parent's rules."""
        from ..agent import Agent

        host = self._host
        names, unknown = allowed_tools(kind, list(host.runs.tools))
        if unknown:
            said = f"{kind.name} asks for tools that are not here, and goes without them: {', '.join(unknown)[:300]}"
            host.emit(FellBack(host.name, "agents", said))
        memory = TypeMemory.of(kind, host.cwd, host.settings)
        tools = [host.runs.tools[name] for name in names if name != "Memory"]
        if memory is not None and "Memory" in names:
            tools.append(memory.tool())
        spawned.tools = tuple(tool.name for tool in tools)
        asked, borrowed = self._model(kind, model)
        mode = narrower(host.mode, kind.mode or host.mode)
        policy = self.spawning.roster.policy
        home = host.settings.home
        away = tuple(home / name for name in _HOME) if cwd != host.cwd else ()
        lineage = Lineage(
            spawned.id,
            spawned.depth,
            self.spawning.roster,
            lambda: self.spawning.over_limit(spawned),
            memory,
            borrowed,
            self._neighbours,
            host.name,
            away,
        )
        return Agent(
            model=asked,
            cwd=cwd,
            session=spawned.id,
            settings=_for_child(host.settings, host.runs, mode),
            storage=host.storage,
            tools=tools,
            system="\n\n".join([kind.prompt, *([memory.rules()] if memory is not None else [])]),
            mode=_MODES[mode],
            approve=self._approver(spawned),
            hooks=host.callables,
            max_turns=min(policy.max_turns, kind.max_turns or policy.max_turns),
            clock=host.session.clock,
            lineage=lineage,
        )

    def _model(self, kind: AgentKind, asked: str) -> tuple[str | Model, bool]:
        """Return the model that answers, and whether it is the parent's; what cannot be had is told."""
        host = self._host
        name = asked or kind.model
        if not name:
            return host.model, True
        try:
            return full_name(name, aliases=host.settings.model_aliases), False
        except ModelUnknown:
            said = f"{kind.name} asks for the model {name[:80]!r}, which is no alias here; {host.model.name} answers"
            host.emit(FellBack(host.name, "agents", said))
            return host.model, True

    def _approver(self, spawned: TeamMember) -> Approver | None:
        """Return who is asked for an agent's calls: whoever the parent asks."""
        runs = self._host.runs
        if not runs.asks:
            return None

        async def ask(approval: Approval) -> ApprovalAnswer:
            return await runs.ask_user(replace(approval, reason=f"agent {spawned.id}: {approval.reason}"))

        return ask

    # -- what is heard of them

    def _heard(self, spawned: TeamMember, child: Agent, event: Event) -> None:
        match event:
            case ToolStarted():
                self._doing(spawned, event.name, event.input)
            case ReplyObserved():
                spawned.turns += 1
            case DecisionMade():
                spawned.tokens, spawned.cost_usd = child.used()
            case AgentStarted() | AgentProgressed() | AgentEnded():
                self._host.emit(event)
            case PermissionDecided(allowed=False):
                self._host.emit(replace(event, reason=f"{spawned.id}: {event.reason}"))
            case _:
                pass

    def _doing(self, spawned: TeamMember, tool: str, given: Mapping[str, Any]) -> None:
        spawned.names = names_in(given)
        self.spawning.progressed(spawned, line_for(tool, given))


# What lies in a home beside worktrees: an agent that works in one of those may not write there without asking.
_HOME: Final = (
    "projects",
    "agents",
    "agent-memory",
    "agent-types",
    "teams",
    "queue",
    "skills",
    "config.toml",
    "trust.toml",
)


def _for_child(settings: Settings, runs: ToolRuns, mode: str) -> Settings:
    """Return the settings of a sub-agent: the rules as they stand now, and nothing that only the main agent does."""
    return replace(
        settings,
        switches=turned_off(settings.switches, list(_MAIN_ONLY)),
        permissions=replace(runs.rules, mode=_MODES[mode]),
        agent=replace(settings.agent, budget_usd=None),
        mcp_servers={},
    )


def _last_text(view: View) -> str:
    """Return what was said last."""
    for message in reversed(view.messages()):
        if message["role"] == "assistant":
            texts = [str(block["text"]) for block in as_blocks(message) if block.get("type") == "text"]
            return "\n".join(texts).strip()
    return ""


def _cut(output: Output, tool: Tool | None) -> Any:
    """Return a result that a fork can hold: nothing is offloaded there, so what is too long is cut."""
    limit = (
        int(min(tool.max_chars or _FORK_RESULT_CHARS, _FORK_RESULT_CHARS)) if tool is not None else _FORK_RESULT_CHARS
    )
    content = output.content
    if isinstance(content, str) and len(content) > limit:
        return f"{content[:limit]}\n[cut here: {len(content) - limit:,} characters more; ask for less at a time]"
    return content
