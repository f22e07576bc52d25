"""Preserved thinking in a session: before a request leaves, drop the thinking that the provider would refuse.

A comparison of digests finds every change of the past here (a clearing, a cut, an undo, a new system prompt, an older
version of this program), so that no other part has to know the rule.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from ...conversation.decisions import CallRecorded, Cause, ThinkingDropped, body_of
from ...conversation.entries import ASSISTANT, DECISION, Entry
from ...conversation.fork import without_thinking
from ...conversation.thinking import (
    PREFIX,
    UNBOUND,
    Digests,
    SentPrefix,
    dropped_messages,
    replies_with_thinking,
    stale_replies,
    thinking_tokens,
    unreadable_messages,
)
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...conversation.wire.carried_items import carried_item
from ...conversation.wire.flatten import THINKING
from ...conversation.wire.request import build_request, messages_added_before, request_indexes
from ...events import DecisionMade, Event, FellBack
from ...model_facts import ModelFacts, facts_of
from ...values import rows_of
from .accounts import Accounts
from .log import SessionLog

_UNREADABLE: Final = "invalid_encrypted_content"


class ThinkingWatch:
    """Knows the content that each reply's thinking is bound to, and drops thinking whose content has changed."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._sent = SentPrefix()
        self._bound: dict[str, str | None] = {}
        self._covers: dict[str, Mapping[str, Any]] = {}
        self._changed_by = ""
        self._opening: tuple[Any, Any] | None = None
        self._binding: str | None = None
        self._checks: bool | None = None
        self._binds = False
        self._lacks_binding = False

    # -- the log

    def read(self, entry: Entry) -> None:
        """Take the binding of a reply, or a decision, from the log."""
        if entry.kind == ASSISTANT:
            binding = _logged_binding(entry)
            is_unknown = binding is None and _has_thinking(entry)
            if binding or is_unknown:
                self._bound[entry.uuid] = binding
            self._lacks_binding = self._lacks_binding or is_unknown
        elif entry.kind == DECISION:
            self._note(entry.uuid, entry.body)

    def resume(self, entries: Iterable[Entry]) -> None:
        """Find the bindings of replies that an older version did not log."""
        if self._lacks_binding:
            self._bound.update(_bindings_by_replay(entries, self._covers))
        self._binds = any(self._bound.values())

    def on_event(self, event: Event) -> None:
        """Note decisions that change the past, and the messages that a signed summary replaces."""
        if isinstance(event, DecisionMade) and not isinstance(event.decision, CallRecorded):
            self._note(event.uuid, body_of(event.decision))

    def _note(self, uuid: str, body: Mapping[str, Any]) -> None:
        name = body.get("decision")
        block: Any = body.get("block")
        if name == "compacted" and isinstance(block, dict) and block:
            covers: Mapping[str, Any] = body.get("covers") or {}
            self._covers[str(cast("dict[str, Any]", block).get("signature"))] = covers
            if covers.get("states"):
                return
        if name == "call_recorded" and body.get("source") == "main":
            if facts_of(str(body.get("model") or "")).checks_thinking:
                self._changed_by = ""
        elif name == "prefix_rendered":
            before, self._opening = self._opening, (body.get("system"), body.get("tools"))
            if before not in (None, self._opening):  # with another system prompt or other tools no thinking fits
                self._changed_by = uuid
        elif body.get("moves_prefix") is True and not self._changed_by:
            self._changed_by = uuid

    # -- a request and its reply

    async def request(self, log: SessionLog, facts: ModelFacts) -> dict[str, Any]:
        """Return the next request, after logging the thinking that has to be dropped from it."""
        request = await self.side_request(log, facts)
        self._checks = facts.checks_thinking
        if self._checks:
            self._binding = self._sent.end.newest
            self._changed_by = ""
        return request

    async def side_request(self, log: SessionLog, facts: ModelFacts) -> dict[str, Any]:
        """Return a request beside the conversation, after logging the thinking that has to be dropped from it."""
        request = build_request(log.view)
        if not facts.checks_thinking:
            self._sent = SentPrefix()
            return request
        stale = self._stale(log.view, request)
        if stale:
            await self._drop(log, stale)
            request = build_request(log.view)
            self._follow(log.view, request)
        return request

    @property
    def binds(self) -> bool:
        """Whether a reply of this session has thinking that a model checks, also if another model is in use now."""
        return self._binds

    def binding(self, view: View, facts: ModelFacts) -> str | None:
        """Return the binding of the reply to the last request; None if its model does not check thinking.

        Where another process prepared that request, the view still leads to it.
        """
        if self._checks is None and facts.checks_thinking and view.facts.prefix is not None:
            return self.digests_of(build_request(view)).newest
        return self._binding if self._checks else None

    def bind(self, reply: str, binding: str | None) -> None:
        """Remember the binding of a logged reply by its uuid, if it has one."""
        if binding is not None:
            self._bound[reply], self._binds = binding, True

    def lost_in(self, view: View) -> list[str]:
        """Return the replies whose thinking a request of this view would lose; none if the thinking is not checked."""
        if not self._binds:
            return []
        sent, request = SentPrefix(), build_request(view)
        sent.follow(request, None, self._covers)
        return stale_replies(view, sent, self._bound, offset=messages_added_before(view))

    def keeps(self, view: View) -> bool:
        """Say whether a request of this view has thinking that is bound to the content before it and still fits."""
        lost = set(self.lost_in(view))
        return any(self._bound.get(uuid) and uuid not in lost for uuid in replies_with_thinking(view))

    async def take_report(self, log: SessionLog, facts: ModelFacts, reply: Mapping[str, Any], uuid: str) -> None:
        """Compare the thinking that the provider says it dropped with the thinking that it was expected to drop.

        Thinking of models that this one cannot read is expected; that of another account is reported, and readable
        there. Thinking that was dropped because content before it changed is logged as dropped, with every later
        one, so that the next request is right. ``uuid`` is the reply's own entry.
        """
        reported = dropped_messages(reply)
        if not reported:
            return
        view = log.view
        unreadable = set(unreadable_messages(view, facts.reads_model))
        others = {reason for at, reason in reported if at not in unreadable and reason != PREFIX}
        if others:
            log.emit(FellBack(log.name, "thinking", f"the provider left thinking out: {', '.join(sorted(others))}"))
        changed = [at for at, reason in reported if reason == PREFIX]
        if not changed:
            return
        first = request_indexes(view).index(min(changed))
        lost = [one for one in replies_with_thinking(view, start=first) if one != uuid]
        if lost:
            await self._drop(log, lost)

    def digests_of(self, request: Mapping[str, Any]) -> Digests:
        """Return the digests of the whole content of a request."""
        sent = SentPrefix()
        sent.follow(request, None, self._covers)
        return sent.end

    def branch(self, view: View, facts: ModelFacts) -> BranchThinking | None:
        """Return the check of the requests of a fork of this view; None if the fork's model does not check."""
        return BranchThinking(self._sent.copied(), self._bound, self._covers, view) if facts.checks_thinking else None

    def _stale(self, view: View, request: Mapping[str, Any]) -> list[str]:
        start, offset = self._follow(view, request)
        return stale_replies(view, self._sent, self._bound, start=start, offset=offset)

    def _follow(self, view: View, request: Mapping[str, Any]) -> tuple[int, int]:
        """Count the digests of a request; return the first message that is new, and the messages added before."""
        offset = messages_added_before(view)
        settled = None if view.facts.edits else view.finished_messages
        start = self._sent.follow(request, settled, self._covers, offset=offset)
        return max(0, start - offset), offset

    async def _drop(self, log: SessionLog, stale: list[str]) -> None:
        tokens = thinking_tokens(log.view, stale)
        prefix = log.view.facts.prefix
        prices = self._accounts.prices(prefix.model) if prefix is not None else None
        output = prices.rates(log.view.token_count.tokens).output if prices is not None else None
        dollars = tokens * output / 1_000_000 if output is not None else 0.0
        price = f", about ${dollars:.2f} to write again" if dollars >= 0.01 else ""
        replies = f"{len(stale)} {'reply' if len(stale) == 1 else 'replies'}"
        reason = f"content before the thinking of {replies} changed ({tokens:,} tokens{price})"
        cause = Cause("request", reason, frees=tokens, moves_prefix=True)
        await log.decide(ThinkingDropped(cause, stale, self._changed_by, tokens))
        log.emit(FellBack(log.name, "thinking", f"dropped, because {reason}"))


