"""A coding session as a model that calls tools and as the tools that answer, to drive another framework's loop.

The session is the generated one of ``coding_session``, task by task: reads, searches, test runs, logs, edits, and a
person who pauses. The script answers any request of the loop under test with the next reply,
so that two ways to run the same conversation can be compared by their bills.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coding_session import MODEL, SYSTEM, TOOLS, coding_session
from coding_session.phrases import INTERRUPTED, REFUSED, summary
from reverie.conversation.entries import ASSISTANT, USER
from reverie.conversation.wire.blocks import as_blocks
from reverie.testing.messages_server import ManualClock
from reverie.values import record

__all__ = ["SYSTEM", "TOOLS", "Step", "Task", "ToolScript"]

_TOKENS_A_REPLY: Final = 3_000
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


@record
class Step:
    """One reply: what it says and calls, what the calls return, and when it comes."""

    at: float
    blocks: list[dict[str, Any]]
    results: dict[str, str]
    """What each call returns, by its id."""


@record
class Task:
    """What the person asks, and the replies until it is done."""

    ask: str
    steps: list[Step]


class ToolScript:
    """The model's side and the tools' side of one conversation."""

    model = MODEL

    def __init__(self, seed: int = 1, replies: int = 300, *, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.tasks = _tasks(seed, replies)
        self.sides = 0
        """How many requests without tools were answered: summaries that the loop asked for."""
        self._steps = [step for task in self.tasks for step in task.steps]
        self._said = 0
        self._waiting: dict[bytes, deque[str]] = {}
        self.clock.now = self._steps[0].at

    @property
    def prompts(self) -> list[str]:
        """What the person asks, in order."""
        return [task.ask for task in self.tasks]

    @property
    def said(self) -> int:
        """How many replies were given."""
        return self._said

    def reply(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Answer a request: with the next reply, or with a summary where there are no tools to call."""
        if not request.get("tools"):
            self.sides += 1
            return [{"type": "text", "text": summary(self.prompts[:6], [], self.prompts[0])}]
        step = self._steps[min(self._said, len(self._steps) - 1)]
        self._said += 1
        self.clock.now = max(self.clock.now, step.at)
        for block in step.blocks:
            if block["type"] == "tool_use":
                call = _call(block["name"], block["input"])
                self._waiting.setdefault(call, deque()).append(step.results[block["id"]])
        return step.blocks

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a tool gives for these arguments."""
        waiting = self._waiting.get(_call(name, arguments))
        return waiting.popleft() if waiting else f"{name}: nothing is known of {dict(arguments)}"


def _call(name: str, arguments: Mapping[str, Any]) -> bytes:
    return _encode([name, {key: value for key, value in arguments.items() if value is not None}])


def _tasks(seed: int, replies: int) -> list[Task]:
    """Return the session as tasks with about so many replies in all, each ending in one that calls nothing."""
    tasks: list[Task] = []
    steps: dict[str, Step] = {}
    count = 0
    for entry in coding_session(seed, replies * _TOKENS_A_REPLY, compact_at=None):
        message = entry.message
        if message is None or (entry.kind == USER and count >= replies and _done(tasks[-1])):
            if message is not None:
                break
            continue
        blocks = [block for block in as_blocks(message) if block["type"] != "thinking"]
        if entry.kind == ASSISTANT:
            name = str(entry.reply.get("id"))
            if blocks and name not in steps:
                steps[name] = Step(entry.at, [], {})
                tasks[-1].steps.append(steps[name])
                count += 1
            for block in blocks:
                steps[name].blocks.append(block)
        elif entry.kind == USER:
            _hear(tasks, blocks)
    return [_ended(task) for task in tasks if task.steps]


def _hear(tasks: list[Task], blocks: list[dict[str, Any]]) -> None:
    for block in blocks:
        if block["type"] == "tool_result":
            text = str(block["content"])
            tasks[-1].steps[-1].results[block["tool_use_id"]] = text
            if text == REFUSED:
                tasks[-1].steps.pop()  # what was stopped did not happen
        elif block["text"] != INTERRUPTED:
            tasks.append(Task(block["text"], []))


def _done(task: Task) -> bool:
    return bool(task.steps) and all(block["type"] != "tool_use" for block in task.steps[-1].blocks)


def _ended(task: Task) -> Task:
    if _done(task):
        return task
    last = Step(task.steps[-1].at + 5.0, [{"type": "text", "text": "That is done. I did not run everything."}], {})
    return Task(task.ask, [*task.steps, last])
