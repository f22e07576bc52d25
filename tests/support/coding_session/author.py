"""Write the entries of an invented session, with a clock and a bill."""

from __future__ import annotations

from random import Random
from typing import Any, Final
from uuid import UUID

from reverie.conversation.decisions import Cause, Compacted, body_of
from reverie.conversation.entries import ASSISTANT, DECISION, META, USER, Entry, iso
from reverie.conversation.tokens.estimate import estimate_block, estimate_request
from reverie.model_facts import default_model
from reverie.schemas import LOG
from reverie.values import record

from . import phrases
from .project import ROOT

MODEL: Final = default_model("demo")
START: Final = 1_772_440_860.0  # a Monday morning in March 2026
_CACHE_SECONDS: Final = 300.0
_PREFIX: Final = estimate_request([], system=phrases.SYSTEM, tools=phrases.TOOLS)


@record
class InventedCall:
    """A tool call with its result and its duration."""

    name: str
    input: dict[str, Any]
    result: str
    seconds: float = 0.4
    failed: bool = False


class SessionAuthor:
    """The entries of an invented session, as an importer writes them: one per block, linked to the one before."""

    def __init__(self, rng: Random, title: str, compact_at: int | None) -> None:
        self.rng = rng
        self.compact_at = compact_at
        self.clock = START
        self.session = self._uuid()
        self.entries: list[Entry] = []
        self.total = 0
        self.asked: list[str] = []
        self.edited: list[str] = []
        self._context = 0
        self._cached = 0
        self._sent_at = 0.0
        self._last_message: str | None = None
        body = {"schema": LOG, "title": title, "model": MODEL, "cwd": ROOT}
        self._add(META, {**body, "source": {"format": "invented", "name": "coding session"}})

    def wait(self, seconds: float) -> None:
        """Advance the session's clock."""
        self.clock += seconds

    def ask(self, text: str) -> None:
        """Add a message of the user and remember its text in ``asked``."""
        self.asked.append(text)
        self._say(USER, {"role": "user", "content": text}, {"type": "text", "text": text})

    def interrupt(self) -> None:
        """Add the user's message that says that the agent was stopped."""
        block = {"type": "text", "text": phrases.INTERRUPTED}
        self._say(USER, {"role": "user", "content": [block]}, block)

    def reply(self, text: str, *calls: InventedCall, stopped: bool = False) -> None:
        """Add a reply and the results of its calls; with ``stopped``, these say that the call did not run."""
        blocks: list[dict[str, Any]] = []
        if self.rng.random() < 0.22:
            thought = self.rng.choice(phrases.THOUGHTS)
            blocks.append({"type": "thinking", "thinking": thought, "signature": f"{self.rng.getrandbits(256):064x}"})
        if text:
            blocks.append({"type": "text", "text": text})
        ids = [f"toolu_{self.rng.getrandbits(72):018x}" for _ in calls]
        for name, call in zip(ids, calls, strict=True):
            blocks.append({"type": "tool_use", "id": name, "name": call.name, "input": call.input})
        self._reply(blocks, "tool_use" if calls else "end_turn")
        for name, call in zip(ids, calls, strict=True):
            self._result(name, call, stopped)

    def compact_if_full(self) -> bool:
        """Add a compaction of the whole history if it exceeds ``compact_at`` tokens; return whether it did."""
        if self.compact_at is None or _PREFIX + self._context <= self.compact_at:
            return False
        before = _PREFIX + self._context
        text = phrases.summary(self.asked, self.edited, self.asked[-1])
        self.wait(self.rng.uniform(25.0, 70.0))
        cause = Cause("compact", "recorded: the window was full", moves_prefix=True)
        self._add(DECISION, body_of(Compacted(cause, "auto", "full", text, before, self._last_message, None)))
        self._context = estimate_block({"type": "text", "text": text})
        self._cached = _PREFIX
        return True

    def _reply(self, blocks: list[dict[str, Any]], stop: str) -> None:
        output = sum(estimate_block(block) for block in blocks)
        reply: dict[str, Any] = {"id": f"msg_{self.rng.getrandbits(72):018x}", "model": MODEL}
        reply |= {"usage": self._usage(output), "stop_reason": stop}
        self.wait(self.rng.uniform(2.0, 12.0) + output / 60)
        for block in blocks:
            self.wait(self.rng.uniform(0.05, 0.4))
            self._say(ASSISTANT, {"role": "assistant", "content": [block]}, block, reply=dict(reply))

    def _result(self, name: str, call: InventedCall, stopped: bool) -> None:
        self.wait(0.2 if stopped else call.seconds)
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": name, "content": call.result}
        if stopped or call.failed:
            block = {**block, "content": phrases.REFUSED if stopped else call.result, "is_error": True}
        self._say(USER, {"role": "user", "content": [block]}, block)

    def _usage(self, output: int) -> dict[str, int]:
        """Return and book the usage of a request, as an append-only agent with a 5-minute cache is billed."""
        whole = _PREFIX + self._context
        live = self.clock - self._sent_at < _CACHE_SECONDS
        read = min(self._cached, whole) if live else 0
        self._cached, self._sent_at = whole, self.clock
        return {
            "input_tokens": 3,
            "cache_creation_input_tokens": whole - read,
            "cache_read_input_tokens": read,
            "output_tokens": output,
        }

    def _say(self, kind: str, message: dict[str, Any], block: dict[str, Any], **more: Any) -> None:
        tokens = estimate_block(block)
        self.total += tokens
        self._context += tokens
        self._last_message = self._add(kind, {"message": message, **more})

    def _add(self, kind: str, body: dict[str, Any]) -> str:
        parent = self.entries[-1].uuid if self.entries else None
        self.entries.append(Entry(self._uuid(), parent, iso(self.clock), self.session, kind, body))
        return self.entries[-1].uuid

    def _uuid(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))
