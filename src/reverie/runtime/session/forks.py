"""Forks: side questions to a model on the warm prefix of a session, outside its conversation.

A fork sees the session's current view and answers one directive. Its replies and results are folded into a branch of
that view and do not enter the conversation; only its usage is recorded, under its own source. It has a copy of the read
state, a cancel scope under its caller's, and only the tools that its caller allows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import anyio

from ...cache.breakpoints import with_marks
from ...cache.usage import Usage, usage_of
from ...conversation.entries import Message, clean
from ...conversation.fork import ForkBase, before_directive, is_forked, with_reply, with_results
from ...conversation.reads import files_in_view
from ...conversation.side_query import REFUSAL, answer_problem, answer_text
from ...conversation.view import View
from ...conversation.wire.blocks import Block
from ...errors import InputError, ModelRefused, ModelUnavailable, ReplyBroken, SessionError
from ...model_facts import facts_of
from ...ports import Model, Reply
from ...values import record
from .host import SessionHost
from .replies import Call, open_calls, plain_reply, result_content

DENIED: Final = "This call was not run: a side question may not use this tool. Answer from the conversation so far."
_PAUSED: Final = "pause_turn"
_source: ContextVar[str] = ContextVar("reverie_fork_source", default="")


def forking() -> str:
    """Return the source of the fork that runs the current task; an empty string outside forks."""
    return _source.get()


@dataclass(slots=True)
class ForkState:
    """The state of one fork: the paths it has read, each with its call's id, and the names of denied tools."""

    source: str
    reads: dict[str, str]
    denied: list[str] = field(default_factory=lambda: list[str]())


@record
class ForkToolResult:
    """The result of a fork's tool call; ``allowed`` is False where the call was not run."""

    content: Any
    is_error: bool = False
    allowed: bool = True


ForkTool: TypeAlias = Callable[[Call, ForkState], Awaitable[ForkToolResult]]
OnCall: TypeAlias = Callable[[Usage, "float | None"], None]
ForkBounds: TypeAlias = Callable[[int, Usage, "float | None"], bool]
"""A check after each reply of a fork: given its turns, usage and cost, return whether it may continue."""


class ForkBatch:
    """Forks of one view: they share every byte but their directive, and the first is sent before the others."""

    def __init__(self, forked: ForkBase) -> None:
        self.forked = forked
        self._led = False
        self._began = anyio.Event()

    async def turn(self) -> anyio.Event | None:
        """Wait until the first fork's answer begins and return None; give the first fork the event to set."""
        if not self._led:
            self._led = True
            return self._began
        await self._began.wait()
        return None


@record
class ForkReply:
    """The last answer of a fork, and the usage of all its calls; ``denied`` names the tools it was refused.

    ``problem`` is the reason why there is no answer, such as a refusal, and empty otherwise.
    """

    text: str
    content: list[Any]
    usage: Usage
    cache_read_share: float
    cost_usd: float | None
    turns: int = 1
    denied: tuple[str, ...] = ()
    stop_reason: str = ""
    problem: str = ""
    unfinished: bool = False
    """Whether the model wanted another turn and may not have one."""

    @property
    def refused(self) -> bool:
        """Whether the model declined to answer; the same question would be declined again."""
        return self.stop_reason == REFUSAL

    def answer(self) -> str:
        """Return the text; raise ``ModelRefused`` if the model declined to answer, ``ReplyBroken`` if there is none."""
        if self.problem:
            raise (ModelRefused if self.refused else ReplyBroken)(self.problem)
        return self.text


class Forks:
    """Asks side questions for one session."""

    def __init__(
        self, session: SessionHost, model: Model, *, view: View | None = None, on_call: OnCall | None = None
    ) -> None:
        """Branch off the session's current view, or a given one; ``on_call`` gets usage and cost of every call."""
        self._session = session
        self._model = model
        self._view = view
        self._on_call = on_call
        self._running: set[anyio.CancelScope] = set()

    async def ask(
        self,
        directive: str,
        *,
        source: str,
        max_tokens: int,
        tools: ForkTool | None = None,
        max_turns: int = 1,
        timeout_seconds: float | None = None,
        on_text: Callable[[str], None] | None = None,
        within: ForkBounds | None = None,
        batch: ForkBatch | None = None,
    ) -> ForkReply:
        """Ask one question and return the last reply; ``tools`` runs tool calls, for at most ``max_turns`` turns.

        Raise ``ModelUnavailable`` if there is no answer within ``timeout_seconds``, and ``SessionError`` inside a
        fork.
        """
        batch = batch if batch is not None else self.batch(max_tokens)
        view = self._view if self._view is not None else self._session.log.view
        run = _Run(self._session, self._model, view, source, tools, on_text, await batch.turn(), within, self._on_call)
        try:
            return await self._scoped(run, batch.forked, directive, max_turns, timeout_seconds)
        finally:
            if run.began is not None:
                run.began.set()

    def batch(self, max_tokens: int) -> ForkBatch:
        """Return a ``ForkBatch`` of the view for one or more forks; raise ``SessionError`` inside a fork."""
        return ForkBatch(self._forked(max_tokens))

    async def ask_many(
        self,
        directives: Sequence[str],
        *,
        source: str,
        max_tokens: int,
        tools: ForkTool | None = None,
        max_turns: int = 1,
        timeout_seconds: float | None = None,
    ) -> list[ForkReply | BaseException]:
        """Ask several questions at once on one prefix and return a list of replies, in the order of the questions.

        The exception of a failed question takes the place of its reply. The other questions are sent after the
        first answer begins.
        """
        batch = self.batch(max_tokens)
        out: list[ForkReply | BaseException] = [SessionError("this side question was not asked")] * len(directives)

        async def one(at: int) -> None:
            try:
                out[at] = await self.ask(
                    directives[at],
                    source=source,
                    max_tokens=max_tokens,
                    tools=tools,
                    max_turns=max_turns,
                    timeout_seconds=timeout_seconds,
                    batch=batch,
                )
            except Exception as error:
                out[at] = error

        async with anyio.create_task_group() as group:
            for at in range(len(directives)):
                group.start_soon(one, at)
        return out

    def cancel(self) -> None:
        """Cancel every running question; its ``ask`` raises ``ModelUnavailable``."""
        for scope in list(self._running):
            scope.cancel()

    def _forked(self, max_tokens: int) -> ForkBase:
        view = self._view if self._view is not None else self._session.log.view
        if forking():
            raise SessionError(f"a fork ({forking()}) cannot fork: answer the directive from the conversation")
        if is_forked(view):
            raise SessionError("this conversation is a fork itself: a fork cannot fork")
        model = self._model.model_id
        return ForkBase(view, model, facts_of(model, self._session.policy.settings.models), max_tokens)

    async def _scoped(
        self, run: _Run, forked: ForkBase, directive: str, max_turns: int, timeout_seconds: float | None
    ) -> ForkReply:
        token = _source.set(run.source)
        reply: ForkReply | None = None
        try:
            with anyio.move_on_after(timeout_seconds) as scope:
                self._running.add(scope)
                try:
                    reply = await run.answered(forked, directive, max_turns)
                finally:
                    self._running.discard(scope)
        finally:
            _source.reset(token)
        if reply is None:
            within = f"within {timeout_seconds:g} s" if timeout_seconds is not None else "before it was given up"
            raise ModelUnavailable(f"the side question ({run.source}) was not answered {within}")
        return reply


