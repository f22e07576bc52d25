"""Run the tool calls of a reply: check schema, hooks and permission, run each call, and log its result."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from anyio import CapacityLimiter, Lock, create_task_group, to_thread

from ...conversation.decisions import Cause, ToolsDeferred, ToolsFound
from ...conversation.wire.schemas import input_problem
from ...events import Event, PermissionDecided, ToolFinished, ToolStarted
from ...memories.recall.fence import escaped, with_visible_marks
from ...models import malformed_input
from ...settings import Mode, PermissionRules
from ...tools.context import ToolContext
from ...tools.files.workspace import with_grant
from ...tools.tool import Access, Output, Tool, declaration
from ...tools.tool_search import ToolSearch, definition_tokens, schema_answer, tools_to_defer
from ...values import record, replace
from ..guard.always import KeptRules, project_rule, rule_to_add, rules_to_keep
from ..guard.hooks import HookOutcome, Hooks
from ..guard.permissions import (
    Approval,
    ApprovalAnswer,
    Approver,
    PermissionScope,
    Verdict,
    decide,
    denied_reads,
)
from ..session.replies import Call, error_text, output_or_error, shown_value
from ..session.session import Session
from .interrupt import left_on_cancel

INTERRUPTED: Final = "[Stopped by the user before it finished. Its effects, if any, were not undone.]"
CUT_OFF: Final = (
    "[Not run: the reply was cut off by the output limit before this call was whole. Make it again, in smaller parts.]"
)
_SHOWN_CHARS: Final = 400
_END_CHARS: Final = 2_000
_PARALLEL: Final = frozenset({"none", "read", "fetch", "checkout"})
"""Kinds of access whose tool calls may run at the same time."""
_HOOK: Final = "hook"
_EXACT: Final = frozenset({"read", "write"})
"""Kinds of access whose results show files byte for byte, so that a later edit finds its passage."""
T = TypeVar("T")


@record
class ToolPermissions:
    """The permission rules for tool calls, and the function that asks a person."""

    rules: PermissionRules
    approve: Approver | None
    """Function that asks a person; None refuses every call that needs asking."""
    protected: tuple[Path, ...] = ()
    """Paths where writes ask, in addition to those of ``protected_files.py``."""
    sandboxed: bool = False
    """Whether this machine can run a command in the sandbox."""
    kept: KeptRules | None = None
    """The file of rules kept by project; None keeps every rule for the session only."""


class ToolRuns:
    """Runs the tool calls of replies after checking hooks and permissions, and logs a result for each call."""

    def __init__(
        self,
        session: Session,
        tools: Sequence[Tool],
        context: ToolContext,
        *,
        permissions: ToolPermissions,
        hooks: Hooks,
        emit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self.deferred: dict[str, Tool] = {}
        """The tools that requests declare only after they were found."""
        self.mode: Mode = permissions.rules.mode
        self.rules = permissions.rules
        self.context = context
        self.touched = set(session.view.facts.files.since(session.view.facts.files_answered))
        """Files that tools read or wrote; the query host takes them to attach instructions of their folders."""
        self.said_by_hooks: list[str] = []
        self.stopped_by: str | None = None
        self._session = session
        self._hooks = hooks
        self._permissions = permissions
        self._emit = emit
        self._clock = clock
        self._approval_lock = Lock()
        self._declared: list[dict[str, Any]] = []
        self._found: set[str] = set()
        self.add(tools)

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools, and declare them after those that are there."""
        self.tools |= {tool.name: tool for tool in tools}
        self._declared += [declaration(tool, self.tools) for tool in tools]

    async def defer(self, max_tokens: int) -> None:
        """Defer the tools that ask for it, and those of MCP servers if they take more tokens; add ToolSearch then."""
        facts = self._session.view.facts
        declared = {str(tool.get("name")) for tool in facts.tools}
        tools = tools_to_defer(
            self.tools.values(), max_tokens=max_tokens, declared=declared, earlier=facts.deferred_tools
        )
        self.deferred = {tool.name: tool for tool in tools}
        self._declared = [one for one in self._declared if one["name"] not in self.deferred]
        if tools:
            self.add([ToolSearch(tools)])
        sizes = {tool.name: definition_tokens(tool) for tool in tools}
        if sizes != facts.deferred_tools:
            await self._session.log.decide(ToolsDeferred(Cause("tools", "the deferred tools changed"), sizes))

    @property
    def declared(self) -> list[dict[str, Any]]:
        """The tool declarations of the next request: deferred tools come last, in the order they were found."""
        found = [self.deferred[name] for name in self._session.view.facts.found_tools if name in self.deferred]
        return [*self._declared, *(declaration(tool, self.tools) for tool in found)]

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked for permission."""
        return self._permissions.approve is not None

    def forked(self, context: ToolContext, *, approve: Approver | None, emit: Callable[[Event], None]) -> ToolRuns:
        """Return a ``ToolRuns`` of the same tools for a fork, with the current rules and another approver."""
        forked = ToolRuns(
            self._session,
            list(self.tools.values()),
            context,
            permissions=replace(self._permissions, rules=replace(self.rules, mode=self.mode), approve=approve),
            hooks=self._hooks,
            emit=emit,
            clock=self._clock,
        )
        forked.deferred = self.deferred
        return forked

    async def run(self, calls: Sequence[Call]) -> None:
        """Run the calls of one reply and log their results; in parallel only if none of them writes or runs."""
        if all(self._only_reads(call) for call in calls):
            at_once = CapacityLimiter(max(1, self.context.policy.parallel_tools))

            async def one(call: Call) -> None:
                async with at_once:
                    await self._answer(call)

            async with create_task_group() as group:
                for call in calls:
                    group.start_soon(one, call)
            return
        for call in calls:
            await self._answer(call)

    async def refuse(self, calls: Sequence[Call], text: str) -> None:
        """Log ``text`` as the error result of each of these calls, without running them."""
        for call in calls:
            await self._session.result(call.id, text, is_error=True)

    async def settle(self) -> None:
        """Log an error result for every call in the view that has none, because the user interrupted the query."""
        for called in self._session.view.unanswered():
            await self._session.result(called, INTERRUPTED, is_error=True)

    def _only_reads(self, call: Call) -> bool:
        tool = self.tools.get(call.name)
        if tool is None or call.problem is not None:
            return True
        access = access_of(tool, call.input, self.context)
        return isinstance(access, Access) and access.kind in _PARALLEL

    async def _answer(self, call: Call) -> None:
        """Run one call, log its output, also if it is an error, and note the files it touched."""
        output = await self.output(call)
        declared: Any = getattr(self.tools.get(call.name), "max_chars", None)
        limit = declared if isinstance(declared, int | float) else None
        await self._log_found(output.found)
        await self._session.result(
            call.id, output.content, is_error=output.is_error, max_chars=limit, files=output.files
        )
        self.touched.update(output.read, output.wrote)

    async def _log_found(self, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self._session.view.facts.found_tools]
        if new:
            await self._session.log.decide(ToolsFound(Cause("tools", "a search or a call named them"), new))

    def _is_found(self, name: str) -> bool:
        """Return whether a deferred tool was found in this session or, in a fork, by the fork itself."""
        return name in self._found or name in self._session.view.facts.found_tools

    async def output(self, call: Call) -> Output:
        """Run one call and return its output without logging it; an invalid or forbidden call returns an error."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools)
            return self._not_run(call, f"No tool is called {call.name!r}. There are: {known}.")
        if call.name in self.deferred and not self._is_found(call.name):
            self._found.add(call.name)
            return Output(schema_answer(tool), is_error=True, found=(call.name,))
        if malformed_input({"input": call.input}):
            return self._not_run(call, "The input was not valid JSON, so the call was not run. Make it again.")
        if call.problem is not None:
            return self._not_run(call, f"The input does not fit the tool's schema: {call.problem}")
        return await self._run_if_permitted(tool, call)

    def _not_run(self, call: Call, problem: str) -> Output:
        """Return the error of a call that cannot run, and report it like a call that failed."""
        self._emit(ToolStarted(self._session.name, call.id, call.name, dict(call.input)))
        self._emit(ToolFinished(self._session.name, call.id, call.name, True, problem[:_SHOWN_CHARS], 0.0, 1))
        return Output(problem, is_error=True)

    async def ask_user(self, approval: Approval) -> ApprovalAnswer:
        """Ask the person who approves calls, one question at a time; without an approver return a denial."""
        if self._permissions.approve is None:
            return ApprovalAnswer("deny", "there is no person to ask")
        async with self._approval_lock:
            return await self._permissions.approve(approval)

    async def _run_if_permitted(self, tool: Tool, call: Call) -> Output:
        payload = {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id}
        outcome = await self._hook_outcome(call.name, payload)
        given = outcome.updated_input if outcome.updated_input is not None else call.input
        problem = None if given is call.input else input_problem(self.declared, call.name, given)
        if problem is not None:
            return self._not_run(call, f"A hook changed the input, and it no longer fits the schema: {problem}")
        if outcome.block:
            self._emit_decision(call, given, Verdict("deny", outcome.reason, _HOOK))
            return Output(f"A hook refused this call: {escaped(outcome.reason) or 'it gave no reason'}", is_error=True)
        access = access_of(tool, given, self.context)
        if isinstance(access, str):
            return self._not_run(call, f"The tool failed before the call was permitted, so it was not run: {access}")
        target = access.target if access.kind in ("read", "write") else ""
        verdict = hooked_verdict(await self._verdict(tool.name, access), outcome)
        if verdict.outcome == "ask":
            problem = await problem_of(tool, given, with_grant(self.context, target))
            if problem:
                return await self._run(tool, call, given, _failed(problem))
            verdict = await self._ask(tool, call.id, given, access, verdict)
        self._emit_decision(call, given, verdict)
        if verdict.outcome != "allow":
            if verdict.by == "user" and verdict.reason:
                told = f"{call.name} was refused. To tell you how to continue, the user said:\n{verdict.reason}"
                return Output(told, is_error=True)
            advice = ". Describe the step you wanted to take, or continue without it." if verdict.by == "nobody" else ""
            reason = verdict.reason or "the user said no"
            return Output(f"Permission to use {call.name} was denied: {reason}{advice}", is_error=True)
        context = with_grant(
            self.context,
            target,
            restricted=verdict.restricted,
            reads_inside=verdict.reads_inside,
            hides_denied=verdict.hides_denied,
            directories=(*self.context.directories, *map(Path, verdict.reads)),
            denied=denied_reads(self.rules),
        )
        if access.kind != "read":  # an effect must not be on disk without the reply that asked for it
            await self._session.sync()
        return await self._run(tool, call, given, output_or_error(lambda: tool.run(given, context)))

    async def _hook_outcome(self, tool: str, payload: Mapping[str, Any]) -> HookOutcome:
        """Run the hooks before a call, with the reply that asks for it on disk."""
        if self._hooks.wants("before_tool"):
            await self._session.sync()
        outcome = await self._hooks.run("before_tool", payload, tool=tool)
        self._note_outcome(outcome)
        return outcome

    async def _ask(self, tool: Tool, call: str, given: Mapping[str, Any], access: Access, verdict: Verdict) -> Verdict:
        """Ask a person about a call, and return the verdict that the answer gives."""
        if self._permissions.approve is None:
            return Verdict("deny", f"{verdict.reason}, and there is no person to ask", "nobody")
        async with self._approval_lock:
            suggestions: tuple[str, ...] = ()
            if verdict.by != _HOOK:  # a hook asks about every such call, whatever rules allow
                again = await self._verdict(tool.name, access)  # an answer given in the meantime may cover this call
                if again.outcome == "allow":
                    return again
                suggestions = rules_to_keep(tool.name, access, cwd=self.context.cwd)
            target = access.target if access.kind in ("read", "write") else ""
            preview = await preview_of(tool, given, with_grant(self.context, target))
            approval = Approval(tool.name, dict(given), access, preview, verdict.reason, suggestions, id=call)
            answer = await self._permissions.approve(approval)
        if answer.kind == "always" and (rule := rule_to_add(answer.rule, suggestions)):
            self.allow(rule, keep=answer.keep)
        if answer.kind == "deny":
            return Verdict("deny", answer.message, "user")
        allowed = verdict if verdict.by == _HOOK else Verdict("allow", "", "user")
        return replace(allowed, outcome="allow", reason=answer.message or "the user allowed it", by="user")

    def allow(self, rule: str, *, keep: str = "session") -> None:
        """Allow the calls that a rule names from now on; with ``keep`` "project" also in later sessions there."""
        if keep == "project" and self._permissions.kept is not None:
            rule = project_rule(rule, self.context.cwd)
            self._permissions.kept.add(self.context.cwd, rule)
        self.rules = replace(self.rules, allow=(*self.rules.allow, rule))

    def kept_rules(self) -> list[tuple[str, str]]:
        """Return the rules that answers have added, as (rule, "session" or "project")."""
        kept = self._permissions.kept.of(self.context.cwd) if self._permissions.kept is not None else ()
        known = {*kept, *self._permissions.rules.allow}
        session = [(rule, "session") for rule in dict.fromkeys(self.rules.allow) if rule not in known]
        return [*session, *((rule, "project") for rule in kept)]

    def forget(self, rule: str) -> None:
        """Ask again about the calls that a kept rule allowed, in this session and in later ones."""
        self.rules = replace(self.rules, allow=tuple(one for one in self.rules.allow if one != rule))
        if self._permissions.kept is not None:
            self._permissions.kept.remove(self.context.cwd, rule)

    async def _verdict(self, tool: str, access: Access) -> Verdict:
        scope = PermissionScope(
            self.context.cwd,
            directories=self.context.directories,
            protected=self._permissions.protected,
            sandboxed=self._permissions.sandboxed,
        )
        if access.kind != "run":
            return decide(self.rules, self.mode, tool, access, scope)
        # The globs of a command are expanded, and a repository may be asked about denied files.
        return await to_thread.run_sync(decide, self.rules, self.mode, tool, access, scope)

    def _emit_decision(self, call: Call, given: Mapping[str, Any], verdict: Verdict) -> None:
        allowed, by, reason = verdict.outcome == "allow", verdict.by, verdict.reason
        self._emit(PermissionDecided(self._session.name, call.name, allowed, by, reason, call.id, dict(given)))

    async def _run(self, tool: Tool, call: Call, given: Mapping[str, Any], work: Coroutine[Any, Any, Output]) -> Output:
        self._emit(ToolStarted(self._session.name, call.id, call.name, dict(given)))
        started = self._clock()
        output = await left_on_cancel(work)
        access = access_of(tool, given, self.context)
        if isinstance(access, str) or access.kind not in _EXACT:
            output = _with_visible_marks(output)
        shown = output.text
        self._found.update(output.found)
        seconds = self._clock() - started
        began, end = shown[:_SHOWN_CHARS], shown[-_END_CHARS:] if len(shown) > _SHOWN_CHARS else ""
        lines = len(shown.splitlines()) if output.lines is None else output.lines
        self._emit(ToolFinished(self._session.name, call.id, call.name, output.is_error, began, seconds, lines, end))
        payload = {
            "tool_name": call.name,
            "tool_input": dict(given),
            "tool_use_id": call.id,
            "tool_response": shown,
            "is_error": output.is_error,
        }
        self._note_outcome(await self._hooks.run("after_tool", payload, tool=call.name))
        return output

    def _note_outcome(self, outcome: HookOutcome) -> None:
        """Keep a hook's context, and its wish to stop the query, for the query loop."""
        if outcome.context:
            self.said_by_hooks.append(outcome.context)
        if outcome.stop:
            self.stopped_by = outcome.reason or "a hook asked to stop"


