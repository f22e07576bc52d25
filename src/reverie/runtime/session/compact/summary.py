"""Write a summary from notes, or ask a model for one: by a fork on the warm prefix first, then by a plain request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

import anyio

from ....conversation.side_query import answer_problem, answer_text
from ....conversation.tokens.estimate import estimate_request, estimate_text
from ....errors import CompactionError, ModelError, ModelUnavailable, PromptTooLong
from ....layers.l3_notes import Activity, Notes, NotesBudget, request_accounts, take_notes, without_told
from ....layers.l4_compact import (
    CompactionText,
    CompactPolicy,
    CutRange,
    SummaryBudget,
    directive,
    dropped_rounds,
    fitted_messages,
    may_draft,
    notes_text,
    plain_messages,
    plain_request,
    shortened_messages,
    summary_of,
)
from ....model_facts import facts_of
from ....ports import Model, Reply
from ....values import record
from ..forks import Forks
from ..host import SessionHost

SOURCE = "compact"


def notes_summary(
    activity: Activity,
    taking: CutRange,
    room: SummaryBudget,
    *,
    before: Notes | None = None,
    theirs: Mapping[str, str] | None = None,
    foreign: Collection[str] = (),
) -> CompactionText:
    """Return a summary of a range from local notes and accounts of requests.

    ``before`` are notes to bring up to date, ``theirs`` sections that stay as they are, ``foreign`` the names of all
    sections that others wrote.
    """
    notes = take_notes(activity, before, budget=NotesBudget(room.section, room.notes))
    visible = {item.uuid for item in taking.items} - {item.uuid for item in taking.cut}
    shows_last = bool(activity.replies) and activity.replies[-1].uuid in visible
    sections = without_told({**notes.sections, **(theirs or {})}, foreign, shows_last=shows_last)
    body = notes_text(sections, section_tokens=room.section, total_tokens=room.notes)
    unused = max(0, room.notes - estimate_text(body))
    accounts = request_accounts(activity, room.accounts + unused, visible)
    return CompactionText("notes", body, activity.named(), accounts)


@record
class ModelSummary:
    """A summary written by a model, with the number and cost of its calls."""

    text: str
    calls: int
    cost_usd: float | None


class _SummaryCalls:
    """The calls to a model that ask for one summary, with their number and cost."""

    def __init__(self, session: SessionHost, model: Model, on_text: Callable[[int], None]) -> None:
        at = session.policy.thresholds
        self.max_tokens = min(session.policy.settings.compact.summary_tokens, max(1, at.window - at.effective))
        self.facts = facts_of(model.model_id, session.policy.settings.models)
        self._session = session
        self._model = model
        self._policy: CompactPolicy = session.policy.settings.compact
        self._on_text = on_text
        self._characters = 0
        self.calls = 0
        self.cost: float | None = 0.0

    def add_text(self, text: str) -> None:
        """Count the characters of a text and report how many have been written so far."""
        self._characters += len(text)
        self._on_text(self._characters)

    def add_cost(self, cost: float | None) -> None:
        """Add the cost of a call; a call without a price makes the sum unknown."""
        self.cost = None if cost is None or self.cost is None else self.cost + cost

    async def by_fork(self, asked: str) -> str:
        """Ask by a fork on the warm prefix; return the summary, or an empty text if the answer holds none."""
        policy = self._policy
        self.calls += 1
        reply = await Forks(self._session, self._model).ask(
            asked,
            source=SOURCE,
            max_tokens=self.max_tokens,
            timeout_seconds=policy.summary_seconds,
            on_text=self.add_text,
        )
        self.add_cost(reply.cost_usd)
        return summary_of(reply.answer())

    async def by_request(self, asked: str, limit: int) -> str:
        """Ask by a separate request, without the oldest rounds while it is too long; return the summary or ""."""
        policy, view = self._policy, self._session.log.view
        tools = view.facts.prefix.tools if view.facts.prefix is not None else []
        fixed = self.max_tokens + estimate_text(asked) + estimate_request([], tools=tools)
        if fixed >= limit:
            raise CompactionError(f"a request for a summary needs about {fixed:,} tokens and may have {limit:,}")
        messages = fitted_messages(plain_messages(view), limit - fixed)
        self.calls += 1
        for attempt in range(policy.retries + 1):
            request = plain_request(
                view, messages, asked, self.facts, model=self._model.model_id, max_tokens=self.max_tokens
            )
            self._characters = 0
            try:
                body = await self._sent({**request, **self._session.policy.request_extras})
            except PromptTooLong as error:
                gap = error.tokens - error.limit if error.tokens is not None and error.limit is not None else None
                fewer = dropped_rounds(messages, gap) or shortened_messages(messages, 0.5)
                if attempt == policy.retries or fewer == messages:
                    raise CompactionError(
                        f"the summary request is too long itself and was cut {attempt} times: {error}"
                    ) from error
                messages = fewer
                continue
            self.add_cost(await self._session.record_call(body, source=SOURCE))
            text = answer_text(body.get("content"))
            if problem := answer_problem(body, text):
                raise CompactionError(f"the model's reply holds no summary: {problem}")
            return summary_of(text)
        raise AssertionError("unreachable")

    async def _sent(self, request: dict[str, Any]) -> dict[str, Any]:
        with anyio.move_on_after(self._policy.summary_seconds):
            async with aclosing(self._model.stream(request)) as stream:
                async for piece in stream:
                    if isinstance(piece, Reply):
                        return piece.body
                    if piece.kind == "text":
                        self.add_text(piece.text)
            raise CompactionError("the model gave no reply to the summary request")
        raise ModelUnavailable(f"the summary was not written within {self._policy.summary_seconds:g} s")


async def summarise(
    session: SessionHost,
    model: Model,
    method: str,
    *,
    quote: str,
    instructions: str,
    limit: int,
    on_text: Callable[[int], None],
) -> ModelSummary:
    """Return a model's summary of the view; raise ``CompactionError`` with the reason where there is none.

    ``limit`` is the window in tokens; ``on_text`` gets the number of characters written so far.
    """
    calls = _SummaryCalls(session, model, on_text)
    prefix = session.log.view.facts.prefix
    drafts = may_draft(prefix.options if prefix is not None else {}, calls.facts)
    asked = directive(method, quote=quote, instructions=instructions, drafts=drafts)
    wrong = ""
    room = session.log.view.token_count.tokens + estimate_text(asked) + calls.max_tokens
    if room <= limit:
        try:
            text = await calls.by_fork(asked)
        except ModelError as error:
            text, wrong = "", str(error)
        if text:
            return ModelSummary(text, calls.calls, calls.cost)
    try:
        text = await calls.by_request(asked, limit)
    except ModelError as error:
        raise CompactionError(f"the model did not summarise: {error}", calls=calls.calls) from error
    except CompactionError as error:
        raise CompactionError(str(error), calls=calls.calls) from error
    if not text:
        raise CompactionError(
            f"the model's reply holds no summary{f'; before that: {wrong}' if wrong else ''}", calls=calls.calls
        )
    return ModelSummary(text, calls.calls, calls.cost)
