"""The query loop: from a prompt to its end, one model reply after the other.

Each turn runs these steps: build a request that fits the window (``Session.prepare``: offload, trim, compact, check
the blocking limit), stream the model's reply, log it (``Session.observe``; notes run in the background), then run its
tools or end the query.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

from anyio import CancelScope

from ...conversation.wire.blocks import check_content
from ...conversation.wire.request import CONTINUE
from ...errors import (
    CompactionError,
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    ReplyBroken,
    StorageError,
    WindowFull,
)
from ...events import Event, FellBack, PromptAdded, QueryEnded, TextStreamed, ThinkingStreamed
from ...ports import Reply, ReplyDelta
from ..guard.hooks import Hooks
from ..session.session import Session
from .answers import EventFeed
from .host import AgentHost, QueryEnd
from .interrupt import Interrupt, QueryInterrupted
from .tool_runs import CUT_OFF, ToolRuns

Prompt = str | list[dict[str, Any]]
GO_ON: Final = (
    "Your reply was cut off by the output limit. Continue exactly where it stopped; do not repeat yourself and do "
    "not apologise. If the rest is long, do it in smaller parts."
)
STOPPED: Final = "[The user stopped the reply here.]"
STOPPED_BY_USER: Final = "stopped by the user"
CUT: Final = "max_tokens"
FULL: Final = "model_context_window_exceeded"
UNASKED: Final = "compaction"
"""The stop reason of a summary by the provider, which no request of this loop asks for."""
MAX_CONTINUES: Final = 3
MAX_SENT_BACK: Final = 5
"""How often hooks of the event ``stop`` may make the model continue in one query."""


@dataclass(slots=True)
class QueryRun:
    """One running query: the parts of the agent that it uses, its counters, and its end (None while it runs)."""

    session: Session
    host: AgentHost
    runs: ToolRuns
    hooks: Hooks
    interrupt: Interrupt
    events: EventFeed
    next_prompt: Callable[[], str | None] = lambda: None
    """Takes the next prompt that the user sent since this query began."""
    end: QueryEnd | None = None
    turns: int = 0
    continues: int = 0
    sent_back: int = 0


async def run_query(run: QueryRun, prompt: Prompt | None) -> AsyncGenerator[Event, None]:
    """Answer a prompt; yield the query's events as they happen, ``QueryEnded`` last.

    Without a prompt, let the model answer to results and messages that arrived since its last reply.
    On an error or cancellation, complete the log and emit ``QueryEnded`` without yielding it, then raise.
    """
    try:
        run.end = await _begin(run, prompt)
        while run.end is None:
            async with aclosing(_turn(run)) as events:
                async for event in events:
                    yield event
    except QueryInterrupted:
        run.end = QueryEnd("aborted", STOPPED_BY_USER)
        await _settle(run)
        run.host.keep_warm()
    except BaseException:
        with CancelScope(shield=True):  # the log must be complete even if the caller cancels
            with suppress(StorageError):  # the error that ended the query says more
                await _settle(run)
            _emit_end(run, QueryEnd("aborted", "cancelled"))
        raise
    await run.session.sync()
    _emit_end(run, run.end or QueryEnd("completed"))
    for event in run.events.new_events():
        yield event


async def _turn(run: QueryRun) -> AsyncGenerator[Event, None]:
    """Run one turn (limits, request, reply, tools) and yield its events; set ``run.end`` if it is the last."""
    for event in run.events.new_events():
        yield event
    request = await _request(run)
    if request is None:
        return
    reply: Reply | None = None
    try:
        async with aclosing(run.host.parts.model.stream(request)) as stream:
            while reply is None:
                piece = await run.interrupt.guard(_next(stream))
                if isinstance(piece, Reply):
                    reply = piece
                else:
                    _show(run, piece)
                for event in run.events.new_events():
                    yield event
    except PromptTooLong as error:
        run.end = await _make_room(run, error)
    except ModelError as error:
        run.end = None if await _survived(run, error) else QueryEnd("model_error", str(error))
    else:
        run.turns += 1
        run.end = await _handle_reply(run, reply.body)


async def _survived(run: QueryRun, error: ModelError) -> bool:
    """Repair the request that a provider refused, or ask the fallback model; return whether the query can go on."""
    if await run.session.recover(error):
        return True
    is_away = isinstance(error, ModelUnavailable | ReplyBroken)
    return is_away and run.host.fall_back(f"is unavailable ({error})", for_query=True)


async def _request(run: QueryRun) -> dict[str, Any] | None:
    """Return the next request; set ``run.end`` and return None if the query ends early or the window is full."""
    run.end = run.host.early_end(run.turns)
    if run.end is not None:
        return None
    run.host.let_go()
    try:
        return await run.interrupt.guard(run.session.prepare(**run.host.request_options()))
    except WindowFull as error:
        run.end = QueryEnd("blocking_limit", str(error))
        return None


async def _begin(run: QueryRun, prompt: Prompt | None) -> QueryEnd | None:
    """Run the prompt hooks, add attachments and log the prompt; if a hook refuses it, return the query's end."""
    if run.interrupt.is_requested:
        return QueryEnd("aborted", STOPPED_BY_USER)
    if prompt is None:
        await run.interrupt.guard(run.host.begin_query(""))
        return None
    check_content("the prompt", prompt)
    text = prompt if isinstance(prompt, str) else "\n".join(str(block.get("text", "")) for block in prompt)
    refused = await _say(run, prompt, text)
    return QueryEnd("hook_stopped", refused) if refused is not None else None


