"""Preserved thinking: which thinking blocks a request may send, which are dropped, and how new ones are signed.

Pages: build-with-claude/preserved-thinking (prefix-checks, switching-models, account-bound-thinking,
fix-bound-to-a-different-conversation) and build-with-claude/thinking-troubleshooting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from ...conversation.wire.thinking_rules import is_manual, missing_thinking, open_round, reply_blocks
from ...model_facts import ModelFacts
from ...values import record
from .prefix import Place, Prefix, extended, is_thinking, is_threshold_summary, restarted
from .refusals import ProviderRefusal
from .signatures import (
    ThinkingRecord,
    identity_of,
    is_redacted,
    is_signed,
    is_text_of,
    record_of,
    redact_thinking,
    sealed,
    text_mark,
)

BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
Behavior: TypeAlias = Literal["error", "drop_block", "silent"]
Block: TypeAlias = "dict[str, Any]"
_BOUND: Final = (
    " The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
_MODIFIED: Final = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)


@record
class Reader:
    """The model and the account that a request is for, and the treatment of thinking whose prefix has changed."""

    facts: ModelFacts
    account: str
    behavior: Behavior


@record
class ThinkingVerdict:
    """The blocks that are dropped, the report on them, and the run of thinking that a new block continues."""

    dropped: frozenset[tuple[int, int]] = frozenset()
    transformations: tuple[dict[str, str], ...] = ()
    last: str = ""
    depth: int = 0


def behavior_for(body: Mapping[str, Any], facts: ModelFacts, account: Behavior) -> Behavior:
    """Return the treatment of changed prefixes: the request's own, else the model's, else the account's."""
    if not facts.checks_thinking:
        return "silent"
    thinking: Any = body.get("thinking") or {}
    binding: Any = thinking.get("block_binding") or {}
    if binding.get("prefix_mismatch_behavior"):
        return binding["prefix_mismatch_behavior"]
    return "error" if account == "silent" and facts.prefix_check == "all" else account


def check_thinking(prefix: Prefix, latest: int, reader: Reader) -> ThinkingVerdict:
    """Return the blocks to drop before the ``latest`` reply; raise ``ProviderRefusal`` for changed thinking."""
    for place in prefix.places:
        _check_signature(place, latest)
    _check_latest([place for place in prefix.places if place.message == latest])
    return _Run(reader).over(prefix.places)


def _check_signature(place: Place, latest: int) -> None:
    block = place.block
    if block["type"] == "redacted_thinking":
        if not is_redacted(block["data"]):
            raise ProviderRefusal(400, f"{place.path}: Invalid `data` in `redacted_thinking` block")
        return
    binding = record_of(block)
    if binding is None and not is_signed(block["thinking"], block["signature"]):
        raise ProviderRefusal(400, f"{place.path}: Invalid `signature` in `thinking` block")
    if binding is not None and not is_text_of(block["thinking"], binding.text):
        words = _MODIFIED if place.message == latest else "Invalid `signature` in `thinking` block"
        raise ProviderRefusal(400, f"{place.path}: {words}")


def _check_latest(places: list[Place]) -> None:
    """Raise ``ProviderRefusal`` where some but not all thinking of a reply is in the latest assistant message."""
    expected = 0
    for place in places:
        binding = record_of(place.block)
        index, count = (binding.index, binding.count) if binding else (0, 1)
        if index != expected:
            raise ProviderRefusal(400, f"{place.path}: {_MODIFIED}")
        expected = (index + 1) % count
    if expected:
        raise ProviderRefusal(400, f"{places[-1].path}: {_MODIFIED}")


