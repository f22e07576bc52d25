"""A model that thinks in all three forms: readably, without words, and unreadably."""

from __future__ import annotations

from typing import Any

__all__ = ["ThinkingModel"]


class ThinkingModel:
    """Plays a model that thinks, and calls the newest tool of a request ``reads`` times for each prompt."""

    def __init__(self, reads: int) -> None:
        self.reads = reads
        self.replies = 0

    def reply(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        turn, self.replies = self.replies, self.replies + 1
        thoughts = [
            {"type": "thinking", "thinking": f"Thought {turn}."},
            {"type": "thinking", "thinking": ""},
            {"type": "redacted_thinking"},
        ]
        answer: dict[str, Any] = {"type": "text", "text": f"Answer {turn}."}
        if turn % (self.reads + 1) < self.reads:
            name = request["tools"][-1]["name"]
            answer = {"type": "tool_use", "id": f"toolu_{turn:04}", "name": name, "input": {"path": f"{turn}.txt"}}
        return [thoughts[turn % 3], answer]
