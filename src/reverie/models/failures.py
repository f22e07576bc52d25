"""Translate the errors of providers and connections into the error classes of this package, in one place."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final, cast

from ..errors import (
    ImageRefused,
    ModelError,
    ModelRefused,
    ModelUnauthorized,
    ModelUnavailable,
    ModelUnknown,
    PromptTooLong,
    ReplyBroken,
    ThinkingRefused,
)
from .content_parts import read_json

_MAX_CHARS: Final = 600

# How Anthropic, OpenAI, vLLM, llama.cpp and Google word the same error; groups are the counts.
_TOO_LONG: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"prompt is too long(?:: (?P<tokens>\d+) tokens > (?P<limit>\d+))?",
        r"input length and `?max_tokens`? exceed context limit: (?P<tokens>\d+) \+ (?P<output>\d+) > (?P<limit>\d+)",
        r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
        r"exceeds? the available context size",
        r"maximum context length is (?P<limit>\d+) tokens[^0-9]*(?:requested|resulted in|has) (?P<tokens>\d+)",
        r"maximum context length is (?P<limit>\d+)",
        r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<limit>\d+)",
        r"input token count \(?(?P<tokens>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<limit>\d+)",
        r"input tokens exceed the configured limit of (?P<limit>\d+) tokens[^0-9]*resulted in (?P<tokens>\d+)",
        r"context window exceeds limit|exceeds the (?:model's )?context (?:window|length)",
    )
)
_TOO_LONG_KINDS: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "request_too_large"})
# The provider says not to match beyond this beginning: the words after it may change.
_THINKING: Final = re.compile(
    r"messages\.(\d+)\.content\.(\d+): Invalid `signature` in `thinking` block\. "
    r"The block is bound to a different conversation"
)
_IMAGE: Final = re.compile(
    r"messages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?\.(?:image|document|pdf)\b"
)
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})
_RETRYABLE: Final = frozenset({408, 409, 425, 429, *range(500, 600)}) - {501, 505}
_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "exceed_context_size_error": 400,
    "rate_limit_error": 429,
    "api_error": 500,
    "server_error": 500,
    "unavailable_error": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_UNREACHED: Final = frozenset({"APIConnectionError", "TransportError"})
_TIMED_OUT: Final = frozenset({"APITimeoutError", "TimeoutException"})
_NO_KEY: Final = ("authentication method", "credentials", "api_key client option")


def failure_of_status(who: str, status: int, body: Any, headers: Mapping[str, str] | None = None) -> ModelError:
    """Return, not raise, the error for an HTTP status and its body; ``who`` is the model's name."""
    kind, message, fields = _read(body)
    error = _failure(who, status, kind, message, fields, headers or {})
    details: Any = fields.get("details")
    code: Any = cast("dict[str, Any]", details).get("error_code") if isinstance(details, dict) else fields.get("code")
    if isinstance(code, str):
        error.error_code = code
    return error


def _failure(
    who: str, status: int, kind: str, message: str, fields: Mapping[str, Any], headers: Mapping[str, str]
) -> ModelError:
    said = f"{who}: {message or 'no reason given'} (HTTP {status})"
    if status == 413 or (400 <= status <= 500 and _is_too_long(kind, message)):
        tokens, limit, window = _counts(message, fields)
        return PromptTooLong(said, tokens=tokens, limit=limit, window=window, by_bytes=status == 413 and limit is None)
    if status in (401, 403):
        return ModelUnauthorized(f"{said}; check the key and its permissions")
    if status == 404:
        return ModelUnknown(f"{said}; check the model's name and the base URL")
    if status in _RETRYABLE and kind not in _NO_CREDIT:
        return ModelUnavailable(said, status=status, retry_after=retry_after_seconds(headers))
    return (_refused_block(said, message) if status == 400 else None) or ModelRefused(said)


def _refused_block(said: str, message: str) -> ModelRefused | None:
    """Return the error that names the thinking block, the image or the document that a provider refused, or None."""
    if found := _THINKING.match(message):
        return ThinkingRefused(said, message_index=int(found[1]), block_index=int(found[2]))
    if found := _IMAGE.match(message):
        part = None if found[3] is None else int(found[3])
        return ImageRefused(said, message_index=int(found[1]), block_index=int(found[2]), part_index=part)
    return None


def failure_of_stream(who: str, body: Any) -> ModelError:
    """Return, not raise, the error for the body of an error event inside a stream; ``who`` is the model's name."""
    kind, _, fields = _read(body)
    code = fields.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else _STATUSES.get(kind, 500)
    return failure_of_status(who, status, body)


