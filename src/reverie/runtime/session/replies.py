"""Convert replies and tool results of callers, which may be anything, to the wire format."""

from __future__ import annotations

import json
from asyncio import CancelledError, current_task
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeVar, cast

import msgspec

from ...conversation.entries import ASSISTANT, USER, Entry, Message, clean, decode_entry, encode_entry, new_uuid
from ...conversation.file_reads import FileRead
from ...conversation.view import View
from ...conversation.wire.blocks import TEXT_CALL, text_block
from ...conversation.wire.request import ends_with_reply
from ...conversation.wire.schemas import input_problem
from ...digests import hex_of
from ...errors import InputError
from ...models.shapes import messages_reply
from ...ports import Reply
from ...tools.tool import Output
from ...values import record, replace, rows_of

T = TypeVar("T")


@record
class Call:
    """A tool call of the model."""

    id: str
    name: str
    input: dict[str, Any]
    problem: str | None = None
    """The schema error of the input, if any; answer such a call with an error."""


def plain_reply(reply: Any, model: str = "") -> tuple[Message, dict[str, Any]]:
    """Split a reply (a ``Reply``, an SDK object or a mapping) into its message and a dict of its other fields.

    A chat completion or a response is read for ``model``, the model that the request named. Raise ``InputError`` if
    it is not a reply of an assistant.
    """
    body: Any = reply.body if isinstance(reply, Reply) else reply
    if not isinstance(body, Mapping):
        body = _fields_of(reply)
    fields = dict(messages_reply(cast(Mapping[str, Any], body), model))
    content = fields.pop("content", None)
    if not isinstance(content, (list, str)) or fields.pop("role", "assistant") != "assistant":
        raise InputError("a reply has the role 'assistant' and a list of content blocks")
    fields.pop("type", None)
    return {"role": "assistant", "content": content}, fields


