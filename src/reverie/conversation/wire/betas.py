"""The beta features that the fields of a request need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...values import record
from .block_rules import EXTRA, is_list, is_object, unknown_tag

_EDITING: Final = "context-management-2025-06-27"
_THRESHOLD: Final = "compact-2026-01-12"
_COMPACTION: Final = "compact-2026-09-04"
_INLINE_TOOLS: Final = "inline-tools-2026-09-15"
_TOOL_CHANGES: Final = "mid-conversation-tool-changes-2026-07-01"
_FALLBACK_LIST: Final = "server-side-fallback-2026-06-01"
_FALLBACK_DEFAULT: Final = "server-side-fallback-2026-07-01"
_MCP: Final = ("mcp-client-2025-11-20", "mcp-client-2025-04-04", "mcp-client-2026-09-15")


@record
class BetaNeed:
    """A field that is refused without one of these betas; the first is the one to send."""

    path: str
    betas: tuple[str, ...]
    message: str = EXTRA


def beta_needs(body: Mapping[str, Any]) -> Iterator[BetaNeed]:
    """Yield the betas that the fields of this body need, in the order of the request."""
    if body.get("context_management") is not None:
        yield from _editing(body["context_management"])
    if body.get("compaction") is not None:
        yield BetaNeed("compaction", (_COMPACTION,), f"requires anthropic-beta: {_COMPACTION}")
    yield from _thinking(body.get("thinking"))
    output = body.get("output_config")
    if is_object(output) and output.get("task_budget") is not None:
        yield BetaNeed("output_config.task_budget", ("task-budgets-2026-03-13",))
    if body.get("mcp_servers"):
        yield BetaNeed("mcp_servers", _MCP)
    fallbacks = body.get("fallbacks")
    if fallbacks is not None:
        yield BetaNeed("fallbacks", (_FALLBACK_DEFAULT if fallbacks == "default" else _FALLBACK_LIST,))
    messages = body.get("messages")
    for index, message in enumerate(messages if is_list(messages) else ()):
        if is_object(message):
            yield from _message(message, f"messages.{index}")


def _editing(management: Any) -> Iterator[BetaNeed]:
    edits = management.get("edits") if is_object(management) else None
    kinds = [edit.get("type") for edit in edits or () if is_object(edit)] if is_list(edits) else []
    thresholds = [index for index, kind in enumerate(kinds) if kind == "compact_20260112"]
    if len(thresholds) < len(kinds) or not kinds:
        yield BetaNeed("context_management", (_EDITING,))
    for index in thresholds:
        yield BetaNeed(f"context_management.edits.{index}", (_THRESHOLD,), unknown_tag("compact_20260112"))


def _thinking(thinking: Any) -> Iterator[BetaNeed]:
    if not is_object(thinking):
        return
    if thinking.get("block_binding") is not None:
        yield BetaNeed(f"thinking.{thinking.get('type')}.block_binding", ("thinking-binding-controls-2026-08-01",))
    if thinking.get("display") == "updates":
        path = f"thinking.{thinking.get('type')}.display"
        said = "Input should be 'summarized' or 'omitted'"
        yield BetaNeed(path, ("thinking-display-updates-2026-08-18",), said)


def _message(message: dict[str, Any], path: str) -> Iterator[BetaNeed]:
    if message.get("role") == "system":
        if message.get("clear_at") is not None:
            yield BetaNeed(f"{path}.clear_at", ("mid-conversation-system-clear-at-2026-08-21",))
        if message.get("output_config") is not None:
            yield BetaNeed(f"{path}.output_config", ("mid-conversation-output-config-2026-07-01",))
    content = message.get("content")
    for index, block in enumerate(content if is_list(content) else ()):
        kind = block.get("type") if is_object(block) else None
        if kind == "compaction":
            # A summary made at a threshold carries no signature.
            beta = _COMPACTION if block.get("signature") else _THRESHOLD
            yield BetaNeed(f"{path}.content.{index}", (beta,), unknown_tag(kind))
        elif kind in ("tool_addition", "tool_removal"):
            yield from _tool_change(block, f"{path}.content.{index}")


def _tool_change(block: dict[str, Any], path: str) -> Iterator[BetaNeed]:
    tool = block.get("tool")
    if not is_object(tool) or tool.get("type") != "tool_definition":
        yield BetaNeed(path, (_TOOL_CHANGES, _INLINE_TOOLS), unknown_tag(block["type"]))
        return
    yield BetaNeed(path, (_INLINE_TOOLS,), unknown_tag(block["type"]))
    definition = tool.get("definition")
    if is_object(definition) and definition.get("type") == "mcp_toolset":
        yield BetaNeed(
            f"{path}.{block['type']}.tool.definition", ("mcp-client-2026-09-15",), unknown_tag("mcp_toolset")
        )
