"""Run a model on a dream: a conversation of its own, with tool calls, within every budget.

The conversation is not a fork of a session: a fork would send the session's whole prefix in every turn, and a dream
needs only the memories, which it reads by tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import anyio
from anyio import to_thread

from ...cache.breakpoints import CacheState, plan_marks, with_marks
from ...cache.usage import Usage, usage_of
from ...conversation.decisions import Cause, PrefixRendered, body_of
from ...conversation.entries import ASSISTANT, DECISION, USER, Entry, iso, new_uuid
from ...conversation.side_query import CUT, REFUSAL, adapted, answer_problem, answer_text
from ...conversation.view import View
from ...conversation.wire.blocks import Block
from ...conversation.wire.request import build_request
from ...errors import ModelRefused, ReplyBroken
from ...layers.l6_dream import DreamPolicy, ModelUsage, system_prompt, task_prompt
from ...memories.recall.manifest import MAX_FILES, manifest, manifest_text
from ...memories.store.records import read_record
from ...model_facts import ModelFacts
from ...ports import Model, Reply
from ...text.counts import dollars
from ..session.accounts import Accounts
from ..session.forks import ForkToolResult
from ..session.replies import Call, open_calls, plain_reply, result_content
from .progress import ProgressWriter
from .tools import DreamTools

SOURCE: Final = "dream"
"""The source of a dream's calls in the ledger."""
_MAX_CALLS: Final = 40
_MAX_TURN_CHARS: Final = 80_000
_MAX_REPEATS: Final = 3
_SHOWN_LOGS: Final = 14


