"""The query loop: from a prompt to its end, one reply after the other.

Each turn in this order: what the window holds is brought into bounds and becomes a request (``Session.prepare``:
offload budget, trim, compact, blocking check), the model replies, the reply is logged (``Session.observe``; notes run
behind), then its tools run, or the query ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from anyio import CancelScope

from ...conversation.wire.request import CONTINUE
from ...errors import CompactionError, ModelError, PromptTooLong, WindowFull
from ...events import Event, QueryEnded, TextStreamed, ThinkingStreamed
from ...ports import Model, Piece, Reply
from ...values import record
from ..guard.hooks import Hooks
from ..session.session import Session
from .interrupt import Interrupt, QueryInterrupted
from .tool_runs import CUT_OFF, ToolRuns

__all__ = ["Prompt", "QueryEnd", "QueryHost", "QueryRun", "run_query"]

Prompt = str | list[dict[str, Any]]
GO_ON: Final = (
    "Your reply was cut off by the output limit. Go on exactly where it stopped; do not repeat what you said and do "
    "not apologise. If what is left is long, do it in smaller parts."
)
STOPPED: Final = "[The user stopped the reply here.]"
CUT: Final = "max_tokens"
CONTINUES: Final = 3
HOOKED: Final = 5
"""How often stop hooks may send the model back to work in one query."""


@record
class QueryEnd:
    """How a query ended, by the names of Q6, and what there is to say about it."""

    end: str
    detail: str = ""


class QueryHost(Protocol):
    """Who the loop works for: what changes between turns, and what is wanted around them."""

    @property
    def model(self) -> Model:
        """Who answers."""
        ...

    max_tokens: int

    def opening(self) -> dict[str, Any]:
        """Return the arguments of ``Session.prepare``: model, system, tools, options."""
        ...

    def raised_limit(self) -> int | None:
        """Return the larger output limit for a reply that was cut off; None where there is none."""
        ...

    def fall_back(self) -> bool:
        """Let another model answer from now on; say whether there is one."""
        ...

    def out_of_bounds(self, turns: int) -> QueryEnd | None:
        """Say whether turns or money have run out."""
        ...

    async def begin(self, prompt: str) -> None:
        """Attach what has changed since the last prompt, and look for what helps with this one."""
        ...

    async def completed(self) -> None:
        """Begin what runs behind a query that is complete."""
        ...

    async def attachments(self) -> None:
        """Attach what a turn calls for: instruction files of folders that were touched, a new day."""
        ...

    def cost_usd(self) -> float | None:
        """Return what the session has cost so far, where prices are known."""
        ...


@dataclass(slots=True)
class QueryRun:
    """Everything a query is made of, given from outside."""

    session: Session
    seat: QueryHost
    runs: ToolRuns
    hooks: Hooks
    interrupt: Interrupt
    emit: Callable[[Event], None]
    heard: Callable[[], Iterable[Event]]
    """Return the events since it was last called, in their order."""
    turns: int = 0
    continues: int = 0
    sent_back: int = 0
    made_room: bool = False


async def run_query(run: QueryRun, prompt: Prompt) -> AsyncGenerator[Event, None]:
    """Answer a prompt; every event as it happens, ``QueryEnded`` last."""
    end: QueryEnd | None = None
    try:
        end = await _begun(run, prompt)
        while end is None:
            for event in run.heard():
                yield event
            end = run.seat.out_of_bounds(run.turns)
            if end is not None:
                break
            try:
                request = await run.interrupt.guard(run.session.prepare(**run.seat.opening()))
            except WindowFull as error:
                end = QueryEnd("blocking_limit", str(error))
                break
            reply: Reply | None = None
            try:
                async with aclosing(run.seat.model.stream(request)) as stream:
                    while reply is None:
                        piece = await run.interrupt.guard(_next(stream))
                        if isinstance(piece, Reply):
                            reply = piece
                        else:
                            _show(run, piece)
                        for event in run.heard():
                            yield event
            except PromptTooLong as error:
                end = await _room(run, error)
                continue
            except ModelError as error:
                end = QueryEnd("model_error", str(error))
                break
            run.turns += 1
            end = await _replied(run, reply.body)
    except QueryInterrupted:
        end = QueryEnd("aborted", "stopped by the user")
        await _settle(run)
    except BaseException:
        with CancelScope(shield=True):  # the log must be whole whoever gives up on us
            await _settle(run)
            _ended(run, QueryEnd("aborted", "cancelled"))
        raise
    _ended(run, end or QueryEnd("completed"))
    for event in run.heard():
        yield event


async def _begun(run: QueryRun, prompt: Prompt) -> QueryEnd | None:
    """Let hooks see the prompt, attach what the moment calls for, and say it."""
    run.interrupt.reset()
    text = prompt if isinstance(prompt, str) else "\n".join(str(block.get("text", "")) for block in prompt)
    outcome = await run.interrupt.guard(run.hooks.run("user_prompt", {"prompt": text}))
    if outcome.block or outcome.stop:
        return QueryEnd("hook_stopped", outcome.reason or "a hook refused the prompt")
    await run.seat.begin(text)
    await run.session.say(prompt)
    if outcome.context:
        await run.session.attach(outcome.context, type="hook")
    return None


async def _next(stream: AsyncGenerator[Piece | Reply, None]) -> Piece | Reply:
    try:
        return await anext(stream)
    except StopAsyncIteration:
        raise ModelError("the model's stream ended without a reply; ask again") from None


def _show(run: QueryRun, piece: Piece) -> None:
    if piece.kind == "text":
        run.emit(TextStreamed(run.session.name, piece.text))
    elif piece.kind == "thinking":
        run.emit(ThinkingStreamed(run.session.name, piece.text))


async def _room(run: QueryRun, error: PromptTooLong) -> QueryEnd | None:
    """Compact once because the provider says the prompt does not fit; a second time there is nothing left to try."""
    if run.made_room:
        return QueryEnd("prompt_too_long", f"{error}; compacting did not make enough room")
    run.made_room = True
    try:
        await run.interrupt.guard(run.session.compact_reactively(error))
    except CompactionError as failed:
        return QueryEnd("prompt_too_long", f"{error}; {failed}")
    return None


async def _replied(run: QueryRun, reply: dict[str, Any]) -> QueryEnd | None:
    """Take in a whole reply: run its tools, go on where it was cut, or end."""
    stopped = reply.get("stop_reason")
    if stopped == CUT and not run.continues:
        raised = run.seat.raised_limit()
        if raised is not None:
            run.seat.max_tokens = raised
            await run.session.record_call(reply, source="cut_off")
            return None
    if stopped == "refusal":
        await run.session.record_call(reply, source="refused")
        return None if run.seat.fall_back() else QueryEnd("model_error", "the model declined to answer")
    calls = await run.session.observe(reply)
    if stopped == CUT:
        return await _cut_off(run, calls)
    run.continues = 0
    if calls:
        await run.interrupt.guard(run.runs.run(calls))
        await _after_tools(run)
        return QueryEnd("hook_stopped", run.runs.stopped_by) if run.runs.stopped_by else None
    if stopped == "pause_turn":
        return None
    return await _finished(run)


async def _cut_off(run: QueryRun, calls: list[Any]) -> QueryEnd | None:
    """Ask the model to go on with a reply that the output limit cut."""
    await run.runs.refuse(calls, CUT_OFF)
    if run.continues >= CONTINUES:
        return QueryEnd("completed", f"the reply was cut off {CONTINUES + 1} times by the output limit")
    run.continues += 1
    if not calls:
        await run.session.attach(GO_ON, type="continue")
    return None


async def _after_tools(run: QueryRun) -> None:
    said, run.runs.said_by_hooks = run.runs.said_by_hooks, []
    for text in said:
        await run.session.attach(text, type="hook")
    await run.seat.attachments()


async def _finished(run: QueryRun) -> QueryEnd | None:
    """Let stop hooks look at a final reply; they may send the model back to work."""
    payload = {"stop_hook_active": run.sent_back > 0}
    outcome = await run.interrupt.guard(run.hooks.run("stop", payload))
    if outcome.stop:
        return QueryEnd("hook_stopped", outcome.reason or "a hook asked to stop")
    if outcome.block and run.sent_back < HOOKED:
        run.sent_back += 1
        await run.session.attach(outcome.reason or CONTINUE, type="hook")
        return None
    await run.seat.completed()
    return QueryEnd("completed")


async def _settle(run: QueryRun) -> None:
    """Leave a log that can go on: running tools are answered, a reply that was stopped is said to have been."""
    if run.session.view.unanswered():
        await run.runs.settle()
    elif run.session.view.length:
        await run.session.attach(STOPPED, type="interrupted")


def _ended(run: QueryRun, end: QueryEnd) -> None:
    run.emit(QueryEnded(run.session.name, end.end, end.detail, run.turns, run.seat.cost_usd()))