class BranchThinking:
    """Leaves the thinking that the provider would refuse out of the requests of one fork; nothing of it is logged."""

    def __init__(
        self,
        sent: SentPrefix,
        bound: dict[str, str | None],
        covers: Mapping[str, Mapping[str, Any]],
        view: View,
    ) -> None:
        """Count on from the last request of the conversation, whose view the fork branches off from."""
        self._sent = sent
        self._bound: ChainMap[str, str | None] = ChainMap({}, bound)
        self._covers = covers
        self._settled = None if view.facts.edits else view.finished_messages

    def fitted(self, branch: View, build: Callable[[View], dict[str, Any]]) -> tuple[View, dict[str, Any]]:
        """Return the branch without stale thinking, and its next request, which ``build`` makes."""
        request = build(branch)
        offset = messages_added_before(branch)
        self._sent.follow(request, self._settled, self._covers, offset=offset)
        stale = stale_replies(branch, self._sent, self._bound, offset=offset)
        if stale:
            branch = without_thinking(branch, stale)
            request = build(branch)
            self._sent.follow(request, self._settled, self._covers, offset=offset)
        return branch, request

    def bind(self, reply: str) -> None:
        """Bind a reply, by its uuid, to the last request."""
        self._bound[reply] = self._sent.end.newest


