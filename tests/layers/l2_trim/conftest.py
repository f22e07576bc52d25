"""Logs with many tool results, for the plans of layer 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from log_script import Script, call, text
from reverie.layers.l2_trim import TrimCandidates, TrimPolicy


class Bench:
    """A script with a call and its result a turn, and the index of what may be cleared."""

    def __init__(self, policy: TrimPolicy | None = None) -> None:
        self.script = Script()
        self.policy = policy or TrimPolicy()
        self.script.user("begin")
        self.serial = 0

    def turn(
        self,
        tool: str = "Bash",
        content: Any = None,
        *,
        id: str = "",
        is_error: bool = False,
        tokens: int = 500,
        **arguments: Any,
    ) -> str:
        """Let the model call a tool and get its result."""
        self.serial += 1
        called = id or f"t{self.serial}"
        self.script.reply(text("Next."), call(called, tool, **arguments), id=f"m{self.serial}")
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": called}
        block["content"] = "word " * tokens if content is None else content
        self.script.user([{**block, "is_error": True} if is_error else block])
        return called

    def turns(self, number: int, tool: str = "Bash", **arguments: Any) -> list[str]:
        """Take several turns alike."""
        return [self.turn(tool, **arguments) for _ in range(number)]

    def parallel(self, number: int, tool: str = "Bash") -> list[str]:
        """Let the model call a tool so many times at once."""
        self.serial += 1
        ids = [f"p{self.serial}_{at}" for at in range(number)]
        self.script.reply(*(call(one, tool) for one in ids), id=f"m{self.serial}")
        self.script.user([{"type": "tool_result", "tool_use_id": one, "content": "word " * 500} for one in ids])
        return ids

    def asked(self) -> Bench:
        """End with something the user says after a reply, so that every result has been sent."""
        self.serial += 1
        self.script.reply(text("Done."), id=f"m{self.serial}")
        self.script.user("And now?")
        return self

    def pending(self) -> TrimCandidates:
        """Return the index of a view, made in one go."""
        index = TrimCandidates(self.policy)
        index.follow(self.script.view)
        return index


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Bench]:
    return Bench
