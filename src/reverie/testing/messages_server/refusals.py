"""The provider's refusals, with its statuses and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...conversation.wire.betas import beta_needs
from ...conversation.wire.block_rules import is_list, is_object
from ...conversation.wire.validate import Limits, problems
from ...model_facts import ModelFacts
from .faults import KINDS


class ProviderRefusal(Exception):
    """An error reply of the provider, with its status, error type, error code and the seconds to wait."""

    def __init__(
        self, status: int, message: str, *, retry_after: float | None = None, kind: str = "", code: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or KINDS.get(status, "api_error")
        self.retry_after = retry_after
        self.code = code


def check_access(headers: Mapping[str, str], api_keys: frozenset[str] | None) -> str:
    """Return the key of a request; raise ``ProviderRefusal`` for a missing or unknown key, or a missing version."""
    bearer = headers.get("authorization", "")
    key = headers.get("x-api-key") or (bearer[7:] if bearer.lower().startswith("bearer ") else "")
    if not key:
        raise ProviderRefusal(401, "x-api-key header is required")
    if api_keys is not None and key not in api_keys:
        raise ProviderRefusal(401, "invalid x-api-key")
    if not headers.get("anthropic-version"):
        raise ProviderRefusal(400, "anthropic-version: header is required")
    return key


def betas_of(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the betas that a request names."""
    return frozenset(name.strip() for name in headers.get("anthropic-beta", "").split(",") if name.strip())


def check_betas(body: Mapping[str, Any], betas: frozenset[str]) -> None:
    """Raise ``ProviderRefusal`` for the first field whose beta the request does not name."""
    for need in beta_needs(body):
        if not betas.intersection(need.betas):
            raise ProviderRefusal(400, f"{need.path}: {need.message}")


def is_shaped(body: Mapping[str, Any]) -> bool:
    """Return whether messages and tools have the outer shape that the rules with error codes look at."""
    messages: Any = body.get("messages")
    tools: Any = body.get("tools") or []
    return is_list(messages) and all(map(_is_message, messages)) and is_list(tools) and all(map(is_object, tools))


def _is_message(message: Any) -> bool:
    content = message.get("content") if is_object(message) and "role" in message else None
    return isinstance(content, str) or (is_list(content) and all(map(is_object, content)))


def check_request(
    body: Mapping[str, Any], facts: ModelFacts, models: tuple[str, ...], limits: Limits, version: str
) -> None:
    """Raise ``ProviderRefusal`` for the first general rule that a request breaks, and for an unknown model."""
    found = problems(body, limits=limits, facts=facts, version=version)
    if found:
        raise ProviderRefusal(found[0].status, found[0].text, kind=found[0].kind, code=found[0].code)
    if body["model"] not in models:
        raise ProviderRefusal(404, f"model: {body['model']}")
