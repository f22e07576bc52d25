"""Scripted replies in the formats of Chat Completions and Responses, whole or as the events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from ...values import record, rows_of
from .refusals import Body

_PIECE_CHARS: Final = 24
_encode: Final = msgspec.json.Encoder().encode


@record
class Tokens:
    """The tokens of one call."""

    total: int
    cached: int
    written: int
    output: int


def _text_of(blocks: Iterable[Body], kind: str, field: str) -> str:
    return "".join(block[field] for block in blocks if block["type"] == kind)


# -- Chat Completions


def chat_reply(identity: str, model: str, blocks: list[Body], tokens: Tokens) -> Body:
    """Return blocks as a chat completion; thinking is its reasoning text, and a call may have ``extra_content``."""
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": _encode(block["input"]).decode()},
            **{key: block[key] for key in ("extra_content",) if key in block},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    refusal = _text_of(blocks, "refusal", "refusal") or None
    message: Body = {"role": "assistant", "content": _text_of(blocks, "text", "text") or None, "refusal": refusal}
    thinking = _text_of(blocks, "thinking", "thinking")
    if thinking:
        message["reasoning_content"] = thinking
    stop = "length" if any(block.get("cut") for block in blocks) else "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": {**message, "tool_calls": calls} if calls else message, "logprobs": None}
    details = {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written}
    return {
        "id": identity,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{**choice, "finish_reason": stop}],
        "usage": {
            "prompt_tokens": tokens.total,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.total + tokens.output,
            "prompt_tokens_details": details,
        },
    }


def chat_events(reply: Body, *, usage: bool) -> Iterator[bytes]:
    """Yield a chat completion as the chunks of a stream; ``usage`` asks for a last chunk with the tokens."""
    choice: Body = reply["choices"][0]
    message: Body = choice["message"]
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    for key in ("reasoning_content", "content", "refusal"):
        deltas += [{key: piece} for piece in _pieces(message.get(key) or "")]
    for index, call in enumerate(rows_of(message.get("tool_calls"))):
        opening = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in _pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    head = {key: reply[key] for key in ("id", "created", "model")}
    head = {**head, "object": "chat.completion.chunk"}
    for delta in deltas:
        yield _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if usage:
        yield _data({**head, "choices": [], "usage": reply["usage"]})
    yield b"data: [DONE]\n\n"


# -- Responses


def response_output(identity: str, blocks: list[Body], sealed: Callable[[str], str]) -> list[Body]:
    """Return blocks as output items; thinking becomes a reasoning item whose content is ``sealed``."""
    output: list[Body] = []
    for at, block in enumerate(blocks):
        kind = block["type"]
        if kind == "thinking":
            thought: Body = {"type": "reasoning", "id": f"rs_{identity}_{at}", "summary": []}
            output.append({**thought, "encrypted_content": sealed(block["thinking"])})
        elif kind in ("text", "refusal"):
            part: Body = {"type": "refusal", "refusal": block.get("refusal")}
            if kind == "text":
                part = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
            said = {"type": "message", "id": f"msg_{identity}_{at}", "role": "assistant", "status": "completed"}
            phase = {"phase": block["phase"]} if "phase" in block else {}
            output.append({**said, **phase, "content": [part]})
        elif kind == "tool_use":
            call = {"type": "function_call", "id": f"fc_{block['id']}", "call_id": block["id"], "name": block["name"]}
            # The provider's own spacing, which a client must send back as it came.
            arguments = _encode(block["input"]).decode().replace('":', '": ')
            output.append({**call, "arguments": arguments, "status": "completed"})
    return output


def response_body(identity: str, model: str, output: list[Body], tokens: Tokens, *, cut: bool = False) -> Body:
    """Return a response with these output items; ``cut`` means that it reached its limit of tokens."""
    return {
        "id": identity,
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": tokens.total,
            "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.total + tokens.output,
        },
    }


def response_events(response: Body) -> Iterator[bytes]:
    """Yield a response as the events of a stream."""
    numbers = count()
    begun: Body = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[Body] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(event for at, item in enumerate(response["output"]) for event in _item_events(item, at)),
        {"type": f"response.{response['status']}", "response": response},
    ]
    for event in events:
        yield _event({**event, "sequence_number": next(numbers)})


def _item_events(item: Body, at: int) -> Iterator[Body]:
    place = {"output_index": at}
    opened: Body = {**item, "status": "in_progress"}
    if "content" in item:
        opened["content"] = []
    if "arguments" in item:
        opened["arguments"] = ""
    if "encrypted_content" in item:  # it may be incomplete before the item is done
        opened["encrypted_content"] = item["encrypted_content"][:4]
    yield {"type": "response.output_item.added", "item": opened, **place}
    named = {**place, "item_id": item["id"]}
    for index, part in enumerate(item.get("content") or ()):
        yield from _part_events(part, {**named, "content_index": index})
    if item["type"] == "function_call":
        for piece in _pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece, **named}
        done = {"arguments": item["arguments"], "name": item["name"], **named}
        yield {"type": "response.function_call_arguments.done", **done}
    yield {"type": "response.output_item.done", "item": item, **place}


def _part_events(part: Body, place: Mapping[str, Any]) -> Iterator[Body]:
    refused = part["type"] == "refusal"
    name, field = ("refusal", "refusal") if refused else ("output_text", "text")
    more: Body = {} if refused else {"logprobs": []}
    yield {"type": "response.content_part.added", "part": {**part, field: ""}, **place}
    for piece in _pieces(part[field]):
        yield {"type": f"response.{name}.delta", "delta": piece, **more, **place}
    yield {"type": f"response.{name}.done", field: part[field], **more, **place}
    yield {"type": "response.content_part.done", "part": part, **place}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]


def _data(value: Body) -> bytes:
    return b"data: %s\n\n" % _encode(value)


def _event(value: Body) -> bytes:
    return b"event: %s\n" % str(value["type"]).encode() + _data(value)