class DreamModelRun:
    """The conversation of one model for one dream."""

    def __init__(
        self,
        model: Model,
        tools: DreamTools,
        policy: DreamPolicy,
        facts: ModelFacts,
        *,
        dream: str,
        accounts: Accounts,
        listener: ProgressWriter,
        clock: Callable[[], datetime],
    ) -> None:
        self._model = model
        self._tools = tools
        self._policy = policy
        self._facts = facts
        self._dream = dream
        self._accounts = accounts
        self._listener = listener
        self._clock = clock
        self._view = View()
        self._placed: CacheState | None = None
        self._used, self._last = Usage(), Usage()
        self._cost: float | None = 0.0
        self._turns = 0
        self._seen: list[str] = []

    async def run(self, tag: str, logs: list[str], *, seconds: float) -> ModelUsage:
        """Let the model work until it is done or a budget is used up; return its usage and the reason it ended.

        ``tag`` fences the task's data, ``logs`` are the daily logs to name, and ``seconds`` is the time limit.
        A failure of the model is returned, not raised.
        """
        ended = ""
        try:
            with anyio.move_on_after(max(0.0, seconds)) as scope:
                self._open(tag, logs)
                ended = await self._take_turns()
            if scope.cancelled_caught:
                ended = f"its time limit of {self._policy.timeout_seconds:g} s was reached"
        except Exception as error:  # the local dream continues after any failure of a model or its adapter
            ended = f"the model failed: {error}"
        share = self._used.read / self._used.input if self._used.input else 0.0
        return ModelUsage(
            self._model.name,
            self._turns,
            self._tools.calls,
            self._used.input,
            self._used.output,
            round(share, 4),
            self._cost,
            " ".join(ended.split())[:500],
        )

    def _open(self, tag: str, logs: list[str]) -> None:
        files = self._tools.files
        heads = manifest(read_record(file, data) for file, data in files.items())
        shown = f" (the newest {MAX_FILES} are listed, Glob lists all)" if len(files) > MAX_FILES else ""
        task = task_prompt(
            today=self._clock().date().isoformat(),
            many=len(files),
            shown=shown,
            manifest=manifest_text(heads),
            logs=logs[-_SHOWN_LOGS:],
            tag=tag,
        )
        prefix = PrefixRendered(
            Cause("dream", "a dream begins"),
            self._model.model_id,
            system_prompt(self._policy.max_turns),
            self._tools.definitions,
            {"max_tokens": self._policy.max_tokens},
        )
        self._fold(DECISION, body_of(prefix))
        self._fold(USER, {"message": {"role": "user", "content": task}})

    def _fold(self, kind: str, body: dict[str, Any]) -> None:
        now = iso(self._clock().timestamp())
        self._view = self._view.fold(Entry(new_uuid(), self._view.last, now, self._dream, kind, body))

    async def _take_turns(self) -> str:
        """Take turns until the model is done or must stop; return the reason to stop, or an empty string."""
        while True:
            if exceeded := self._exceeded_budget():
                return exceeded
            self._turns += 1
            body = await self._send()
            await self._record_cost(body)
            message, rest = plain_reply(body)
            self._fold(ASSISTANT, {"message": message, "reply": rest})
            text = answer_text(message["content"])
            problem, stopped = answer_problem(rest, text), rest.get("stop_reason")
            if stopped == REFUSAL:
                raise ModelRefused(problem)
            calls = open_calls(self._view, message, self._tools.definitions)
            self._listener.on_text(text)
            if not calls:
                return problem if stopped in CUT else ""
            if self._repeats(calls):
                return "it repeated the same calls"
            await self._answer(calls)

    def _exceeded_budget(self) -> str:
        """Return a sentence about the budget that the next turn would exceed, or an empty string."""
        policy, used = self._policy, self._used
        tokens = used.input + used.output
        if self._turns >= policy.max_turns:
            return f"its {policy.max_turns} turns were used up"
        if tokens + self._last.input + self._last.output > policy.budget_tokens:
            return f"{tokens:,} of its {policy.budget_tokens:,} tokens were used"
        if self._cost is not None and self._turns and self._cost * (1 + 1 / self._turns) > policy.budget_usd:
            return f"{dollars(self._cost)} of its {dollars(policy.budget_usd)} was spent"
        return ""

    async def _send(self) -> dict[str, Any]:
        request = adapted(build_request(self._view), self._facts, answer_tokens=self._policy.max_tokens)
        if self._model.capabilities.caching:
            planned = plan_marks(request["messages"], now=time.monotonic(), ttl="5m", before=self._placed)
            request, self._placed = with_marks(request, planned), planned.after
        async with aclosing(self._model.stream(request)) as stream:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece.body
        raise ReplyBroken("the model's stream ended without a reply")

    async def _record_cost(self, body: dict[str, Any]) -> None:
        billed = await to_thread.run_sync(lambda: self._accounts.side_call(body, source=SOURCE))
        self._last = usage_of(billed.call.usage) if billed is not None else Usage()
        self._used = self._used.plus(self._last)
        if billed is None or self._cost is None or billed.call.cost_usd is None:
            self._cost = None
        else:
            self._cost += billed.call.cost_usd
        if billed is not None:
            await to_thread.run_sync(lambda: self._accounts.enter(billed, f"{self._dream}:{self._turns}"))

    def _repeats(self, calls: list[Call]) -> bool:
        now = repr([(call.name, call.input) for call in calls])
        self._seen = [*self._seen[-(_MAX_REPEATS - 1) :], now]
        return len(self._seen) == _MAX_REPEATS and len(set(self._seen)) == 1

    async def _answer(self, calls: list[Call]) -> None:
        blocks: list[Block] = []
        left = _MAX_TURN_CHARS
        for number, call in enumerate(calls):
            if number < _MAX_CALLS and left > 0:
                answer = await self._tools(call)
                self._listener.on_tool(call.name, list(self._tools.paths), tools=self._tools.calls)
            else:
                answer = ForkToolResult("Not run: this turn asked for too much. Ask for less.", is_error=True)
            content = result_content(answer.content)
            shown = content[: max(left, 0)] if isinstance(content, str) and number < _MAX_CALLS else content
            left -= len(shown)
            block: Block = {"type": "tool_result", "tool_use_id": call.id, "content": shown}
            if answer.is_error:
                block["is_error"] = True
            blocks.append(block)
        self._fold(USER, {"message": {"role": "user", "content": blocks}})
