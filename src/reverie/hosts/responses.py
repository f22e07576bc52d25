"""The answer to a hook in the shape that each host expects, within its size limit. Pure."""

from __future__ import annotations

import json

from ..values import cast, record
from .events import HookEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MAX_CHARS: Final = 10_000
"""Hosts cut off or discard a hook's answer that is longer."""
STEERED: Final = frozenset({"claude-code", "qwen"})
"""Hosts that add the text of a hook before a compaction to the instructions for the summary."""


@record
class HookResponse:
    """The response to an event: text for the model, a replacement for a tool's output, a message for the user.

    Each of ``pieces`` is complete with its own fence; the most important one comes first.
    """

    pieces: tuple[str, ...] = ()
    output: str | None = None
    message: str = ""

    @property
    def context(self) -> str:
        """The text for the model: all pieces, separated by blank lines."""
        return "\n\n".join(self.pieces)


def host_answer(event: HookEvent, response: HookResponse) -> dict[str, Any]:
    """Return the answer as the host documents it; an empty dict if the host takes none for this event."""
    match event.host:
        case "cursor":
            return _cursor(event, response)
        case "claude-code" | "codex" | "gemini" | "qwen" | "opencode":
            return _claude(event, response)


def answer_line(event: HookEvent, response: HookResponse) -> str:
    """Return the answer as one line of JSON; the last pieces are dropped until it fits, at worst it is ``{}``.

    Before a compaction of Claude Code it is plain text, or empty: that host adds all that is printed to its prompt.
    """
    if event.kind == "before_compact" and event.host == "claude-code":
        return response.context if len(response.context) <= MAX_CHARS else ""
    while True:
        text = json.dumps(host_answer(event, response), ensure_ascii=False)
        if len(text) <= MAX_CHARS:
            return text
        if not response.pieces:
            return "{}"
        response = HookResponse(response.pieces[:-1], response.output, response.message)


def _claude(event: HookEvent, response: HookResponse) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if event.kind in ("session_start", "user_prompt", "before_tool", "after_tool", "before_compact"):
        specific: dict[str, Any] = {}
        if response.context:
            specific["additionalContext"] = response.context
        if response.output is not None and event.host == "claude-code":  # Codex lets no hook replace an output
            shaped = with_text(event.output, response.output)
            if shaped is not None:
                specific["updatedToolOutput"] = shaped
        if specific:
            answer["hookSpecificOutput"] = {"hookEventName": event.name, **specific}
    if response.message:
        answer["systemMessage"] = response.message
    return answer


def _cursor(event: HookEvent, response: HookResponse) -> dict[str, Any]:
    match event.kind:
        case "session_start":
            return {"additional_context": response.context} if response.context else {}
        case "user_prompt":
            return {"continue": True}
        case "after_tool":
            answer: dict[str, Any] = {"additional_context": response.context} if response.context else {}
            if response.output is not None and event.tool.upper().startswith("MCP"):
                answer["updated_mcp_tool_output"] = {"content": [{"type": "text", "text": response.output}]}
            return answer
        case _:
            return {}


# -- outputs of tools, in the shapes in which hosts hand them over


def text_of(output: Any) -> str | None:
    """Return the text of a tool's output; None if its shape has no text that could be replaced.

    The output of Claude Code's own tools is left alone: the host saves a big one itself and gives only its beginning.
    """
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        given = cast("dict[str, Any]", output)
        return text_of(given["content"]) if isinstance(given.get("content"), list) else None
    if isinstance(output, list):
        blocks = cast("list[Any]", output)
        texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
        plain = [text for text in texts if isinstance(text, str)]
        return "\n".join(plain) if plain and len(plain) == len(blocks) else None
    return None


def with_text(output: Any, text: str) -> Any:
    """Return a copy of a tool's output in its own shape with another text; None if the shape has no text."""
    if text_of(output) is None:
        return None
    if isinstance(output, str):
        return text
    if isinstance(output, list):
        return [{"type": "text", "text": text}]
    given = cast("dict[str, Any]", output)
    return {**given, "content": [{"type": "text", "text": text}]}