async def _say(run: QueryRun, prompt: Prompt, text: str) -> str | None:
    """Run the prompt hooks, add attachments and log the prompt; if a hook refuses it, return the reason."""
    outcome = await run.interrupt.guard(run.hooks.run("user_prompt", {"prompt": text}))
    if outcome.block or outcome.stop:
        return outcome.reason or "a hook refused the prompt"
    await run.interrupt.guard(run.host.begin_query(text))
    await run.session.say(prompt)
    if outcome.context:
        await run.session.attach(outcome.context, type="hook")
    return None


async def _take_prompts(run: QueryRun) -> bool:
    """Add the prompts that the user sent meanwhile to the query; return whether there were any."""
    is_added = False
    while (text := run.next_prompt()) is not None:
        try:
            refused = await _say(run, text, text)
        except QueryInterrupted:
            await run.session.say(text)  # the user's words are never lost
            raise
        if refused is None:
            is_added = True
            run.events.emit(PromptAdded(run.session.name, text))
        else:
            run.events.emit(FellBack(run.session.name, "prompt", refused))
    return is_added


async def _next(stream: AsyncGenerator[ReplyDelta | Reply, None]) -> ReplyDelta | Reply:
    try:
        return await anext(stream)
    except StopAsyncIteration:
        raise ModelError("the model's stream ended without a reply; ask again") from None


def _show(run: QueryRun, piece: ReplyDelta) -> None:
    if piece.kind == "text":
        run.events.emit(TextStreamed(run.session.name, piece.text))
    elif piece.kind == "thinking":
        run.events.emit(ThinkingStreamed(run.session.name, piece.text))


async def _make_room(run: QueryRun, error: PromptTooLong | None = None) -> QueryEnd | None:
    """Compact, and learn the limit of a refusal, after a prompt was too long; return the query's end if that fails.

    Each compaction that succeeds makes the prompt shorter, so a query survives several refusals and still ends.
    """
    try:
        await run.interrupt.guard(run.session.compact_reactively(error))
    except CompactionError as failed:
        return QueryEnd("prompt_too_long", f"{error or 'the reply reached the end of the window'}; {failed}")
    return None


async def _handle_reply(run: QueryRun, reply: dict[str, Any]) -> QueryEnd | None:
    """Log a reply, then run its tools, ask to continue it if cut, or finish; return the query's end or None.

    A cut reply is asked for again if the output limit can be raised; a refused one goes to the fallback model.
    """
    stopped = reply.get("stop_reason")
    if stopped == CUT and not run.continues:
        raised = run.host.raised_limit()
        if raised is not None:
            run.host.parts.max_tokens = raised
            await run.session.parts.host.record_call(reply, source="cut_off")
            return None
    if stopped == "refusal":
        await run.session.parts.host.record_call(reply, source="refused")
        return None if run.host.fall_back("declined") else QueryEnd("model_error", "the model declined to answer")
    if stopped == UNASKED:
        await run.session.parts.host.record_call(reply, source="compact")
        run.continues += 1
        return None if run.continues <= MAX_CONTINUES else QueryEnd("model_error", "the model sent only summaries")
    calls = await run.session.observe(reply)
    run.host.keep_warm()
    if stopped == CUT:
        return await _continue_reply(run, calls)
    if stopped == FULL:
        return await _continue_reply(run, calls, is_full=True)
    run.continues = 0
    if calls:
        await run.interrupt.guard(run.runs.run(calls))
        await _after_tools(run)
        return QueryEnd("hook_stopped", run.runs.stopped_by) if run.runs.stopped_by else None
    if stopped == "pause_turn":
        return None
    return await _finish(run)


async def _continue_reply(run: QueryRun, calls: list[Any], *, is_full: bool = False) -> QueryEnd | None:
    """Log errors for the tool calls of a cut reply and ask the model to go on; end after too many cuts.

    ``is_full`` says that the end of the window cut the reply, so that a compaction comes first.
    """
    await run.runs.refuse(calls, CUT_OFF)
    failed = await _make_room(run) if is_full else None
    if failed is not None:
        return failed
    if run.continues >= MAX_CONTINUES:
        return QueryEnd("completed", f"the reply was cut off {MAX_CONTINUES + 1} times by the output limit")
    run.continues += 1
    if not calls:
        await run.session.attach(GO_ON, type="continue")
    return None


async def _after_tools(run: QueryRun) -> None:
    said, run.runs.said_by_hooks = run.runs.said_by_hooks, []
    for text in said:
        await run.session.attach(text, type="hook")
    if not await _take_prompts(run):
        await run.interrupt.guard(run.host.add_attachments())


async def _finish(run: QueryRun) -> QueryEnd | None:
    """Run the stop hooks on a final reply; return the query's end, or None if they or a new prompt continue it."""
    if await _take_prompts(run):
        return None
    payload = {"stop_hook_active": run.sent_back > 0}
    outcome = await run.interrupt.guard(run.hooks.run("stop", payload))
    if outcome.stop:
        return QueryEnd("hook_stopped", outcome.reason or "a hook asked to stop")
    if outcome.block and run.sent_back < MAX_SENT_BACK:
        run.sent_back += 1
        await run.session.attach(outcome.context or CONTINUE, type="hook")
        return None
    await run.host.end_query()
    return QueryEnd("completed")


async def _settle(run: QueryRun) -> None:
    """Complete the log so that it can be resumed: add missing tool results, or else note the interruption."""
    if run.session.view.unanswered():
        await run.runs.settle()
    elif run.session.view.length:
        await run.session.attach(STOPPED, type="interrupted")
    await run.session.sync()


def _emit_end(run: QueryRun, end: QueryEnd) -> None:
    run.events.emit(QueryEnded(run.session.name, end.end, end.detail, run.turns, run.events.meter.cost_usd))