class _Run:
    """One pass over the thinking blocks of a request, which keeps the unbroken run of valid ones."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._last = ""
        self._depth = 0
        self._stale: Place | None = None
        self._dropped: dict[tuple[int, int], str] = {}
        self._report: list[dict[str, str]] = []

    def over(self, places: Iterable[Place]) -> ThinkingVerdict:
        for place in places:
            binding = record_of(place.block)
            reason = self._unreadable(binding)
            checked = not reason and self._reader.facts.checks_thinking
            if reason:
                self._drop(place, reason)
            elif checked and not self._fits(place, binding) and self._mismatch(place):
                continue
            self._last, self._depth = identity_of(place.block), self._depth + 1
        return ThinkingVerdict(frozenset(self._dropped), tuple(self._report), self._last, self._depth)

    def _unreadable(self, binding: ThinkingRecord | None) -> str:
        reader = self._reader
        if binding is None:
            return ""
        if binding.account and binding.account != reader.account:
            return "organization_binding_mismatch"
        return "" if reader.facts.reads(binding.model) else "model_binding_mismatch"

    def _fits(self, place: Place, binding: ThinkingRecord | None) -> bool:
        """Return whether the content and the thinking before a block are those that it was made with."""
        if self._reader.behavior == "drop_block" and self._follows_dropped(place):
            return False
        if binding is None:
            return False
        if not binding.checked:
            return True
        run = self._depth <= binding.depth and (not self._depth or binding.previous == self._last)
        return run and binding.prefix in place.chains

    def _follows_dropped(self, place: Place) -> bool:
        stale = self._stale
        return stale is not None and (stale.message, stale.position + 1) == (place.message, place.position)

    def _mismatch(self, place: Place) -> bool:
        """Treat a block whose prefix has changed, and return whether it was dropped."""
        behavior = self._reader.behavior
        if behavior == "error":
            kind = "`signature` in `thinking`" if place.block["type"] == "thinking" else "`data` in `redacted_thinking`"
            raise ProviderRefusal(400, f"{place.path}: Invalid {kind} block.{_BOUND}")
        if behavior == "drop_block":
            self._stale = place
            self._drop(place, "prefix_binding_mismatch")
            return True
        self._report.append(
            {"type": "thinking_mismatch_allowed", "path": place.path, "reason": "prefix_binding_mismatch"}
        )
        return False

    def _drop(self, place: Place, reason: str) -> None:
        self._dropped[place.message, place.position] = reason
        self._report.append({"type": "thinking_dropped", "path": place.path, "reason": reason})


def signed_reply(
    content: list[Block], body: Mapping[str, Any], prefix: Prefix, verdict: ThinkingVerdict, reader: Reader
) -> list[Block]:
    """Return a reply with its thinking signed: bound to the request's own chain and to the thinking before it."""
    tools = {str(tool.get("name")): tool for tool in body.get("tools") or () if tool.get("defer_loading")}
    thinking: Any = body.get("thinking") or {}
    omitted = (thinking.get("display") or reader.facts.thinking_display) == "omitted"
    chains, last, depth = prefix.chains[:1], verdict.last, verdict.depth
    count = sum(map(is_thinking, content))
    index = 0
    signed: list[Block] = []
    for block in content:
        if is_threshold_summary(block):
            chains, last, depth = restarted(prefix.opening, block), "", 0
            signed.append(block)
            continue
        if not is_thinking(block):
            chains = extended(chains, "assistant", block, tools)
            signed.append(block)
            continue
        facts = reader.facts
        account = reader.account if facts.account_bound_thinking else ""
        known = {"model": facts.name, "checked": facts.checks_thinking, "account": account, "prefix": chains[0]}
        whole = _signed(block, {**known, "previous": last, "depth": depth, "index": index, "count": count}, omitted)
        signed.append(whole)
        last, depth, index = identity_of(whole), depth + 1, index + 1
    return signed


def _signed(block: Block, known: dict[str, Any], omitted: bool) -> Block:
    """Return a thinking block with a signature; one that the test signed or redacted itself stays as it is."""
    if block.get("signature") or block.get("data"):
        return block
    if block["type"] == "thinking":
        words = block["thinking"] if omitted else ""
        shown = "" if omitted else block["thinking"]
        seal = sealed(ThinkingRecord(text=text_mark(shown), words=words, **known))
        return {**block, "thinking": shown, "signature": seal}
    shown = redact_thinking("")
    return {**block, "data": f"{shown}|{sealed(ThinkingRecord(text=text_mark(shown), **known))}"}


class ReturnedCalls:
    """The calls that were returned behind thinking, and those of them that came back without it in their round."""

    def __init__(self) -> None:
        self._manual: dict[str, bool] = {}
        self.left_out: set[str] = set()

    def take(self, content: list[dict[str, Any]], body: Mapping[str, Any]) -> None:
        """Remember the calls of a reply to a request."""
        thinks = False
        for block in content:
            thinks = thinks or is_thinking(block)
            if block["type"] == "tool_use":
                self._manual.pop(block["id"], None)
                if thinks:
                    self._manual[block["id"]] = is_manual(body)

    def check(self, body: Mapping[str, Any]) -> None:
        """Note calls without the thinking that led to them; raise ``ProviderRefusal`` where it has a budget."""
        for path, kind, call in self._bare_calls(body["messages"]):
            if self._manual[call] and is_manual(body):
                where, words = missing_thinking(path, kind)
                raise ProviderRefusal(400, f"{where}: {words}")
            self.left_out.add(call)

    def _bare_calls(self, messages: list[Any]) -> Iterator[tuple[str, str, str]]:
        """Yield the place and the type of a reply's first block, and each of its calls that lacks its thinking."""
        for index in open_round(messages):
            blocks = list(reply_blocks(messages[index]))
            for at, (_, kind, block) in enumerate(blocks):
                bare = not any(is_thinking(before) for _, _, before in blocks[:at])
                if kind == "tool_use" and block["id"] in self._manual and bare:
                    yield f"messages.{index}.content.{blocks[0][0]}", blocks[0][1], block["id"]


def began_without_thinking(body: Mapping[str, Any]) -> bool:
    """Return whether thinking with a budget is off for a request, because its tool round began without thinking."""
    replies = [body["messages"][index] for index in open_round(body["messages"])]
    return bool(replies) and is_manual(body) and not any(is_thinking(block) for _, _, block in reply_blocks(replies[0]))
