"""The provider behind the server: it checks, charges and answers requests; no HTTP in here."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import count as counter
from typing import Any, Final, TypeAlias

from ...cache.simulator import CacheRules, CacheSimulator
from ...cache.usage import Usage, usage_fields
from ...conversation.wire.validate import Limits, too_long
from ...model_facts import ModelFacts, facts_of
from ...values import record
from .compaction import (
    SUMMARY_PROMPT,
    THRESHOLD_BETA,
    check_summarized,
    continued_request,
    from_summary,
    listed_messages,
    origin_of,
    reached_threshold,
    signed_summary,
    summary_block,
)
from .edits import EditedRequest, TokenCounter, apply_context_management, shown_request
from .prefix import Prefix, is_thinking, prefix_of
from .prompt_cache import Charge, Prompt, cache_miss_reason, charge, prompt_of
from .refusals import ProviderRefusal, check_betas, check_request, is_shaped
from .replies import ServerReply, cut_to, reply_of
from .thinking import (
    BINDING_BETA,
    Behavior,
    Reader,
    ReturnedCalls,
    ThinkingVerdict,
    began_without_thinking,
    behavior_for,
    check_thinking,
    signed_reply,
)

Body: TypeAlias = "dict[str, Any]"
_TIER: Final = {"service_tier": "standard"}


@record
class Caller:
    """The account, the API version and the betas of a request."""

    account: str
    version: str = ""
    betas: frozenset[str] = frozenset()


@record
class CheckedRequest:
    """A request that passed every rule: its reader, its prefix, its valid thinking, and the form the model sees."""

    body: dict[str, Any]
    reader: Reader
    prefix: Prefix
    verdict: ThinkingVerdict
    shown: dict[str, Any]


@record
class AdmittedRequest:
    """A request that is charged: with its edits, its prompt and the output tokens that the window leaves.

    ``threshold`` is the edit that has it summarised first, if there is one.
    """

    checked: CheckedRequest
    edited: EditedRequest
    prompt: Prompt
    charge: Charge
    room: int
    betas: frozenset[str]
    threshold: Mapping[str, Any] | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The request as it was sent."""
        return self.checked.body

    @property
    def pauses(self) -> bool:
        """Whether the reply ends behind the summary."""
        return self.threshold is not None and bool(self.threshold.get("pause_after_compaction"))


