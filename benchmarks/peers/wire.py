"""What a peer is told and what it tells back, as JSON: a conversation, and what it would send of it each turn.

This runs in a peer's own environment, so it imports nothing but the standard library.

An item is one message as frameworks hold them: ``{"role": "user" | "assistant" | "tool", "blocks": [...]}``. A request
is told as ranges of items that are sent as they came, and, by negative numbers, of things the peer made itself.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Play", "clock", "main"]

Item = dict[str, Any]
clock = time.perf_counter_ns


class Play:
    """A conversation to be played, and the record of what a peer made of it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.items: list[Item] = told["items"]
        self.turns: list[int] = told["turns"]
        """How many items there are before each request."""
        self.system: str = told["system"]
        self.tools: list[dict[str, Any]] = told["tools"]
        self.window: int = told["window"]
        self.summary: str = told["summary"]
        """What the scripted model says when it is asked to sum up."""
        self.tells: bool = told.get("tells", True)
        self.asked: list[dict[str, Any]] = []
        self._made: list[Item] = []
        self._known: dict[str, int] = {}
        self._requests: list[dict[str, Any]] = []

    def sum_up(self, prompt: str) -> str:
        """Answer a request for a summary, and remember what was asked."""
        self.asked.append({"turn": len(self._requests), "prompt": prompt})
        return self.summary

    def sent(self, decided: int, built: int, items: list[int | Item]) -> None:
        """Note what would be sent, and the nanoseconds it took to decide on it and to put it into the wire's shape."""
        ranges: list[list[int]] = []
        for item in items if self.tells else []:
            at = item if isinstance(item, int) else self._number(item)
            if ranges and at >= 0 and ranges[-1][1] == at:
                ranges[-1][1] += 1
            else:
                ranges.append([at, at + 1])
        self._requests.append({"decide_us": decided / 1e3, "ready_us": (decided + built) / 1e3, "sent": ranges})

    def _number(self, item: Item) -> int:
        key = json.dumps(item, sort_keys=True)
        if key not in self._known:
            self._made.append(item)
            self._known[key] = -len(self._made)
        return self._known[key]

    def told(self, version: str, settings: str) -> dict[str, Any]:
        """Return the whole record."""
        return {
            "version": version,
            "settings": settings,
            "requests": self._requests,
            "made": self._made,
            "asked": self.asked,
        }


def main(play: Callable[[Play], dict[str, Any]]) -> None:
    """Read a conversation, play it, and write what came of it; paths are the arguments."""
    given, wanted = sys.argv[1:3]
    with open(given, encoding="utf-8") as file:
        told = json.load(file)
    found = play(Play(told))
    with open(wanted, "w", encoding="utf-8") as file:
        json.dump(found, file)
