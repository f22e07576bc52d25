"""Compaction on demand: the signed block, its place in later requests, and the reply that carries it.

Pages: build-with-claude/compaction-on-demand, compaction-keep-recent-turns, compaction-thinking-blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from ...model_facts import ModelFacts
from .prefix import Origin, Prefix
from .refusals import ProviderRefusal
from .signatures import CompactionRecord, is_text_of, open_seal, sealed, text_mark

__all__ = [
    "COMPACTION_BETA",
    "SUMMARY_PROMPT",
    "check_compaction",
    "listed_messages",
    "origin_of",
    "signed_summary",
]

COMPACTION_BETA: Final = "compact-2026-09-04"
SUMMARY_PROMPT: Final = "Summarize the conversation so far, so that it can be continued from the summary alone."
_MAX_INSTRUCTIONS: Final = 16_384
_SHOWN_CHARS: Final = 60
_TOOL_CHANGES: Final = ("tool_addition", "tool_removal")
Block: TypeAlias = "dict[str, Any]"
_encode = msgspec.json.Encoder(order="deterministic").encode


def check_compaction(body: Mapping[str, Any], facts: ModelFacts) -> None:
    """Raise ``ProviderRefusal`` for a ``compaction`` field beside content or options that exclude it."""
    asked = body.get("compaction")
    if asked is None:
        return
    if not facts.compaction:
        raise ProviderRefusal(400, f"compaction: '{body['model']}' does not support compaction")
    for path in _excluded(body):
        raise ProviderRefusal(400, f"{path}: cannot be combined with `compaction`")
    if len(asked.get("instructions") or "") > _MAX_INSTRUCTIONS:
        raise ProviderRefusal(
            400, f"compaction.instructions: String should have at most {_MAX_INSTRUCTIONS} characters"
        )
    spoken = [message for message in body["messages"] if message["role"] != "system"]
    if not any(_blocks(message) for message in spoken):
        raise ProviderRefusal(
            400,
            "compaction: `messages` has no user or assistant content to summarize",
            code="compaction_nothing_to_summarize",
        )
    last = spoken[-1]
    if last["role"] == "assistant" and any(block.get("type") == "tool_use" for block in _blocks(last)):
        raise ProviderRefusal(
            400, "compaction: the last assistant turn is not finished", code="compaction_incomplete_turn"
        )


def _excluded(body: Mapping[str, Any]) -> Iterator[str]:
    output: Any = body.get("output_config") or {}
    budget: Any = output.get("task_budget") or {}
    choice: Any = body.get("tool_choice") or {}
    if body.get("context_management") is not None:
        yield "context_management"
    if body.get("stop_sequences"):
        yield "stop_sequences"
    if output.get("format") is not None:
        yield "output_config.format"
    if budget.get("remaining") is not None:
        yield "output_config.task_budget.remaining"
    if choice.get("type") in ("any", "tool"):
        yield "tool_choice"


def origin_of(body: Mapping[str, Any]) -> Origin | None:
    """Return the messages that the request's compaction block stands for; None without a block.

    Raise ``ProviderRefusal`` for a second block, one that is not first, one with another text, and a broken signature.
    """
    found = [
        (index, position, message["role"], block)
        for index, message in enumerate(body["messages"])
        for position, block in enumerate(_blocks(message))
        if block.get("type") == "compaction" and block.get("content") is not None
    ]
    if not found:
        return None
    index, position, role, block = found[0]
    path = f"messages.{index}.content.{position}"
    if len(found) > 1:
        second = f"messages.{found[1][0]}.content.{found[1][1]}"
        words = f"{second}: `messages` holds more than one `compaction` block; send only the newest"
        raise ProviderRefusal(400, words, code="compaction_block_ambiguous")
    if (index, position) != (0, 0) or role == "system":
        words = f"{path}: a `compaction` block must be the first block in `messages`"
        raise ProviderRefusal(400, words, code="compaction_block_misplaced")
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
        for block in _blocks(message):
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
        for block in _blocks(message)
        if "thinking" not in str(block.get("type"))
    ]
    return "\n".join(["Summary of the conversation:", *lines])


def _shown(block: Mapping[str, Any]) -> str:
    said = next((block[name] for name in ("text", "content", "input", "name") if block.get(name)), "")
    text = said if isinstance(said, str) else _encode(said).decode()
    return " ".join(text.split())[:_SHOWN_CHARS]


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
