"""The rules of Chat Completions, by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...model_facts import ModelFacts
from ...values import rows_of
from .refusals import Body, ChatRefusal, refuse_options

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_REASONING: Final = "The reasoning_content in the thinking mode must be passed back to the API."
_UNSIGNED: Final = "Function call is missing a thought_signature in functionCall parts."


def refuse_chat(body: Mapping[str, Any], facts: ModelFacts, signed: Mapping[str, Any]) -> None:
    """Raise ``ChatRefusal`` for an invalid chat completion; ``signed`` has the fields that calls must bring back."""
    _refuse_fields(body, facts)
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ChatRefusal("[] is too short - 'messages'")
    owed: dict[str, int] = {}
    for at, message in enumerate(cast("list[Body]", messages)):
        role = message.get("role")
        if role not in _ROLES:
            raise ChatRefusal(f"Invalid value: '{role}'. Supported values are: {', '.join(sorted(_ROLES))}.")
        _refuse_marks(message, at, facts)
        if role == "tool":
            if owed.pop(str(message.get("tool_call_id")), None) is None:
                raise ChatRefusal(
                    f"messages with role 'tool' must be a response to a preceeding message with 'tool_calls': "
                    f"messages.[{at}].role"
                )
            continue
        _refuse_owed(owed)
        if role == "assistant":
            owed = {str(call["id"]): at for call in rows_of(message.get("tool_calls"))}
            _refuse_reply(message, at, facts, signed)
        elif not message.get("content"):
            raise ChatRefusal(f"messages.[{at}].content is empty")
    _refuse_owed(owed)


def _refuse_fields(body: Mapping[str, Any], facts: ModelFacts) -> None:
    effort = body.get("reasoning_effort")
    refuse_options(body, facts, effort)
    if facts.api != "messages" and not facts.sampling and body.get("max_tokens") is not None:
        raise ChatRefusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    refused = facts.chat_tools == "no" or (facts.chat_tools == "without_thinking" and effort != "none")
    if body.get("tools") and refused:
        raise ChatRefusal(
            f"Function tools are not supported for {body['model']} in /v1/chat/completions. Use /v1/responses instead."
        )


def _refuse_reply(message: Body, at: int, facts: ModelFacts, signed: Mapping[str, Any]) -> None:
    calls = rows_of(message.get("tool_calls"))
    if not calls and not message.get("content"):
        raise ChatRefusal(f"messages.[{at}]: an assistant message has content or tool_calls")
    if calls and facts.reasoning_field and facts.reasoning_field not in message:
        raise ChatRefusal(_REASONING)
    if calls and facts.foreign_call and "extra_content" not in calls[0]:
        raise ChatRefusal(_UNSIGNED)
    for call in calls:
        wanted = signed.get(str(call["id"]))
        if facts.foreign_call and wanted is not None and call.get("extra_content") != wanted:
            raise ChatRefusal(_UNSIGNED)


def _refuse_marks(message: Body, at: int, facts: ModelFacts) -> None:
    for part in rows_of(message.get("content")):
        mark = part.get("prompt_cache_breakpoint")
        taken = facts.api == "responses" and message["role"] != "assistant" and mark == {"mode": "explicit"}
        if mark is not None and not taken:
            raise ChatRefusal(f"Unknown parameter: 'messages[{at}].content.prompt_cache_breakpoint'.")


def _refuse_owed(owed: Mapping[str, int]) -> None:
    if owed:
        raise ChatRefusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(owed)}"
        )
