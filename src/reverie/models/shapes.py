"""Requests and replies in the shapes of providers, for loops that call a provider's SDK themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..conversation.entries import clean
from ..conversation.wire.carried_items import without_carried
from ..conversation.wire.fields import SDK_ARGUMENTS
from ..errors import InputError
from ..model_facts import ModelFacts, facts_of
from .chat_reply import ChatAssembly
from .chat_request import chat_body, limit_field_of
from .responses_reply import compact_body, compaction_reply, reply_of_response
from .responses_request import responses_body

Shape: TypeAlias = Literal["messages", "chat", "responses"]


def shaped_request(
    request: dict[str, Any], shape: Shape, *, facts: ModelFacts | None = None, carries_items: bool = True
) -> dict[str, Any]:
    """Return a request of the Messages API as keyword arguments of a provider's SDK.

    ``chat`` is for ``chat.completions.create``, ``responses`` for ``responses.create``, or for ``responses.compact``
    where the request has the field ``compaction``. ``facts`` are the model's, if not those of its name;
    ``carries_items`` is false if no message can carry items of another provider. Raise ``InputError`` for another
    shape, and for tools that the model does not take in this one.
    """
    if shape == "messages" and not carries_items:
        return request
    facts = facts or facts_of(str(request.get("model") or ""))
    rest = {key: request[key] for key in request if key in SDK_ARGUMENTS - {"betas"}}
    if shape == "chat":
        body = chat_body(request, limit_field=limit_field_of(facts), facts=facts)
        _check_tools(body, facts)
        return {**body, **rest}
    if shape == "responses":
        body = responses_body(request, facts=facts)
        return {**(compact_body(body, request) if request.get("compaction") is not None else body), **rest}
    if shape != "messages":
        raise InputError(f"there is no shape {shape!r}: use 'messages', 'chat' or 'responses'")
    if facts.api == "messages":
        return {**request, "messages": without_carried(request["messages"])}
    return request


def _check_tools(body: Mapping[str, Any], facts: ModelFacts) -> None:
    """Raise ``InputError`` if a chat completion has tools that its model takes only in Responses."""
    thinks = facts.chat_tools == "without_thinking"
    if "tools" not in body or facts.chat_tools == "yes" or (thinks and body.get("reasoning_effort") == "none"):
        return
    unless = ", or thinking={'type': 'disabled'}" if thinks else ""
    raise InputError(
        f"{body['model']} takes no tools in chat completions{' while it thinks' if thinks else ''}: use "
        f"shape='responses'{unless}; for a server that takes them, set chat_tools = 'yes' in [models.'{facts.name}']"
    )


def messages_reply(reply: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return a provider's reply as one of the Messages API; ``model`` is the model that the request named.

    Replies of chat completions and of Responses are recognised by their fields, others are returned as they are.
    """
    kind = reply.get("object")
    if kind == "response.compaction":
        return compaction_reply(reply, model)
    if kind == "response" or (isinstance(reply.get("output"), list) and "content" not in reply):
        whole = clean(dict(reply))
        return reply_of_response(cast("Mapping[str, Any]", whole), model)
    if kind == "chat.completion" or isinstance(reply.get("choices"), list):
        assembly = ChatAssembly(model, model=model)
        for _ in assembly.take_whole(msgspec.json.encode(clean(dict(reply)))):
            pass
        return assembly.reply().body
    return reply
