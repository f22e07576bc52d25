"""The names of a request's fields, and the one that an unknown name is probably meant to be."""

from __future__ import annotations

from typing import Final

REQUEST_FIELDS: Final = frozenset(
    {
        *("max_tokens", "tool_choice", "stream", "stop_sequences", "temperature", "top_p", "top_k", "metadata"),
        *("thinking", "container", "context_management", "compaction", "diagnostics", "inference_geo", "mcp_servers"),
        *("output_config", "output_format", "service_tier", "speed"),
    }
)
"""The options that a session logs with its prefix."""
FIELDS: Final = REQUEST_FIELDS | {
    *("model", "messages", "system", "tools", "cache_control"),
    *("fallback_credit_token", "fallbacks", "thread", "user_profile_id"),
}
SDK_ARGUMENTS: Final = frozenset({"betas", "extra_body", "extra_headers", "extra_query", "stream", "timeout"})
"""Arguments of an SDK's call, which are not part of the body."""
_OTHERS: Final = frozenset({"shape", "seed", "models"})
"""An argument of ``Session.prepare``, and fields of other providers that resemble one of these."""


def similar_field(name: str) -> str:
    """Return the field or argument that an unknown name is probably meant to be; empty if it may be a new one."""
    from difflib import get_close_matches

    known = FIELDS | SDK_ARGUMENTS | _OTHERS
    return "" if name in known else next(iter(get_close_matches(name.lower(), known, n=1, cutoff=0.86)), "")
