"""A model that thinks in all three forms (readably, without words, unreadably), and a listener of its session."""

from __future__ import annotations

from typing import Any

from reverie import Session
from reverie.events import DecisionMade, FellBack

__all__ = ["Heard", "ThinkingModel"]


class Heard:
    """The decisions and the fallbacks of a session; ``but`` names kinds of fallbacks that are left out."""

    def __init__(self, session: Session, *but: str) -> None:
        self.events: list[Any] = []
        self.but = but
        session.listen(self.events.append)

    def decisions(self, kind: Any) -> list[Any]:
        made = [one.decision for one in self.events if isinstance(one, DecisionMade)]
        return [one for one in made if isinstance(one, kind)]

    @property
    def fallbacks(self) -> list[str]:
        told = [one for one in self.events if isinstance(one, FellBack) and one.what not in self.but]
        return [f"{one.what}: {one.why}" for one in told]


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
            name = [tool["name"] for tool in request["tools"] if tool["name"] != "expand"][-1]
            answer = {"type": "tool_use", "id": f"toolu_{turn:04}", "name": name, "input": {"path": f"{turn}.txt"}}
        return [thoughts[turn % 3], answer]
