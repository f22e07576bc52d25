"""A believable coding session of our own making, for the demo and for tests.

An invented freight service, an agent that reads, searches, runs tests and edits, and a person who asks, interrupts
and goes to lunch. Everything follows from the seed.
"""

from __future__ import annotations

from random import Random
from typing import Final

from ...conversation.entries import Entry
from .agent import InventedAgent
from .author import MODEL, SessionAuthor
from .claude_code import as_claude_code_jsonl
from .phrases import SYSTEM, TOOLS

__all__ = ["MODEL", "SYSTEM", "TITLE", "TOOLS", "as_claude_code_jsonl", "coding_session"]

TITLE: Final = "A week on the harbour service"


def coding_session(seed: int = 1, tokens: int = 350_000, *, compact_at: int | None = 160_000) -> list[Entry]:
    """Return a session in which about so many tokens are said.

    Where the window passes ``compact_at`` tokens the past becomes a summary, as agents do; None keeps it whole.
    """
    rng = Random(seed)
    author = SessionAuthor(rng, TITLE, compact_at)
    InventedAgent(rng, author, tokens).work()
    return author.entries
