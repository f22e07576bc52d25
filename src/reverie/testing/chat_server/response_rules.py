"""The rules of Chat Completions and of Responses, by model: options, messages, items, reasoning that is not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from ...model_facts import ModelFacts
from ...values import rows_of
from .refusals import Body, ChatRefusal, refuse_options

_FIELDS: Final = frozenset(
    {
        *("background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens"),
        *("max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
        *("service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools"),
        *("top_logprobs", "top_p", "truncation", "user"),
    }
)
_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_OURS: Final = frozenset({"input_text", "input_image", "input_file"})
_MODELS: Final = frozenset({"output_text", "refusal"})
_LEAST_OUTPUT: Final = 16
_CHAT_ROLES: Final = _ROLES | {"tool"}
_REASONING: Final = "The reasoning_content in the thinking mode must be passed back to the API."
_UNSIGNED: Final = "Function call is missing a thought_signature in functionCall parts."


def response_items(body: Mapping[str, Any], before: Iterable[Body]) -> list[Body]:
    """Return the items ``before`` and those of a Responses request; raise ``ChatRefusal`` if there are none."""
    given: Any = body.get("input")
    items: list[Body] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
    whole = [*before, *items]
    if not whole:
        raise ChatRefusal("Missing required parameter: 'input'.")
    return whole


def refuse_response(body: Mapping[str, Any], facts: ModelFacts) -> None:
    """Raise ``ChatRefusal`` for options that Responses or this model do not take."""
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        raise ChatRefusal(f"Unknown parameter: '{unknown[0]}'.", "unknown_parameter")
    reasoning: Body = body.get("reasoning") or {}
    refuse_options(body, facts, reasoning.get("effort"))
    if "reasoning.encrypted_content" in (body.get("include") or ()) and not facts.thinking_by_default:
        raise ChatRefusal("Encrypted content is not supported with this model.")
    if reasoning.get("context") not in (None, "auto") and facts.api != "responses":
        raise ChatRefusal("Unsupported parameter: 'reasoning.context' is not supported with this model.")
    limit = body.get("max_output_tokens")
    if limit is not None and limit < _LEAST_OUTPUT:
        raise ChatRefusal(f"Invalid 'max_output_tokens': integer below minimum value. Expected >= {_LEAST_OUTPUT}.")
    refuse_tools(rows_of(body.get("tools")), "tools")


def refuse_tools(tools: Sequence[Body], where: str) -> None:
    """Raise ``ChatRefusal`` for a function without a name or with a schema that a strict tool may not have."""
    for at, tool in enumerate(tools):
        if tool.get("type") != "function":
            continue
        if not tool.get("name"):
            raise ChatRefusal(f"Missing required parameter: '{where}[{at}].name'.")
        schema: Body = tool.get("parameters") or {}
        named, required = set(schema.get("properties") or {}), set(schema.get("required") or ())
        if tool.get("strict", True) and (schema.get("additionalProperties") is not False or named - required):
            raise ChatRefusal(
                f"Invalid schema for function '{tool['name']}': 'additionalProperties' is required to be supplied and "
                "to be false, and 'required' is required to include every key in properties."
            )


class ItemRules:
    """Checks the items of one request, in their order.

    ``followers`` are the ids of the item that the provider wrote after each reasoning item; ``open_sealed`` opens
    encrypted content or refuses it; ``stored`` are the ids of items that the provider keeps.
    """

    def __init__(
        self,
        facts: ModelFacts,
        *,
        followers: Mapping[str, frozenset[str]],
        stored: frozenset[str],
        open_sealed: Callable[[str, str], str],
    ) -> None:
        self._facts = facts
        self._followers = followers
        self._stored = stored
        self._open = open_sealed
        self._seen: set[str] = set()
        self._calls: set[str] = set()
        self._answered: set[str] = set()

    def refuse(self, items: Sequence[Body]) -> None:
        """Raise ``ChatRefusal`` for the first item that breaks a rule."""
        for at, item in enumerate(items):
            self._refuse_repeated(item)
            self._refuse_item(item, at, items[at + 1 :])
            self._refuse_without_reasoning(item)
            self._seen.add(str(item.get("id")))
        missing = self._calls - self._answered
        if missing:
            raise ChatRefusal(f"No tool output found for function call {sorted(missing)[0]}.")

    def _refuse_repeated(self, item: Body) -> None:
        identity = item.get("id")
        if identity is not None and identity in self._seen:
            raise ChatRefusal(f"Duplicate item found with id {identity}. Remove duplicate items from your input.")

    def _refuse_item(self, item: Body, at: int, later: Sequence[Body]) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._refuse_message(item, at)
        elif kind == "reasoning":
            self._refuse_reasoning(item, later)
        elif kind == "compaction":
            self._open(str(item.get("encrypted_content")), str(item.get("id")))
        elif kind == "function_call":
            self._calls.add(str(item["call_id"]))
        elif kind == "function_call_output":
            self._refuse_output(item, at)
        elif kind == "additional_tools":
            if not self._facts.tool_changes or item.get("role") != "developer" or not rows_of(item.get("tools")):
                raise ChatRefusal(f"Invalid value: 'input[{at}]': additional_tools.")
            refuse_tools(rows_of(item.get("tools")), f"input[{at}].tools")

    def _refuse_message(self, item: Body, at: int) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in _ROLES:
            raise ChatRefusal(f"Invalid value: 'input[{at}].role'.")
        if not content:
            raise ChatRefusal(f"Invalid value: 'input[{at}].content' is empty.")
        self._refuse_parts(content, f"input[{at}].content", _MODELS if role == "assistant" else _OURS)

    def _refuse_output(self, item: Body, at: int) -> None:
        called = str(item["call_id"])
        if called not in self._calls:
            raise ChatRefusal(f"No tool call found for function call output with call_id {called}.")
        self._answered.add(called)
        self._refuse_parts(item.get("output"), f"input[{at}].output", _OURS)

    def _refuse_parts(self, content: Any, where: str, kinds: frozenset[str]) -> None:
        for number, part in enumerate(rows_of(content)):
            if part.get("type") not in kinds:
                raise ChatRefusal(f"Invalid value: '{part.get('type')}' at '{where}[{number}].type'.")
            mark = part.get("prompt_cache_breakpoint")
            if mark is not None and (
                kinds is _MODELS or self._facts.api != "responses" or mark.get("mode") != "explicit"
            ):
                raise ChatRefusal(f"Unknown parameter: '{where}[{number}].prompt_cache_breakpoint'.")

    def _refuse_reasoning(self, item: Body, later: Sequence[Body]) -> None:
        """Refuse reasoning that is unreadable, or that is not before the item that followed it."""
        identity = str(item.get("id"))
        if item.get("encrypted_content"):
            self._open(str(item["encrypted_content"]), identity)
        elif identity not in self._stored:
            raise ChatRefusal(
                f"Item with id '{identity}' not found. Items are not persisted when `store` is set to false."
            )
        following: Body = next((one for one in later if one.get("type") != "reasoning"), Body())
        named = {str(following.get("id")), str(following.get("call_id"))}
        own = self._followers.get(identity, frozenset())
        if not named & own and not (following.get("role") == "assistant" and not following.get("id")):
            raise ChatRefusal(
                f"Item '{identity}' of type 'reasoning' was provided without its required following item."
            )

    def _refuse_without_reasoning(self, item: Body) -> None:
        needed = [name for name, own in self._followers.items() if item.get("id") in own and name not in self._seen]
        if needed:
            raise ChatRefusal(
                f"Item '{item['id']}' of type '{item.get('type')}' was provided without its required "
                f"'reasoning' item: '{needed[0]}'."
            )


def refuse_chat(body: Mapping[str, Any], facts: ModelFacts, signed: Mapping[str, Any]) -> None:
    """Raise ``ChatRefusal`` for an invalid chat completion; ``signed`` has the fields that calls must bring back."""
    _refuse_fields(body, facts)
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ChatRefusal("[] is too short - 'messages'")
    owed: dict[str, int] = {}
    for at, message in enumerate(cast("list[Body]", messages)):
        role = message.get("role")
        if role not in _CHAT_ROLES:
            raise ChatRefusal(f"Invalid value: '{role}'. Supported values are: {', '.join(sorted(_CHAT_ROLES))}.")
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
