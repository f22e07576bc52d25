"""A session of an own loop on an enforcing provider, for tests of preserved thinking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enforcing_model import EnforcingModel, enforcing_provider
from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import decision_of
from reverie.conversation.entries import Entry
from reverie.conversation.log import parse_log
from reverie.errors import ThinkingRefused
from reverie.settings import Switches

CHECKED = "claude-opus-5-5"
FREE = "claude-sonnet-5"
MODELS = (CHECKED, FREE, "claude-fable-5-1", "claude-opus-5", "claude-sonnet-4-5")
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}
GREP = {"name": "Grep", "description": "Search.", "input_schema": {"type": "object", "properties": {}}}
SYSTEM = "Be brief.\nUse the tools."
SHOWN = {"type": "adaptive", "display": "summarized"}


class Desk:
    """A session of an own loop on an enforcing provider; the storage outlives the session."""

    def __init__(self, *, window: int = 60_000, provider_window: int | None = None, **settings: Any) -> None:
        self.provider = enforcing_provider(provider_window or window, MODELS)
        self.storage = InMemoryStorage()
        self.turns = 0
        self.models = {name: EnforcingModel(name, self.provider, self.script, clock=lambda: 0.0) for name in MODELS}
        quiet = Switches(notes=False, extraction=False, dream=False)
        self.settings = Settings(home=Path("nowhere"), window_tokens=window, switches=quiet, **settings)
        self.calls = True

    def script(self, request: dict[str, Any]) -> Any:
        if request.get("compaction") is not None:
            return "The summary."
        self.turns += 1
        content: list[dict[str, Any]] = [{"type": "thinking", "thinking": f"Thought {self.turns}."}]
        if self.calls and self.turns % 2:
            return [*content, {"type": "tool_use", "id": f"toolu_{self.turns}", "name": "Read", "input": {}}]
        return [*content, {"type": "text", "text": f"Answer {self.turns}."}]

    def session(self, model: str | None = CHECKED) -> Session:
        given = self.models[model] if model is not None else None
        return Session.open("desk", storage=self.storage, settings=self.settings, clock=lambda: 0.0, model=given)

    async def ask(self, session: Session, words: str, model: str = CHECKED, size: int = 50, **options: Any) -> None:
        """Say something and answer calls until the model calls no tool; one repair is tried."""
        await session.say(words)
        shown = {"type": "adaptive", "display": "summarized"}  # without it the words of thinking are empty
        given: dict[str, Any] = {"system": SYSTEM, "tools": [READ], "thinking": shown, **options}
        while True:
            request = await session.prepare(model=model, max_tokens=500, **given)
            try:
                reply = await self.models[model].complete(request)
            except ThinkingRefused as error:
                if not await session.recover(error):
                    raise
                continue
            calls = await session.observe(reply.body)
            for call in calls:
                await session.result(call.id, f"line {call.id} " * size)
            if not calls:
                return

    @property
    def refusals(self) -> list[str]:
        return [one for model in self.models.values() for one in model.refusals]

    def requests(self, model: str = CHECKED) -> list[dict[str, Any]]:
        return [one for one in self.models[model].requests if one.get("compaction") is None]

    def entries(self) -> list[Entry]:
        key = next(key for key in self.storage.list("") if key.endswith("desk.jsonl"))
        return parse_log(self.storage.load(key) or b"").entries

    def decisions(self, kind: type[Any]) -> list[Any]:
        found = (decision_of(entry.body) for entry in self.entries() if entry.kind == "decision")
        return [one for one in found if isinstance(one, kind)]


def thoughts(request: dict[str, Any]) -> list[str]:
    """Return the thinking in a request, in order."""
    contents = [message["content"] for message in request["messages"] if isinstance(message["content"], list)]
    blocks = [block for content in contents for block in content]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]
