"""A session's log with layer 1 applied to every result, as in a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from log_script import call
from reverie.conversation.decisions import Decision
from reverie.conversation.entries import ASSISTANT, USER
from reverie.conversation.view import View
from reverie.layers.l1_offload import OffloadPolicy, OffloadResult, ResultStore, offload_aggregate, offload_result
from reverie.ports import Storage
from reverie.runtime.session.offload.read_back import ReadBack
from reverie.runtime.session.writer import LogWriter
from reverie.storage.in_memory import InMemoryStorage

FOLDER = "projects/app-1a2b/s"


class Desk:
    """A log, its writer, and layer 1 on the way in and on the way out."""

    def __init__(self, storage: Storage | None = None, policy: OffloadPolicy | None = None) -> None:
        self.storage = storage or InMemoryStorage()
        self.policy = policy or OffloadPolicy()
        self.folder = FOLDER
        self.writer = LogWriter(InMemoryStorage(), f"{FOLDER}.jsonl", "s")
        self.writer.open()
        self.fallbacks: list[str] = []
        self.replies = 0
        self.say("begin")

    @property
    def view(self) -> View:
        return self.writer.view

    def say(self, text: str) -> str:
        return self.writer.append(USER, {"message": {"role": "user", "content": text}}).uuid

    def ask(self, *ids: str, tool: str = "Bash") -> str:
        """Let the model call a tool so many times at once."""
        self.replies += 1
        message = {"role": "assistant", "content": [call(id, tool) for id in ids]}
        return self.writer.append(ASSISTANT, {"message": message, "reply": {"id": f"m{self.replies}"}}).uuid

    def give(self, id: str, output: Any, *, tool: str = "Bash") -> OffloadResult:
        """Take a result in."""
        made = offload_result(ResultStore(self.storage, self.folder), tool, id, output, self.policy, self.view)
        self.log(made.before)
        block = {"type": "tool_result", "tool_use_id": id, "content": made.content}
        self.writer.append(USER, {"message": {"role": "user", "content": [block]}})
        return self.heard(made)

    def send(self) -> OffloadResult:
        """Make the message ready to be sent."""
        made = offload_aggregate(ResultStore(self.storage, self.folder), self.view, self.policy)
        self.log(made.before)
        return self.heard(made)

    def heard(self, made: OffloadResult) -> OffloadResult:
        self.fallbacks += [made.fallback] if made.fallback else []
        return made

    def log(self, decisions: tuple[Decision, ...]) -> None:
        self.writer.decide(decisions)

    def shown(self, id: str) -> Any:
        """Return what the model is shown of a result."""
        for message in self.view.messages():
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("tool_use_id") == id:
                    return block["content"]
        return None

    def back(self) -> ReadBack:
        return ReadBack(Both(self.storage, self.writer), self.folder, self.view)

    def log_bytes(self) -> bytes:
        return self.writer._storage.load(f"{FOLDER}.jsonl") or b""


class Both:
    """Results from one store, the log from another, so that faults hit only the first."""

    def __init__(self, storage: Storage, writer: LogWriter) -> None:
        self.read, self.list = storage.read, storage.list
        self.load = writer._storage.load


@pytest.fixture(scope="session")
def make_desk() -> Callable[..., Desk]:
    return Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()
