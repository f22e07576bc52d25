"""Validation of requests by the provider's rules, written independently of the request builder.

``problems`` returns all faults, the one a provider would report first at the front; an empty list means that the
request is accepted. Two rules are stricter than the provider's: roles must alternate (a provider merges consecutive
messages of one role), and the last assistant message must not be empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from ...values import record
from .block_rules import EXTRA, block_fault, is_list, is_object, text_fault
from .option_rules import option_faults, tool_faults

__all__ = ["Limits", "Problem", "problems", "too_long"]

_MESSAGE_KEYS: Final = frozenset(("role", "content"))
_THINKING: Final = ("thinking", "redacted_thinking")
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_quick = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode


@record
class Limits:
    """The provider's limits, and its features beyond the public API."""

    max_body_bytes: int = 32_000_000
    max_images: int = 100
    max_breakpoints: int = 4
    cache_edits: bool = False


@record
class Problem:
    """One reason why a provider would reject the request, with its HTTP status and error type."""

    path: str
    message: str
    status: int = 400
    kind: str = "invalid_request_error"

    @property
    def text(self) -> str:
        """The message in the provider's format, path first."""
        return f"{self.path}: {self.message}" if self.path else self.message


_DEFAULT: Final = Limits()


def problems(request: Mapping[str, Any], *, limits: Limits = _DEFAULT) -> list[Problem]:
    """Return every reason why a provider would reject the request; an empty list means it is accepted."""
    request = request if isinstance(request, dict) else dict(request)
    found = _body(request, limits)
    if found and found[0].status == 413:
        return found
    walk = _Walk(limits, found)
    for path, message in option_faults(request):
        walk.add(path, message)
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
    walk.totals(request)
    return found


def too_long(tokens: int, max_tokens: int) -> Problem | None:
    """Return the provider's error for a prompt that does not fit the window, or None if it fits."""
    if tokens <= max_tokens:
        return None
    return Problem("", f"prompt is too long: {tokens} tokens > {max_tokens} maximum")


def _body(request: Mapping[str, Any], limits: Limits) -> list[Problem]:
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
    if size > limits.max_body_bytes:
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