def hooked_verdict(verdict: Verdict, outcome: HookOutcome) -> Verdict:
    """Return a verdict after a hook's decision: it replaces the rules, but no denial and no wall around a command."""
    if outcome.permission is None or verdict.outcome == "deny":
        return verdict
    if verdict.outcome == "allow":
        return replace(verdict, outcome=outcome.permission, reason=escaped(outcome.reason), by=_HOOK)
    return Verdict(outcome.permission, escaped(outcome.reason), _HOOK)


async def _failed(problem: str) -> Output:
    return Output(problem, is_error=True)


def _with_visible_marks(output: Output) -> Output:
    """Return an output whose texts hide no characters from a reader."""
    if isinstance(output.content, str):
        return replace(output, content=with_visible_marks(output.content))
    shown = [
        {**block, "text": with_visible_marks(block["text"])} if isinstance(block.get("text"), str) else block
        for block in output.content
    ]
    return replace(output, content=shown)


def access_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> Access | str:
    """Return the effect of a call, or the problem if the tool raises or returns something else."""
    try:
        found: Any = tool.access(given, context)
    except Exception as error:
        return f"{type(error).__name__}: {error_text(error)}"
    return found if isinstance(found, Access) else f"its access is {shown_value(found)}"


async def preview_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return the preview of a call; if it fails, a text that says so."""
    try:
        return str(await tool.preview(given, context))
    except Exception as error:
        return f"(the preview failed: {type(error).__name__}: {error_text(error)})"


async def problem_of(tool: Tool, given: Mapping[str, Any], context: ToolContext) -> str:
    """Return why a call must fail, if its tool can tell beforehand; else an empty text."""
    check = cast("Callable[..., Awaitable[str]] | None", getattr(tool, "check", None))
    try:
        return str(await check(given, context)) if check is not None else ""
    except Exception:
        return ""  # the call itself will tell
