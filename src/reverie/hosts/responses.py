"""What a host wants to hear back, each in its own shape, and never more than it takes. Pure."""

from __future__ import annotations

import json

from ..values import cast, record
from .events import Moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = ["MAX_CHARS", "Told", "answer_of", "replaced", "text_of", "written"]

MAX_CHARS: Final = 10_000
"""What hosts take of a hook's answer; more is cut off or thrown away by them."""


@record
class Told:
    """What we have to say at a moment: text for the model, another output in place of a tool's, a word to people.

    ``pieces`` are whole in themselves, each with its own fence, the most important first.
    """

    pieces: tuple[str, ...] = ()
    output: str | None = None
    message: str = ""

    @property
    def context(self) -> str:
        """The text for the model."""
        return "\n\n".join(self.pieces)


def answer_of(moment: Moment, told: Told) -> dict[str, Any]:
    """Return the answer as the host documents it; empty where it takes nothing at this moment."""
    match moment.host:
        case "cursor":
            return _cursor(moment, told)
        case "gemini":
            return _gemini(moment, told)
        case "claude-code" | "codex":
            return _claude(moment, told)


def written(moment: Moment, told: Told) -> str:
    """Return the answer as one line of JSON; whole pieces are left out, the least important first, until it fits."""
    while True:
        text = json.dumps(answer_of(moment, told), ensure_ascii=False)
        if len(text) <= MAX_CHARS:
            return text
        if not told.pieces:
            return "{}"
        told = Told(told.pieces[:-1], told.output, told.message)


def _claude(moment: Moment, told: Told) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if moment.kind in ("session_start", "user_prompt", "after_tool"):
        specific: dict[str, Any] = {}
        if told.context:
            specific["additionalContext"] = told.context
        if told.output is not None and moment.host == "claude-code":  # Codex takes no other output
            shaped = replaced(moment.output, told.output)
            if shaped is not None:
                specific["updatedToolOutput"] = shaped
        if specific:
            found["hookSpecificOutput"] = {"hookEventName": moment.event, **specific}
    if told.message:
        found["systemMessage"] = told.message
    return found


def _gemini(moment: Moment, told: Told) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if told.output is not None and moment.kind == "after_tool":
        found = {"decision": "deny", "reason": told.output}  # the host's documented way to replace a result
    elif told.context and moment.kind in ("session_start", "user_prompt", "after_tool"):
        found["hookSpecificOutput"] = {"hookEventName": moment.event, "additionalContext": told.context}
    if told.message:
        found["systemMessage"] = told.message
    return found


def _cursor(moment: Moment, told: Told) -> dict[str, Any]:
    match moment.kind:
        case "session_start":
            return {"additional_context": told.context} if told.context else {}
        case "user_prompt":
            return {"continue": True}
        case "after_tool":
            found: dict[str, Any] = {"additional_context": told.context} if told.context else {}
            if told.output is not None and moment.tool.upper().startswith("MCP"):
                found["updated_mcp_tool_output"] = {"content": [{"type": "text", "text": told.output}]}
            return found
        case _:
            return {}


# -- outputs of tools, in the shapes in which hosts hand them over


def text_of(output: Any) -> str | None:
    """Return the text of a tool's output where its shape is one we could put another text into; None elsewhere."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        given = cast("dict[str, Any]", output)
        if isinstance(given.get("stdout"), str) and not given.get("isImage"):
            both = (given["stdout"], given.get("stderr"))
            return "\n".join(one for one in both if isinstance(one, str) and one)
        if isinstance(given.get("llmContent"), str):
            return given["llmContent"]
        return text_of(given["content"]) if isinstance(given.get("content"), list) else None
    if isinstance(output, list):
        blocks = cast("list[Any]", output)
        texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
        plain = [text for text in texts if isinstance(text, str)]
        return "\n".join(plain) if plain and len(plain) == len(blocks) else None
    return None


def replaced(output: Any, text: str) -> Any:
    """Return the output with another text in its place and its own shape; None where that cannot be done."""
    if text_of(output) is None:
        return None
    if isinstance(output, str):
        return text
    if isinstance(output, list):
        return [{"type": "text", "text": text}]
    given = {name: value for name, value in cast("dict[str, Any]", output).items() if not name.startswith("persisted")}
    if "stdout" in given:
        return {**given, "stdout": text, "stderr": ""}
    if "llmContent" in given:
        return {**given, "llmContent": text}
    return {**given, "content": [{"type": "text", "text": text}]}