@dataclass(slots=True)
class _Spent:
    """The turns, the usage and the cost of a fork so far; the cost is None once a call has no known price."""

    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0


@dataclass(slots=True)
class _Run:
    """One running fork."""

    session: SessionHost
    model: Model
    view: View
    source: str
    tools: ForkTool | None
    on_text: Callable[[str], None] | None
    began: anyio.Event | None
    within: ForkBounds | None = None
    on_call: OnCall | None = None

    async def answered(self, forked: ForkBase, directive: str, max_turns: int) -> ForkReply:
        state = ForkState(self.source, files_in_view(self.view))
        branch = forked.branch(clean(directive), source=self.source)
        checked = self.session.branch_thinking(forked.view, forked.facts)
        spent = _Spent()
        while True:
            if checked is not None:
                branch, request = checked.fitted(branch, forked.request)
            else:
                request = forked.request(branch)
            # A breakpoint at the directive would be one that no other request can read.
            shared = request["messages"] if spent.turns else before_directive(request["messages"])
            marked = with_marks(request, self.session.mark_fork(forked.view, shared))
            body = await self._sent({**marked, **self.session.policy.request_extras})
            await self._record(body, spent)
            message, rest = _reply_of(body)
            branch = with_reply(branch, message, rest)
            if checked is not None and branch.last is not None:
                checked.bind(branch.last)
            calls = open_calls(branch, message, request.get("tools") or ())
            stopped = str(rest.get("stop_reason") or "")
            may_go_on = self.within is None or self.within(spent.turns, spent.usage, spent.cost)
            unfinished = stopped == _PAUSED or (bool(calls) and stopped != REFUSAL)
            if not unfinished or not may_go_on or spent.turns >= max_turns:
                break
            if calls:
                branch = with_results(branch, [await self._result(call, state) for call in calls])
        content: Any = message["content"]
        text = answer_text(content)
        blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        share = spent.usage.read / spent.usage.input if spent.usage.input else 0.0
        problem = answer_problem(rest, text)
        denied = tuple(state.denied)
        return ForkReply(
            *(text, blocks, spent.usage, share, spent.cost, spent.turns, denied, stopped), problem, unfinished
        )

    async def _record(self, body: dict[str, Any], spent: _Spent) -> None:
        """Record the usage and the price of one call."""
        price = await self.session.record_call(body, source=self.source)
        reported: Any = body.get("usage")
        usage = usage_of(cast("Mapping[str, Any]", reported) if isinstance(reported, Mapping) else {})
        spent.turns += 1
        spent.usage = spent.usage.plus(usage)
        spent.cost = None if price is None or spent.cost is None else spent.cost + price
        if self.on_call is not None:
            self.on_call(usage, price)

    async def _sent(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the body of the reply; pass its text to ``on_text`` as it arrives."""
        await self.session.log.sync()
        async with aclosing(self.model.stream(request)) as stream:
            async for piece in stream:
                self.session.patience.hear()
                if self.began is not None:
                    self.began.set()
                if isinstance(piece, Reply):
                    return piece.body
                if piece.kind == "text" and self.on_text is not None:
                    self.on_text(piece.text)
        raise ReplyBroken("the model's stream ended without a reply")

    async def _result(self, call: Call, state: ForkState) -> Block:
        answer = ForkToolResult(DENIED, is_error=True, allowed=False)
        if self.tools is not None:
            answer = await self.tools(call, state)
        if not answer.allowed:
            state.denied.append(call.name)
        block: Block = {"type": "tool_result", "tool_use_id": call.id, "content": result_content(answer.content)}
        if answer.is_error:
            block["is_error"] = True
        return block


def _reply_of(body: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    try:
        return plain_reply(body)
    except InputError as error:
        raise ReplyBroken(f"the reply cannot be used: {error}") from error
