"""The provider's refusals, with its statuses and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...conversation.wire.validate import Limits, problems
from .faults import KINDS
from .replies import is_redacted, is_signed

__all__ = ["ProviderRefusal", "check_access", "check_request", "check_thinking"]


class ProviderRefusal(Exception):
    """An error reply of the provider, with its status, its error type and the seconds to wait."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or KINDS.get(status, "api_error")
        self.retry_after = retry_after


def check_access(headers: Mapping[str, str], api_keys: frozenset[str] | None) -> None:
    """Raise ``ProviderRefusal`` for a missing key, a key that is not in ``api_keys``, or a missing version."""
    bearer = headers.get("authorization", "")
    key = headers.get("x-api-key") or (bearer[7:] if bearer.lower().startswith("bearer ") else "")
    if not key:
        raise ProviderRefusal(401, "x-api-key header is required")
    if api_keys is not None and key not in api_keys:
        raise ProviderRefusal(401, "invalid x-api-key")
    if not headers.get("anthropic-version"):
        raise ProviderRefusal(400, "anthropic-version: header is required")


def check_request(body: Mapping[str, Any], headers: Mapping[str, str], models: tuple[str, ...], limits: Limits) -> None:
    """Raise ``ProviderRefusal`` for the first rule that a request breaks."""
    found = problems(body, limits=limits)
    if found:
        raise ProviderRefusal(found[0].status, found[0].text, kind=found[0].kind)
    if "context_management" in body and "context-management-" not in headers.get("anthropic-beta", ""):
        raise ProviderRefusal(400, "context_management: Extra inputs are not permitted")
    if body["model"] not in models:
        raise ProviderRefusal(404, f"model: {body['model']}")


def check_thinking(body: Mapping[str, Any], signed: Mapping[str, str]) -> None:
    """Raise ``ProviderRefusal`` for thinking that this server did not sign, or that was changed."""
    for index, message in enumerate(body["messages"]):
        if message["role"] != "assistant" or isinstance(message["content"], str):
            continue
        for position, block in enumerate(message["content"]):
            where = f"messages.{index}.content.{position}"
            if block["type"] == "thinking" and not is_signed(block["thinking"], block["signature"]):
                if block["signature"] in signed:
                    raise ProviderRefusal(
                        400,
                        f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                        "modified. These blocks must remain as they were in the original response.",
                    )
                raise ProviderRefusal(400, f"{where}: Invalid `signature` in `thinking` block")
            if block["type"] == "redacted_thinking" and not is_redacted(block["data"]):
                raise ProviderRefusal(400, f"{where}: Invalid `data` in `redacted_thinking` block")
