"""The answer in a reply to a side question: its text, and the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

__all__ = ["CUT", "REFUSAL", "answer_problem", "answer_text"]

REFUSAL: Final = "refusal"
"""The stop reason of a reply that the provider's safety system ended; such a reply is never used."""
CUT: Final = ("max_tokens", "model_context_window_exceeded")
"""The stop reasons of a reply that reached a limit before its end."""


def answer_text(content: Any) -> str:
    """Return the text of a reply's content; content of any other shape has none."""
    if isinstance(content, str):
        return content
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, Mapping))
    said = (block.get("text") for block in texts if block.get("type") == "text")
    return "".join(text for text in said if isinstance(text, str))


def answer_problem(reply: Mapping[str, Any], text: str) -> str:
    """Return the reason why a reply holds no answer, or an empty string; ``text`` is the text of the reply."""
    stopped = reply.get("stop_reason")
    if stopped == REFUSAL:
        details: Any = reply.get("stop_details")
        kind: Any = cast("Mapping[str, Any]", details).get("category") if isinstance(details, Mapping) else None
        return f"the model declined to answer ({kind})" if isinstance(kind, str) else "the model declined to answer"
    if text.strip():
        return ""
    if stopped in CUT:
        return "the reply reached its limit before it had any text"
    return "the model called a tool instead of answering" if stopped == "tool_use" else "the reply has no text"