def _fields_of(reply: Any) -> Any:
    """Return an SDK object as a mapping; a compacted conversation has items that the SDK's own types do not know."""
    dump = getattr(reply, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    dump = getattr(reply, "to_dict", None)
    if dump is None:
        raise InputError(
            f"a reply is a mapping or an SDK message, not {type(reply).__name__}: pass the provider's reply"
        )
    return dump()


def repeated_reply(view: View, message: Message, rest: Mapping[str, Any]) -> Entry | None:
    """Return the reply of the log that this one repeats, passed again by a step that was retried; None if it is new.

    It is the newest one with the same id, however long ago, if it has the same content and, unless it is the last one,
    the same usage: a server that gives one id to several replies means nothing by it. Known calls identify a reply
    among those. Without an id it is the reply at the end of the view.
    """
    last, id = view.last_reply, rest.get("id")
    if not id:
        is_last = last is not None and not last.reply.get("id") and ends_with_reply(view)
        return last if is_last and last is not None and _has_content(last, message) else None
    if not isinstance(id, str) or not view.may_have_reply(id):
        return None
    calls = calls_of(message)
    is_known = bool(calls) and all(view.tool_call(call.id) is not None for call in calls)
    for entry in view.latest():
        if entry.kind != ASSISTANT or entry.reply.get("id") != id or _is_text_call(entry):
            continue
        is_last = last is not None and entry.uuid == last.uuid
        if _has_content(entry, message) and (is_known or is_last or _has_usage(entry, rest)):
            return entry
        if not is_known:
            return None
    return None


def _has_content(entry: Entry, message: Message) -> bool:
    """Return whether a logged reply is a message, as the log would have it."""
    logged, content = (entry.message or {}).get("content"), message["content"]
    if logged == content:
        return True
    as_logged = decode_entry(encode_entry(replace(entry, body={"message": {"content": content}})))
    return (as_logged.message or {}).get("content") == logged


def _has_usage(entry: Entry, rest: Mapping[str, Any]) -> bool:
    """Return whether a logged reply reports the usage of another: a later one has read more."""
    as_logged = decode_entry(encode_entry(replace(entry, body={"reply": {"usage": rest.get("usage")}})))
    return as_logged.reply.get("usage") == entry.reply.get("usage")


def _is_text_call(entry: Entry) -> bool:
    """Return whether an entry is a command that the program took from the text of a reply."""
    blocks = rows_of((entry.message or {}).get("content"))
    return any(str(block.get("id")).startswith(TEXT_CALL) for block in blocks)


def text_call(view: View, command: str) -> dict[str, Any]:
    """Return an entry's body that adds a command of the last reply's text as a call; raise ``InputError`` if none."""
    last = view.last_reply
    if last is None or not ends_with_reply(view):
        raise InputError("output_of names a command of the last reply: call observe() with that reply first")
    block = {"type": "tool_use", "id": f"{TEXT_CALL}{new_uuid()}", "name": "Bash", "input": {"command": command}}
    # A piece of the same reply joins its message.
    return {"message": {"role": "assistant", "content": [block]}, "reply": {"id": last.reply.get("id") or last.uuid}}


def logged_result(view: View, tool_use_id: str, output: Any) -> Entry | None:
    """Return the logged result of a call, in view or not, or the late one; None if only a placeholder was logged."""
    late, handle = late_result(tool_use_id, result_content(output)), late_handle(tool_use_id, output)
    for entry in view.latest():
        content: Any = (entry.message or {}).get("content")
        parts = cast("list[Any]", content) if isinstance(content, list) else []
        blocks = [cast("dict[str, Any]", one) for one in parts if isinstance(one, dict)]
        if entry.kind == USER and any(block.get("tool_use_id") == tool_use_id for block in blocks):
            return entry
        if any(block.get("type") == "tool_use" and block.get("id") == tool_use_id for block in blocks):
            return None
        if blocks[:1] == late[:1] and (blocks == late or handle in str(blocks)):
            return entry
    return None


def result_block(tool_use_id: str, content: str | list[Any], is_error: bool) -> dict[str, Any]:
    """Return the block of a tool result."""
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return {**block, "is_error": True} if is_error else block


def asked_model(view: View) -> str:
    """Return the model that the last request named."""
    prefix = view.facts.prefix
    return prefix.model if prefix is not None else ""


def late_result(tool_use_id: str, content: str | list[Any]) -> list[Any]:
    """Return the blocks of a result that came after its placeholder was sent."""
    blocks = content if isinstance(content, list) else [text_block(content or "(empty)")]
    return [text_block(f"[Result of tool call {tool_use_id}, after it was given up]"), *blocks]


def late_handle(tool_use_id: str, output: Any) -> str:
    """Return the handle of a result that came late, the same for the same output."""
    return f"{tool_use_id}-late-{hex_of(json.dumps(result_content(output)).encode())[:8]}"


def is_billed(view: View, rest: Mapping[str, Any]) -> bool:
    """Return whether the log holds the cost of this reply."""
    call = view.facts.last_call
    return call is not None and call.message_id == str(rest.get("id") or "")


def calls_of(message: Message, tools: Sequence[Mapping[str, Any]] = ()) -> list[Call]:
    """Return a list of the tool calls of a reply; ``problem`` is set if an input breaks its tool's schema."""
    content = message["content"]
    if isinstance(content, str):
        return []
    blocks = (cast("dict[str, Any]", block) for block in content if isinstance(block, dict))
    found = [block for block in blocks if block.get("type") == "tool_use" and _is_call(block)]
    return [
        Call(block["id"], block["name"], block["input"], input_problem(tools, block["name"], block["input"]))
        for block in found
    ]


def open_calls(view: View, message: Message, tools: Sequence[Mapping[str, Any]] = ()) -> list[Call]:
    """Return the tool calls of a reply that wait for a result in this view, each id once."""
    waiting = set(view.unanswered())
    first: dict[str, Call] = {}
    for call in calls_of(message, tools):
        if call.id in waiting:
            first.setdefault(call.id, call)
    return list(first.values())


def repeated_ids(view: View, calls: Sequence[Call]) -> list[str]:
    """Return a sentence for each call of the last reply whose id an earlier call has: the model sees it as text."""
    waiting = view.unanswered() if calls else ()
    return [
        f"the reply calls {call.name} with the id {call.id!r} of an earlier call, so it is kept as text"
        for call in calls
        if call.id not in waiting
    ]


def _is_call(block: dict[str, Any]) -> bool:
    named = isinstance(block.get("id"), str) and isinstance(block.get("name"), str)
    return named and isinstance(block.get("input"), dict)


def result_content(output: Any) -> str | list[Any]:
    """Return a tool's output as the content of a tool result: text, content blocks, or else JSON text.

    It never raises: a value that is neither JSON nor can be converted to it becomes its ``repr``.
    """
    if isinstance(output, str):
        return str.__str__(output)
    if isinstance(output, (bytes, bytearray)):
        return bytes(output).decode("utf-8", "replace")
    if output is None:
        return ""
    try:
        plain = _plain(output)
        if isinstance(plain, list) and plain and all(map(_is_block, cast("list[Any]", plain))):
            return cast("list[Any]", plain)
        return msgspec.json.encode(plain).decode()
    except Exception:  # a circle, or an object that fails while it is read
        return shown_value(output)


def _plain(value: Any) -> Any:
    """Return a value in JSON types; raise some error if it contains itself or is nested too deeply."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=shown_value))
    except Exception:  # json keeps lone surrogates and NaN, and refuses circles
        return clean(json.loads(json.dumps(value, default=shown_value)))


def shown_value(value: object) -> str:
    """Return the ``repr`` of any object as text that can be stored, or its type if it cannot be shown."""
    try:
        return clean(repr(value))
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _is_block(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, Any]", part).get("type"), str)


async def output_or_error(run: Callable[[], Any]) -> Output:
    """Run a tool and return its output; any value and exception becomes one, but no Ctrl-C and no real cancellation."""
    try:
        found: Any = run()
        while isawaitable(found):
            found = await found
        return _as_output(found)
    except KeyboardInterrupt:
        raise
    except CancelledError:
        task = current_task()
        if task is not None and task.cancelling():
            raise
        return Output("The tool failed: it cancelled itself.", is_error=True)
    except BaseException as error:  # such as the panic of an extension module, or SystemExit
        return Output(f"The tool failed: {type(error).__name__}: {error_text(error)}", is_error=True)


def _as_output(found: Any) -> Output:
    """Return the value of a tool as an output that can be logged."""
    if not isinstance(found, Output):
        is_error = isinstance(found, BaseException)
        return Output(error_text(found) if is_error else result_content(found), is_error=is_error)
    return replace(
        found,
        content=result_content(found.content),
        is_error=bool(found.is_error),
        read=_only(str, found.read),
        wrote=_only(str, found.wrote),
        found=_only(str, found.found),
        files=_only(FileRead, found.files),
        lines=found.lines if isinstance(found.lines, int) else None,
    )


def _only(kind: type[T], given: Any) -> tuple[T, ...]:
    items = cast("list[Any]", given) if isinstance(given, list | tuple | set | frozenset) else ()
    return tuple(one for one in items if isinstance(one, kind))


def error_text(error: BaseException) -> str:
    """Return the text of an exception, also of one that cannot be shown."""
    try:
        return str(error)
    except Exception:
        return shown_value(error)
