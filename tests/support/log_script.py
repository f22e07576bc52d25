"""Write a log by hand, for tests."""

from __future__ import annotations

from typing import Any

from reverie.conversation.decisions import Decision, body_of
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, iso
from reverie.conversation.view import View

__all__ = ["Script", "call", "text"]


class Script:
    """A log written by hand, entry by entry; each method returns the entry's uuid."""

    def __init__(self, *, start: float = 1_767_225_600.0) -> None:
        self.entries: list[Entry] = []
        self.clock = start

    def add(self, kind: str, body: dict[str, Any]) -> str:
        """Add any entry, a second after the last."""
        uuid = f"e{len(self.entries)}"
        self.clock += 1.0
        parent = self.entries[-1].uuid if self.entries else None
        self.entries.append(Entry(uuid, parent, iso(self.clock), "script", kind, body))
        return uuid

    def user(self, content: Any) -> str:
        """Add something the user says."""
        return self.add(USER, {"message": {"role": "user", "content": content}})

    def reply(self, *blocks: Any, id: str | None = None, usage: dict[str, int] | None = None) -> str:
        """Add a reply of these blocks."""
        reply: dict[str, Any] = {"id": id or f"m{len(self.entries)}", "model": "claude-test"}
        if usage is not None:
            reply["usage"] = usage
        return self.add(ASSISTANT, {"message": {"role": "assistant", "content": list(blocks)}, "reply": reply})

    def result(self, called: str, content: Any = "output", *, is_error: bool = False) -> str:
        """Add the result of a call."""
        block = {"type": "tool_result", "tool_use_id": called, "content": content}
        return self.user([{**block, "is_error": True} if is_error else block])

    def decide(self, decision: Decision) -> str:
        """Add a decision."""
        return self.add(DECISION, body_of(decision))

    @property
    def view(self) -> View:
        """The view of all that was written."""
        return View().fold_all(self.entries)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of that view."""
        return self.view.messages()


def call(id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def text(words: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": words}
