"""The error for a request that breaks a rule of the provider, and the rules that both request formats share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model_facts import ModelFacts

Body = dict[str, Any]
_SAMPLING: Final = ("temperature", "top_p", "logprobs", "top_logprobs")


class ChatRefusal(Exception):
    """An error for a request that breaks a rule of the provider."""

    def __init__(self, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def refuse_options(body: Mapping[str, Any], facts: ModelFacts, effort: Any) -> None:
    """Raise ``ChatRefusal`` for an effort, a sampling option or a cache option that the model does not take."""
    if effort is not None:
        if not facts.thinking_by_default:
            raise ChatRefusal("Unsupported parameter: 'reasoning.effort' is not supported with this model.")
        if effort not in facts.efforts:
            raise ChatRefusal(f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model.")
    given = [name for name in _SAMPLING if body.get(name) not in (None, False)]
    if given and not facts.sampling and effort != "none":
        raise ChatRefusal(f"Unsupported parameter: '{given[0]}' is not supported with this model.")
    _refuse_cache_options(body, facts)


def _refuse_cache_options(body: Mapping[str, Any], facts: ModelFacts) -> None:
    options: Any = body.get("prompt_cache_options")
    if options is not None:
        if facts.api != "responses":
            raise ChatRefusal("Unsupported parameter: 'prompt_cache_options' is not supported with this model.")
        if body.get("prompt_cache_retention") is not None:
            raise ChatRefusal("prompt_cache_options and prompt_cache_retention cannot be used together.")
        if options.get("mode", "implicit") not in ("implicit", "explicit") or options.get("ttl", "30m") != "30m":
            raise ChatRefusal("Invalid value: 'prompt_cache_options'.")
