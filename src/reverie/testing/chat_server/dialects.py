"""The two request formats, checked by the provider's rules, and their replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

__all__ = ["ChatRefusal", "chat_parts", "chat_reply", "response_items", "response_parts", "response_reply"]

Body = dict[str, Any]
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_encode: Final = msgspec.json.Encoder().encode


class ChatRefusal(Exception):
    """An error for a request that breaks a rule of the provider."""

    def __init__(self, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def chat_parts(body: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a Chat Completions prompt in cache order; raise ``ChatRefusal`` for an invalid one."""
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ChatRefusal("[] is too short - 'messages'")
    owed: dict[str, int] = {}
    for at, message in enumerate(cast("list[Body]", messages)):
        role = message.get("role")
        if role not in _ROLES:
            raise ChatRefusal(f"Invalid value: '{role}'. Supported values are: {', '.join(sorted(_ROLES))}.")
        if role == "tool":
            if owed.pop(str(message.get("tool_call_id")), None) is None:
                raise ChatRefusal(
                    f"messages with role 'tool' must be a response to a preceeding message with 'tool_calls': "
                    f"messages.[{at}].role"
                )
            continue
        _refuse_owed(owed)
        if role == "assistant":
            calls: list[Body] = message.get("tool_calls") or []
            owed = {str(call["id"]): at for call in calls}
            if not calls and not message.get("content"):
                raise ChatRefusal(f"messages.[{at}]: an assistant message has content or tool_calls")
        elif not message.get("content"):
            raise ChatRefusal(f"messages.[{at}].content is empty")
    _refuse_owed(owed)
    return [body.get("tools") or [], *messages]


def _refuse_owed(owed: Mapping[str, int]) -> None:
    if owed:
        raise ChatRefusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(owed)}"
        )


def response_items(body: Mapping[str, Any], before: Iterable[Body]) -> list[Body]:
    """Return the items ``before`` and those of a Responses request; raise ``ChatRefusal`` if there are none."""
    given: Any = body.get("input")
    items: list[Body] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    whole = [*before, *items]
    if not whole:
        raise ChatRefusal("Missing required parameter: 'input'.")
    return whole


def response_parts(body: Mapping[str, Any], items: Iterable[Body]) -> list[Any]:
    """Return the parts of a Responses prompt in cache order; raise ``ChatRefusal`` for an invalid one."""
    calls: set[str] = set()
    answered: set[str] = set()
    seen: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        identity = item.get("id")
        if identity is not None and identity in seen:
            raise ChatRefusal(f"Duplicate item found with id {identity}. Remove duplicate items from your input.")
        seen.add(str(identity))
        if kind == "function_call":
            calls.add(str(item["call_id"]))
        elif kind == "function_call_output":
            called = str(item["call_id"])
            if called not in calls:
                raise ChatRefusal(f"No tool call found for function call output with call_id {called}.")
            answered.add(called)
        elif kind == "message" and item.get("role") not in _ROLES - {"tool"}:
            raise ChatRefusal(f"Invalid value: 'input[{at}].role'.")
    missing = calls - answered
    if missing:
        raise ChatRefusal(f"No tool output found for function call {sorted(missing)[0]}.")
    return [body.get("tools") or [], body.get("instructions") or "", *(_without_id(item) for item in items)]


def _without_id(item: Body) -> Body:
    """Return an item as it is cached: without its id and status."""
    return {key: value for key, value in item.items() if key not in ("id", "status") and value is not None}


def _words(blocks: Iterable[Body]) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def chat_reply(identity: str, model: str, blocks: list[Body], usage: tuple[int, int, int]) -> Body:
    """Return blocks as a reply in the format of Chat Completions; ``usage`` is input, cached and output tokens."""
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": _encode(block["input"]).decode()},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    message: Body = {"role": "assistant", "content": _words(blocks) or None, "refusal": None}
    total, cached, output = usage
    return {
        "id": identity,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {**message, "tool_calls": calls} if calls else message,
                "finish_reason": "tool_calls" if calls else "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": total,
            "completion_tokens": output,
            "total_tokens": total + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def response_reply(identity: str, model: str, blocks: list[Body], usage: tuple[int, int, int]) -> Body:
    """Return blocks as a reply in the format of Responses; ``usage`` is input, cached and output tokens."""
    output: list[Body] = []
    words = _words(blocks)
    if words:
        content: list[Body] = [{"type": "output_text", "text": words, "annotations": [], "logprobs": []}]
        said = {"id": f"msg_{identity}", "type": "message", "role": "assistant", "status": "completed"}
        output.append({**said, "content": content})
    for block in blocks:
        if block["type"] == "tool_use":
            call = {"type": "function_call", "id": f"fc_{block['id']}", "call_id": block["id"], "name": block["name"]}
            output.append({**call, "arguments": _encode(block["input"]).decode(), "status": "completed"})
    return response_body(identity, model, output, usage)


def response_body(identity: str, model: str, output: list[Body], usage: tuple[int, int, int]) -> Body:
    """Return a completed response with these output items; ``usage`` is input, cached and output tokens."""
    total, cached, spent = usage
    return {
        "id": identity,
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": total,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": spent,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": total + spent,
        },
    }