class Provider:
    """Refuses, caches, counts and signs as the real provider does; safe to call from several threads."""

    def __init__(
        self,
        *,
        models: tuple[str, ...],
        window: int | None,
        limits: Limits,
        count: TokenCounter,
        rules: CacheRules,
        checks_thinking: bool,
        preserved_thinking: Behavior,
    ) -> None:
        self.models = models
        self.limits = limits
        self.count = count
        self.checks_thinking = checks_thinking
        self.preserved_thinking: Behavior = preserved_thinking
        self._window = window
        self._simulator = CacheSimulator(rules)
        self._lock = threading.Lock()
        self._prompts: dict[str, Prompt] = {}
        self._consumed: set[bytes] = set()
        self.calls = ReturnedCalls()
        self._ids = counter(1)

    def next_id(self, prefix: str) -> str:
        """Return a new id with this prefix; the ids are numbered from 1."""
        return f"{prefix}_{next(self._ids):024d}"

    def window_of(self, facts: ModelFacts) -> int:
        """Return the window of a model on this server."""
        return facts.window_tokens if self._window is None else self._window

    def admit(self, body: Body, caller: Caller, now: float) -> AdmittedRequest:
        """Check a request, apply its edits and charge it; raise ``ProviderRefusal`` for an invalid request."""
        checked = self._check(body, caller)
        facts = checked.reader.facts
        edited = apply_context_management(from_summary(checked.shown), self.count, facts)
        prompt = prompt_of(edited.request, self.count)
        threshold = reached_threshold(body, prompt.total)
        asked = body.get("compaction") or threshold
        extra = self.count({"type": "text", "text": asked.get("instructions") or SUMMARY_PROMPT}) if asked else 0
        problem = too_long(prompt.total + extra, self.window_of(facts))
        if problem is not None:
            raise ProviderRefusal(problem.status, problem.text)
        charged = self._charge(prompt, now, extra)
        room = self.window_of(facts) - prompt.total - extra
        return AdmittedRequest(checked, edited, prompt, charged, room, caller.betas, threshold)

    def _charge(self, prompt: Prompt, now: float, extra_tokens: int) -> Charge:
        with self._lock:
            charged = charge(self._simulator, prompt, now, extra_tokens)
            fresh = [key for key in charged.edit_keys() if key not in self._consumed]
            if fresh:
                self._consumed.update(fresh)
                charged.deleted_tokens = prompt.deleted_tokens
        return charged

    def answer(self, admitted: AdmittedRequest, said: Any, now: float, summary: Any = None) -> Body:
        """Return the message for a scripted reply; from ``now`` on, the request's cache writes can be read.

        ``summary`` is the scripted summary of a request that reached its threshold.
        """
        body, summarized = admitted.body, list[dict[str, Any]]()
        front: list[dict[str, Any]] = []
        if admitted.threshold is not None:
            block, tokens = self._threshold_block(listed_messages(body) if summary is None else summary)
            front, summarized = [block], [_iteration("compaction", admitted, tokens)]
            with self._lock:
                admitted.charge.streaming_began(now)
            admitted = self._continued(admitted, block, now)
        reply, output_tokens = self._reply(admitted, said, front)
        identity = self.next_id("msg")
        with self._lock:
            admitted.charge.streaming_began(now)
            reason = self._diagnosis(body, admitted.prompt)
            self._prompts[identity] = admitted.prompt
        message: dict[str, Any] = {
            "id": identity,
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": reply.content,
            "stop_reason": reply.stop_reason,
            "stop_sequence": reply.stop_sequence,
            "usage": _usage(admitted, output_tokens, summarized),
        }
        self.calls.take(message["content"], body)
        if BINDING_BETA in admitted.betas and admitted.checked.reader.facts.thinking:
            message["input_transformations"] = list(admitted.checked.verdict.transformations)
        if admitted.edited.applied is not None:
            message["context_management"] = {"applied_edits": admitted.edited.applied}
        if body.get("diagnostics") is not None:
            message["diagnostics"] = {"cache_miss_reason": reason} if reason else None
        return {**message, **reply.extra}

    def count_tokens(self, body: Body, caller: Caller) -> Body:
        """Return the reply of the counting endpoint: a request's input tokens after the edits it declares."""
        asked = {key: value for key, value in body.items() if key != "compaction"}
        checked = self._check({**asked, "max_tokens": facts_of(str(body.get("model"))).max_output_tokens}, caller)
        edited = apply_context_management(from_summary(checked.shown), self.count, checked.reader.facts)
        answer: dict[str, Any] = {"input_tokens": prompt_of(edited.request, self.count).total}
        if edited.applied is not None:
            answer["context_management"] = {"original_input_tokens": prompt_of(checked.shown, self.count).total}
        return answer

    def _check(self, body: Body, caller: Caller) -> CheckedRequest:
        check_betas(body, caller.betas)
        facts = facts_of(str(body.get("model")))
        if is_shaped(body):
            check_summarized(body)
        check_request(body, facts, self.models, self.limits, caller.version)
        prefix = prefix_of(body, origin_of(body) if self.checks_thinking else None)
        reader = Reader(facts, caller.account, behavior_for(body, facts, self.preserved_thinking))
        verdict = ThinkingVerdict()
        if self.checks_thinking:
            roles = [message["role"] for message in body["messages"]]
            latest = max((index for index, role in enumerate(roles) if role == "assistant"), default=-1)
            verdict = check_thinking(prefix, latest, reader)
            self.calls.check(body)
        return CheckedRequest(body, reader, prefix, verdict, shown_request(body, verdict.dropped, facts))

    def _threshold_block(self, said: Any) -> tuple[dict[str, Any], int]:
        whole = reply_of(said, lambda: self.next_id("toolu"), "compaction")
        return summary_block(_summary_text(whole)), sum(self.count(block) for block in whole.content)

    def _continued(self, admitted: AdmittedRequest, block: dict[str, Any], now: float) -> AdmittedRequest:
        """Return a request that is answered from its summary on; one that pauses there is not charged again."""
        if admitted.pauses:
            return admitted
        prompt = prompt_of(continued_request(admitted.edited.request, block), self.count)
        room = self.window_of(admitted.checked.reader.facts) - prompt.total
        charged = self._charge(prompt, now, 0)
        return AdmittedRequest(admitted.checked, admitted.edited, prompt, charged, room, admitted.betas)

    def _reply(self, admitted: AdmittedRequest, said: Any, front: list[dict[str, Any]]) -> tuple[ServerReply, int]:
        """Return the whole reply and its tokens: cut to the limits, with its thinking or its summary signed.

        ``front`` has the summary that comes before it.
        """
        checked, body = admitted.checked, admitted.body
        if admitted.pauses:
            return ServerReply(front, "compaction"), 0
        most = min(body["max_tokens"], admitted.room)
        summarizes = body.get("compaction") is not None
        whole = reply_of(said, lambda: self.next_id("toolu"), "compaction" if summarizes else "end_turn")
        reply = cut_to(whole, most, self.count)
        if reply.stop_reason == "max_tokens" and admitted.room < body["max_tokens"]:
            reply = ServerReply(reply.content, "model_context_window_exceeded", None, reply.extra)
        assert isinstance(reply.content, list)
        silent = began_without_thinking(body)
        blocks = [block for block in reply.content if not (silent and is_thinking(block))]
        tokens = sum(self.count(block) for block in blocks)
        if summarizes:
            return _summary(reply, checked), tokens
        content = signed_reply([*front, *blocks], body, checked.prefix, checked.verdict, checked.reader)
        return ServerReply(content, reply.stop_reason, reply.stop_sequence, reply.extra), tokens

    def _diagnosis(self, body: Mapping[str, Any], prompt: Prompt) -> dict[str, Any] | None:
        asked = body.get("diagnostics")
        previous = asked.get("previous_message_id") if asked else None
        return cache_miss_reason(self._prompts.get(previous), prompt) if previous else None