def failure_of_exception(who: str, error: BaseException, *, begun: bool = False) -> ModelError:
    """Return, not raise, the error for a client library's exception.

    ``begun`` means that part of a reply had come. Exceptions are recognised by their class names, because
    importing a library only for a check costs seconds.
    """
    if isinstance(error, ModelError):
        return error
    names = {cls.__name__ for cls in type(error).__mro__}
    status: Any = getattr(error, "status_code", None)
    if "APIStatusError" in names and isinstance(status, int) and status >= 400:
        response: Any = getattr(error, "response", None)
        return failure_of_status(who, status, getattr(error, "body", None), getattr(response, "headers", None))
    said = f"{who}: {str(error) or type(error).__name__}"
    if begun:
        return ReplyBroken(f"{said}; the reply stopped in the middle")
    if names & _TIMED_OUT:
        return ModelUnavailable(f"{said}; no answer in time", retry_after=None)
    if names & _UNREACHED or isinstance(error, OSError):
        cause = error.__cause__
        reason = f" ({cause})" if cause is not None and str(cause) else ""
        if _is_connection_refused(error):
            advice = "nothing listens at this address: start the server, or check the base URL"
            return ModelUnavailable(f"{said}{reason}; {advice}", no_server=True)
        return ModelUnavailable(f"{said}{reason}; the server could not be reached")
    if any(sign in said.lower() for sign in _NO_KEY):
        return no_key(who)
    if "CredentialsError" in names:
        return ModelUnauthorized(f"{said}; set {_key_variable(who)}")
    return ModelRefused(said)


def no_key(who: str) -> ModelUnauthorized:
    """Return the error of a model whose provider needs a key where none is set."""
    return ModelUnauthorized(f"{who} needs a key: set {_key_variable(who)}")


def _key_variable(who: str) -> str:
    return f"{who.partition(':')[0].partition('-')[0].upper()}_API_KEY"


def _is_connection_refused(error: BaseException | None) -> bool:
    """Return whether an error comes from an address at which nothing listens, by its causes."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        if isinstance(error, BaseExceptionGroup):
            several = cast("BaseExceptionGroup[BaseException]", error)
            return all(_is_connection_refused(one) for one in several.exceptions)
        error = error.__cause__ or error.__context__
    return error is not None


def broken_reply(who: str, why: str) -> ReplyBroken:
    """Return, not raise, the error for a reply that cannot be read; ``who`` is the model's name."""
    return ReplyBroken(f"{who}: the reply is broken: {why}")


def event_fields(who: str, data: str) -> dict[str, Any]:
    """Return the object in the data of an event; raise ``ReplyBroken`` if there is none."""
    try:
        value = read_json(data)
    except ValueError as error:
        raise broken_reply(who, f"an event is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise broken_reply(who, "an event is not an object")
    return cast("dict[str, Any]", value)


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds a provider asks to wait, as milliseconds, seconds or a date say; None if it does not."""
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        said = (headers.get(name) or "").strip()
        try:
            seconds = float(said) / unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime((headers.get("retry-after") or "").strip())
        return max(0.0, date.timestamp() - (time.time() if now is None else now))
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def _read(body: Any) -> tuple[str, str, dict[str, Any]]:
    """Return the kind, the message and the fields of an error body of any provider."""
    if isinstance(body, (bytes, str)):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            body = read_json(text)
        except ValueError:
            return "", " ".join(text.split())[:_MAX_CHARS], {}
    outer = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    inner: Any = outer.get("error", outer)
    fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer
    words = (fields.get("message"), outer.get("message"), outer.get("detail"), cast("Any", inner))
    said: Any = next(filter(None, words), "")
    message = str(said)
    code, kind = fields.get("code"), fields.get("type")
    named = code if isinstance(code, str) and code in (_TOO_LONG_KINDS | _NO_CREDIT) else kind
    return named if isinstance(named, str) else "", message[:_MAX_CHARS], fields


def _is_too_long(kind: str, message: str) -> bool:
    return kind in _TOO_LONG_KINDS or any(pattern.search(message) for pattern in _TOO_LONG)


def _counts(message: str, fields: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return the tokens of the prompt, its limit and the window, each None if the error does not name it."""
    tokens, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(tokens, int) and isinstance(limit, int):
        return tokens, limit, limit
    for pattern in _TOO_LONG:
        found = pattern.search(message)
        if found is not None:
            said = {name: int(count) for name, count in found.groupdict().items() if count}
            window = said.get("limit")
            limit = None if window is None else max(0, window - said.get("output", 0))
            return said.get("tokens"), limit, window
    return None, None, None
