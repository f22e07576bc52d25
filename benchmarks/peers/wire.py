"""The input and output of a peer as JSON: a conversation, and the requests it would send, turn by turn.

This runs in a peer's own environment, so it imports only the standard library.

An item is one message as frameworks hold it: ``{"role": "user" | "assistant" | "tool", "blocks": [...]}``. A request
is a list of ranges of unchanged items and, with negative numbers, of items that the peer made itself.
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
    """A conversation to play, and the record of the peer's requests."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.items: list[Item] = told["items"]
        self.turns: list[int] = told["turns"]
        """How many items there are before each request."""
        self.system: str = told["system"]
        self.tools: list[dict[str, Any]] = told["tools"]
        self.window: int = told["window"]
        self.summary: str = told["summary"]
        """The scripted model's answer to a request for a summary."""
        self.tells: bool = told.get("tells", True)
        self.asked: list[dict[str, Any]] = []
        self._made: list[Item] = []
        self._known: dict[str, int] = {}
        self._requests: list[dict[str, Any]] = []

    def sum_up(self, prompt: str) -> str:
        """Answer a request for a summary, and record the request."""
        self.asked.append({"turn": len(self._requests), "prompt": prompt})
        return self.summary

    def sent(self, decided: int, built: int, items: list[int | Item]) -> None:
        """Record a request, and the nanoseconds it took to decide on it and to convert it to the wire format."""
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
    """Read a conversation, play it, and write the record; paths are the arguments."""
    given, wanted = sys.argv[1:3]
    with open(given, encoding="utf-8") as file:
        told = json.load(file)
    found = play(Play(told))
    with open(wanted, "w", encoding="utf-8") as file:
        json.dump(found, file)