def _usage(admitted: AdmittedRequest, output_tokens: int, summarized: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the usage of a reply; the bill of ``summarized`` and of a summary on demand is in the iterations only."""
    if admitted.body.get("compaction") is not None:
        return {**usage_fields(Usage()), **_TIER, "iterations": [_iteration("compaction", admitted, output_tokens)]}
    if admitted.pauses:
        return {**usage_fields(Usage()), **_TIER, "iterations": summarized}
    fields = {**usage_fields(admitted.charge.usage, output_tokens), **_TIER}
    if THRESHOLD_BETA in admitted.betas:
        fields["iterations"] = [*summarized, _iteration("message", admitted, output_tokens)]
    if admitted.prompt.edits:
        fields["cache_deleted_input_tokens"] = admitted.charge.deleted_tokens
    return fields


def _iteration(kind: str, admitted: AdmittedRequest, output_tokens: int) -> dict[str, Any]:
    return {"type": kind, **usage_fields(admitted.charge.usage, output_tokens)}


def _summary_text(reply: ServerReply) -> str | None:
    text = "".join(str(block.get("text", "")) for block in reply.content if isinstance(block, dict))
    return text if reply.stop_reason == "compaction" and text.strip() else None


def _summary(reply: ServerReply, checked: CheckedRequest) -> ServerReply:
    """Return the reply to a compaction request: the signed block, or nothing where the summary failed."""
    text = _summary_text(reply)
    if text is None:
        return ServerReply([], reply.stop_reason, None, reply.extra)
    block = signed_summary(text, checked.body, checked.prefix, checked.reader.facts)
    return ServerReply([block], "compaction", None, reply.extra)
