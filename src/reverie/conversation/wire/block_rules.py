"""The provider's rules for single content blocks, by kind and role.

Each rule checks one block by itself and returns the first fault as (path inside the block, message), or None.
Rules between blocks (pairs, order, counts) are in ``validate``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeGuard

from ...values import field, record

Fault: TypeAlias = "tuple[str, str]"
Block: TypeAlias = "dict[str, Any]"

EXTRA: Final = "Extra inputs are not permitted"
IDENTIFIER: Final = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGE_MEDIA: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_OBJECT: Final = "Input should be a valid dictionary"
_STRING: Final = "Input should be a valid string"


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Say whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Say whether a value is a list or a tuple, which JSON sends as an array."""
    return isinstance(value, (list, tuple))


def unknown_tag(kind: Any) -> str:
    """Return the provider's message for a ``type`` that it does not know."""
    return f"Input tag {kind!r} found using 'type' does not match any of the expected tags"


def text_fault(text: Any) -> str | None:
    """Return a message about the fault of a block's text, or None if the text is valid."""
    if not isinstance(text, str):
        return _STRING
    if not text:
        return "text content blocks must be non-empty"
    return "text content blocks must contain non-whitespace text" if text.isspace() else None


def _text(block: Block) -> Fault | None:
    message = text_fault(block["text"])
    if message is None:
        return None
    if block.get("cache_control") is not None and not block["text"]:
        return "", "cache_control cannot be set for empty text blocks"
    return "text", message


def _thinking(block: Block) -> Fault | None:
    if not isinstance(block["thinking"], str):
        return "thinking", _STRING
    if not isinstance(block["signature"], str):
        return "signature", _STRING
    return None if block["signature"] else ("", "Invalid `signature` in `thinking` block")


def _redacted(block: Block) -> Fault | None:
    data = block["data"]
    return None if isinstance(data, str) and data else ("data", "Invalid `data` in `redacted_thinking` block")


def _use(block: Block) -> Fault | None:
    name, found = block["name"], block["id"]
    if not (isinstance(found, str) and IDENTIFIER.fullmatch(found)):
        return "id", f"String should match pattern '^{IDENTIFIER.pattern}$'"
    if not (isinstance(name, str) and TOOL_NAME.fullmatch(name)):
        return "name", f"String should match pattern '^{TOOL_NAME.pattern}$'"
    return None if is_object(block["input"]) else ("input", _OBJECT)


def _result(block: Block) -> Fault | None:
    found, content = block["tool_use_id"], block.get("content")
    if not (isinstance(found, str) and IDENTIFIER.fullmatch(found)):
        return "tool_use_id", f"String should match pattern '^{IDENTIFIER.pattern}$'"
    failed = block.get("is_error")
    if not (failed is None or isinstance(failed, bool)):
        return "is_error", "Input should be a valid boolean"
    if failed and not content:
        return "", "content cannot be empty if `is_error` is true"
    if content is None or isinstance(content, str):
        return None
    if not is_list(content):
        return "content", "Input should be a valid string or list"
    for index, inner in enumerate(content):
        fault = block_fault(inner, "tool_result")
        if fault is not None:
            return _join(f"content.{index}", fault)
        if failed and inner["type"] != "text":
            return "", "all content must be type `text` if `is_error` is true"
    return None


def _server_result(block: Block) -> Fault | None:
    found = block["tool_use_id"]
    if not (isinstance(found, str) and IDENTIFIER.fullmatch(found)):
        return "tool_use_id", f"String should match pattern '^{IDENTIFIER.pattern}$'"
    return None


def _image(block: Block) -> Fault | None:
    source = block["source"]
    return ("source", _OBJECT) if not is_object(source) else _source(source, ("base64", "url", "file"), _IMAGE_MEDIA)


def _document(block: Block) -> Fault | None:
    source = block["source"]
    if not is_object(source):
        return "source", _OBJECT
    kind = source.get("type")
    if kind == "text":
        data = source.get("data")
        return None if isinstance(data, str) and data else ("source.text.data", "Field required")
    if kind == "content":
        content = source.get("content")
        return None if content and (isinstance(content, str) or is_list(content)) else ("source", "Field required")
    return _source(source, ("base64", "url", "file"), ("application/pdf",))


_SOURCE_KEYS: Final = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}


def _source(source: Block, kinds: tuple[str, ...], media: tuple[str, ...]) -> Fault | None:
    kind = source.get("type")
    if kind not in kinds:
        return "source", unknown_tag(kind)
    wanted = _SOURCE_KEYS[kind]
    for name in wanted:
        value = source.get(name)
        if not (isinstance(value, str) and value):
            return f"source.{kind}.{name}", "Field required" if name not in source else _STRING
    if kind == "base64" and source["media_type"] not in media:
        return "source.base64.media_type", "Input should be " + " or ".join(repr(name) for name in media)
    for name in source:
        if name != "type" and name not in wanted:
            return f"source.{kind}.{name}", EXTRA
    return None


def _search_result(block: Block) -> Fault | None:
    content = block["content"]
    if not (is_list(content) and content):
        return "content", "Input should be a non-empty list of text blocks"
    for index, inner in enumerate(content):
        fault = block_fault(inner, "search_result")
        if fault is not None:
            return _join(f"content.{index}", fault)
    return None


def _compaction(block: Block) -> Fault | None:
    content, signature = block["content"], block.get("signature")
    if not (content is None or isinstance(content, str)):
        return "content", _STRING
    if content == "" or (signature and content is None):
        return "content", "String should have at least 1 character"
    return None if signature is None or isinstance(signature, str) else ("signature", _STRING)