def unreadable_thinking(view: View, reply: Mapping[str, Any]) -> ThinkingDropped | None:
    """Return the decision that drops the reasoning which a reply reports as unreadable; None if there is none."""
    rows = rows_of(reply.get("input_transformations"))
    items = {str(row.get("path")) for row in rows if row.get("reason") == _UNREADABLE}
    if not items:
        return None
    pieces = [piece for group in view.groups if group.role == "assistant" for piece in group.pieces]
    found = [
        piece.uuid
        for piece in pieces
        if any((carried_item(block) or {}).get("id") in items for block in as_blocks(piece.message))
    ]
    if not found:
        return None
    tokens = thinking_tokens(view, found)
    reason = f"the provider could not read the reasoning of {len(found)} {'reply' if len(found) == 1 else 'replies'}"
    return ThinkingDropped(Cause("request", reason, frees=tokens, moves_prefix=True), found, tokens=tokens)


def _has_thinking(entry: Entry) -> bool:
    blocks = rows_of((entry.message or {}).get("content"))
    return any(block.get("type") in THINKING for block in blocks)


def _logged_binding(entry: Entry) -> str | None:
    """Return the binding in a reply's entry; ``UNBOUND`` for a model that does not check, None if it is not logged."""
    logged = entry.body.get("bound")
    if isinstance(logged, str):
        return logged
    model = str(entry.reply.get("model") or "")
    return UNBOUND if model and not facts_of(model).checks_thinking else None


def _bindings_by_replay(entries: Iterable[Entry], covers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the bindings of replies that did not log theirs, from the requests that the log leads to."""
    view, sent = View(), SentPrefix()
    found: dict[str, str] = {}
    for entry in entries:
        if entry.kind == ASSISTANT and _logged_binding(entry) is None and _has_thinking(entry):
            request = build_request(view)
            sent.follow(request, None if view.facts.edits else view.finished_messages, covers)
            found[entry.uuid] = sent.end.newest
        view = view.fold(entry)
    return found