class _Walk:
    """One pass over a request that collects problems, images, breakpoints and tool-call ids."""

    __slots__ = ("found", "ids", "images", "limits", "marks", "tool_blocks")

    def __init__(self, limits: Limits, found: list[Problem]) -> None:
        self.limits = limits
        self.found = found
        self.images = 0
        self.marks: list[tuple[str, Any]] = []
        self.ids: set[str] = set()
        self.tool_blocks = False

    def add(self, path: str, message: str) -> None:
        self.found.append(Problem(path, message))

    def tools(self, tools: Any) -> None:
        for path, message in tool_faults(tools):
            self.add(path, message)
        for index, tool in enumerate(tools if is_list(tools) else ()):
            if is_object(tool) and tool.get("cache_control") is not None:
                self.marks.append((f"tools.{index}", tool["cache_control"]))

    def system(self, system: Any) -> None:
        if isinstance(system, str):
            message = text_fault(system)
            if message is not None:
                self.add("system", message)
        elif not is_list(system):
            self.add("system", "Input should be a valid string or list")
        else:
            self.blocks(system, "system", "system")

    def blocks(self, content: list[Any], role: str, path: str) -> list[dict[str, Any]]:
        """Check each block by itself, collect images and breakpoints, and return the blocks that are objects."""
        cache_edits, sound = self.limits.cache_edits, True
        for index, block in enumerate(content):
            fault = block_fault(block, role, cache_edits)
            if fault is not None:
                self.add(f"{path}.{index}.{fault[0]}" if fault[0] else f"{path}.{index}", fault[1])
                sound = sound and is_object(block)
                continue
            if "cache_control" in block and block["cache_control"] is not None:
                self.marks.append((f"{path}.{index}", block["cache_control"]))
            kind = block["type"]
            if kind == "image":
                self.images += 1
            elif kind == "tool_result" and is_list(block.get("content")):
                self.inside(block["content"], f"{path}.{index}.tool_result.content")
        return content if sound else [block for block in content if is_object(block)]

    def inside(self, content: list[Any], path: str) -> None:
        """Collect images and breakpoints inside a tool result."""
        for index, block in enumerate(content):
            if block["type"] == "image":
                self.images += 1
            if block.get("cache_control") is not None:
                self.marks.append((f"{path}.{index}", block["cache_control"]))

    def messages(self, messages: list[Any]) -> None:
        before, pending, last = "", list[str](), len(messages) - 1
        for index, message in enumerate(messages):
            if not is_object(message):
                self.add(f"messages.{index}", "Input should be a valid dictionary")
                before, pending = "", []
                continue
            role = message.get("role")
            if role != ("assistant" if before == "user" else "user"):
                self.role(role, before, index)
            if len(message) > 2 and not message.keys() <= _MESSAGE_KEYS:
                self.add(f"messages.{index}.{min(map(str, message.keys() - _MESSAGE_KEYS))}", EXTRA)
            content = message.get("content")
            blocks = self.content(content, role, f"messages.{index}")
            if role == "assistant":
                if pending:
                    self.results([], pending, index)
                pending = self.uses(blocks, index, index == last)
                if index == last:
                    self.prefill(content)
            else:
                self.results(blocks, pending, index)
                pending = []
            before = role
        if pending:
            self.results([], pending, last + 1)

    def role(self, role: Any, before: Any, index: int) -> None:
        if role not in ("user", "assistant"):
            self.add(f"messages.{index}.role", f"Unexpected role {role!r}: use 'user' or 'assistant'")
        elif index == 0:
            self.add("messages", 'first message must use the "user" role')
        elif role == before:
            self.add(
                "messages",
                'roles must alternate between "user" and "assistant", '
                f'but found multiple "{role}" roles in a row (at messages.{index})',
            )

    def content(self, content: Any, role: Any, path: str) -> list[dict[str, Any]]:
        """Check a message's content and return its blocks; an empty list if the content is a string or invalid."""
        if is_list(content):
            if content:
                return self.blocks(content, role if role == "assistant" else "user", f"{path}.content")
            self.add(path, "all messages must have non-empty content")
        elif not isinstance(content, str):
            self.add(f"{path}.content", "Field required" if content is None else "Input should be a valid list")
        elif not content:
            self.add(path, "all messages must have non-empty content")
        elif content.isspace():
            self.add("messages", f"text content blocks must contain non-whitespace text (at {path})")
        return []

    def results(self, blocks: list[dict[str, Any]], pending: list[str], index: int) -> None:
        """Check that a message's results come first and answer exactly the calls of ``pending``, each once."""
        seen: set[str] = set()
        late = other = False
        for position, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                other = True
                continue
            self.tool_blocks = True
            late = late or other
            found = str(block.get("tool_use_id"))
            if found in seen:
                self.add(
                    f"messages.{index}.content",
                    f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {found}",
                )
            elif found not in pending:
                self.add(
                    f"messages.{index}.content.{position}",
                    f"unexpected `tool_use_id` found in `tool_result` blocks: {found}. Each `tool_result` block must "
                    "have a corresponding `tool_use` block in the previous message.",
                )
            seen.add(found)
        missing = [found for found in pending if found not in seen]
        if missing or (late and pending):
            self.add(
                f"messages.{index - 1}",
                "`tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing or pending)}. Each `tool_use` block must have a corresponding `tool_result` block "
                "in the next message.",
            )

    def uses(self, blocks: list[dict[str, Any]], index: int, is_last: bool) -> list[str]:
        """Check ids, server tool pairs and thinking; return the ids of the calls that need a result next."""
        pending: list[str] = []
        open_server: dict[str, int] = {}
        for position, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "text" or not isinstance(kind, str):
                continue
            if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
                self.tool_blocks = self.tool_blocks or kind == "tool_use"
                found = str(block.get("id"))
                if found in self.ids:
                    self.add(f"messages.{index}.content.{position}", f"`{kind}` ids must be unique: {found}")
                self.ids.add(found)
                if kind == "tool_use":
                    pending.append(found)
                else:
                    open_server[found] = position
            elif kind.endswith("_tool_result") and open_server.pop(str(block.get("tool_use_id")), None) is None:
                self.add(
                    f"messages.{index}.content.{position}",
                    f"unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}",
                )
        for found, position in open_server.items():
            if not (is_last and position == len(blocks) - 1):
                self.add(f"messages.{index}.content.{position}", f"`server_tool_use` without its result: {found}")
        if blocks and blocks[-1].get("type") in _THINKING:
            self.add(f"messages.{index}", "The final block in an assistant message cannot be `thinking`.")
        return pending

    def prefill(self, content: Any) -> None:
        if is_list(content):
            ending = content[-1] if content else None
            content = ending.get("text") if is_object(ending) and ending.get("type") == "text" else None
        if isinstance(content, str) and content != content.rstrip():
            self.add("messages", "final assistant content cannot end with trailing whitespace")

    def totals(self, request: Mapping[str, Any]) -> None:
        """Check the limits of the whole request: declared tools, images and breakpoints."""
        if self.tool_blocks and not request.get("tools"):
            self.add("", "Requests which include `tool_use` or `tool_result` blocks must define tools")
        if self.images > self.limits.max_images:
            self.add("messages", f"Too much media: {self.images} images > {self.limits.max_images}")
        if request.get("cache_control") is not None:
            self.marks.append(("cache_control", request["cache_control"]))
        if len(self.marks) > self.limits.max_breakpoints:
            maximum = self.limits.max_breakpoints
            self.add("", f"A maximum of {maximum} blocks with cache_control may be provided. Found {len(self.marks)}.")
        short = False
        for path, mark in self.marks:
            ttl = mark.get("ttl", "5m") if is_object(mark) else None
            if not is_object(mark) or mark.get("type") != "ephemeral" or not mark.keys() <= {"type", "ttl"}:
                self.add(f"{path}.cache_control", "Input should be {'type': 'ephemeral', 'ttl': '5m' or '1h'}")
            elif ttl not in ("5m", "1h"):
                self.add(f"{path}.cache_control.ephemeral.ttl", "Input should be '5m' or '1h'")
            elif ttl == "1h" and short:
                self.add(
                    f"{path}.cache_control.ttl",
                    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that "
                    "blocks are processed in the following order: `tools`, `system`, `messages`.",
                )
            short = short or ttl == "5m"