_CHANGED_TOOLS: Final = {
    "tool_reference": ("name",),
    "mcp_tool_reference": ("server_name", "name"),
    "mcp_toolset_reference": ("server_name",),
    "tool_definition": ("definition",),
}


def _tool_addition(block: Block) -> Fault | None:
    tool = block["tool"]
    kind = tool.get("type") if is_object(tool) else None
    wanted = _CHANGED_TOOLS.get(kind) if isinstance(kind, str) else None
    if not is_object(tool) or wanted is None:
        return "tool", unknown_tag(kind)
    for name in wanted:
        if not (is_object(tool.get(name)) if name == "definition" else isinstance(tool.get(name), str)):
            return f"tool.{kind}.{name}", "Field required" if name not in tool else "Input should be of another type"
    extra = sorted(str(name) for name in tool if name != "type" and name not in wanted)
    return (f"tool.{kind}.{extra[0]}", EXTRA) if extra else None


def _tool_removal(block: Block) -> Fault | None:
    tool = block["tool"]
    if is_object(tool) and tool.get("type") == "tool_definition":
        return "tool", unknown_tag("tool_definition")
    return _tool_addition(block)


def _cache_edits(block: Block) -> Fault | None:
    ids = block["tool_use_ids"]
    if not (is_list(ids) and ids and all(isinstance(item, str) and IDENTIFIER.fullmatch(item) for item in ids)):
        return "tool_use_ids", "Input should be a non-empty list of tool use ids"
    return None


def _anything(block: Block) -> Fault | None:
    return None


def _join(prefix: str, fault: Fault) -> Fault:
    return (f"{prefix}.{fault[0]}" if fault[0] else prefix), fault[1]


@record
class _Rule:
    roles: frozenset[str]
    required: frozenset[str]
    allowed: frozenset[str]
    check: Callable[[Block], Fault | None] = field(default=_anything)


def _rule(roles: str, required: str, optional: str, check: Callable[[Block], Fault | None] = _anything) -> _Rule:
    needed = frozenset(required.split())
    return _Rule(frozenset(roles.split()), needed, frozenset(("type", *needed, *optional.split())), check)


_MARK = "cache_control"
_SERVER_RESULTS: Final = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "advisor_tool_result",
)
_RULES: Final[dict[str, _Rule]] = {
    "text": _rule(
        "user assistant tool_result search_result system system_message", "text", "cache_control citations", _text
    ),
    "image": _rule("user tool_result", "source", "cache_control transformations", _image),
    "document": _rule("user tool_result", "source", "cache_control citations context title", _document),
    "search_result": _rule("user tool_result", "content source title", "cache_control citations", _search_result),
    "tool_reference": _rule("tool_result", "tool_name", _MARK),
    "browser_state": _rule("tool_result", "tabs", "cache_control state_changes"),
    "container_upload": _rule("user", "file_id", _MARK),
    "tool_result": _rule("user", "tool_use_id", "content is_error cache_control toolset_name", _result),
    "tool_use": _rule("assistant", "id name input", "cache_control caller toolset_name", _use),
    "server_tool_use": _rule("assistant", "id name input", "cache_control caller", _use),
    "mcp_tool_use": _rule("assistant", "id name input server_name", _MARK, _use),
    "mcp_tool_result": _rule("assistant", "tool_use_id", "content is_error cache_control", _server_result),
    "thinking": _rule("assistant", "thinking signature", "", _thinking),
    "redacted_thinking": _rule("assistant", "data", "", _redacted),
    "compaction": _rule(
        "user assistant", "content", "cache_control encrypted_content signature tool_changes", _compaction
    ),
    "mcp_tool_listing": _rule("assistant", "mcp_server_name tools", ""),
    "tool_addition": _rule("system_message", "tool", _MARK, _tool_addition),
    "tool_removal": _rule("system_message", "tool", _MARK, _tool_removal),
    "fallback": _rule("assistant", "to", "from trigger"),
    **dict.fromkeys(_SERVER_RESULTS, _rule("assistant", "tool_use_id content", "cache_control caller", _server_result)),
    "cache_edits": _rule("user", "tool_use_ids", "", _cache_edits),
}


def block_fault(block: Any, role: str, cache_edits: bool = False) -> Fault | None:
    """Return the first fault of one content block as (path, message), or None if it is valid.

    ``role`` is the block's place: user, assistant, system, system_message, tool_result or search_result.
    ``cache_edits`` allows blocks that edit the provider's cache.
    """
    if not is_object(block):
        return "", _OBJECT
    kind = block.get("type")
    if not isinstance(kind, str):
        return "", unknown_tag(kind)
    fault = _shape_fault(kind, role, tuple(block), cache_edits)
    if fault is not None:
        return fault
    fault = _RULES[kind].check(block)
    if fault is None or fault[1].startswith("Invalid `signature`"):
        return fault
    return _join(kind, fault)


# Traffic consists of few shapes, so each is checked once and cached.
@lru_cache(maxsize=512)
def _shape_fault(kind: str, role: str, names: tuple[str, ...], cache_edits: bool) -> Fault | None:
    rule = _RULES.get(kind)
    if rule is None or (kind == "cache_edits" and not cache_edits):
        return "", unknown_tag(kind)
    if role not in rule.roles:
        return "", f"`{kind}` blocks are not allowed in {role} content"
    lacking = sorted(rule.required.difference(names))
    if lacking:
        return f"{kind}.{lacking[0]}", "Field required"
    extra = sorted(str(name) for name in names if name not in rule.allowed)
    return (f"{kind}.{extra[0]}", EXTRA) if extra else None
