"""Validation of requests by the provider's rules, written independently of the request builder.

Only the rules for options have one home: the builder leaves out the options that they refuse.

``problems`` returns all faults, the one a provider would report first at the front; an empty list means that the
request is accepted. The rules are those of the request's model (``reverie.model_facts``) and of the API version, as
docs/reference/request-rules.md lists them with their pages. Two rules are stricter than the provider's: roles must
alternate (a provider merges consecutive messages of one role), and the last assistant message must not be empty.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from ...model_facts import ModelFacts, facts_of
from .betas import beta_needs
from .block_rules import is_list
from .management_rules import compaction_faults, management_faults
from .message_rules import RequestWalk
from .option_rules import option_faults
from .problem import Limits, Problem, RequestRules

__all__ = ["Limits", "Problem", "problems", "too_long"]

_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_quick = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode


_DEFAULT: Final = Limits()


def problems(
    request: Mapping[str, Any],
    *,
    limits: Limits = _DEFAULT,
    facts: ModelFacts | None = None,
    version: str = "",
    betas: Collection[str] | None = None,
) -> list[Problem]:
    """Return every reason why a provider would reject the request; an empty list means it is accepted.

    ``facts`` are those of the request's model by default. ``version`` is the API version; without one, the rules of
    a version are not checked. Neither are beta features without ``betas``, the ones that the request names.
    """
    request = request if isinstance(request, dict) else dict(request)
    rules = RequestRules(facts or facts_of(str(request.get("model") or "")), version, limits)
    found = _body(request, rules.facts.max_body_bytes if limits.max_body_bytes is None else limits.max_body_bytes)
    if found and found[0].status == 413:
        return found
    if betas is not None:
        needs = (need for need in beta_needs(request) if not set(need.betas) & set(betas))
        found.extend(Problem(need.path, need.message) for need in needs)
    for faults in (option_faults, management_faults, compaction_faults):
        found.extend(Problem(path, message) for path, message in faults(request, rules))
    walk = RequestWalk(request, rules, found)
    tools, system, messages = request.get("tools"), request.get("system"), request.get("messages")
    if tools is not None:
        walk.tools(tools)
    if system is not None:
        walk.system(system)
    if not is_list(messages):
        walk.add("messages", "Field required" if messages is None else "Input should be a valid list")
    elif not messages:
        walk.add("messages", "at least one message is required")
    else:
        walk.messages(messages)
    walk.totals()
    return found


def too_long(tokens: int, max_tokens: int) -> Problem | None:
    """Return the provider's error for a prompt that does not fit the window, or None if it fits."""
    if tokens <= max_tokens:
        return None
    return Problem("", f"prompt is too long: {tokens} tokens > {max_tokens} maximum")


def _body(request: Mapping[str, Any], max_bytes: int) -> list[Problem]:
    """Return the problem of a body that is not valid JSON and Unicode or is too large; else an empty list."""
    try:
        body = _quick.encode(request)
        # The round trip proves plain JSON: the encoder alone would silently convert NaN, bytes and dates.
        size = len(body) if _decode(body) == request else len(_strict(request).encode())
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        try:
            size = len(_strict(request).encode())
        except (TypeError, ValueError, RecursionError):
            path = next(_not_json(request), "")
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            return [Problem(path, f"the value cannot be sent as JSON: {reason}")]
    if size > max_bytes:
        return [Problem("", "Request exceeds the maximum size", status=413, kind="request_too_large")]
    return []


def _not_json(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:  # noqa: C901 - one case per type
    """Yield the paths of values that JSON cannot carry."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            yield path
    elif depth > 100:
        yield path
    elif isinstance(value, Mapping):
        for key, item in cast(Mapping[Any, Any], value).items():
            yield from _not_json(key, path, depth + 1)
            yield from _not_json(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif is_list(value):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{path}.{index}", depth + 1)
    elif isinstance(value, float):
        if value - value != 0:
            yield path
    elif not (value is None or isinstance(value, (bool, int))):
        yield path
