"""The provider behind the server: it checks, charges and answers requests; no HTTP in here."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import count as counter
from typing import Any

from ...cache.simulator import CacheRules, CacheSimulator
from ...conversation.wire.validate import Limits, too_long
from ...values import record
from .edits import EditedRequest, apply_context_management
from .prompt_cache import Charge, Prompt, cache_miss_reason, charge, prompt_of, usage_fields
from .refusals import ProviderRefusal, check_request, check_thinking
from .replies import ServerReply, cut_to, reply_of
from .token_count import TokenCounter

__all__ = ["AdmittedRequest", "Provider"]


@record
class AdmittedRequest:
    """A request that passed every rule, with its edits, its prompt and its charge."""

    body: dict[str, Any]
    edited: EditedRequest
    prompt: Prompt
    charge: Charge


class Provider:
    """Refuses, caches, counts and signs as the real provider does; safe to call from several threads."""

    def __init__(
        self,
        *,
        models: tuple[str, ...],
        window: int,
        limits: Limits,
        count: TokenCounter,
        rules: CacheRules,
        checks_thinking: bool,
    ) -> None:
        self.models = models
        self.window = window
        self.limits = limits
        self.count = count
        self.checks_thinking = checks_thinking
        self._simulator = CacheSimulator(rules)
        self._lock = threading.Lock()
        self._signed: dict[str, str] = {}
        self._prompts: dict[str, Prompt] = {}
        self._consumed: set[bytes] = set()
        self._ids = counter(1)

    def next_id(self, prefix: str) -> str:
        """Return a new id with this prefix; the ids are numbered from 1."""
        return f"{prefix}_{next(self._ids):024d}"

    def admit(self, body: dict[str, Any], headers: Mapping[str, str], now: float) -> AdmittedRequest:
        """Check a request, apply its edits and charge it; raise ``ProviderRefusal`` for an invalid request."""
        self._check(body, headers)
        edited = apply_context_management(body, self.count)
        prompt = prompt_of(edited.request, self.count)
        problem = too_long(prompt.total, self.window)
        if problem is not None:
            raise ProviderRefusal(problem.status, problem.text)
        with self._lock:
            charged = charge(self._simulator, prompt, now)
            fresh = [key for key in charged.edit_keys() if key not in self._consumed]
            if fresh:
                self._consumed.update(fresh)
                charged.deleted_tokens = prompt.deleted_tokens
        return AdmittedRequest(body, edited, prompt, charged)

    def answer(self, admitted: AdmittedRequest, said: Any, now: float) -> dict[str, Any]:
        """Return the message for a scripted reply; from ``now`` on, the request's cache writes can be read."""
        body = admitted.body
        reply = cut_to(reply_of(said, lambda: self.next_id("toolu")), body["max_tokens"], self.count)
        identity = self.next_id("msg")
        with self._lock:
            admitted.charge.streaming_began(now)
            reason = self._diagnosis(body, admitted.prompt)
            self._prompts[identity] = admitted.prompt
            for block in reply.content:
                if isinstance(block, dict) and block["type"] == "thinking":
                    self._signed[block["signature"]] = block["thinking"]
        message: dict[str, Any] = {
            "id": identity,
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": reply.content,
            "stop_reason": reply.stop_reason,
            "stop_sequence": reply.stop_sequence,
            "usage": self._usage(admitted, reply),
        }
        if admitted.edited.applied is not None:
            message["context_management"] = {"applied_edits": admitted.edited.applied}
        if body.get("diagnostics") is not None:
            message["diagnostics"] = {"cache_miss_reason": reason} if reason else None
        return {**message, **reply.extra}

    def count_tokens(self, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the reply of the counting endpoint: a request's input tokens after the edits it declares."""
        self._check({**body, "max_tokens": 1 << 40}, headers)
        edited = apply_context_management(body, self.count)
        answer: dict[str, Any] = {"input_tokens": prompt_of(edited.request, self.count).total}
        if edited.applied is not None:
            answer["context_management"] = {"original_input_tokens": prompt_of(body, self.count).total}
        return answer

    def _check(self, body: dict[str, Any], headers: Mapping[str, str]) -> None:
        check_request(body, headers, self.models, self.limits)
        if self.checks_thinking:
            check_thinking(body, self._signed)

    def _usage(self, admitted: AdmittedRequest, reply: ServerReply) -> dict[str, Any]:
        fields = usage_fields(admitted.charge.usage, sum(self.count(block) for block in reply.content))
        if admitted.prompt.edits:
            fields["cache_deleted_input_tokens"] = admitted.charge.deleted_tokens
        return fields

    def _diagnosis(self, body: Mapping[str, Any], prompt: Prompt) -> dict[str, Any] | None:
        asked = body.get("diagnostics")
        previous = asked.get("previous_message_id") if asked else None
        return cache_miss_reason(self._prompts.get(previous), prompt) if previous else None
