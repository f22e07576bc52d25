"""Compaction on demand: the signed block, its place in later requests, and the reply that carries it.

Pages: build-with-claude/compaction-on-demand, compaction-keep-recent-turns, compaction-thinking-blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from ...model_facts import ModelFacts
from .prefix import Origin, Prefix, content_blocks, is_threshold_summary
from .refusals import ProviderRefusal
from .signatures import CompactionRecord, is_text_of, open_seal, sealed, text_mark

COMPACTION_BETA: Final = "compact-2026-09-04"
SUMMARY_PROMPT: Final = "Summarize the conversation so far, so that it can be continued from the summary alone."
_SHOWN_CHARS: Final = 60
_TOOL_CHANGES: Final = ("tool_addition", "tool_removal")
Block: TypeAlias = "dict[str, Any]"
_encode = msgspec.json.Encoder(order="deterministic").encode
THRESHOLD_BETA: Final = "compact-2026-01-12"
_EDIT: Final = "compact_20260112"
_DEFAULT_TRIGGER_TOKENS: Final = 150_000
Request: TypeAlias = "dict[str, Any]"


def check_summarized(body: Mapping[str, Any]) -> None:
    """Raise ``ProviderRefusal`` for a request for a summary without content, or with a call that waits for a result."""
    if body.get("compaction") is None:
        return
    spoken = [message for message in body["messages"] if message["role"] != "system"]
    if not any(content_blocks(message["content"]) for message in spoken):
        words = "compaction: `messages` has no user or assistant content to summarize"
        raise ProviderRefusal(400, words, code="compaction_nothing_to_summarize")
    last = spoken[-1]
    if last["role"] == "assistant" and any(
        block.get("type") == "tool_use" for block in content_blocks(last["content"])
    ):
        words = "compaction: the last assistant turn is not finished"
        raise ProviderRefusal(400, words, code="compaction_incomplete_turn")


def origin_of(body: Mapping[str, Any]) -> Origin | None:
    """Return the messages that a signed block at the front replaces; raise ``ProviderRefusal`` if it was changed."""
    first = content_blocks(body["messages"][0]["content"])[:1]
    if not first or first[0].get("type") != "compaction" or not first[0].get("signature"):
        return None
    block, path = first[0], "messages.0.content.0"
    record = open_seal(block.get("signature"), CompactionRecord)
    if record is None:
        words = f"{path}: Invalid `signature` in `compaction` block"
        raise ProviderRefusal(400, words, code="compaction_signature_invalid")
    if not is_text_of(block["content"], record.text):
        words = f"{path}: the `content` of the `compaction` block was changed"
        raise ProviderRefusal(400, words, code="compaction_content_mismatch")
    if not is_text_of(_changes_text(block.get("tool_changes")), record.tool_changes):
        words = f"{path}: the `tool_changes` of the `compaction` block were changed"
        raise ProviderRefusal(400, words, code="compaction_tool_changes_mismatch")
    return Origin(block["signature"], record.chains, record.opening, record.last_role)


def signed_summary(text: str, body: Mapping[str, Any], prefix: Prefix, facts: ModelFacts) -> Block:
    """Return the compaction block for a summary of the request's messages.

    Thinking kept behind it stays valid only if the model that wrote it preserves thinking.
    """
    changes = _tool_changes(body)
    record = CompactionRecord(
        text=text_mark(text),
        tool_changes=text_mark(_changes_text(changes)),
        chains=prefix.chains if facts.checks_thinking else (),
        opening=prefix.opening,
        last_role=prefix.last_role,
    )
    block: Block = {"type": "compaction", "content": text, "signature": sealed(record)}
    return {**block, "tool_changes": changes} if changes else block


def _tool_changes(body: Mapping[str, Any]) -> list[Block]:
    """Return the last change of each tool in the summarised messages, those of an earlier summary included."""
    latest: dict[str, Block] = {}
    for message in body["messages"]:
        for block in content_blocks(message["content"]):
            changes = block.get("tool_changes") or [] if block.get("type") == "compaction" else [block]
            for change in changes:
                if change.get("type") in _TOOL_CHANGES:
                    tool: Any = change["tool"]
                    name = str(tool.get("name") or tool["definition"]["name"])
                    latest.pop(name, None)
                    latest[name] = {"type": change["type"], "tool": tool}
    return list(latest.values())


def _changes_text(changes: Any) -> str:
    return _encode(list(changes or ())).decode()


def listed_messages(body: Mapping[str, Any]) -> str:
    """Return the default summary: a line for each block of the messages, with its kind and its first words."""
    lines = [
        f"- {message['role']} {block.get('type')}: {_shown(block)}"
        for message in body["messages"]
        for block in content_blocks(message["content"])
        if "thinking" not in str(block.get("type"))
    ]
    return "\n".join(["Summary of the conversation:", *lines])


def _shown(block: Mapping[str, Any]) -> str:
    said = next((block[name] for name in ("text", "content", "input", "name") if block.get(name)), "")
    text = said if isinstance(said, str) else _encode(said).decode()
    return " ".join(text.split())[:_SHOWN_CHARS]


def reached_threshold(body: Mapping[str, Any], tokens: int) -> Mapping[str, Any] | None:
    """Return the edit by which a request with so many input tokens is summarised first; None if none asks for it."""
    declared: Any = body.get("context_management") or {}
    edit = next((one for one in declared.get("edits") or () if one["type"] == _EDIT), None)
    if edit is None or body["max_tokens"] == 0:
        return None
    return edit if tokens >= (edit.get("trigger") or {"value": _DEFAULT_TRIGGER_TOKENS})["value"] else None


def from_summary(request: Request) -> Request:
    """Return a request from its newest summary on; a summary that failed is left out."""
    messages: list[Any] = []
    for message in request["messages"]:
        content = message["content"]
        if not isinstance(content, str) and any(block.get("type") == "compaction" for block in content):
            newest = max((at for at, block in enumerate(content) if is_threshold_summary(block)), default=-1)
            messages = messages if newest < 0 else []
            kept = [block for block in content[max(0, newest) :] if not _is_failed(block)]
            message = {**message, "content": kept}
        messages.append(message)
    return {**request, "messages": messages}


def summary_block(text: str | None) -> Block:
    """Return the block of a summary; None is a summary that failed."""
    return {"type": "compaction", "content": text}


def continued_request(request: Request, block: Block) -> Request:
    """Return the request that the model answers after the summary; one that failed changes nothing."""
    return {**request, "messages": [{"role": "assistant", "content": [block]}]} if block["content"] else request


def _is_failed(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "compaction" and block.get("content") is None
